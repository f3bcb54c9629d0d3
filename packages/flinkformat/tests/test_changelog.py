"""Changes of a changelog, one by one: what each makes of the state before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from flinkformat.errors import FormatError
from flinkformat.handles import StateChange
from flinkformat.metadata.wire import Writer
from flinkformat.state.changelog import Changelog, Operation
from flinkformat.state.composites import ListSerializer, MapSerializer, TimerSerializer
from flinkformat.state.headers import KIND, NAMESPACE, VALUE, BackendStateType, FlinkState
from flinkformat.state.headers import write_state as write_description
from flinkformat.state.serializers import LONG, STRING
from flinkformat.state.values import Timer

if TYPE_CHECKING:
    from flinkformat.state.serializers import FlinkSerializer

GROUP = 7


def keyed(kind: str, value: FlinkSerializer) -> FlinkState:
    serializers = {NAMESPACE: LONG, VALUE: value}
    return FlinkState("s", BackendStateType.KEY_VALUE, {KIND: kind}, serializers)


VALUES = keyed("VALUE", STRING)
LISTS = keyed("LIST", ListSerializer(STRING))
MAPS = keyed("MAP", MapSerializer(STRING, LONG))
TIMERS = FlinkState(
    "timers", BackendStateType.PRIORITY_QUEUE, {}, {VALUE: TimerSerializer(STRING, LONG)}
)


@dataclass
class Log:
    """A changelog of one state, whose keys are texts and whose namespaces are numbers."""

    state: FlinkState
    key: FlinkSerializer | None = STRING

    def __post_init__(self) -> None:
        self.log = Changelog(self.key)
        self.apply(described(self.state))

    def apply(self, data: bytes) -> None:
        self.log.apply((StateChange(GROUP, data),), "here")

    def change(self, operation: Operation, *parts: tuple[FlinkSerializer, Any]) -> Log:
        """A change of key "k" in namespace 1; parts: what follows."""
        whole = parts if self.state is TIMERS else ((STRING, "k"), (LONG, 1), *parts)
        self.apply(changed(operation, whole))
        return self

    @property
    def held(self) -> list[tuple[Any, Any, Any]]:
        assert all(each.key_group == GROUP for each in self.log.entries())
        return [(each.key, each.namespace, each.value) for each in self.log.entries()]


@dataclass
class Count:
    """How many of something follow."""

    def write(self, writer: Writer, value: int) -> None:
        writer.i32(value)


def described(state: FlinkState, *, ttl: bool = False) -> bytes:
    writer = Writer()
    writer.u8(Operation.DESCRIBE)
    writer.i32(7)
    write_description(writer, state)
    if not state.is_timers:
        writer.boolean(ttl)
        writer.boolean(False)
    writer.u16(3)
    writer.u8(0)
    return writer.finished()


def changed(operation: int, parts: Any, number: int = 3) -> bytes:
    writer = Writer()
    writer.u8(operation)
    writer.u16(number)
    for serializer, value in parts:
        serializer.write(writer, value)
    return writer.finished()


def test_a_value_is_set_and_cleared() -> None:
    log = Log(VALUES).change(Operation.SET, (STRING, "a"))
    log.change(Operation.SET_INTERNAL, (STRING, "b"))
    assert log.held == [("k", 1, "b")]
    assert log.change(Operation.CLEAR).held == []


def test_a_list_is_added_to_and_taken_from() -> None:
    log = Log(LISTS).change(Operation.ADD, (ListSerializer(STRING), ["a", "b", "a"]))
    log.change(Operation.ADD_ELEMENT, (STRING, "c"))
    assert log.held == [("k", 1, ["a", "b", "a", "c"])]
    log.change(Operation.REMOVE, (STRING, "a")).change(Operation.REMOVE, (STRING, "z"))
    assert log.held == [("k", 1, ["b", "a", "c"])]
    for left in "bac":
        log.change(Operation.REMOVE, (STRING, left))
    assert log.held == [], "an empty list is no entry"


def test_lists_of_namespaces_are_merged_into_one() -> None:
    log = Log(LISTS)
    for namespace in (1, 2, 3):
        log.apply(
            changed(
                Operation.ADD_ELEMENT, ((STRING, "k"), (LONG, namespace), (STRING, f"n{namespace}"))
            )
        )
    merged = ((LONG, 1), (Count(), 2), (LONG, 2), (LONG, 3))
    log.change(Operation.MERGE_NAMESPACES, *merged)  # type: ignore[arg-type]
    assert log.held == [("k", 1, ["n1", "n2", "n3"])]


def test_a_map_is_put_into_and_taken_from() -> None:
    log = Log(MAPS).change(Operation.ADD, (MAPS.value, {"a": 1, "b": None}))
    log.change(Operation.PUT, (STRING, "c"), (LONG, 3)).change(Operation.REMOVE, (STRING, "a"))
    assert log.held == [("k", 1, {"b": None, "c": 3})]
    log.change(Operation.REMOVE, (STRING, "b")).change(Operation.REMOVE, (STRING, "c"))
    assert log.held == [], "an empty map is no entry"


def test_timers_come_and_go_and_tell_the_type_of_keys() -> None:
    log = Log(TIMERS, key=None)
    timers = TIMERS.value, Timer(10, "k", 1)
    log.change(Operation.ADD_ELEMENT, (Count(), 2), timers, (TIMERS.value, Timer(20, "k", 1)))  # type: ignore[arg-type]
    log.change(Operation.REMOVE, timers)
    assert log.held == [("k", 1, 20)]
    assert log.log.header("here").key == STRING


def test_what_was_there_before_is_changed_too() -> None:
    before = Log(VALUES).change(Operation.SET, (STRING, "old"))
    after = Changelog(STRING)
    after.begin([VALUES, TIMERS], [*before.log.entries()])
    assert [each.value for each in after.entries()] == ["old"]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x63", "operation 99"),
        (changed(Operation.SET, (), number=4), "a state that was not described"),
        (changed(Operation.CLEAR, ((STRING, "k"), (LONG, 1), (LONG, 1))), "8 bytes more"),
        (changed(Operation.PUT, ((STRING, "k"), (LONG, 1))), "PUT on VALUE"),
        (described(VALUES, ttl=True), "with a time to live"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(data: bytes, found: str) -> None:
    log = Log(VALUES)
    with pytest.raises(FormatError) as caught:
        log.apply(data)
    assert found in caught.value.found and "here, change 0" in caught.value.where


def test_timers_are_only_added_and_removed() -> None:
    with pytest.raises(FormatError) as caught:
        Log(TIMERS).change(Operation.CLEAR)
    assert caught.value.found == "CLEAR on timers"


def test_keys_of_a_type_that_nobody_tells_are_refused() -> None:
    log = Log(VALUES, key=None)
    with pytest.raises(FormatError, match="type of the keys"):
        log.change(Operation.CLEAR)
