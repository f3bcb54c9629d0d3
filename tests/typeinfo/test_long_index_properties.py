"""The hash table of integers against a dict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.typeinfo.long_index import LongIndex

SMALL = st.integers(0, 300) | st.sampled_from([4000, 4095, 4096, 5000, 8191, 2**17 - 1, 2**17])
LONGS = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(0, 40).map((1024).__mul__)
)
BATCHES = st.lists(st.lists(LONGS, max_size=60) | st.lists(SMALL, max_size=60), max_size=8)
"""Batches of small keys only are looked up in another way."""


@given(batches=BATCHES)
def test_the_index_finds_what_a_dict_finds(batches: list[list[int]]) -> None:
    index = LongIndex()
    model: dict[int, int] = {}
    for batch in batches:
        keys = np.array(batch, np.int64)
        assert index.find(keys).tolist() == [model.get(key, -1) for key in batch]
        new = list(dict.fromkeys(key for key in batch if key not in model))
        rows = np.arange(len(model), len(model) + len(new))
        index.add(np.array(new, np.int64))
        model |= dict(zip(new, rows.tolist(), strict=True))
        assert index.find(keys).tolist() == [model[key] for key in batch]


@given(batches=st.lists(st.lists(LONGS, max_size=400) | st.lists(SMALL, max_size=400), max_size=8))
def test_the_index_places_each_new_key_once(batches: list[list[int]]) -> None:
    index = LongIndex()
    model: dict[int, int] = {}
    for batch in batches:
        keys = np.array(batch, np.int64)
        first = len(model)
        rows, new = index.place(keys)
        assert (np.diff(new) > 0).all()
        model |= {batch[position]: first + row for row, position in enumerate(new.tolist())}
        assert len(model) == first + len(new)
        assert rows.tolist() == [model[key] for key in batch]
        assert index.keys.tolist() == list(model) and len(index) == len(model)
        assert index.find(keys).tolist() == rows.tolist()


@given(count=st.integers(1, 4000), different=st.integers(1, 4000))
def test_many_rows_of_few_keys_are_placed_among_others(count: int, different: int) -> None:
    index = LongIndex()
    index.add(np.arange(-500, 0))
    keys = np.arange(count) % different
    rows, new = index.place(keys)
    assert sorted(keys[new].tolist()) == list(range(min(count, different)))
    assert rows[new].tolist() == list(range(500, 500 + len(new)))
    assert index.find(np.arange(-500, 0)).tolist() == list(range(500))


def room(index: LongIndex) -> int:
    return sum(each.nbytes for each in vars(index).values() if isinstance(each, np.ndarray))


@pytest.mark.parametrize("key", [100, 5_000, 2**17 - 1])
def test_an_index_of_one_small_key_takes_a_few_kilobytes(key: int) -> None:
    index = LongIndex()
    index.add(np.array([key]))
    assert room(index) <= room(LongIndex()) + 1024
    assert index.find(np.array([key, key - 1])).tolist() == [0, -1]


@pytest.mark.parametrize("keys", [[5_000, *range(400)], [2**17 - 1, 9_000, *range(8_300)]])
def test_a_key_that_was_too_great_for_few_keys_is_found_among_many(keys: list[int]) -> None:
    index = LongIndex()
    for key in keys:
        index.add(np.array([key]))
        assert index.find(np.array(keys[:1])).tolist() == [0]
    assert index.find(np.array(keys)).tolist() == list(range(len(keys)))


@given(seed=st.integers(0, 1000), count=st.integers(500, 5000))
def test_the_index_grows_without_losing_a_key(seed: int, count: int) -> None:
    keys = np.unique(np.random.default_rng(seed).integers(-(2**62), 2**62, count))
    index = LongIndex()
    half = len(keys) // 2
    index.add(keys[:half])
    index.add(keys[half:])
    assert index.find(keys).tolist() == list(range(len(keys)))
    others = np.setdiff1d(keys + 1, keys)
    assert (index.find(others) == -1).all()
