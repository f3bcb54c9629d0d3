"""Keyed rows of one operator on disk, from restore to snapshot."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.state.disk.canonical import write_canonical
from tidegate.state.disk.files import IncrementalFiles
from tidegate.state.disk.restore import COLUMNS_FILE, restored_space
from tidegate.state.disk.states import RocksDBKeyedStates
from tidegate.state.disk.store import RocksDBStore
from tidegate.state.format.blocks import COLUMNS, KeyedStreamWriter, all_sections
from tidegate.state.format.headers import header_bytes, keyed_header
from tidegate.state.heap.keyed import KeyedStates, WholeStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flinkformat.handles import (
        IncrementalRemoteKeyedStateHandle,
        KeyedStateHandle,
        KeyGroupsStateHandle,
    )
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.state.disk.codecs import StoredValues
    from tidegate.state.disk.local_folders import LocalPlace
    from tidegate.state.disk.states import RocksDBSnapshot
    from tidegate.state.format.headers import RocksDBHeader
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Base
    from tidegate.state.protocols import BesideRows, Pending, StateReads, WrittenColumns
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place
    from tidegate.typeinfo.types import TypeInformation


class RocksDBBackend:
    """A `protocols.KeyedBackend` on disk, opened when it is first used.

    log: where changes go, which has this as its `LoggedRows`; None where they do not.
    """

    prepares = True

    def __init__(
        self, scope: StateScope, local: LocalPlace, *, log: ChangeLog | None = None
    ) -> None:
        self._scope = scope
        self._local = local
        self._log = log
        self._states: RocksDBKeyedStates | None = None
        self._files = self._new_files()

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        if not handles:
            return []
        scope = self._scope
        space = restored_space(handles, scope.key_groups, self._local, reader, scope.where)
        if space.handle is not None:
            self._files = self._new_files(space.handle)
        self._states = self._opened(space.store, space.header)
        return [self._columns(data) for data in space.columns]

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None) -> State:
        return self._held().state(descriptor, namespace)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        return self._held().scan(name)

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        del encoding
        if self._states is not None and isinstance(batch, RowBatch) and batch.keys is not None:
            self._states.before_batch(batch.keys, batch.key_groups or ())

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> Pending[KeyedStateHandle]:
        snapshot = self._frozen()
        if self._states is None or snapshot is None:
            return self._without_rows(checkpoint, columns)
        if options.canonical:
            values = self._states.values
            upload = partial(self._upload_canonical, snapshot, checkpoint, values, columns)
        else:
            upload = partial(self._upload_native, snapshot, checkpoint, columns)
        return PendingFolder(snapshot, columns, upload)

    def materialize(self) -> None:
        """A log around it has it written."""

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._files.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._files.named.on_aborted(checkpoint)

    def close(self) -> None:
        if self._states is not None:
            self._states.close()

    # --- for a log ---

    @property
    def key_type(self) -> bytes | None:
        return None if self._states is None else self._states.key_type

    @property
    def undrained(self) -> int:
        return 0 if self._states is None else self._states.unwritten

    def drain(self, rows: int) -> None:
        if self._states is not None:
            self._states.drain(rows)

    def cut(self, sealed: Callable[[], None]) -> PendingFolder | None:
        snapshot = self._frozen(linked=False, encoded=sealed)
        if snapshot is None:
            return None
        return PendingFolder(snapshot, None, lambda _: snapshot.settle())

    def whole(self, checkpoint: CheckpointId, number: CheckpointId) -> Pending[KeyedStateHandle]:
        snapshot = self._frozen()
        if snapshot is None:
            return self._without_rows(checkpoint, None)
        upload = partial(self._upload_base, snapshot.link, partial(snapshot.header, number))
        return PendingFolder(snapshot, None, upload)

    def base(self, base: Base, place: Place) -> PendingFolder | None:
        del place
        states = self._states
        if states is None or not states.held:
            return None
        # What a checkpoint has logged and not brought to disk yet is in no file of the base.
        base.position = states.unlinked_from(base.position)
        number = CheckpointId(base.number)
        header = states.header(number, states.held)
        return PendingFolder(
            None, None, partial(self._upload_base, states.link_now, lambda: header)
        )

    # --- snapshots ---

    def _frozen(
        self, *, linked: bool = True, encoded: Callable[[], None] | None = None
    ) -> RocksDBSnapshot | None:
        """The quick part of a snapshot of the key space; None without state."""
        position = 0 if self._log is None else self._log.position
        if self._states is None:
            return None
        return self._states.snapshot(linked=linked, encoded=encoded, position=position)

    def _without_rows(
        self, checkpoint: CheckpointId, columns: BesideRows | None
    ) -> Pending[KeyedStateHandle]:
        """Columns without rows are written as they are beside state in memory."""
        return KeyedStates(self._scope).snapshot(WholeStream.of(self._scope, checkpoint), columns)

    def _upload_native(
        self,
        snapshot: RocksDBSnapshot,
        checkpoint: CheckpointId,
        columns: BesideRows | None,
        place: Place,
    ) -> IncrementalRemoteKeyedStateHandle:
        """Link the files and write those that are new."""
        folder = snapshot.link()
        try:
            if columns is not None:
                (folder / COLUMNS_FILE).write_bytes(self._column_bytes(checkpoint, columns))
            handle = self._files.upload(
                folder,
                checkpoint,
                place,
                shared=self._local.files.incremental,
                meta=header_bytes(snapshot.header(checkpoint)),
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._local.folders.keep(handle, folder)
        return handle

    def _upload_canonical(
        self,
        snapshot: RocksDBSnapshot,
        checkpoint: CheckpointId,
        values: Mapping[str, StoredValues],
        columns: BesideRows | None,
        place: Place,
    ) -> KeyGroupsStateHandle | None:
        """Write the entries as blocks, for all backends; None without any."""
        folder = snapshot.link()
        try:
            header = snapshot.header(checkpoint)
            if header.key is None and columns is None:
                return None
            memory = self._local.memory
            return write_canonical(folder, memory, header, values, self._scope, place, columns)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _upload_base(
        self, link: Callable[[], Path], header: Callable[[], RocksDBHeader], place: Place
    ) -> IncrementalRemoteKeyedStateHandle:
        """Upload a folder for a log: its bases belong to no checkpoint, so no copy is kept."""
        folder = link()
        try:
            described = header()
            return self._files.upload(
                folder,
                CheckpointId(described.checkpoint),
                place,
                shared=self._local.files.incremental,
                meta=header_bytes(described),
                placeholders=False,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _column_bytes(self, checkpoint: CheckpointId, columns: BesideRows) -> bytes:
        written: list[bytes] = []
        header = self._scope.header(checkpoint, None, [], columns.header)
        groups, compress, blocks = self._scope.key_groups, self._scope.compress, columns.blocks()
        rows = KeyedStreamWriter(written.append, header, groups, compress)
        for group in groups:
            rows.add(group, blocks.get(group, ()))
        return b"".join(written)

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

    def _held(self) -> RocksDBKeyedStates:
        if self._states is None:
            folder = self._local.folders.new_folder()
            self._states = self._opened(RocksDBStore(folder, self._local.memory), None)
        return self._states

    def _opened(self, store: RocksDBStore, header: RocksDBHeader | None) -> RocksDBKeyedStates:
        append = None if self._log is None else self._log.append
        return RocksDBKeyedStates(self._scope, store, self._local, header=header, append=append)

    def _new_files(
        self, restored: IncrementalRemoteKeyedStateHandle | None = None
    ) -> IncrementalFiles:
        return IncrementalFiles(
            self._local.backend_id,
            self._scope.key_groups,
            threads=self._local.files.transfer_threads,
            restored=restored,
        )


class PendingFolder:
    """A key space on its way into the files of a folder, a `protocols.Pending`.

    snapshot: what has to be brought to disk first; None where what is there counts.
    """

    waiting = 0

    def __init__(
        self,
        snapshot: RocksDBSnapshot | None,
        columns: BesideRows | None,
        upload: Callable[[Place], KeyedStateHandle | None],
    ) -> None:
        self._snapshot = snapshot
        self._columns = columns
        self._upload = upload

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        del rows
        while self._snapshot is not None and (made := self._snapshot.step()) is not None:
            yield made
        if self._columns is not None:
            yield from self._columns.steps()

    def thaw(self) -> None:
        if self._columns is not None:
            self._columns.release()

    def write(self, place: Place) -> None:
        """Nothing is written before the rest."""

    def upload(self, place: Place) -> KeyedStateHandle | None:
        try:
            return self._upload(place)
        finally:
            self.thaw()

    def acknowledged(self) -> None:
        """The backend hears of it when the checkpoint is complete."""

    def cancel(self) -> None:
        if self._snapshot is not None:
            self._snapshot.cancel()
