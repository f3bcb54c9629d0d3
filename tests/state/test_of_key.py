"""A copy of the state of one key, for the step that failed on it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa

from tests.state.world import Subtask
from tidegate.api.state import ColumnStateDescriptor, ValueStateDescriptor
from tidegate.typeinfo.types import Types

SUM, SEEN = ValueStateDescriptor("sum", Types.LONG()), ValueStateDescriptor("seen")


def noted(*keys: str) -> Subtask:
    """Two states, of which each key has something."""
    subtask = Subtask()
    subtask.backend.note_states()
    states: list[Any] = [subtask.backend.keyed_state(each) for each in (SUM, SEEN)]
    for number, key in enumerate(keys):
        subtask.on(key)
        for state in states:
            state.update(number)
    return subtask


def test_what_one_key_has_is_copied_and_the_copy_goes_its_own_way() -> None:
    subtask = noted("a", "b", "c").on("b")
    copied = subtask.backend.of_key("b", subtask.cell.group, lambda: True)
    assert copied.entries == {"sum": [("b", 1)], "seen": [("b", 1)]} and copied.left_out == ()
    copied.put("sum", subtask.cell.group, [("b", 5)])
    assert [(key, value) for _, key, value in copied.backend.scan("sum")] == [("b", 5)]
    assert subtask.dump("sum") == {"a": 0, "b": 1, "c": 2}


def test_a_key_without_state_has_no_entries() -> None:
    subtask = noted("a").on("z")
    copied = subtask.backend.of_key("z", subtask.cell.group, lambda: True)
    assert (copied.entries, copied.left_out) == ({}, ())
    assert list(copied.backend.scan("sum")) == []


def test_what_takes_too_long_to_look_through_is_named() -> None:
    subtask, looks = noted("a"), count()
    copied = subtask.backend.of_key("a", subtask.cell.group, lambda: next(looks) < 1)
    assert copied.entries == {"sum": [("a", 0)]}
    assert copied.left_out == ("seen",)


def test_columns_are_left_out() -> None:
    subtask = noted("a")
    subtask.backend.column_state(ColumnStateDescriptor("count", pa.int64()))
    assert subtask.backend.of_key("a", subtask.cell.group, lambda: True).left_out == ("columns",)
