"""The hash table of integers against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.long_index import LongIndex

LONGS = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(0, 40).map((1024).__mul__)
)


@given(batches=st.lists(st.lists(LONGS, max_size=60), max_size=8))
def test_the_index_finds_what_a_dict_finds(batches: list[list[int]]) -> None:
    index = LongIndex()
    model: dict[int, int] = {}
    for batch in batches:
        keys = np.array(batch, np.int64)
        assert index.find(keys).tolist() == [model.get(key, -1) for key in batch]
        new = list(dict.fromkeys(key for key in batch if key not in model))
        rows = np.arange(len(model), len(model) + len(new))
        index.add(np.array(new, np.int64), rows)
        model |= dict(zip(new, rows.tolist(), strict=True))
        assert index.find(keys).tolist() == [model[key] for key in batch]


@given(seed=st.integers(0, 1000), count=st.integers(500, 5000))
def test_the_index_grows_without_losing_a_key(seed: int, count: int) -> None:
    keys = np.unique(np.random.default_rng(seed).integers(-(2**62), 2**62, count))
    index = LongIndex()
    half = len(keys) // 2
    index.add(keys[:half], np.arange(half))
    index.add(keys[half:], np.arange(half, len(keys)))
    assert index.find(keys).tolist() == list(range(len(keys)))
    others = np.setdiff1d(keys + 1, keys)
    assert (index.find(others) == -1).all()
