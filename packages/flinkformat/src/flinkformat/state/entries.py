"""Entries of keyed state, and their keys and values on disk and in savepoints.

RocksDB and canonical savepoints hold a state as pairs of bytes, a map as a pair for each of its
entries. Layout: docs/formats/flink-state.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.key_groups import key_group_prefix_bytes
from flinkformat.state.composites import ListSerializer, MapSerializer, TimerSerializer, encode
from flinkformat.state.serializers import VARIABLE
from flinkformat.state.values import Timer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flinkformat.metadata.wire import Reader
    from flinkformat.state.headers import FlinkState
    from flinkformat.state.serializers import FlinkSerializer

_SEPARATOR: Final = b","


@frozen
class FlinkEntry:
    """Content of a state for a key, or a timer. value: of a timer, its time in milliseconds."""

    state: FlinkState
    key_group: int
    key: Any
    namespace: Any
    value: Any


def timer_entry(state: FlinkState, key_group: int, timer: Timer) -> FlinkEntry:
    return FlinkEntry(state, key_group, timer.key, timer.namespace, timer.timestamp_ms)


@frozen
class PairRead:
    """An entry, or one entry of a map. place: the same for all entries of one map."""

    entry: FlinkEntry
    place: tuple[int, bytes] | None


class Pairs:
    """Converts pairs of bytes to entries, and back. key: the backend's serializer of keys."""

    def __init__(self, key: FlinkSerializer, max_parallelism: int) -> None:
        self._key = key
        self._prefix = key_group_prefix_bytes(max_parallelism)

    def group_of(self, reader: Reader) -> int:
        """Key group at the start of a key, without the flag of canonical savepoints."""
        prefix = reader.raw(self._prefix, "the key group of a key")
        return int.from_bytes(prefix, "big") & ((1 << (8 * self._prefix - 1)) - 1)

    def read(self, state: FlinkState, key: Reader, value: Reader) -> PairRead:
        """Parses a pair. Raises FormatError, also if bytes are left."""
        group = self.group_of(key)
        if isinstance(state.value, TimerSerializer):
            part = PairRead(timer_entry(state, group, state.value.read(key)), None)
        else:
            part = self._read_keyed(state, group, key, value)
        for reader, what in ((key, "a key"), (value, "a value")):
            reader.end(f"{what} is followed by more bytes", expected="the end of the pair")
        return part

    def _read_keyed(self, state: FlinkState, group: int, key: Reader, value: Reader) -> PairRead:
        start, ambiguous = key.offset, self._is_ambiguous(state)
        found = _read_measured(key, self._key, ambiguous=ambiguous)
        namespace = _read_measured(key, state.namespace, ambiguous=ambiguous)
        match state.value:
            case MapSerializer():
                place = group, key.since(start)
                user_key = state.value.read_key(key)
                read: Any = {user_key: state.value.read_value(value)}
                return PairRead(FlinkEntry(state, group, found, namespace, read), place)
            case ListSerializer() if state.kind == "LIST":
                read = list(_read_elements(state.value.element, value))
            case _:
                read = state.value.read(value)
        return PairRead(FlinkEntry(state, group, found, namespace, read), None)

    def _is_ambiguous(self, state: FlinkState) -> bool:
        return self._key.length == VARIABLE and state.namespace.length == VARIABLE

    def write(self, entry: FlinkEntry) -> list[tuple[bytes, bytes]]:
        """Pairs for an entry: several for a map, none for an empty list or map.

        Raises FormatError for what a serializer has no form for.
        """
        state = entry.state
        prefix = entry.key_group.to_bytes(self._prefix, "big")
        if isinstance(state.value, TimerSerializer):
            timer = Timer(entry.value, entry.key, entry.namespace)
            return [(prefix + encode(state.value, timer), b"")]
        key = prefix + self._written(state, self._key, entry.key)
        key += self._written(state, state.namespace, entry.namespace)
        match state.value:
            case MapSerializer(of_keys, of_values):
                return [
                    (key + encode(of_keys, each), _written_or_null(of_values, value))
                    for each, value in entry.value.items()
                ]
            case ListSerializer(of_elements) if state.kind == "LIST":
                elements = [encode(of_elements, each) for each in entry.value]
                return [(key, _SEPARATOR.join(elements))] if elements else []
            case _:
                return [(key, encode(state.value, entry.value))]

    def _written(self, state: FlinkState, serializer: FlinkSerializer, value: Any) -> bytes:
        written = encode(serializer, value)
        return written + (_length(len(written)) if self._is_ambiguous(state) else b"")


def _written_or_null(serializer: FlinkSerializer, value: Any) -> bytes:
    return b"\x01" if value is None else b"\x00" + encode(serializer, value)


def merged(parts: Iterable[PairRead]) -> Iterator[FlinkEntry]:
    """Joins adjacent entries of one map."""
    held: PairRead | None = None
    for part in parts:
        if held is not None and part.place is not None and part.place == held.place:
            held.entry.value.update(part.entry.value)
            continue
        if held is not None:
            yield held.entry
        held = part
    if held is not None:
        yield held.entry


def _read_elements(element: FlinkSerializer, reader: Reader) -> Iterator[Any]:
    while reader.remaining:
        yield element.read(reader)
        if reader.remaining:
            start = reader.offset
            if reader.raw(1, "the end of an element") != _SEPARATOR:
                raise reader.fail(
                    "an element of a list is not followed by a separator",
                    expected="a comma",
                    found="another byte",
                    offset=start,
                )


def _read_measured(reader: Reader, serializer: FlinkSerializer, *, ambiguous: bool) -> Any:
    """Reads a value, and the length that follows it if a reader from the end needs one."""
    start = reader.offset
    value = serializer.read(reader)
    if ambiguous:
        reader.raw(len(_length(reader.offset - start)), "the length of a key or namespace")
    return value


def _length(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "little")
