"""All keyed rows of one operator on disk: its tables by name, its cache, its snapshots.

A snapshot's quick part sets aside what was written since the last one. Its layers are then made
bytes in slices on the loop, written, flushed and linked by whoever uploads, one snapshot after the
other: writing holds the interpreter for a millisecond or two at a time, flushing not at all
(docs/design/state-on-disk.md).
"""

from __future__ import annotations

import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.api.state import MapStateDescriptor, ValueStateDescriptor
from tidegate.errors import SerializerIncompatible
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.state.disk.by_entry import is_stored_by_entry, value_snapshot
from tidegate.state.disk.canonical import write_canonical
from tidegate.state.disk.entries import EntryCodec, EntryTable
from tidegate.state.disk.files import COLUMNS_FILE, IncrementalFiles
from tidegate.state.disk.layered import LayeredTable
from tidegate.state.disk.lists import DiskListState, ListCodec
from tidegate.state.disk.maps import DiskMapState, MapCodec
from tidegate.state.disk.restore import restored_space
from tidegate.state.disk.snapshot import RocksDBSnapshot
from tidegate.state.disk.store import RocksDBStore
from tidegate.state.format.blocks import (
    COLUMNS,
    MISSING,
    PRESENT,
    RocksDBHeader,
    RocksDBState,
    StateHeader,
    Version,
    all_sections,
    header_bytes,
    keyed_header,
)
from tidegate.state.format.encoding import (
    VERSIONS_MAX,
    Keys,
    StoredKeys,
    StoredMapKeys,
    StoredValues,
)
from tidegate.state.user import kinds, ttl
from tidegate.state.user.asked import StatesByName
from tidegate.typeinfo.serializers import SerializerSnapshot, join_pieces, serializer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flinkformat.handles import (
        IncrementalRemoteKeyedStateHandle,
        KeyedStateHandle,
    )
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.state.disk.files import LocalPlace
    from tidegate.state.disk.layered import Codec, Log
    from tidegate.state.disk.snapshot import Upload
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Append, Base
    from tidegate.state.protocols import WrittenColumns
    from tidegate.state.scope import BesideRows, StateScope
    from tidegate.state.user.asked import Asked
    from tidegate.storage.places import Place
    from tidegate.storage.reading import StateReads

P = TypeVar("P")

_HARD_LIMIT: Final = 4
"""How many times the cache may be overdrawn while a snapshot is being linked."""


class RocksDBBackend:
    """A `protocols.LoggedBackend` on disk, opened when it is first used.

    log: where changes go; None where they do not.
    """

    prepares = True

    def __init__(
        self, scope: StateScope, local: LocalPlace, *, log: ChangeLog | None = None
    ) -> None:
        self._scope = scope
        self._local = local
        self._log = log
        self._store: RocksDBStore | None = None
        self._files = self._new_files()
        self._keys = Keys(scope.key_type, scope.where)
        self._states: dict[str, RocksDBState] = {}
        self._tables: dict[str, LayeredTable[Any]] = {}
        self._lists: dict[str, DiskListState] = {}
        self._read_ahead: list[Callable[[Sequence[object], Sequence[int]], None]] = []
        # Snapshots that are not linked yet, the oldest first.
        self._links: list[RocksDBSnapshot] = []
        self._lock = threading.RLock()
        self.state = StatesByName(scope.where, self._made).state

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        if not handles:
            return []
        scope = self._scope
        space = restored_space(handles, scope.key_groups, self._local, reader, scope.where)
        if space.handle is not None:
            self._files = self._new_files(space.handle)
        self._store = space.store
        if space.header is not None:
            self._states = {state.name: state for state in space.header.states}
            if space.header.key is not None:
                self._keys.restore(space.header.key)
        return [self._columns(data) for data in space.columns]

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        return self._tables[state].scan()

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        """Read at once what its rows will ask for, and keep to the memory.

        Raises StorageFailed if the disk has failed, also while something else was written.
        """
        del encoding
        if self._store is None or not isinstance(batch, RowBatch) or batch.keys is None:
            return
        if self._store.lost is not None:
            raise self._store.lost
        for table in self._tables.values():
            table.settle()
        excess = self.undrained - self._entries_max()
        if excess > 0:
            self._relieve(excess)
        for read_ahead in self._read_ahead:
            read_ahead(batch.keys, batch.key_groups or ())

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> RocksDBSnapshot:
        if not self._states:
            upload = partial(self._upload_columns, checkpoint, columns)
        elif options.canonical:
            values = {name: table.codec.wholes for name, table in self._tables.items()}
            upload = partial(self._upload_canonical, checkpoint, self._held, values, columns)
        else:
            upload = partial(self._upload_native, checkpoint, self._held, columns)
        return self._frozen(upload, columns=columns)

    def entries(self) -> Mapping[str, int]:
        return {}  # RocksDB would look through its files

    def sizes(self) -> Mapping[str, int]:
        return {}  # states share files, and the library for Python gives no sizes of key ranges

    def figure(self, name: str) -> int | None:
        return None if self._store is None else self._store.figure(name)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._files.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._files.named.on_aborted(checkpoint)

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.destroy()

    # --- for a log ---

    @property
    def key_type(self) -> bytes | None:
        key = self._keys.serializer
        return None if key is None else key.snapshot().to_bytes()

    @property
    def undrained(self) -> int:
        return sum(table.unwritten for table in self._tables.values())

    def drain(self, rows: int) -> None:
        """Writes about this many of them to the log and to disk, unless a snapshot comes first."""
        if self._links:
            return
        for table in self._tables.values():
            table.settle()
        max(self._tables.values(), key=lambda each: each.unwritten).spill(rows)

    def cut(self, sealed: Callable[[], None]) -> RocksDBSnapshot | None:
        if not self._states:
            return None
        return self._frozen(lambda cut, _: cut.settle(), linked=False, encoded=sealed)

    def whole(self, checkpoint: CheckpointId, number: CheckpointId) -> RocksDBSnapshot:
        if not self._states:
            return self._frozen(partial(self._upload_columns, checkpoint, None))
        held = self._held
        return self._frozen(
            lambda cut, place: self._upload_base(cut.link(), self._header(number, held), place)
        )

    def base(self, base: Base, place: Place) -> RocksDBSnapshot | None:
        del place
        if not self._states:
            return None
        # What a checkpoint has logged and not brought to disk yet is in no file of the base.
        base.position = self._links[0].position if self._links else base.position
        header = self._header(CheckpointId(base.number), self._held)
        return RocksDBSnapshot(
            [],
            (),
            lambda _, place: self._upload_base(self._link_now(), header, place),
            self._bring,
        )

    # --- memory ---

    def _entries_max(self) -> int:
        return self._local.memory.entries_max()

    def _share(self) -> int:
        return self._entries_max() // max(1, len(self._tables))

    def _relieve(self, excess: int) -> None:
        if self._links:
            waited_for = any(not snapshot.cancelled for snapshot in self._links)
            if waited_for and excess < self._entries_max() * (_HARD_LIMIT - 1):
                return
            newest = self._links[-1]
            while newest.step() is not None:
                pass
            self._bring(newest)
        # What was linked a moment ago is on disk, too.
        self.drain(excess + self._entries_max() // 16)

    # --- snapshots ---

    def _frozen(
        self,
        upload: Upload,
        *,
        columns: BesideRows | None = None,
        linked: bool = True,
        encoded: Callable[[], None] | None = None,
    ) -> RocksDBSnapshot:
        """Set aside what was written, the quick part of a snapshot."""
        snapshot = RocksDBSnapshot(
            [(table, table.freeze()) for table in self._tables.values()],
            tuple(self._links),
            upload,
            self._bring,
            columns=columns,
            linked=linked,
            encoded=encoded,
            position=0 if self._log is None else self._log.position,
        )
        if self._states:
            self._links.append(snapshot)
        return snapshot

    def _bring(self, last: RocksDBSnapshot) -> None:
        """Brings all snapshots up to this one to disk, in order. Blocking, on any thread."""
        with self._lock:
            while last in self._links:
                self._links[0].written(self._opened(), self._local.folders.new_folder)
                self._links.pop(0)

    def _link_now(self) -> Path:
        """A folder of links to what is on disk, whatever else waits. Blocking, on any thread."""
        with self._lock:
            store = self._opened()
            store.flush()
            folder = self._local.folders.new_folder()
            store.link(folder)
        return folder

    @property
    def _held(self) -> list[RocksDBState]:
        """How states stand in the key space, as of now."""
        for name, lists in self._lists.items():
            self._states[name] = replace(self._states[name], parts=lists.numbered)
        return list(self._states.values())

    def _header(self, checkpoint: CheckpointId, held: list[RocksDBState]) -> RocksDBHeader:
        """Describe a folder; once its bytes are made, since that tells the type of the keys."""
        scope = self._scope
        return RocksDBHeader(scope.operator, checkpoint, scope.max_parallelism, self.key_type, held)

    def _upload_native(
        self,
        checkpoint: CheckpointId,
        held: list[RocksDBState],
        columns: BesideRows | None,
        snapshot: RocksDBSnapshot,
        place: Place,
    ) -> IncrementalRemoteKeyedStateHandle:
        """Link the files and write those that are new."""
        folder = snapshot.link()
        try:
            if columns is not None:
                with (folder / COLUMNS_FILE).open("wb") as file:
                    self._scope.write_columns(file.write, checkpoint, columns)
            handle = self._files.upload(
                folder,
                checkpoint,
                place,
                shared=self._local.files.incremental,
                meta=header_bytes(self._header(checkpoint, held)),
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._local.folders.keep(handle, folder)
        return handle

    def _upload_canonical(
        self,
        checkpoint: CheckpointId,
        held: list[RocksDBState],
        values: dict[str, StoredValues],
        columns: BesideRows | None,
        snapshot: RocksDBSnapshot,
        place: Place,
    ) -> KeyGroupsStateHandle | None:
        """Write the entries as blocks, for all backends; None without any."""
        folder = snapshot.link()
        try:
            header = self._header(checkpoint, held)
            if header.key is None and columns is None:
                return None
            memory = self._local.memory
            return write_canonical(folder, memory, header, values, self._scope, place, columns)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _upload_columns(
        self,
        checkpoint: CheckpointId,
        columns: BesideRows | None,
        snapshot: RocksDBSnapshot,
        place: Place,
    ) -> KeyGroupsStateHandle | None:
        """Columns without rows are written as they are beside state in memory."""
        del snapshot
        if columns is None:
            return None
        scope = self._scope
        with place.stream() as stream:
            offsets = scope.write_columns(stream.write, checkpoint, columns)
            handle = stream.close_and_get_handle()
        return KeyGroupsStateHandle(
            scope.key_groups, offsets, handle, scope.handle_name(checkpoint)
        )

    def _upload_base(
        self, folder: Path, header: RocksDBHeader, place: Place
    ) -> IncrementalRemoteKeyedStateHandle:
        """Upload a folder for a log: its bases belong to no checkpoint, so no copy is kept."""
        try:
            return self._files.upload(
                folder,
                CheckpointId(header.checkpoint),
                place,
                shared=self._local.files.incremental,
                meta=header_bytes(header),
                placeholders=False,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _columns(self, data: memoryview) -> WrittenColumns:
        """Columnar state from a stream of blocks, of which only this subtask's are wanted."""
        where = self._scope.where
        header = keyed_header(data, where)
        assert header.columns is not None, "nothing else is written to a stream of its own"
        return header.columns, [
            (group, memoryview(block.values))
            for group, found in all_sections(data, where)
            if group in self._scope.key_groups
            for block in found
            if block.kind == COLUMNS
        ]

    def _new_files(
        self, restored: IncrementalRemoteKeyedStateHandle | None = None
    ) -> IncrementalFiles:
        return IncrementalFiles(
            self._local.backend_id,
            self._scope.key_groups,
            threads=self._local.files.transfer_threads,
            restored=restored,
        )

    # --- tables ---

    def _opened(self) -> RocksDBStore:
        if self._store is None:
            self._store = RocksDBStore(self._local.folders.new_folder(), self._local.memory)
        return self._store

    def _made(self, asked: Asked) -> State:
        descriptor, namespace, now_ms = asked.descriptor, asked.namespace, self._scope.clock.wall_ms
        held = self._placed(asked)
        stored = ttl.stored(descriptor)
        values = self._values(descriptor, held, asked.where, SerializerSnapshot.from_bytes)
        cell = self._scope.cell if namespace is None else self._scope.pair_cell
        if not held.by_entry:
            copy = kinds.entry_copier(stored)
            table = self._table(asked, held, EntryCodec(values, copy))
            entries = EntryTable(cell, table, copy, paired=namespace is not None)
            view, _ = ttl.view(descriptor, entries, now_ms)
            read_ahead = table.prefetch
        elif isinstance(descriptor, MapStateDescriptor):
            codec = self._map_codec(descriptor, values, held, asked.where)
            table = self._table(asked, held, codec)
            maps = DiskMapState(cell, table, codec)
            view = ttl.parts_view(descriptor, maps, maps, now_ms)
            read_ahead = table.prefetch
        else:
            codec = ListCodec(values, kinds.part_copier(stored))
            table = self._table(asked, held, codec)
            lists = self._lists[held.name] = DiskListState(cell, table, codec, held.parts)
            view = ttl.parts_view(descriptor, lists, lists, now_ms)
            read_ahead = lists.prefetch
        if namespace is None:
            self._read_ahead.append(read_ahead)
        self._states[held.name] = held
        self._tables[held.name] = table
        return view

    def _placed(self, asked: Asked) -> RocksDBState:
        """Describe how the state stands in the key space, its newest version last."""
        header = asked.header
        newest = Version(header.serializer, ttl=header.ttl)
        held = self._states.get(header.name)
        if held is None:
            number = 1 + max((state.number for state in self._states.values()), default=-1)
            by_entry = is_stored_by_entry(header.kind, asked.entries.type_info)
            held = RocksDBState(
                header.name, header.kind, number, header.namespace, [newest], by_entry
            )
        asked.check_restored(held.kind, held.namespace)
        was_timed = held.versions[-1].ttl and held.timed_ms
        if held.versions[-1] != newest:
            held = replace(held, versions=[*held.versions, newest])
        if newest.ttl and not was_timed and not all(each.ttl for each in held.versions):
            # Kept, for entries on disk stay as they are: each restore would make them new again.
            held = replace(held, timed_ms=self._scope.clock.wall_ms())
        if len(held.versions) > VERSIONS_MAX:
            raise SerializerIncompatible(
                f"The state has had {VERSIONS_MAX} types, which is the limit",
                where=asked.where,
                remedy="Restart from a savepoint in canonical format, which has one type a state.",
            )
        return held

    def _table(self, asked: Asked, held: RocksDBState, codec: Codec[P]) -> LayeredTable[P]:
        return LayeredTable(
            self._opened(),
            self._scope.key_groups,
            self._scope.max_parallelism,
            held.number,
            StoredKeys(self._keys, asked.namespace, asked.where),
            codec,
            entries_max=self._share,
            log=None if self._log is None else _logging(held, self._log.append),
        )

    def _map_codec(
        self,
        descriptor: MapStateDescriptor,
        wholes: StoredValues,
        held: RocksDBState,
        where: str,
    ) -> MapCodec:
        assert descriptor.type_info is not None, "map keys that are stored have a type"
        value = ValueStateDescriptor(
            descriptor.name, descriptor.value_type_info, ttl=descriptor.ttl
        )
        values = self._values(value, held, where, value_snapshot)
        map_keys = StoredMapKeys(descriptor.type_info, where)
        return MapCodec(map_keys, values, wholes, kinds.part_copier(ttl.stored(value)))

    def _values(
        self,
        descriptor: StateDescriptor,
        held: RocksDBState,
        where: str,
        snapshot: Callable[[bytes], SerializerSnapshot],
    ) -> StoredValues:
        """Readers of all versions and a writer of the newest. snapshot: parses a serializer's."""
        readers = [
            ttl.reader(
                snapshot(version.serializer),
                descriptor,
                had_times=version.ttl,
                timed_ms=held.timed_ms,
                where=where,
            )
            for version in held.versions
        ]
        return StoredValues(serializer_of(kinds.entry_type(ttl.stored(descriptor))), readers, where)


def _logging(state: RocksDBState, append: Append) -> Log:
    """Function that logs entries of a state in its newest version."""
    newest = state.versions[-1]
    header = StateHeader(state.name, state.kind, newest.serializer, state.namespace, ttl=newest.ttl)

    def log(
        group: int, names: Sequence[bytes], pieces: Sequence[bytes], missing: Sequence[bytes]
    ) -> None:
        alike: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}
        for name, piece in zip(names, pieces, strict=True):
            alike.setdefault((name[0], piece[1]), []).append((name, piece[1:]))
        for entries in alike.values():
            keys = join_pieces([name for name, _ in entries])
            values = join_pieces([piece for _, piece in entries])
            append(group, header, PRESENT, len(entries), keys, values)
        gone: dict[int, list[bytes]] = {}
        for name in missing:
            gone.setdefault(name[0], []).append(name)
        for left in gone.values():
            append(group, header, MISSING, len(left), join_pieces(left), b"")

    return log
