"""Keyed row state of one operator on disk, from restore to snapshot."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, cast

from tidegate.model.ids import CheckpointId
from tidegate.state.disk.canonical import write_canonical
from tidegate.state.disk.files import IncrementalFiles
from tidegate.state.disk.restore import COLUMNS_FILE, restored_space
from tidegate.state.disk.states import RocksDBKeyedStates
from tidegate.state.disk.store import RocksDBStore
from tidegate.state.format.headers import header_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flinkformat.handles import (
        IncrementalRemoteKeyedStateHandle,
        KeyedStateHandle,
        KeyGroupsStateHandle,
    )
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.operator import KeyCell
    from tidegate.api.state import State, StateDescriptor
    from tidegate.clock import Clock
    from tidegate.model.ids import OperatorId
    from tidegate.state.backend import LocalPlace, StateReads
    from tidegate.state.disk.codecs import StoredValues
    from tidegate.state.disk.states import RocksDBSnapshot
    from tidegate.state.format.blocks import Block
    from tidegate.state.format.headers import ColumnsHeader, RocksDBHeader
    from tidegate.state.log.changelog import Base, ChangeLog, PendingLog
    from tidegate.state.log.log_parts import LogPlace
    from tidegate.storage.places import CheckpointPlace
    from tidegate.storage.streams import StatePlace
    from tidegate.typeinfo.types import TypeInformation


class RocksDBBackend:
    """The keyed row state of one operator in one subtask; opened when it is first used.

    cells: of keys, and of keys with a namespace. log: where changes go; None if they do not.
    """

    def __init__(
        self,
        operator: OperatorId,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock,
        cells: tuple[KeyCell, KeyCell],
        *,
        key_type: TypeInformation | None,
        where: str,
        local: LocalPlace,
        log: ChangeLog | None = None,
    ) -> None:
        self._log = log
        self._operator = operator
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._cells = cells
        self._key_type = key_type
        self._where = where
        self._local = local
        self._states: RocksDBKeyedStates | None = None
        self._files = self._new_files()

    def restore(self, handles: Sequence[KeyedStateHandle], reader: StateReads) -> list[memoryview]:
        """Take in what a snapshot holds for this subtask; the columnar state in it. Blocking.

        Raises what `restored_space` raises.
        """
        if not handles:
            return []
        space = restored_space(handles, self._key_groups, self._local, reader, self._where)
        if space.handle is not None:
            self._files = self._new_files(space.handle)
        self._states = self._opened(space.store, space.header)
        return space.columns

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None) -> State:
        """Keyed state of that name, new or restored. Raises SerializerIncompatible."""
        return self._held().state(descriptor, namespace)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of everything in a state."""
        return self._held().scan(name)

    def before_batch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Prepares for a batch with these keys."""
        if self._states is not None:
            self._states.before_batch(keys, groups)

    def snapshot(
        self, checkpoint: CheckpointId, *, canonical: bool, pending: PendingLog | None = None
    ) -> PendingFolder | None:
        """The quick part of a snapshot; None without state.

        canonical: for all backends. pending: of the log, which is sealed once it has all of the
        snapshot; whether there is to be a folder then, the log knows.
        """
        snapshot = None
        position = 0 if self._log is None else self._log.position
        if self._states is not None and pending is None:
            snapshot = self._states.snapshot(position=position)
        elif self._states is not None and pending is not None:
            snapshot = self._states.snapshot(
                linked=pending.is_full, encoded=pending.seal, position=position
            )
        if self._states is None or snapshot is None:
            return None
        values = self._states.values if canonical else None
        return PendingFolder(
            snapshot,
            self._operator,
            checkpoint,
            self._key_groups,
            self._files,
            self._local,
            values,
            is_base=pending is not None,
        )

    @property
    def key_type(self) -> bytes | None:
        return None if self._states is None else self._states.key_type

    @property
    def undrained(self) -> int:
        return 0 if self._states is None else self._states.unwritten

    def drain(self, rows: int) -> None:
        if self._states is not None:
            self._states.drain(rows)

    def base(self, log: ChangeLog, base: Base, place: LogPlace) -> FolderBase | None:
        """All data on disk, written in the background; None without state."""
        states = self._states
        if states is None or not states.held:
            return None
        # What a checkpoint has logged and not brought to disk yet is in no file of the base.
        base.position = states.unlinked_from(base.position)
        header = states.header(self._operator, CheckpointId(base.number), states.held)

        def write() -> None:
            shared = self._local.files.incremental
            folder = states.link_now()
            try:
                handle = self._files.upload(
                    folder,
                    CheckpointId(base.number),
                    cast("CheckpointPlace", place),
                    shared=shared,
                    meta=header_bytes(header),
                    placeholders=False,
                )
            except BaseException:
                place.delete(place.checksums)
                raise
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            log.durable(base, handle, place)

        return FolderBase(log, base, self._files, write)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: later ones may name its files."""
        self._files.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was aborted."""
        self._files.named.on_aborted(checkpoint)

    def close(self) -> None:
        if self._states is not None:
            self._states.close()

    def _held(self) -> RocksDBKeyedStates:
        if self._states is None:
            self._states = self._opened(
                RocksDBStore(self._local.folders.new_folder(), self._local.memory), None
            )
        return self._states

    def _opened(self, store: RocksDBStore, header: RocksDBHeader | None) -> RocksDBKeyedStates:
        cell, pair_cell = self._cells
        return RocksDBKeyedStates(
            cell,
            pair_cell,
            self._key_groups,
            self._max_parallelism,
            store,
            key_type=self._key_type,
            now_ms=self._clock.wall_ms,
            where=self._where,
            entries_max=self._local.memory.entries_max,
            new_folder=self._local.folders.new_folder,
            header=header,
            append=None if self._log is None else self._log.append,
        )

    def _new_files(
        self, restored: IncrementalRemoteKeyedStateHandle | None = None
    ) -> IncrementalFiles:
        return IncrementalFiles(
            self._local.backend_id,
            self._key_groups,
            threads=self._local.files.transfer_threads,
            restored=restored,
        )


class PendingFolder:
    """A snapshot of a key space after its quick part.

    values: by state, for a savepoint in canonical form; None for the files as they are. is_base:
    whether it is the base of a changelog, if it is uploaded at all.
    """

    def __init__(
        self,
        snapshot: RocksDBSnapshot,
        operator: OperatorId,
        checkpoint: CheckpointId,
        key_groups: KeyGroupRange,
        files: IncrementalFiles,
        local: LocalPlace,
        values: Mapping[str, StoredValues] | None,
        *,
        is_base: bool,
    ) -> None:
        self._is_base = is_base
        self._snapshot = snapshot
        self._operator = operator
        self._checkpoint = checkpoint
        self._key_groups = key_groups
        self._values = values
        self._files = files
        self._local = local

    def step(self) -> int | None:
        """Encodes some bytes; returns the number of entries, or None at the end."""
        return self._snapshot.step()

    def upload(self, place: CheckpointPlace, columns: bytes) -> IncrementalRemoteKeyedStateHandle:
        """Link the files and write those that are new. Blocking, off the loop.

        columns: columnar state, as blocks; may be empty. Raises StorageFailed, CheckpointAborted.
        """
        folder = self._snapshot.link()
        try:
            if columns:
                (folder / COLUMNS_FILE).write_bytes(columns)
            meta = header_bytes(self._snapshot.header(self._operator, self._checkpoint))
            shared = self._local.files.incremental
            handle = self._files.upload(
                folder,
                self._checkpoint,
                place,
                shared=shared,
                meta=meta,
                placeholders=not self._is_base,
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if self._is_base:
            self._files.named.on_complete(self._checkpoint)
            shutil.rmtree(folder, ignore_errors=True)  # bases are of no checkpoint, nor are copies
        else:
            self._local.folders.keep(handle, folder)
        return handle

    def settle(self) -> None:
        """Only brings the layer to disk. Blocking, off the loop. Raises StorageFailed."""
        self._snapshot.settle()

    @property
    def is_canonical(self) -> bool:
        return self._values is not None

    def upload_canonical(
        self,
        place: StatePlace,
        columns: tuple[ColumnsHeader, Mapping[int, Sequence[Block]]] | None,
        compress: Callable[[bytes], bytes] | None,
    ) -> KeyGroupsStateHandle | None:
        """Write the entries as blocks; None without any. Blocking, off the loop.

        columns: columnar state, by key group. Raises StorageFailed, CheckpointAborted.
        """
        assert self._values is not None, "a savepoint in canonical form was asked for"
        folder = self._snapshot.link()
        header = self._snapshot.header(self._operator, self._checkpoint)
        try:
            if header.key is None and columns is None:
                return None
            memory, groups = self._local.memory, self._key_groups
            return write_canonical(
                folder, memory, header, self._values, groups, place, columns, compress
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def cancel(self) -> None:
        self._snapshot.cancel()


class FolderBase:
    """Data on disk on their way into a base; a `log_parts.Materialization`.

    write: links and uploads it.
    """

    waiting = 0

    def __init__(
        self, log: ChangeLog, base: Base, files: IncrementalFiles, write: Callable[[], None]
    ) -> None:
        self._log = log
        self._base = base
        self._files = files
        self.write = write

    def encode(self, budget_ms: float) -> bool:
        """Does nothing: files need no encoding."""
        return True

    def take(self) -> None:
        """Makes the next checkpoints depend on this base."""
        number = CheckpointId(self._base.number)
        if self._log.take(self._base):
            self._files.named.on_complete(number)
        else:
            self._files.named.on_aborted(number)

    def give_up(self) -> None:
        """Does nothing: incomplete uploads were deleted already."""
