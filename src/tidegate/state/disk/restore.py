"""A key space from what snapshots hold: their folders of files, or blocks of entries.

Of several folders, as there are where the parallelism has changed, the one that covers most of the
subtask's key groups is taken as it is, with what is not the subtask's cut off by range deletions;
the entries of the others are gathered into files, which the key space takes in whole. So are
entries in blocks, a key group at a time: no more of them is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, islice
from operator import lt
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flinkformat.handles import IncrementalRemoteKeyedStateHandle, KeyGroupsStateHandle
from tidegate.errors import FormatError, RestoreRefused, SerializerIncompatible
from tidegate.state.disk.by_entry import WHOLE, beginning, is_stored_by_entry, map_type_of
from tidegate.state.disk.files import COLUMNS_FILE, download
from tidegate.state.disk.store import RocksDBStore, Rows, after, prefix_of
from tidegate.state.format.blocks import (
    COLUMNS,
    PRESENT,
    KeyedHeader,
    RocksDBHeader,
    RocksDBState,
    Version,
    keyed_header,
    reading,
    rocksdb_header,
    section,
)
from tidegate.state.format.streams import bases, in_streams, log_streams
from tidegate.state.user.kinds import Kind
from tidegate.typeinfo.plain_keys import are_alike
from tidegate.typeinfo.serializers import (
    SerializerSnapshot,
    serializer_of,
    split_maps,
    split_piece,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.disk.files import LocalPlace
    from tidegate.state.disk.store import Slice
    from tidegate.state.format.blocks import Block
    from tidegate.storage.reading import StateReads
    from tidegate.typeinfo.types import MapTypeInfo

    Run = Iterable[Slice]

_ROWS_A_SLICE: Final = 1024
"""Entries that are written to a file at a time."""


@dataclass(slots=True)
class RestoredSpace:
    """A key space and what it holds.

    handle: the one whose folder it has begun with, unchanged. columns: columnar state, as written.
    """

    store: RocksDBStore
    header: RocksDBHeader | None = None
    handle: IncrementalRemoteKeyedStateHandle | None = None
    columns: list[memoryview] = field(default_factory=list[memoryview])


def restored_space(
    handles: Sequence[KeyedStateHandle],
    key_groups: KeyGroupRange,
    local: LocalPlace,
    reader: StateReads,
    where: str,
) -> RestoredSpace:
    """The key space of a subtask, in a new folder. Blocking. where: names the operator in errors.

    Raises what reading raises, and RestoreRefused for handles of another kind.
    """
    logs = log_streams(handles, key_groups, reader.read)
    handles = list(in_streams(bases(handles), key_groups, reader.read))
    folders, blocks = by_form(handles, where)
    folders.sort(key=lambda each: -len(each.key_groups.intersection(key_groups)))
    restore = _Restore(key_groups, local, reader, where)
    try:
        for handle in folders:
            restore.folder(handle)
        for handle in blocks:
            restore.blocks(handle, restore.ingest)
        for handle in logs:
            restore.blocks(handle, restore.write)
        return restore.ended(folders)
    except BaseException:
        restore.give_up()
        raise


def by_form(
    handles: Sequence[KeyedStateHandle], where: str
) -> tuple[list[IncrementalRemoteKeyedStateHandle], list[KeyGroupsStateHandle]]:
    """Folders of files, and blocks of entries. Raises RestoreRefused for handles of another kind.

    where: names the operator in errors.
    """
    folders = [each for each in handles if isinstance(each, IncrementalRemoteKeyedStateHandle)]
    blocks = [each for each in handles if isinstance(each, KeyGroupsStateHandle)]
    if len(folders) + len(blocks) < len(handles):
        raise RestoreRefused(
            "The keyed state is in a form that the RocksDB backend can't read",
            where=where,
            remedy="Restore from a checkpoint or savepoint that Tidegate has written.",
        )
    return folders, blocks


class _Restore:
    def __init__(
        self,
        key_groups: KeyGroupRange,
        local: LocalPlace,
        reader: StateReads,
        where: str,
    ) -> None:
        self._key_groups = key_groups
        self._local = local
        self._reader = reader
        self._where = where
        self._store: RocksDBStore | None = None
        self._header: RocksDBHeader | None = None
        self._columns: list[memoryview] = []

    def folder(self, handle: IncrementalRemoteKeyedStateHandle) -> None:
        """Takes a folder of files; the first one as it is."""
        folder, meta = self._fetched(handle)
        header = rocksdb_header(memoryview(meta), handle.meta.physical_id)
        if self._store is None:
            self._header = header
            self._store = RocksDBStore(folder, self._local.memory)
            self._clip(handle.key_groups)
            return
        other = RocksDBStore(folder, self._local.memory)
        try:
            targets = [(state, self._joined(state, header.key)) for state in header.states]
            self._check_forms(targets)
            targets.sort(key=lambda pair: pair[1].number)
            groups = handle.key_groups.intersection(self._key_groups)
            entries = _entries_of(other, targets, groups)
            self._store.ingest(entries, self._local.folders.new_folder())
        finally:
            other.destroy()

    def blocks(self, handle: KeyGroupsStateHandle, take: Callable[[Iterator[Run]], None]) -> None:
        """Take in blocks of entries, as the HashMap backend, savepoints and logs have them.

        They are laid over what is there already. take: one of the two ways below.
        """
        fresh = self._store is None
        store = self._store = self._store or self._empty()

        def clear(beginnings: list[bytes]) -> None:
            if not fresh:
                store.write(store.batch(Rows((), (), beginnings)))

        data = self._reader.view(handle.delegate, self._local.folders.new_folder)
        header = keyed_header(data, handle.delegate.physical_id)
        if header.columns is not None:
            self._columns.append(data)
        states = [(state, self._joined(state, header.key)) for state in _as_stored(header)]
        groups = handle.key_groups.intersection(self._key_groups)
        gone: list[bytes] = []
        with reading(self._where):
            take(
                run
                for group in groups
                for run in _section_runs(data, handle, group, states, gone, clear)
            )
        self._store.write(self._store.batch(Rows((), gone)))

    def ingest(self, runs: Iterator[Run]) -> None:
        # Entries of a savepoint are many: files take them in quickest.
        assert self._store is not None, "a key space was opened"
        self._store.ingest(chain.from_iterable(runs), self._local.folders.new_folder())

    def write(self, runs: Iterator[Run]) -> None:
        # The parts of a log are many, and each is small: a file each would be too much.
        assert self._store is not None, "a key space was opened"
        for run in runs:
            entries = [entry for names, pieces in run for entry in zip(names, pieces, strict=True)]
            self._store.write(self._store.batch(Rows(entries, ())))

    def ended(self, folders: Sequence[IncrementalRemoteKeyedStateHandle]) -> RestoredSpace:
        store = self._store or self._empty()
        whole = len(folders) == 1 and folders[0].key_groups == self._key_groups
        return RestoredSpace(store, self._header, folders[0] if whole else None, self._columns)

    def give_up(self) -> None:
        if self._store is not None:
            self._store.destroy()

    def _empty(self) -> RocksDBStore:
        return RocksDBStore(self._local.folders.new_folder(), self._local.memory)

    def _fetched(self, handle: IncrementalRemoteKeyedStateHandle) -> tuple[Path, bytes]:
        """Files of a handle in a new folder, from a copy on this machine if there is one."""
        local = self._local
        folder, threads = local.folders.new_folder(), local.files.transfer_threads
        meta = download(handle, folder, self._reader, threads=threads, local=local.folders)
        columns = folder / COLUMNS_FILE
        if columns.exists():
            self._columns.append(memoryview(columns.read_bytes()))
            columns.unlink()
        return folder, meta

    def _clip(self, held: KeyGroupRange) -> None:
        assert self._store is not None, "a key space was opened"
        wanted = held.intersection(self._key_groups)
        if wanted == held:
            return
        self._store.delete_range(b"", prefix_of(wanted.first))
        self._store.delete_range(prefix_of(wanted.last + 1), None)

    def _joined(self, state: RocksDBState, key: bytes | None) -> RocksDBState:
        """State of that name in the key space, with the way its entries were written."""
        header = self._header or RocksDBHeader(b"", 0, 0, key, [])
        if header.key is not None and key is not None and not _alike(header.key, key):
            raise SerializerIncompatible(
                "The subtasks of the snapshot have keys of different types",
                where=self._where,
                remedy="Restore at the parallelism that the snapshot was taken with.",
            )
        held = next((each for each in header.states if each.name == state.name), None)
        if held is None:
            number = 1 + max((each.number for each in header.states), default=-1)
            held = replace(state, number=number)
        added = [version for version in state.versions if version not in held.versions]
        joined = replace(
            held,
            versions=[*held.versions, *added],
            parts=max(held.parts, state.parts),
            # Nothing expires before its time because another subtask had an earlier start.
            timed_ms=max(held.timed_ms, state.timed_ms),
        )
        others = [each for each in header.states if each.name != state.name]
        states = sorted([*others, joined], key=lambda each: each.number)
        self._header = RocksDBHeader(
            header.operator, header.checkpoint, header.max_parallelism, header.key or key, states
        )
        return joined

    def _check_forms(self, targets: Sequence[tuple[RocksDBState, RocksDBState]]) -> None:
        for state, joined in targets:
            if state.by_entry != joined.by_entry:
                raise SerializerIncompatible(
                    "The subtasks of the snapshot have their maps or lists in different forms",
                    where=f"{self._where}, state '{state.name}'",
                    remedy="Restore at the parallelism that the snapshot was taken with.",
                )


def _section_runs(
    data: memoryview,
    handle: KeyGroupsStateHandle,
    group: int,
    states: Sequence[tuple[RocksDBState, RocksDBState]],
    gone: list[bytes],
    clear: Callable[[list[bytes]], None],
) -> Iterator[Iterable[Slice]]:
    """The entries of a key group as they are to be in the key space, in its order.

    gone: takes the keys that have none. clear: is given how the entries of those maps and lists
    begin that are to be replaced.
    """
    offset = handle.offset_of(group)
    if not offset:
        return
    found: dict[int, list[Block]] = {}
    for block in section(data, offset, group, handle.delegate.physical_id):
        if block.kind != COLUMNS:
            found.setdefault(block.state, []).append(block)
    for index in sorted(found, key=lambda index: states[index][1].number):
        was, state = states[index]
        tag = bytes([state.versions.index(was.versions[0])])
        prefix = prefix_of(group, state.number)
        if state.by_entry and state.kind == Kind.LIST.value:
            yield _list_run(found[index], prefix, tag, clear)
        elif state.by_entry:
            yield _map_run(found[index], prefix, tag, map_type_of(state), clear)
        else:
            yield _run(found[index], prefix, tag, gone)


def _run(blocks: Sequence[Block], prefix: bytes, tag: bytes, gone: list[bytes]) -> Iterable[Slice]:
    """Entries of one state; later blocks win."""
    of_blocks = [_split(block.keys, block, prefix) for block in blocks]
    names = list(chain.from_iterable(of_blocks))
    whole = all(block.kind == PRESENT for block in blocks)
    if whole and all(map(lt, names, islice(names, 1, None))):
        return zip(of_blocks, (_pieces(block, tag) for block in blocks), strict=True)
    pieces = chain.from_iterable(_pieces(block, tag) for block in blocks)
    last = dict(zip(names, pieces, strict=True))
    gone += [name for name in last if not last[name]]
    return _sliced([(name, last[name]) for name in sorted(last) if last[name]])


def _sliced(entries: Sequence[tuple[bytes, bytes]]) -> Iterator[Slice]:
    for start in range(0, len(entries), _ROWS_A_SLICE):
        some = entries[start : start + _ROWS_A_SLICE]
        yield [name for name, _ in some], [piece for _, piece in some]


def _pieces(block: Block, tag: bytes) -> list[bytes]:
    """Values of a block; an empty one for each missing key."""
    return _split(block.values, block, tag) if block.kind == PRESENT else [b""] * block.rows


def _split(data: bytes | memoryview, block: Block, before: bytes) -> list[bytes]:
    """One piece of a block split into single values. before: as of `split_piece`."""
    pieces = split_piece(data, before)
    if len(pieces) != block.rows:
        raise FormatError("A block of keyed state has another number of rows than it says")
    return pieces


def _list_run(
    blocks: Sequence[Block], prefix: bytes, tag: bytes, clear: Callable[[list[bytes]], None]
) -> Iterator[Slice]:
    """Entries of lists stored in parts."""
    gone: list[bytes] = []
    run = _run(blocks, prefix, tag, gone)
    clear(gone)
    for names, pieces in run:
        clear(names)
        yield [name + WHOLE for name in names], pieces


def _map_run(
    blocks: Sequence[Block],
    prefix: bytes,
    tag: bytes,
    type_info: MapTypeInfo,
    clear: Callable[[list[bytes]], None],
) -> Iterable[Slice]:
    """Entries of maps stored by entry; later blocks of a map win."""
    keys = serializer_of(type_info.key_type)
    maps: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for block in blocks:
        names = _split(block.keys, block, prefix)
        present = block.kind == PRESENT
        entries = split_maps(block.values, keys) if present else [[] for _ in range(block.rows)]
        if len(entries) != block.rows:
            raise FormatError("A block of keyed state has another number of rows than it says")
        maps.update(zip(names, entries, strict=True))
    clear([beginning(name) for name in maps])
    return _sliced(
        sorted(
            (beginning(name) + key, tag + value)
            for name, entries in maps.items()
            for key, value in entries
        )
    )


def _as_stored(header: KeyedHeader) -> Iterator[RocksDBState]:
    for number, state in enumerate(header.states):
        version = Version(state.serializer, ttl=state.ttl)
        type_info = SerializerSnapshot.from_bytes(state.serializer).type_info
        yield RocksDBState(
            state.name,
            state.kind,
            number,
            state.namespace,
            [version],
            by_entry=is_stored_by_entry(state.kind, type_info),
        )


def _entries_of(
    store: RocksDBStore,
    targets: Sequence[tuple[RocksDBState, RocksDBState]],
    groups: KeyGroupRange,
) -> Iterator[Slice]:
    """Entries in the form and order of the other key space."""
    for group in groups:
        for was, becomes in targets:
            first, prefix = prefix_of(group, was.number), prefix_of(group, becomes.number)
            size = len(first)
            tags = [bytes([becomes.versions.index(version)]) for version in was.versions]
            same = first == prefix and all(tag[0] == i for i, tag in enumerate(tags))
            for names, pieces in store.slices(first, after(first), _ROWS_A_SLICE):
                if not same:
                    names = [prefix + name[size:] for name in names]
                    pieces = [tags[piece[0]] + piece[1:] for piece in pieces]
                yield names, pieces


def _alike(one: bytes, other: bytes) -> bool:
    """True if two snapshots of serializers are of keys that are written alike."""
    types = (SerializerSnapshot.from_bytes(each).type_info for each in (one, other))
    return one == other or are_alike(*types)
