"""State of Flink's changelog backend: a snapshot of the backend below, and changes since then.

Read are changes that lie in the metadata; those in files of a changelog storage have a layout that
nobody has written down. Layout of a change: docs/formats/flink-state.md, section 8.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from flinkformat.errors import FormatError
from flinkformat.metadata.wire import Reader
from flinkformat.state.composites import (
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    read_hashable,
)
from flinkformat.state.entries import FlinkEntry, timer_entry
from flinkformat.state.headers import FlinkKeyedHeader, read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flinkformat.handles import StateChange
    from flinkformat.state.headers import FlinkState
    from flinkformat.state.serializers import FlinkSerializer

_META_INFO_VERSION: Final = 7


class Operation(IntEnum):
    """Effect of a change; the numbers are those of the format."""

    CLEAR = 0
    SET = 1
    SET_INTERNAL = 2
    ADD = 3
    MERGE_NAMESPACES = 4
    ADD_ELEMENT = 5
    PUT = 6
    REMOVE = 7
    DESCRIBE = 8


Place = tuple[int, Any, Any]


class Changelog:
    """Keyed state of one subtask, to which changes are applied in order.

    key: the keys' serializer, or None if only timers can tell it.
    """

    def __init__(self, key: FlinkSerializer | None) -> None:
        self._key = key
        self._states: dict[int, FlinkState] = {}
        self._by_name: dict[str, FlinkState] = {}
        self._values: dict[str, dict[Place, Any]] = {}
        self._timers: dict[str, dict[tuple[int, Any, Any, int], FlinkEntry]] = {}

    def header(self, where: str) -> FlinkKeyedHeader:
        """All states, in order of discovery. Raises FormatError if the type of keys is unknown."""
        if self._key is None:
            raise FormatError(
                "The type of the keys is neither in the changes nor in a snapshot before them",
                where=where,
                remedy="Take a savepoint, which has no changelog.",
                expected="a snapshot of the backend, or a state of timers",
                found="neither",
            )
        return FlinkKeyedHeader(False, self._key, tuple(self._by_name.values()))

    def begin(self, states: Iterable[FlinkState], entries: Iterable[FlinkEntry]) -> None:
        for state in states:
            self._by_name[state.name] = state
        for entry in entries:
            if entry.state.is_timers:
                self._put_timer(entry)
            else:
                place = (entry.key_group, entry.key, entry.namespace)
                self._values.setdefault(entry.state.name, {})[place] = entry.value

    def apply(self, changes: tuple[StateChange, ...], where: str) -> None:
        self._learn_keys(changes, where)
        for number, each in enumerate(changes):
            reader = Reader(each.change, f"{where}, change {number}")
            code = reader.u8("the operation of a change")
            if code > max(Operation):
                raise _unknown(reader, f"operation {code}", 0)
            operation = Operation(code)
            if operation is Operation.DESCRIBE:
                state, number_of_state = self._read_meta(reader)
                self._states[number_of_state] = self._by_name[state.name] = state
            else:
                self._change(operation, each.key_group, reader)
            if reader.remaining:
                raise _unknown(reader, f"{reader.remaining} bytes more", reader.offset)

    def entries(self) -> Iterator[FlinkEntry]:
        for name, values in self._values.items():
            for (group, key, namespace), value in values.items():
                yield FlinkEntry(self._by_name[name], group, key, namespace, value)
        for timers in self._timers.values():
            yield from timers.values()

    def _learn_keys(self, changes: tuple[StateChange, ...], where: str) -> None:
        """Finds the keys' serializer, which only queues of timers have in a changelog."""
        if self._key is not None:
            return
        for number, each in enumerate(changes):
            if each.change[:1] == bytes([Operation.DESCRIBE]):
                reader = Reader(each.change, f"{where}, change {number}")
                reader.u8("the operation of a change")
                state, _ = self._read_meta(reader)
                if isinstance(state.value, TimerSerializer):
                    self._key = state.value.key
                    return

    def _read_meta(self, reader: Reader) -> tuple[FlinkState, int]:
        reader.bounded(
            "the version of a state's description", _META_INFO_VERSION, _META_INFO_VERSION
        )
        state = read_state(reader)
        if not state.is_timers:
            start = reader.offset
            if reader.boolean("whether a state has a time to live"):
                raise _unknown(reader, f"state '{state.name}' with a time to live", start)
            if reader.boolean("whether a state has a default"):
                state.value.read(reader)
        number = reader.u16("the number of a state")
        reader.u8("the kind of a state")
        return state, number

    def _change(self, operation: Operation, group: int, reader: Reader) -> None:
        start = reader.offset
        state = self._states.get(reader.u16("the number of a state"))
        if state is None:
            raise _unknown(reader, "a state that was not described", start)
        reader.where = f"{reader.where}, state '{state.name}'"
        if state.is_timers:
            self._change_timers(state, operation, group, reader)
            return
        keys = self.header(reader.where).key
        key = read_hashable(keys, reader)
        namespace = read_hashable(state.namespace, reader)
        values = self._values.setdefault(state.name, {})
        self._change_value(state, operation, values, (group, key, namespace), reader)

    def _change_value(
        self,
        state: FlinkState,
        operation: Operation,
        values: dict[Place, Any],
        place: Place,
        reader: Reader,
    ) -> None:
        start = reader.offset
        match operation, state.value:
            case Operation.CLEAR, _:
                values.pop(place, None)
            case ((Operation.SET | Operation.SET_INTERNAL), _):
                values[place] = state.value.read(reader)
            case Operation.ADD, ListSerializer():
                values[place] = [*values.get(place, ()), *state.value.read(reader)]
            case Operation.ADD_ELEMENT, ListSerializer():
                values[place] = [*values.get(place, ()), state.value.element.read(reader)]
            case Operation.ADD, MapSerializer():
                values.setdefault(place, {}).update(state.value.read(reader))
            case Operation.PUT, MapSerializer():
                # Unlike in a map as a whole, a value is not preceded by whether it is null.
                user_key = state.value.read_key(reader)
                values.setdefault(place, {})[user_key] = state.value.value.read(reader)
            case Operation.REMOVE, MapSerializer():
                values.get(place, {}).pop(state.value.read_key(reader), None)
            case Operation.REMOVE, ListSerializer():
                values[place] = _without(values.get(place, []), state.value.element.read(reader))
            case Operation.MERGE_NAMESPACES, ListSerializer():
                group, key, _ = place
                target = (group, key, read_hashable(state.namespace, reader))
                merged = list(values.get(target, ()))
                for _ in range(reader.count("namespaces")):
                    merged += values.pop((group, key, read_hashable(state.namespace, reader)), ())
                values[target] = merged
            case _:
                raise _unknown(reader, f"{operation.name} on {state.kind}", start)
        if state.kind in ("LIST", "MAP") and not values.get(place, True):
            del values[place]

    def _change_timers(
        self, state: FlinkState, operation: Operation, group: int, reader: Reader
    ) -> None:
        start = reader.offset
        if operation is Operation.ADD_ELEMENT:
            for _ in range(reader.count("timers")):
                self._put_timer(timer_entry(state, group, read_hashable(state.value, reader)))
        elif operation is Operation.REMOVE:
            timer = timer_entry(state, group, read_hashable(state.value, reader))
            self._timers.get(state.name, {}).pop(_timer_place(timer), None)
        else:
            raise _unknown(reader, f"{operation.name} on timers", start)

    def _put_timer(self, entry: FlinkEntry) -> None:
        self._timers.setdefault(entry.state.name, {})[_timer_place(entry)] = entry


def _timer_place(entry: FlinkEntry) -> tuple[int, Any, Any, int]:
    return entry.key_group, entry.key, entry.namespace, entry.value


def _without(elements: list[Any], element: Any) -> list[Any]:
    left = list(elements)
    if element in left:
        left.remove(element)
    return left


def _unknown(reader: Reader, found: str, offset: int) -> FormatError:
    return reader.fail(
        "A change of the changelog can't be understood",
        expected="a change as Flink 2.3 writes it",
        found=found,
        offset=offset,
    )
