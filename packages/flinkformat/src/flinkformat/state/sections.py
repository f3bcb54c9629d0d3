"""Keyed state in sections, one a key group: Flink's hashmap backend and canonical savepoints.

The hashmap backend writes its form in checkpoints and native savepoints; any backend writes the
canonical one, which is also written here. Layout: docs/formats/flink-state.md, sections 4 and 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.metadata.wire import Reader, Writer
from flinkformat.state import snappy
from flinkformat.state.composites import TimerSerializer
from flinkformat.state.entries import FlinkEntry, Pairs, merged, timer_entry
from flinkformat.state.headers import write_keyed_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flinkformat.state.entries import PairRead
    from flinkformat.state.headers import FlinkKeyedHeader

_END: Final = 0xFFFF
_FLAG: Final = 0x80

_Pair = tuple[bytes, bytes]


def canonical_entries(
    header: FlinkKeyedHeader, max_parallelism: int, group: int, section: bytes, where: str
) -> Iterator[FlinkEntry]:
    """Entries of one key group, state by state. Raises FormatError.

    section: the part of the stream from where the key group begins to where the next one does.
    """
    if header.compressed:
        unpacked = snappy.chunks(section, 0, len(section), where)
        section, where = b"".join(plain for _, plain in unpacked), f"{where}, unpacked"
    reader = Reader(section, where)
    number = _state_number(header, reader)
    pairs = Pairs(header.key, max_parallelism)
    while number != _END:
        run = _Run(header, pairs, reader, group, number)
        yield from merged(run)
        number = run.next_number
    reader.end("a key group is followed by more bytes", expected="the next key group")


class _Run:
    """Pairs of one state in a key group. next_number: number of the state after it."""

    def __init__(
        self, header: FlinkKeyedHeader, pairs: Pairs, reader: Reader, group: int, number: int
    ) -> None:
        self._header = header
        self._pairs = pairs
        self._reader = reader
        self._group = group
        self._state = header.states[number]
        self.next_number = number

    def __iter__(self) -> Iterator[PairRead]:
        reader, where = self._reader, self._reader.where
        reader.where = f"{where}, state '{self._state.name}', key group {self._group}"
        is_last = False
        while not is_last:
            key = reader.part(reader.i32("the length of a key"), "a key")
            is_last = bool(key.u8("a key") & _FLAG)
            key.offset -= 1
            start = key.offset
            value = reader.part(reader.i32("the length of a value"), "a value")
            part = self._pairs.read(self._state, key, value)
            if part.entry.key_group != self._group:
                raise reader.fail(
                    "a key lies in another key group than its own",
                    expected=f"key group {self._group}",
                    found=str(part.entry.key_group),
                    offset=start,
                )
            yield part
        reader.where = where
        self.next_number = _state_number(self._header, reader)


def _state_number(header: FlinkKeyedHeader, reader: Reader) -> int:
    start = reader.offset
    number = reader.u16("the number of a state")
    if number != _END and number >= len(header.states):
        raise reader.fail(
            "a state is not in the header",
            expected=f"a number below {len(header.states)}, or {_END} for the end",
            found=str(number),
            offset=start,
        )
    return number


def write_canonical_keyed(
    header: FlinkKeyedHeader,
    max_parallelism: int,
    key_groups: Iterable[int],
    entries: Iterable[FlinkEntry],
) -> tuple[bytes, tuple[int, ...]]:
    """Writes a stream; returns it and the start of each key group, or 0 for empty ones.

    entries: of states of the header and of these key groups; within a key group states stand in the
    order in which they come, and so do the entries of a state. All of them are held in memory.
    Raises FormatError for what its serializer has no form for.
    """
    pairs = Pairs(header.key, max_parallelism)
    numbers = {state.name: number for number, state in enumerate(header.states)}
    groups = {group: dict[int, list[_Pair]]() for group in key_groups}
    for entry in entries:
        of_state = groups[entry.key_group].setdefault(numbers[entry.state.name], [])
        of_state.extend(pairs.write(entry))
    writer = Writer()
    write_keyed_header(writer, header)
    stream = bytearray(writer.finished())
    offsets: list[int] = []
    for states in groups.values():
        section = _section(states)
        offsets.append(len(stream) if section else 0)
        stream += snappy.compressed(section) if section and header.compressed else section
    return bytes(stream), tuple(offsets)


def _section(states: dict[int, list[_Pair]]) -> bytes:
    section = Writer()
    for number, pairs in states.items():
        for position, (key, value) in enumerate(pairs):
            if position == 0:
                section.u16(number)
            is_last = position == len(pairs) - 1
            section.blob(bytes([key[0] | _FLAG]) + key[1:] if is_last else key)
            section.blob(value)
    if any(states.values()):
        section.u16(_END)
    return section.finished()


def heap_entries(
    header: FlinkKeyedHeader, group: int, section: bytes, where: str
) -> Iterator[FlinkEntry]:
    """Entries of one key group, state by state. Raises FormatError.

    section: the part of the stream from where the key group begins to where the next one does.
    """
    reader = Reader(section, where)
    found = reader.i32("a key group")
    if found != group:
        raise reader.fail(
            "Unexpected key-group in restore.",
            expected=f"key group {group}",
            found=str(found),
            offset=0,
        )
    if header.compressed:
        for number, plain in enumerate(_streams(section, reader.offset, where)):
            yield from _state(header, group, Reader(plain, f"{where}, stream {number} unpacked"))
    else:
        for _ in header.states:
            yield from _state(header, group, reader)


def _state(header: FlinkKeyedHeader, group: int, reader: Reader) -> Iterator[FlinkEntry]:
    start = reader.offset
    number = reader.u16("the number of a state")
    if number >= len(header.states):
        raise reader.fail(
            "a state is not in the header",
            expected=f"a number below {len(header.states)}",
            found=str(number),
            offset=start,
        )
    state = header.states[number]
    where = reader.where
    reader.where = f"{where}, state '{state.name}', key group {group}"
    for _ in range(reader.count("entries")):
        if isinstance(state.value, TimerSerializer):
            yield timer_entry(state, group, state.value.read(reader))
        else:
            namespace = state.namespace.read(reader)
            key = header.key.read(reader)
            yield FlinkEntry(state, group, key, namespace, state.value.read(reader))
    reader.where = where


def _streams(section: bytes, start: int, where: str) -> Iterator[bytes]:
    """Content of each compressed stream; each begins with the format's magic."""
    plain: list[bytes] = []
    for offset, piece in snappy.chunks(section, start, len(section), where):
        if section.startswith(snappy.MAGIC, offset) and offset > start:
            yield b"".join(plain)
            plain.clear()
        plain.append(piece)
    yield b"".join(plain)
