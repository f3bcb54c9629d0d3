from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.errors import ConfigError
from flinkformat.key_groups import (
    KeyGroupRange,
    check_parallelism,
    default_max_parallelism,
    key_group_prefix_bytes,
    subtask_of_key_group,
)


def test_a_range_includes_both_ends() -> None:
    groups = KeyGroupRange.of(1, 3, 128)
    assert (groups.first, groups.last) == (43, 85)
    assert 43 in groups and 85 in groups and 42 not in groups and 86 not in groups
    assert list(KeyGroupRange(3, 5)) == [3, 4, 5]
    assert len(KeyGroupRange(3, 5)) == 3
    assert str(groups) == "[43, 85]"


def test_the_empty_range_holds_nothing() -> None:
    empty = KeyGroupRange.empty()
    assert empty.is_empty and len(empty) == 0 and list(empty) == [] and 0 not in empty
    assert empty.intersection(KeyGroupRange(0, 127)) == empty


def test_ranges_that_do_not_meet_have_the_empty_intersection() -> None:
    assert KeyGroupRange(0, 3).intersection(KeyGroupRange(4, 9)).is_empty
    assert KeyGroupRange(0, 5).intersection(KeyGroupRange(4, 9)) == KeyGroupRange(4, 5)


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 3), (0, 32768)])
def test_a_range_out_of_bounds_is_a_fault(first: int, last: int) -> None:
    with pytest.raises(AssertionError):
        KeyGroupRange(first, last)


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "text"),
    [
        (0, None, "Operator parallelism not within bounds: 0"),
        (32769, None, "Operator parallelism not within bounds: 32769"),
        (1, 0, "Maximum parallelism not within bounds: 0"),
        (1, 32769, "Maximum parallelism not within bounds: 32769"),
        (4, 3, "Maximum parallelism must not be smaller than parallelism."),
    ],
)
def test_parallelism_out_of_bounds_is_refused(
    parallelism: int, max_parallelism: int | None, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        check_parallelism(parallelism, max_parallelism)


def test_the_prefix_has_two_bytes_above_128_groups() -> None:
    assert [key_group_prefix_bytes(n) for n in (1, 128, 129, 32768)] == [1, 1, 2, 2]


@given(st.data())
def test_each_key_group_belongs_to_the_subtask_whose_range_holds_it(data: st.DataObject) -> None:
    max_parallelism = data.draw(st.integers(1, 700) | st.just(32768))
    parallelism = data.draw(st.integers(1, min(max_parallelism, 64)))
    ranges = [KeyGroupRange.of(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert ranges[0].first == 0 and ranges[-1].last == max_parallelism - 1
    for before, after in pairwise(ranges):
        assert after.first == before.last + 1
    for subtask, groups in enumerate(ranges):
        for group in (groups.first, groups.last):
            assert subtask_of_key_group(group, parallelism, max_parallelism) == subtask


@given(st.integers(1, 32768))
def test_the_default_max_parallelism_leaves_room_to_grow(parallelism: int) -> None:
    default = default_max_parallelism(parallelism)
    assert 128 <= default <= 32768
    assert default >= parallelism
    assert default.bit_count() == 1
