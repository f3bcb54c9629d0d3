"""Sizes of keyed state, counted without making values or running code of the job.

An entry may have been written several times, and removed again: where that can be, its keys are
read, so that each counts once. No more than the keys of one key group are in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa

from flinkformat.handles import IncrementalRemoteKeyedStateHandle, KeyGroupsStateHandle
from tidegate.errors import FileMissing, RestoreRefused
from tidegate.snapshots.reading.keyed_streams import key_space
from tidegate.snapshots.rows import serializer_read
from tidegate.state.disk.by_entry import name_of
from tidegate.state.disk.store import PREFIX_BYTES
from tidegate.state.format.blocks import COLUMNS, PRESENT, all_sections
from tidegate.state.format.headers import keyed_header, reading
from tidegate.state.format.stream_reader import StreamReader
from tidegate.state.format.streams import in_streams
from tidegate.state.user.keys import paired

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.state.format.blocks import Block
    from tidegate.state.format.headers import KeyedHeader
    from tidegate.storage.reading import StateReader
    from tidegate.storage.state_files import StateFiles
    from tidegate.typeinfo.serializers import Reader

_CACHE_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Size:
    """A number of entries, and their stored bytes, keys included."""

    entries: int = 0
    size_bytes: int = 0

    def add(self, entries: int, size_bytes: int) -> None:
        self.entries += entries
        self.size_bytes += size_bytes


Sizes = dict[str, defaultdict[int, Size]]
"""By name of a state, and key group."""


def keyed_sizes(
    handles: Iterable[KeyedStateHandle], files: StateFiles, reader: StateReader
) -> Sizes:
    """Sizes of the keyed state of one operator, over the handles of all its subtasks.

    A state without entries is there, without key groups. Raises RestoreRefused if a file is
    gone, FormatError, StorageFailed; handles that only Flink writes are passed over.
    """
    sizes = _Sizes(files, reader)
    try:
        for handle in handles:
            sizes.add(handle)
    except FileMissing as error:
        raise RestoreRefused(
            error.what,
            where=f"{reader.where}, {error.where}",
            remedy="Put the file back; 'tidegate fsck' says what else is missing.",
        ) from error
    return sizes.found


class _Sizes:
    def __init__(self, files: StateFiles, reader: StateReader) -> None:
        self._files = files
        self._reader = reader
        self.found: Sizes = {}

    def add(self, handle: KeyedStateHandle) -> None:
        streams = list(in_streams([handle], handle.key_groups, self._reader.read))
        if any(isinstance(each, IncrementalRemoteKeyedStateHandle) for each in streams):
            self._database(handle)
        else:
            self._layers([each for each in streams if isinstance(each, KeyGroupsStateHandle)])

    def _of(self, name: str) -> defaultdict[int, Size]:
        return self.found.setdefault(name, defaultdict(Size))

    def _layers(self, handles: Sequence[KeyGroupsStateHandle]) -> None:
        """Streams in order; later ones overwrite earlier ones."""
        with ExitStack() as opened:
            layers = [
                _Layer(each, opened.enter_context(self._files.open_handle(each.delegate)))
                for each in handles
            ]
            for name in [name for layer in layers for name in layer.names]:
                self._of(name)
            for group in handles[0].key_groups if handles else ():
                self._group(group, layers)

    def _group(self, group: int, layers: Iterable[_Layer]) -> None:
        blocks: defaultdict[str, list[tuple[_Layer, Block]]] = defaultdict(list)
        for layer in layers:
            for block in layer.blocks(group):
                if block.kind == COLUMNS:
                    self._columns(layer.header, group, block)
                else:
                    blocks[layer.header.states[block.state].name].append((layer, block))
        for name, written in blocks.items():
            entries, size = _counted(written)
            if entries:
                self._of(name)[group].add(entries, size)

    def _columns(self, header: KeyedHeader, group: int, block: Block) -> None:
        assert header.columns is not None, "its blocks say so"
        with reading("columns"):
            schema = pa.ipc.read_schema(pa.py_buffer(header.columns.schema))
            batch = pa.ipc.read_record_batch(pa.py_buffer(block.values), schema)
        beside = 2 if header.columns.panes else 1
        for name, column in zip(schema.names[beside:], batch.columns[beside:], strict=True):
            self._of(name)[group].add(len(batch), column.nbytes)

    def _database(self, handle: KeyedStateHandle) -> None:
        with key_space(handle, self._reader, cache_bytes=_CACHE_BYTES) as space:
            known = () if space.header is None else space.header.states
            states = {state.number: (state, self._of(state.name)) for state in known}
            before = b""
            for name, entry in space.store.scan(b""):
                group, number = int.from_bytes(name[:2]), int.from_bytes(name[2:PREFIX_BYTES])
                if number in states and group in handle.key_groups:
                    state, sizes = states[number]
                    owner = name_of(state, name)
                    sizes[group].add(int(owner != before), len(name) + len(entry))
                    before = owner
            for data in space.columns:
                self._all_columns(memoryview(data))

    def _all_columns(self, data: memoryview) -> None:
        header = keyed_header(data, self._reader.where)
        for group, blocks in all_sections(data, self._reader.where):
            for block in blocks:
                if block.kind == COLUMNS:
                    self._columns(header, group, block)


class _Layer:
    def __init__(self, handle: KeyGroupsStateHandle, stream: BinaryIO) -> None:
        self._handle = handle
        self._where = handle.delegate.physical_id
        self._reader = StreamReader(stream, handle.state_size, self._where)
        self.header = self._reader.header
        self.names = [state.name for state in self.header.states]
        self._keys: dict[int, Reader] = {}

    def blocks(self, group: int) -> Iterator[Block]:
        for _, blocks in self._reader.sections(self._handle, [group]):
            yield from blocks

    def keys(self, block: Block) -> list[Any]:
        reader = self._keys.get(block.state)
        if reader is None:
            state = self.header.states[block.state]
            assert self.header.key is not None, "entries have told the type of the keys"
            beside = state.namespace
            namespace = None if beside is None else serializer_read(beside).type_info
            keys = serializer_read(self.header.key)
            reader = self._keys[block.state] = paired(keys, namespace)
        with reading(self._where):
            return reader.decode_many(block.keys)


def _counted(written: Sequence[tuple[_Layer, Block]]) -> tuple[int, int]:
    """Entries and bytes of a state in a key group; later blocks overwrite earlier ones."""
    if len(written) == 1:
        [(_, block)] = written
        return (block.rows, _bytes(block)) if block.kind == PRESENT else (0, 0)
    last: dict[Any, int] = {}
    for index, (layer, block) in enumerate(written):
        for key in layer.keys(block):
            if block.kind == PRESENT:
                last[key] = index
            else:
                last.pop(key, None)
    kept = Counter(last.values())
    # Without decoding values the size of an entry is unknown, so each gets an equal share.
    return len(last), sum(
        _bytes(written[index][1]) * count // written[index][1].rows for index, count in kept.items()
    )


def _bytes(block: Block) -> int:
    return len(block.keys) + len(block.values)
