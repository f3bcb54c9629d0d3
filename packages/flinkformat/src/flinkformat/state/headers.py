"""Headers of Flink's state streams: names of states, and how each is written.

Layout: docs/formats/flink-state.md, sections 3 and 6.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.errors import FormatError
from flinkformat.frozen import frozen
from flinkformat.state.composites import (
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    read_snapshot,
    write_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.metadata.wire import Reader, Writer
    from flinkformat.state.serializers import FlinkSerializer

KEYED_VERSION: Final = 6
OPERATOR_VERSION: Final = 6
_OPERATOR_VERSION_MIN: Final = 5

NAMESPACE: Final = "NAMESPACE_SERIALIZER"
VALUE: Final = "VALUE_SERIALIZER"
KEY: Final = "KEY_SERIALIZER"
KIND: Final = "KEYED_STATE_TYPE"


class BackendStateType(Enum):
    """Kind of a state for a backend; the numbers are those of the format."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


@frozen
class FlinkState:
    """A state in a header.

    options, serializers: under Flink's names, in the order of the header.
    """

    name: str
    type: BackendStateType
    options: Mapping[str, str]
    serializers: Mapping[str, FlinkSerializer]

    @property
    def kind(self) -> str:
        """``VALUE``, ``LIST``, ``MAP``, ``REDUCING``, ``AGGREGATING``; or the backend's type."""
        return self.options.get(KIND) or self.type.name

    @property
    def value(self) -> FlinkSerializer:
        """Serializer of the stored value: a whole list or map, a timer, or an element."""
        return self.serializers[VALUE]

    @property
    def namespace(self) -> FlinkSerializer:
        """Serializer of the namespace beside the key; every key/value state has one."""
        return self.serializers[NAMESPACE]

    @property
    def is_timers(self) -> bool:
        return self.type is BackendStateType.PRIORITY_QUEUE

    @property
    def is_keyed(self) -> bool:
        return self.type in _KEYED


@frozen
class FlinkKeyedHeader:
    """Header of a stream of keyed state. compressed: each key group by itself, with snappy."""

    compressed: bool
    key: FlinkSerializer
    states: tuple[FlinkState, ...]


@frozen
class FlinkOperatorHeader:
    """Header of a stream of operator state. compressed: everything after it, with snappy."""

    compressed: bool
    states: tuple[FlinkState, ...]


def read_keyed_header(reader: Reader) -> FlinkKeyedHeader:
    """Reads the header. Raises FormatError, also for a state with an unknown serializer."""
    reader.where = f"{reader.where}, header".lstrip(", ")
    where = reader.where
    reader.bounded("the version of keyed state", KEYED_VERSION, KEYED_VERSION)
    compressed = reader.boolean("whether key groups are compressed")
    reader.where = f"{where}, keys"
    key = read_snapshot(reader)
    reader.where = where
    states = _read_states(reader, keyed=True)
    reader.where = where
    return FlinkKeyedHeader(compressed, key, states)


def write_keyed_header(writer: Writer, header: FlinkKeyedHeader) -> None:
    writer.i32(KEYED_VERSION)
    writer.boolean(header.compressed)
    write_snapshot(writer, header.key)
    _write_states(writer, header.states)


def read_operator_header(reader: Reader) -> FlinkOperatorHeader:
    """Reads the header. Raises FormatError as `read_keyed_header`."""
    where = reader.where = f"{reader.where}, header".lstrip(", ")
    version = reader.bounded(
        "the version of operator state", _OPERATOR_VERSION_MIN, OPERATOR_VERSION
    )
    compressed = version == OPERATOR_VERSION and reader.boolean("whether state is compressed")
    lists = _read_states(reader, keyed=False)
    reader.where = where
    maps = _read_states(reader, keyed=False)
    reader.where = where
    return FlinkOperatorHeader(compressed, lists + maps)


def write_operator_header(writer: Writer, header: FlinkOperatorHeader) -> None:
    writer.i32(OPERATOR_VERSION)
    writer.boolean(header.compressed)
    for type_ in (BackendStateType.OPERATOR, BackendStateType.BROADCAST):
        _write_states(writer, tuple(state for state in header.states if state.type is type_))


def read_state(reader: Reader) -> FlinkState:
    where = reader.where
    name = reader.utf("the name of a state")
    reader.where = f"{where}, state {name!r}".lstrip(", ")
    number = reader.bounded("the type of a state", 0, len(BackendStateType) - 1)
    options = dict(
        reader.many("options", lambda: (reader.utf("an option"), reader.utf("an option's value")))
    )
    start = reader.offset
    serializers = dict(
        reader.many(
            "serializers", lambda: (reader.utf("the part of a serializer"), read_snapshot(reader))
        )
    )
    state = FlinkState(name, BackendStateType(number), options, serializers)
    missing = [part for part in _PARTS[state.type] if part not in serializers]
    if missing or not _fits(state):
        raise reader.fail(
            "a state does not have the serializers of its kind",
            expected=", ".join(_PARTS[state.type]),
            found=", ".join(serializers) or "none",
            offset=start,
        )
    reader.where = where
    return state


def write_state(writer: Writer, state: FlinkState) -> None:
    writer.utf(state.name)
    writer.i32(state.type.value)
    writer.i32(len(state.options))
    for option, value in state.options.items():
        writer.utf(option)
        writer.utf(value)
    writer.i32(len(state.serializers))
    for part, serializer in state.serializers.items():
        writer.utf(part)
        write_snapshot(writer, serializer)


_PARTS: Final = {
    BackendStateType.KEY_VALUE: (NAMESPACE, VALUE),
    BackendStateType.KEY_VALUE_V2: (NAMESPACE, VALUE),
    BackendStateType.PRIORITY_QUEUE: (VALUE,),
    BackendStateType.OPERATOR: (VALUE,),
    BackendStateType.BROADCAST: (KEY, VALUE),
}
_KEYED: Final = frozenset(
    (
        BackendStateType.KEY_VALUE,
        BackendStateType.KEY_VALUE_V2,
        BackendStateType.PRIORITY_QUEUE,
    )
)


def _fits(state: FlinkState) -> bool:
    match state.kind:
        case "LIST":
            return isinstance(state.value, ListSerializer)
        case "MAP":
            return isinstance(state.value, MapSerializer)
        case "PRIORITY_QUEUE":
            return isinstance(state.value, TimerSerializer)
        case _:
            return True


def _read_states(reader: Reader, *, keyed: bool) -> tuple[FlinkState, ...]:
    start = reader.offset
    states = tuple([read_state(reader) for _ in range(reader.u16("the number of states"))])
    names = [state.name for state in states]
    foreign = [state.name for state in states if state.is_keyed is not keyed]
    if foreign or len(set(names)) != len(names):
        raise FormatError(
            "The states of a header are not those of its stream",
            where=reader.where,
            offset=start,
            expected=f"{'keyed' if keyed else 'operator'} states, each name once",
            found=", ".join(foreign or names),
        )
    return states


def _write_states(writer: Writer, states: tuple[FlinkState, ...]) -> None:
    writer.u16(len(states))
    for state in states:
        write_state(writer, state)
