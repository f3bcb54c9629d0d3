"""Keyed state of one subtask as a snapshot holds it, read key group by key group.

A stream is a file of blocks, or the folder of a key space; what differs ends here. Only the key
groups that are asked for are read, and no more than one of them, or a piece of one, is in memory.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.handles import (
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsStateHandle,
    RelativeFileStateHandle,
)
from tidegate.errors import FileMissing, FormatError, RestoreRefused
from tidegate.model.ids import JobId, SlotId
from tidegate.model.settings import RocksDBSettings, StateFileSettings
from tidegate.state.disk.by_entry import together, wholes_of
from tidegate.state.disk.files import COLUMNS_FILE, SHAREABLE, LocalPlace
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.state.disk.restore import restored_space
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBMemory, after, prefix_of
from tidegate.state.format.blocks import (
    COLUMNS,
    PRESENT,
    Block,
    StateHeader,
    Version,
    reading,
    rocksdb_header,
)
from tidegate.state.format.streams import StreamReader, bases, in_streams, log_streams
from tidegate.state.heap.hashmap import Present
from tidegate.state.heap.keyed import decoded_block
from tidegate.state.log.changelog import COLUMNS_ID
from tidegate.typeinfo.serializers import is_packed, join_pieces

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from flinkformat.handles import KeyedStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.disk.restore import RestoredSpace
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.format.blocks import (
        ColumnsHeader,
        KeyedHeader,
        RocksDBHeader,
        RocksDBState,
    )
    from tidegate.storage.reading import StateReader
    from tidegate.storage.state_files import StateFiles
    from tidegate.typeinfo.serializers import Reader

_ENTRIES_A_PIECE: Final = 65_536
_CACHE_BYTES: Final = 64 << 20

Piece = tuple[int, list[Any], list[Any]]
"""A key group, keys, and the entry of each."""


@frozen
class StoredState:
    """A state in a stream; fields as in `format.blocks.RocksDBState`."""

    name: str
    kind: str
    namespace: bytes | None
    versions: tuple[Version, ...]


@frozen
class EntryReaders:
    """Readers of a state in a stream. values: one for each version."""

    name: str
    keys: Reader
    values: Sequence[Reader]
    where: str


def keyed_streams(
    handle: KeyedStateHandle, files: StateFiles, reader: StateReader
) -> Iterator[KeyedStream]:
    """Streams of a subtask's handle. Reads headers only.

    Raises RestoreRefused for a handle of another kind, or whose file is missing, and FormatError.
    """
    layers: list[BlockStream | FolderStream] = []
    for stream in in_streams(bases([handle]), handle.key_groups, reader.read):
        match stream:
            case KeyGroupsStateHandle() if stream.state_handle_id.startswith(COLUMNS_ID):
                yield BlockStream(stream, files, reader.where)
            case KeyGroupsStateHandle():
                layers.append(BlockStream(stream, files, reader.where))
            case IncrementalRemoteKeyedStateHandle():
                layers.append(FolderStream(stream, reader))
                yield from _columns_beside(stream, files, reader.where)
            case _:
                raise RestoreRefused(
                    f"Keyed state in the form of {type(handle).__name__} is not Tidegate's own",
                    where=reader.where,
                    remedy="A savepoint that Flink wrote becomes ours with 'tidegate migrate'.",
                )
    log = log_streams([handle], handle.key_groups, reader.read)
    layers += [BlockStream(part, files, reader.where) for part in log]
    if layers:
        yield layers[0] if len(layers) == 1 else LayeredStream(layers, handle.key_groups)


@contextmanager
def _opened(files: StateFiles, handle: StreamStateHandle, where: str) -> Generator[StreamReader]:
    try:
        with files.open_handle(handle) as stream:
            yield StreamReader(stream, handle.state_size, handle.physical_id)
    except FileMissing as error:
        raise RestoreRefused(
            f"A file of state is missing: {handle.physical_id}",
            where=where,
            remedy="Put the file back, or read another snapshot; 'tidegate fsck' says what else "
            "is missing.",
        ) from error


def _columns_beside(
    folder: IncrementalRemoteKeyedStateHandle, files: StateFiles, where: str
) -> Iterator[BlockStream]:
    """Columnar state of a folder: a stream of blocks; a walk finds its sections."""
    for file in (*folder.shared_state, *folder.private_state):
        if file.local_path != COLUMNS_FILE:
            continue
        with _opened(files, file.handle, where) as stream:
            offsets = dict(stream.walk())
        known = tuple(offsets.get(group, 0) for group in folder.key_groups)
        handle = KeyGroupsStateHandle(folder.key_groups, known, file.handle, COLUMNS_FILE)
        yield BlockStream(handle, files, where)


class BlockStream:
    """A file of blocks, as the HashMap backend, savepoints and columnar state have them."""

    def __init__(self, handle: KeyGroupsStateHandle, files: StateFiles, where: str) -> None:
        self._handle = handle
        self._files = files
        self._where = where
        self.key_groups = handle.key_groups

    @cached_property
    def _header(self) -> KeyedHeader:
        with _opened(self._files, self._handle.delegate, self._where) as stream:
            return stream.header

    @property
    def key(self) -> bytes | None:
        return self._header.key

    @property
    def columns(self) -> ColumnsHeader | None:
        return self._header.columns

    @cached_property
    def states(self) -> Mapping[str, StoredState]:
        """States by name. A state that was restored and not used may have been written twice."""
        found: dict[str, StoredState] = {}
        for state in self._header.states:
            held = found.get(state.name)
            versions = () if held is None else held.versions
            added = Version(state.serializer, ttl=state.ttl)
            found[state.name] = StoredState(
                state.name, state.kind, state.namespace, (*versions, added)
            )
        return found

    def entries(self, groups: Sequence[int], readers: EntryReaders) -> Iterator[Piece]:
        """Entries of a state in some key groups, each key once.

        groups: of this stream's. Raises RestoreRefused, FormatError, StorageFailed.
        """
        return LayeredStream([self], self.key_groups).entries(groups, readers)

    @property
    def headers(self) -> list[StateHeader]:
        return self._header.states

    def sections(self, groups: Sequence[int]) -> Iterator[tuple[int, Iterable[Block]]]:
        """Key groups with state, and their raw blocks. Raises as `entries`."""
        with _opened(self._files, self._handle.delegate, self._where) as stream:
            yield from stream.sections(self._handle, groups)


class LayeredStream:
    """Layered streams of an incremental checkpoint or a changelog; later layers win.

    layers: oldest first; each of some of the key groups.
    """

    columns: ColumnsHeader | None = None

    def __init__(
        self, layers: Sequence[BlockStream | FolderStream], key_groups: KeyGroupRange
    ) -> None:
        self._layers = layers
        self.key_groups = key_groups

    @property
    def key(self) -> bytes | None:
        return next((layer.key for layer in self._layers if layer.key is not None), None)

    @cached_property
    def states(self) -> Mapping[str, StoredState]:
        found: dict[str, StoredState] = {}
        for layer in self._layers:
            for name, state in layer.states.items():
                older = found[name].versions if name in found else ()
                found[name] = replace(state, versions=older + state.versions)
        return found

    def entries(self, groups: Sequence[int], readers: EntryReaders) -> Iterator[Piece]:
        left = iter(readers.values)
        values = [_readers_of(layer.headers, readers.name, left) for layer in self._layers]
        for group, layers in self._merged(groups):
            found: dict[Any, Any] = {}
            for index, blocks in layers:
                _lay_over(found, blocks, readers, values[index])
            if found:
                yield group, list(found), list(found.values())

    @property
    def headers(self) -> list[StateHeader]:
        """Headers of all layers, the oldest first."""
        return [header for layer in self._layers for header in layer.headers]

    def sections(self, groups: Sequence[int]) -> Iterator[tuple[int, Iterable[Block]]]:
        first = list(accumulate((len(layer.headers) for layer in self._layers), initial=0))
        for group, layers in self._merged(groups):
            yield (
                group,
                [
                    replace(block, state=block.state + first[index])
                    for index, blocks in layers
                    for block in blocks
                ],
            )

    def _merged(
        self, groups: Sequence[int]
    ) -> Iterator[tuple[int, Iterator[tuple[int, Iterable[Block]]]]]:
        """Key groups of any layer, each with the blocks of all layers, the oldest first."""
        place = {group: index for index, group in enumerate(groups)}

        def sections_of(index: int) -> Iterator[tuple[int, int, Iterable[Block]]]:
            layer = self._layers[index]
            own = [group for group in groups if group in layer.key_groups]
            for group, blocks in layer.sections(own):
                yield place[group], index, blocks

        sections = heapq.merge(*map(sections_of, range(len(self._layers))), key=itemgetter(0, 1))
        for at, of_group in groupby(sections, key=itemgetter(0)):
            yield groups[at], ((index, blocks) for _, index, blocks in of_group)


def _readers_of(
    headers: Sequence[StateHeader], name: str, values: Iterator[Reader]
) -> dict[int, Reader]:
    return {index: next(values) for index, state in enumerate(headers) if state.name == name}


def _lay_over(
    found: dict[Any, Any],
    blocks: Iterable[Block],
    readers: EntryReaders,
    values: Mapping[int, Reader],
) -> None:
    with reading(readers.where):
        for block in blocks:
            if block.kind == COLUMNS or block.state not in values:
                continue
            said = decoded_block(block, readers.keys, values[block.state], readers.where)
            if isinstance(said, Present):
                found.update(zip(said.keys, said.values, strict=True))
            else:
                for key in said.keys:
                    found.pop(key, None)


class FolderStream:
    """The files of a key space, rebuilt in a temporary folder for reading."""

    def __init__(self, handle: IncrementalRemoteKeyedStateHandle, reader: StateReader) -> None:
        self._handle = handle
        self._reader = reader
        self.key_groups = handle.key_groups

    @cached_property
    def _header(self) -> RocksDBHeader:
        meta = self._reader.read(self._handle.meta)
        return rocksdb_header(memoryview(meta), self._handle.meta.physical_id)

    @property
    def key(self) -> bytes | None:
        return self._header.key

    @cached_property
    def states(self) -> Mapping[str, StoredState]:
        return {
            state.name: StoredState(state.name, state.kind, state.namespace, tuple(state.versions))
            for state in self._header.states
        }

    @property
    def columns(self) -> ColumnsHeader | None:
        """None: columns are in a stream of their own."""
        return None

    def entries(self, groups: Sequence[int], readers: EntryReaders) -> Iterator[Piece]:
        state = next(each for each in self._header.states if each.name == readers.name)
        with self._space() as space:
            for group in groups:
                for some in _scanned(space.store, group, state):
                    with reading(readers.where):
                        keys = _keys([k[PREFIX_BYTES:] for k, _ in some], readers.keys)
                        values = _values([value for _, value in some], readers.values)
                    if state.by_entry:
                        keys, values = _each_once(keys, values)
                    yield group, keys, values

    @property
    def headers(self) -> list[StateHeader]:
        return self._header.in_blocks()

    def sections(self, groups: Sequence[int]) -> Iterator[tuple[int, Iterable[Block]]]:
        """Key groups, and their entries as blocks. Raises as `BlockStream.entries`."""
        with self._space() as space:
            for group in groups:
                blocks = list(self._blocks(space.store, group))
                if blocks:
                    yield group, blocks

    def _space(self) -> AbstractContextManager[RestoredSpace]:
        return key_space(self._handle, self._reader, cache_bytes=_CACHE_BYTES)

    def _blocks(self, store: RocksDBStore, group: int) -> Iterator[Block]:
        first = 0
        for state in self._header.states:
            for some in _scanned(store, group, state):
                if state.by_entry and len(some) > len({name for name, _ in some}):
                    raise RestoreRefused(
                        f"The state '{state.name}' has maps or lists of several types in one",
                        where=self._reader.where,
                        remedy="Use a savepoint in canonical form, which has one type a state.",
                    )
                alike: dict[tuple[int, bytes, bytes], list[tuple[bytes, bytes]]] = {}
                for name, piece in some:
                    form = piece[0], name[PREFIX_BYTES : PREFIX_BYTES + 1], piece[1:2]
                    alike.setdefault(form, []).append((name, piece))
                for (version, _, _), entries in alike.items():
                    keys = join_pieces([name[PREFIX_BYTES:] for name, _ in entries])
                    values = join_pieces([piece[1:] for _, piece in entries])
                    yield Block(PRESENT, first + version, len(entries), keys, values)
            first += len(state.versions)


def _scanned(
    store: RocksDBStore, group: int, state: RocksDBState
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Entries of a state in a key group, piece by piece.

    Maps and lists are whole; one of several types comes as several, one after the other.
    """
    if state.by_entry:
        wholes = wholes_of(store, state, group)
        while some := list(islice(wholes, _ENTRIES_A_PIECE)):
            yield [(name, piece) for name, pieces in some for piece in pieces]
        return
    prefix = prefix_of(group, state.number)
    scan = store.scan(prefix, after(prefix))
    while some := list(islice(scan, _ENTRIES_A_PIECE)):
        yield some


def _each_once(keys: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, part in zip(keys, values, strict=True):
        found.setdefault(key, []).append(part)
    return list(found), [together(parts) for parts in found.values()]


def _keys(pieces: Sequence[bytes], reader: Reader) -> list[Any]:
    if all(map(is_packed, pieces)):
        return reader.decode_many(join_pieces(pieces))
    return reader.decode_each(pieces)


def _values(pieces: Sequence[bytes], versions: Sequence[Reader]) -> list[Any]:
    """Entries as they are on disk: a byte for the version, then the value."""
    forms = {piece[:2] for piece in pieces}
    if max(forms)[0] >= len(versions):
        raise FormatError("An entry on disk is of a version that its state does not have")
    bare = [piece[1:] for piece in pieces]
    if len(forms) > 1:
        read = versions.__getitem__
        return [
            read(piece[0]).decode_each((each,))[0] for piece, each in zip(pieces, bare, strict=True)
        ]
    reader = versions[pieces[0][0]]
    if is_packed(bare[0]):
        return reader.decode_many(join_pieces(bare))
    return reader.decode_each(bare)


KeyedStream = BlockStream | LayeredStream | FolderStream
"""Keyed state of a range of key groups; all have the same attributes and methods."""


@contextmanager
def key_space(
    handle: KeyedStateHandle, reader: StateReader, *, cache_bytes: int
) -> Generator[RestoredSpace]:
    """Files of a handle, and the changes in its log, in a temporary folder.

    Raises RestoreRefused, FormatError and StorageFailed, as a restore does.
    """
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-read-"))
    settings = RocksDBSettings(memory_bytes=cache_bytes, compaction_style="NONE")
    folders = LocalFolders(JobId("read"), SlotId("read"), [scratch])
    local = LocalPlace(folders, "read", RocksDBMemory(settings), StateFileSettings())
    try:
        linking = _LinkingReader(reader)
        space = restored_space([handle], handle.key_groups, local, linking, reader.where)
        try:
            yield space
        finally:
            space.store.close()
    finally:
        folders.close(over=True)
        shutil.rmtree(scratch, ignore_errors=True)


class _LinkingReader:
    """Links local tables instead of copying them, since they are only read.

    RocksDB's own checksums detect damage in what is read of them.
    """

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self.where = reader.where
        self.read = reader.read
        self.view = reader.view
        self.holds = reader.holds

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        file = Path(handle.physical_id.removeprefix("file://"))
        alone = isinstance(handle, FileStateHandle | RelativeFileStateHandle)
        here = alone and target.suffix == SHAREABLE and file.is_absolute() and file.is_file()
        if here and file.stat().st_size == handle.state_size:
            target.symlink_to(file)
        else:
            self._reader.copy(handle, target)
