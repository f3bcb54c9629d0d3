"""All keyed row state of one operator on disk: its tables by name, its cache, its snapshots.

A snapshot's quick part sets aside what was written since the last one. Its layers are then made
bytes in slices on the loop, written, flushed and linked by whoever uploads, one snapshot after the
other: writing holds the interpreter for a millisecond or two at a time, flushing not at all
(docs/design/state-on-disk.md).
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from tidegate.api.state import MapStateDescriptor, ValueStateDescriptor
from tidegate.errors import SerializerIncompatible
from tidegate.model.failure_reason import FailureReason
from tidegate.state.disk.by_entry import is_stored_by_entry, value_snapshot
from tidegate.state.disk.codecs import (
    VERSIONS_MAX,
    StoredKeys,
    StoredMapKeys,
    StoredValues,
)
from tidegate.state.disk.entries import EntryCodec, EntryTable
from tidegate.state.disk.layered import LayeredTable
from tidegate.state.disk.lists import DiskListState, ListCodec
from tidegate.state.disk.maps import DiskMapState, MapCodec
from tidegate.state.format.blocks import MISSING, PRESENT
from tidegate.state.format.headers import RocksDBHeader, RocksDBState, StateHeader, Version
from tidegate.state.user import kinds, ttl
from tidegate.state.user.asked import StatesByName
from tidegate.state.user.keys import Keys
from tidegate.typeinfo.serializers import SerializerSnapshot, join_pieces, serializer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.ids import CheckpointId
    from tidegate.state.disk.layered import Codec, Layer, Log
    from tidegate.state.disk.local_folders import LocalPlace
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.log.log_parts import Append
    from tidegate.state.scope import StateScope
    from tidegate.state.user.asked import Asked

P = TypeVar("P")

_HARD_LIMIT: Final = 4
"""How many times the cache may be overdrawn while a snapshot is being linked."""


class RocksDBKeyedStates:
    """All keyed row state of one operator in one subtask.

    store: the key space, with what was restored. header: of what it holds; None where it is empty.
    append: takes what is logged; None where nothing is.
    """

    def __init__(
        self,
        scope: StateScope,
        store: RocksDBStore,
        local: LocalPlace,
        *,
        header: RocksDBHeader | None = None,
        append: Append | None = None,
    ) -> None:
        self._scope = scope
        self._store = store
        self._entries_max = local.memory.entries_max
        self._new_folder = local.folders.new_folder
        self._append = append
        self._keys = Keys(scope.key_type, scope.where)
        self._held = {state.name: state for state in header.states} if header is not None else {}
        if header is not None and header.key is not None:
            self._keys.restore(header.key)
        self._tables: dict[str, LayeredTable[Any]] = {}
        self._lists: dict[str, DiskListState] = {}
        self._read_ahead: list[Callable[[Sequence[object], Sequence[int]], None]] = []
        self._links: list[RocksDBSnapshot] = []
        self._lock = threading.RLock()
        self.state = StatesByName(scope.where, self._made).state

    @property
    def key_type(self) -> bytes | None:
        # None as long as no key was seen.
        key = self._keys.serializer
        return None if key is None else key.snapshot().to_bytes()

    @property
    def values(self) -> dict[str, StoredValues]:
        """Readers and writers of whole entries, by the names of states that were asked for."""
        return {name: table.codec.wholes for name, table in self._tables.items()}

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        return self._tables[name].scan()

    def before_batch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Read at once what rows of these keys will ask for, and keep to the memory.

        Raises StorageFailed if the disk has failed, also while something else was written.
        """
        if self._store.lost is not None:
            raise self._store.lost
        for table in self._tables.values():
            table.settle()
        excess = self.unwritten - self._entries_max()
        if excess > 0:
            self._relieve(excess)
        for read_ahead in self._read_ahead:
            read_ahead(keys, groups)

    @property
    def unwritten(self) -> int:
        return sum(table.unwritten for table in self._tables.values())

    def drain(self, rows: int) -> None:
        """Writes about this many of them to the log and to disk, unless a snapshot comes first."""
        if self._links:
            return
        for table in self._tables.values():
            table.settle()
        max(self._tables.values(), key=lambda each: each.unwritten).spill(rows)

    def snapshot(
        self,
        *,
        linked: bool = True,
        encoded: Callable[[], None] | None = None,
        position: int = 0,
    ) -> RocksDBSnapshot | None:
        """Set aside what was written, the quick part of a snapshot; None without any state.

        linked: whether there is to be a folder of it. encoded: called once its bytes are made, with
        none from after it. position: of the log; its bytes are in that part or later ones.
        """
        if not self._held:
            return None
        layers = [(table, table.freeze()) for table in self._tables.values()]
        snapshot = RocksDBSnapshot(
            self,
            layers,
            tuple(self._links),
            self.held,
            linked=linked,
            encoded=encoded,
            position=position,
        )
        self._links.append(snapshot)
        return snapshot

    def unlinked_from(self, position: int) -> int:
        """Start in the log of changes that may not be on disk. position: current end of the log."""
        links = list(self._links)
        return links[0].position if links else position

    @property
    def held(self) -> list[RocksDBState]:
        for name, lists in self._lists.items():
            self._held[name] = replace(self._held[name], parts=lists.numbered)
        return list(self._held.values())

    def link_now(self) -> Path:
        """A folder of links to what is on disk, whatever else waits. Blocking, on any thread."""
        with self._lock:
            self._store.flush()
            folder = self._new_folder()
            self._store.link(folder)
        return folder

    def header(self, checkpoint: CheckpointId, held: list[RocksDBState]) -> RocksDBHeader:
        """Describe a folder with these states."""
        scope = self._scope
        return RocksDBHeader(scope.operator, checkpoint, scope.max_parallelism, self.key_type, held)

    def link(self, last: RocksDBSnapshot) -> None:
        """Brings all snapshots up to this one to disk, in order. Blocking, on any thread."""
        with self._lock:
            while last in self._links:
                self._links[0].write(self._store, self._new_folder)
                self._links.pop(0)

    def close(self) -> None:
        with self._lock:
            self._store.destroy()

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
            self.link(newest)
        # What was linked a moment ago is on disk, too.
        self.drain(excess + self._entries_max() // 16)

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
        self._held[held.name] = held
        self._tables[held.name] = table
        return view

    def _placed(self, asked: Asked) -> RocksDBState:
        """Describe how the state stands in the key space, its newest version last."""
        header = asked.header
        newest = Version(header.serializer, ttl=header.ttl)
        held = self._held.get(header.name)
        if held is None:
            number = 1 + max((state.number for state in self._held.values()), default=-1)
            by_entry = is_stored_by_entry(header.kind, asked.entries.type_info)
            held = RocksDBState(
                header.name, header.kind, number, header.namespace, [newest], by_entry
            )
        asked.check_restored(held.kind, held.namespace)
        if held.versions[-1] != newest:
            held = replace(held, versions=[*held.versions, newest])
        if len(held.versions) > VERSIONS_MAX:
            raise SerializerIncompatible(
                f"The state has had {VERSIONS_MAX} types, which is the limit",
                where=asked.where,
                remedy="Restart from a savepoint in canonical format, which has one type a state.",
            )
        return held

    def _table(self, asked: Asked, held: RocksDBState, codec: Codec[P]) -> LayeredTable[P]:
        return LayeredTable(
            self._store,
            self._scope.key_groups,
            self._scope.max_parallelism,
            held.number,
            StoredKeys(self._keys, asked.namespace, asked.where),
            codec,
            entries_max=self._share,
            log=None if self._append is None else _logging(held, self._append),
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
        now_ms = self._scope.clock.wall_ms
        readers = [
            ttl.reader(
                snapshot(version.serializer),
                descriptor,
                had_times=version.ttl,
                now_ms=now_ms,
                where=where,
            )
            for version in held.versions
        ]
        return StoredValues(serializer_of(kinds.entry_type(ttl.stored(descriptor))), readers, where)


class RocksDBSnapshot:
    """Layers that were set aside for one snapshot, until they lie in a folder of links.

    before: the snapshots that are not linked yet; their bytes are made first. held: the states
    that there were. linked, encoded, position: as for `RocksDBKeyedStates.snapshot`.
    """

    def __init__(
        self,
        states: RocksDBKeyedStates,
        layers: list[tuple[LayeredTable[Any], Layer[Any]]],
        before: Sequence[RocksDBSnapshot],
        held: list[RocksDBState],
        *,
        linked: bool,
        encoded: Callable[[], None] | None,
        position: int,
    ) -> None:
        self.position = position
        self._linked = linked
        self._encoded = encoded
        self._states = states
        self._layers = layers
        self._held = held
        self._folder: Path | None = None
        self.cancelled = False
        self._steps = self._encode(before)

    def step(self) -> int | None:
        """Make some bytes; the number of rows, or None at the end. A later snapshot may call it."""
        return next(self._steps, None)

    def _encode(self, before: Sequence[RocksDBSnapshot]) -> Iterator[int]:
        for older in before:
            while (rows := older.step()) is not None:
                yield rows
        try:
            for table, layer in self._layers:
                yield from table.encode(layer)
        except Exception:
            self.cancelled = True
            for table, layer in self._layers:
                table.take_back(layer)
            raise
        if self._encoded is not None:
            self._encoded()

    def write(self, store: RocksDBStore, new_folder: Callable[[], Path]) -> None:
        """Writes, flushes and links; aborted layers are written too, since they are the state."""
        for _, layer in self._layers:
            assert not layer.pending, "a layer is written once it is encoded"
            for batch in layer.encoded:
                store.write(batch)
        if self._linked and not self.cancelled:
            store.flush()
            self._folder = new_folder()
            store.link(self._folder)
            if self.cancelled:  # meanwhile
                shutil.rmtree(self._folder, ignore_errors=True)
        for _, layer in self._layers:
            layer.encoded.clear()
            layer.written = True
        self._layers = []  # or the quick part of the next snapshot would pay for their end

    def settle(self) -> None:
        """Brings the layer to disk, without a folder. Blocking, off the loop.

        Raises StorageFailed.
        """
        self._states.link(self)

    def link(self) -> Path:
        """The folder of links. Blocking, off the loop.

        Raises StorageFailed, and CheckpointAborted where it was given up before.
        """
        self._states.link(self)
        if self._folder is None:
            raise FailureReason.CHECKPOINT_SUBSUMED.aborted(
                "The checkpoint was given up before it was on disk"
            )
        return self._folder

    def header(self, checkpoint: CheckpointId) -> RocksDBHeader:
        """Describe the folder; once its bytes are made, since that tells the type of the keys."""
        return self._states.header(checkpoint, self._held)

    def cancel(self) -> None:
        """Aborts; entries already written go to disk with a later snapshot."""
        self.cancelled = True
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


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
