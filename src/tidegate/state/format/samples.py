"""A few entries of a snapshot's state, in streams as a backend restores them.

A sample is cut from the real bytes: the header as it is, and of the entries the first blocks, or
elements, of each state. So whoever restores a sample judges the whole, as far as that can be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateMetaInfo,
)
from tidegate.state.format.blocks import COLUMNS, KeyedStreamWriter
from tidegate.state.format.headers import KeyedHeader, OperatorHeader, header_bytes, rocksdb_header
from tidegate.state.format.stream_reader import ElementReader, StreamReader
from tidegate.state.format.streams import in_streams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle
    from tidegate.state.format.blocks import Block
    from tidegate.storage.state_files import StateFiles

ROWS: Final = 1_000
"""Entries of a state after which no more of it are wanted; what is read comes in blocks."""

BYTES: Final = 32 << 20
"""Bytes of one operator's keyed state that are looked at, unless told otherwise."""


@dataclass(slots=True)
class Sampled:
    """Samples of one operator so far.

    rows: by state. bytes_left: how much may still be read. complete: all there is was looked at,
    so that a state without rows has none.
    """

    rows: Counter[str] = field(default_factory=Counter[str])
    bytes_left: int = BYTES
    complete: bool = True


def keyed_sample(
    handle: KeyGroupsStateHandle, stream: BinaryIO, sampled: Sampled
) -> tuple[KeyedHeader, KeyGroupsStateHandle]:
    """The header, and some entries of each state. stream: of the handle's bytes; seekable.

    Raises FormatError.
    """
    where = handle.delegate.physical_id
    reader = StreamReader(stream, handle.state_size, where)
    header = reader.header
    data = bytearray()
    written = KeyedStreamWriter(data.extend, header, handle.key_groups)
    for group, blocks in _sections(handle, reader, sampled):
        written.add(group, blocks)
    sample = ByteStreamStateHandle(f"sample of {where}", bytes(data))
    return header, replace(handle, offsets=written.offsets, delegate=sample)


def keyed_names(handle: KeyedStateHandle, files: StateFiles) -> list[str]:
    """The names of the keyed states of a subtask, told from headers alone. Blocking.

    None of a form that is not ours. Raises FormatError, StorageFailed.
    """
    names: list[str] = []
    for part in in_streams([handle], handle.key_groups, files.read_handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            meta = memoryview(files.read_handle(part.meta))
            names += [state.name for state in rocksdb_header(meta, part.meta.physical_id).states]
        elif isinstance(part, KeyGroupsStateHandle):
            with files.open_handle(part.delegate) as stream:
                header = StreamReader(stream, part.state_size, part.delegate.physical_id).header
            names += [state.name for state in header.states]
    return list(dict.fromkeys(names))


def _sections(
    handle: KeyGroupsStateHandle, reader: StreamReader, sampled: Sampled
) -> Iterator[tuple[int, list[Block]]]:
    header, rows = reader.header, sampled.rows
    names = [state.name for state in header.states]
    for group in handle.key_groups:
        offset = handle.offset_of(group)
        if not offset or (header.columns is None and all(rows[name] >= ROWS for name in names)):
            continue
        size = reader.section_size(offset)
        if size > sampled.bytes_left:
            sampled.complete = False
            continue
        sampled.bytes_left -= size
        taken: list[Block] = []
        for block in reader.blocks(group, offset):
            if block.kind == COLUMNS:
                taken.append(block)
            elif block.state < len(names) and rows[names[block.state]] < ROWS:
                rows[names[block.state]] += block.rows
                taken.append(block)
        yield group, taken


def operator_sample(
    handle: OperatorStateHandle, stream: BinaryIO, sampled: Sampled
) -> tuple[OperatorHeader, OperatorStreamStateHandle]:
    """Samples operator state: the first elements of each state."""
    where = handle.delegate.physical_id
    reader = ElementReader(stream, handle.delegate.state_size, where)
    header = reader.header
    data = header_bytes(header)
    states: dict[str, StateMetaInfo] = {}
    for name, info in handle.states.items():
        offsets: list[int] = []
        for offset in islice(info.offsets, max(0, ROWS - sampled.rows[name])):
            offsets.append(len(data))
            data += reader.stored(offset)
        sampled.rows[name] += len(offsets)
        states[name] = replace(info, offsets=tuple(offsets))
    sample = ByteStreamStateHandle(f"sample of {where}", data)
    return header, OperatorStreamStateHandle(states, sample)
