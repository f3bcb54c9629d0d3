"""Keyed state as Flink's hashmap backend writes it in checkpoints and native savepoints.

Layout: docs/formats/flink-state.md, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.metadata.wire import Reader
from flinkformat.state import snappy
from flinkformat.state.composites import TimerSerializer
from flinkformat.state.entries import FlinkEntry, timer_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flinkformat.state.headers import FlinkKeyedHeader


def heap_entries(
    header: FlinkKeyedHeader, group: int, section: bytes, where: str
) -> Iterator[FlinkEntry]:
    """Entries of one key group, state by state. Raises FormatError.

    section: the part of the stream from where the key group begins to where the next one does.
    """
    reader = _reader(section, where)
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
            yield from _state(header, group, _reader(plain, f"{where}, stream {number} unpacked"))
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


def _reader(data: bytes, where: str) -> Reader:
    reader = Reader(data)
    reader.where = where
    return reader
