"""Checks the bytes of a snapshot's state: frames, offsets, counts.

Pickles are checked from outside only: no code of the job runs here. Streams are read piece by
piece, so what is in memory is a key group, an operator's own state or the data in flight of one
file, never the whole.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from flinkformat.state.manifest import CURRENT, live_files, manifest_name, other_files, sst_sizes
from flinkformat.state_streams import streams
from tidegate.checkpoint.channel_state.file_format import read_chunks
from tidegate.errors import FormatError
from tidegate.snapshots.rows import StateKind, in_flight
from tidegate.state.disk.files import COLUMNS_FILE
from tidegate.state.format.blocks import (
    COLUMNS,
    MISSING,
    PRESENT,
    Block,
    KeyedHeader,
    RocksDBHeader,
    element,
    operator_header,
    reading,
    rocksdb_header,
)
from tidegate.state.format.streams import StreamReader, in_streams
from tidegate.transport import codec
from tidegate.typeinfo.serializers import values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle, StreamStateHandle
    from flinkformat.snapshots import OperatorState, SubtaskState

    Open = Callable[[StreamStateHandle], BinaryIO]


def contents_of(
    operator: OperatorState, state: SubtaskState, open_handle: Open
) -> Iterator[tuple[tuple[StreamStateHandle, ...], Callable[[], None]]]:
    """Parts of a subtask's state, each with its container and the function that checks it.

    A look raises FormatError. If the container is damaged, looking is useless.
    """
    contents = _Contents(operator, open_handle)
    if (own := state.managed_operator) is not None and own.state_size:
        yield (own.delegate,), lambda: contents.operator_state(own)
    if (keyed := state.managed_keyed) is not None:
        yield tuple(each.handle for each in streams(keyed)), lambda: contents.keyed(keyed)
    channels = (*state.input_channel, *state.result_subpartition)
    if channels:
        files = tuple(dict.fromkeys(channel.delegate for channel in channels))
        yield files, lambda: contents.channels(state)


class _Contents:
    def __init__(self, operator: OperatorState, open_handle: Open) -> None:
        self._operator = operator
        self._open = open_handle

    def keyed(self, handle: KeyedStateHandle) -> None:
        match handle:
            case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
                self._sections(handle)
            case IncrementalRemoteKeyedStateHandle(private_state=private) if private:
                header = _check_database(handle, self._read)
                self._check_header(header, handle.meta.physical_id)
                for file in private:
                    if file.local_path == COLUMNS_FILE:
                        self._all_columns(file.handle)
            case IncrementalRemoteKeyedStateHandle() | ChangelogStateBackendHandle():
                for part in in_streams([handle], handle.key_groups, self._read):
                    self.keyed(part)
            case InMemoryChangelogStateHandle() | ChangelogStateHandleStream():
                pass

    def operator_state(self, handle: OperatorStateHandle) -> None:
        where = handle.delegate.physical_id
        data = memoryview(self._read(handle.delegate))
        header = operator_header(data, where)
        known = {state.name for state in header.states}
        for name, meta in handle.states.items():
            if name not in known:
                raise FormatError(
                    f"The state '{name}' is named, and the file does not know it", where=where
                )
            for offset in meta.offsets:
                _check_count(element(data, offset, where), 1, where)

    def channels(self, state: SubtaskState) -> None:
        files: dict[StreamStateHandle, bytes] = {}
        inputs = in_flight(StateKind.INPUT_CHANNELS, state)
        outputs = in_flight(StateKind.OUTPUT_CHANNELS, state)
        for _, channel in chain(inputs, outputs):
            if channel.delegate not in files:
                files[channel.delegate] = self._read(channel.delegate)
            for buffer in read_chunks(files[channel.delegate], channel.offsets):
                codec.check_batch(buffer)

    def _sections(self, handle: KeyGroupsStateHandle | KeyGroupsSavepointStateHandle) -> None:
        where = handle.delegate.physical_id
        with self._open(handle.delegate) as stream:
            reader = StreamReader(stream, handle.state_size, where)
            self._check_header(reader.header, where)
            _check_blocks(reader.header, reader.sections(handle), where)

    def _all_columns(self, handle: StreamStateHandle) -> None:
        """Columns beside a database: a separate stream, whose sections no handle names."""
        where = handle.physical_id
        with self._open(handle) as stream:
            reader = StreamReader(stream, handle.state_size, where)
            _check_blocks(reader.header, reader.all_sections(), where)

    def _check_header(self, header: KeyedHeader | RocksDBHeader, where: str) -> None:
        # The operator's id may be an older one: a state keeps its files when it gets another id.
        expected = self._operator.max_parallelism
        if header.max_parallelism != expected:
            raise FormatError(
                "A file of state is of another max parallelism",
                where=where,
                expected=str(expected),
                found=str(header.max_parallelism),
            )

    def _read(self, handle: StreamStateHandle) -> bytes:
        with self._open(handle) as stream:
            return stream.read()


def _check_database(
    handle: IncrementalRemoteKeyedStateHandle, read: Callable[[StreamStateHandle], bytes]
) -> RocksDBHeader:
    """Checks the folder that a handle describes; returns its description of the states.

    Raises FormatError, and what `read` raises.
    """
    where = handle.meta.physical_id
    header = rocksdb_header(memoryview(read(handle.meta)), where)
    files = {file.local_path: file.handle for file in (*handle.shared_state, *handle.private_state)}
    current = read(files[CURRENT]) if CURRENT in files else b""
    manifest = files[manifest_name(current, files, where)]
    live = live_files(read(manifest), manifest.physical_id)
    sizes = sst_sizes({name: each.state_size for name, each in files.items()})
    if live is not None and sizes != live:
        raise other_files(sizes, live, manifest.physical_id)
    return header


def _check_blocks(
    header: KeyedHeader, sections: Iterable[tuple[int, Iterable[Block]]], where: str
) -> None:
    schema = None
    if header.columns is not None:
        with reading(where):
            schema = pa.ipc.read_schema(pa.py_buffer(header.columns.schema))
    for block in chain.from_iterable(blocks for _, blocks in sections):
        if block.kind == COLUMNS and schema is not None:
            with reading(where):
                batch = pa.ipc.read_record_batch(pa.py_buffer(block.values), schema)
                batch.validate(full=True)
            if len(batch) != block.rows:
                raise _other_count(len(batch), block.rows, where)
        elif block.kind in (PRESENT, MISSING) and block.state < len(header.states):
            _check_count(block.keys, block.rows, where)
            if block.kind == PRESENT:
                _check_count(block.values, block.rows, where)
        else:
            raise FormatError(
                "A block of keyed state is of no state",
                where=where,
                found=f"kind {block.kind}, state {block.state}",
            )


def _check_count(piece: bytes | memoryview, said: int, where: str) -> None:
    found = values_in(piece)
    if found is not None and found != said:
        raise _other_count(found, said, where)


def _other_count(found: int, said: int, where: str) -> FormatError:
    return FormatError(
        "A piece of state has another number of values than it says",
        where=where,
        expected=str(said),
        found=str(found),
    )
