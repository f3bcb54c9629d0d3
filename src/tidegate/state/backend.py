"""The state of one operator in one subtask: what the slot restores, hands out and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.api.operator import KeyCell
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.elements import CheckpointOptions, RowBatch, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import COLUMNS, all_sections, section
from tidegate.state.format.headers import keyed_header, operator_header, reading
from tidegate.state.heap.increments import SharedSections, in_streams
from tidegate.state.heap.keyed import KeyedStates, Restored
from tidegate.state.log.logged import LoggedStates
from tidegate.state.pending import PendingSnapshot
from tidegate.state.user.operator_state import OperatorStates
from tidegate.state.user.timers import KeyedTimers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.state import (
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        MapStateDescriptor,
        OperatorListState,
        OperatorStateDescriptor,
        State,
        StateDescriptor,
    )
    from tidegate.clock import Clock
    from tidegate.model.elements import Batch
    from tidegate.model.ids import OperatorId
    from tidegate.model.restore import RestoredOperatorState
    from tidegate.model.settings import StateFileSettings
    from tidegate.state.columns.columnar import ColumnsSnapshot, KeyedColumnStates
    from tidegate.state.disk.local_folders import LocalFolders
    from tidegate.state.disk.rocksdb import RocksDBBackend
    from tidegate.state.disk.store import RocksDBMemory
    from tidegate.state.heap.increments import PendingSections
    from tidegate.state.log.changelog import ChangeLog, PendingLog
    from tidegate.state.log.log_parts import Materialization
    from tidegate.state.user.operator_state import OperatorSnapshot
    from tidegate.typeinfo.types import TypeInformation

    Read = Callable[[StreamStateHandle], bytes]


_DEFAULT: Final = CheckpointOptions()


class StateReads(Protocol):
    """Reader of a snapshot's handles; `storage.reading.StateReader` implements it."""

    def read(self, handle: StreamStateHandle) -> bytes:
        """All bytes of a handle."""
        ...

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        """All bytes of a handle, mapped from its file or a copy if they are many."""
        ...

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        """Writes all bytes of a handle to a new file."""
        ...

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        """True if a file of this machine has exactly the bytes of that handle."""
        ...

    @property
    def where(self) -> str:
        """Where the handles are, for errors."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """Where and how an operator may keep keyed state on disk. backend_id: UUID, as text."""

    folders: LocalFolders
    backend_id: str
    memory: RocksDBMemory
    files: StateFileSettings


class OperatorBackend:
    """All state of one operator in one subtask: in memory, or its keyed rows on disk.

    On the slot's loop only. `restore` comes first; then states are asked for by name, in ``open``
    or later. key_type: of the keys as declared; None for what they are. compression: of what is
    written. name, uid: of the operator, for errors. local: where keyed rows are on disk; None for
    memory. shared_as: UUID as text, under which checkpoints of rows in memory name again what did
    not change; None if each writes all of them. log: where changes of keyed rows go, and what
    checkpoints then name; None if they are not logged.
    """

    def __init__(
        self,
        operator: OperatorId,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock,
        cell: KeyCell,
        *,
        key_type: TypeInformation | None = None,
        compression: bool = False,
        name: str = "",
        uid: str | None = None,
        local: LocalPlace | None = None,
        shared_as: str | None = None,
        log: ChangeLog | None = None,
    ) -> None:
        self.cell = cell
        self.pair_cell = KeyCell()
        self._operator = operator
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._where = f"operator '{name or operator.hex()}'" + (f" (uid '{uid}')" if uid else "")
        self._keyed = KeyedStates(
            cell,
            self.pair_cell,
            key_groups,
            max_parallelism,
            key_type=key_type,
            now_ms=clock.wall_ms,
            where=self._where,
            tracked=shared_as is not None,
            logged=log is not None and local is None,
        )
        self._log = log
        self._shared = (
            None
            if shared_as is None
            else SharedSections(operator, key_groups, max_parallelism, shared_as)
        )
        self._disk = None if local is None else self._on_disk(local, key_type)
        self._rows: LoggedStates | None = None
        if log is not None and self._disk is None:
            self._rows = LoggedStates(self._keyed, log.append, self._where)
        if log is not None:
            log.logs(self._rows or cast("RocksDBBackend", self._disk))
        self._operator_states = OperatorStates(self._where, first=0 in key_groups)
        self._columns: KeyedColumnStates | None = None
        self._pending: PendingSnapshot | None = None
        self._compress: Callable[[bytes], bytes] | None = None
        if compression:
            # PyArrow takes long to import, and is not waited for where a snapshot is written.
            from tidegate.state.format.compression import compressed

            self._compress = compressed

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        """The keyed state of that name; made or restored. Raises SerializerIncompatible.

        namespace: type of what stands beside the key in ``pair_cell``; None for the key alone.
        """
        held = self._keyed if self._disk is None else self._disk
        return held.state(descriptor, namespace)

    def timers(
        self, name: str, namespace: TypeInformation | None, alarm: Callable[[int], None]
    ) -> KeyedTimers:
        """Timers of that name, new or restored. alarm: of processing time."""
        return KeyedTimers(self, name, namespace, alarm)

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        """Dense rows of the operator's keys. Raises SerializerIncompatible."""
        return self._column_states().keyed_columns(key_type)

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        """Column of that name, new or restored. Raises SerializerIncompatible."""
        return self._column_states().column(descriptor)

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        """Columns by number, a pane each. Raises SerializerIncompatible."""
        return self._column_states().keyed_panes(key_type)

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[object]:
        """List of the operator, new or restored. Raises RestoreRefused."""
        return self._operator_states.list_state(descriptor)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[object, object]:
        """Map of the operator, new or restored. Raises RestoreRefused."""
        return self._operator_states.broadcast_state(descriptor)

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and stored entry of all entries of a keyed state; no writes meanwhile."""
        return (self._keyed if self._disk is None else self._disk).scan(state)

    @property
    def before_batch(self) -> Callable[[Batch], None] | None:
        """Function to call before each batch; None if it is not needed."""
        disk, log = self._disk, self._log
        if disk is None and log is None:
            return None

        def prepare(batch: Batch) -> None:
            if disk is not None and isinstance(batch, RowBatch) and batch.keys is not None:
                disk.before_batch(batch.keys, batch.key_groups or ())
            # What was cut at a barrier goes into the log before anything newer.
            if log is not None and (self._pending is None or self._pending.is_encoded):
                log.go_on(len(batch))

        return prepare

    def restore(self, state: RestoredOperatorState, reader: StateReads) -> None:
        """Take in what a snapshot holds for this subtask; before any state is asked for.

        May run off the loop while nothing else touches this. Raises FormatError,
        SerializerIncompatible, RestoreRefused, StorageFailed.
        """
        if self._log is not None:
            self._log.restore(state.managed_keyed)
        if self._disk is None:
            for keyed in in_streams(state.managed_keyed, self._key_groups, reader.read):
                self._restore_keyed(keyed, reader)
        else:
            for columns in self._disk.restore(state.managed_keyed, reader):
                self._restore_columns(columns)
        for handle in state.managed_operator:
            self._restore_operator(handle, reader.read)

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions = _DEFAULT
    ) -> PendingSnapshot:
        """The quick part of a snapshot: all states as they are now.

        An earlier one that is not encoded yet is encoded first.
        """
        if self._pending is not None:
            self._pending.finish()
        columns = None if self._columns is None else self._columns.snapshot()
        states = self._operator_states.snapshot()
        if self._log is not None and not options.kind.is_savepoint:
            full = options.kind is SnapshotKind.FULL_CHECKPOINT
            log = self._log.cut(checkpoint, full=full)
            self._pending = self._logged_snapshot(checkpoint, log, columns, states)
            return self._pending
        sections = self._sections(checkpoint, options.kind) if columns is None else None
        self._pending = PendingSnapshot(
            checkpoint,
            self._operator,
            self._key_groups,
            self._max_parallelism,
            self._clock,
            self._keyed.snapshot({} if sections is None else sections.changed),
            columns,
            states,
            None
            if self._disk is None
            else self._disk.snapshot(checkpoint, canonical=options.canonical),
            self._compress,
            sections,
        )
        return self._pending

    def _logged_snapshot(
        self,
        checkpoint: CheckpointId,
        log: PendingLog,
        columns: ColumnsSnapshot | None,
        states: OperatorSnapshot | None,
    ) -> PendingSnapshot:
        """A checkpoint of the log's end, or of all keyed rows if the log must start again."""
        number = CheckpointId(log.base.number)
        tail = None if self._rows is None or log.is_full else self._rows.cut()
        return PendingSnapshot(
            checkpoint,
            self._operator,
            self._key_groups,
            self._max_parallelism,
            self._clock,
            self._keyed.snapshot() if log.is_full else None,
            columns,
            states,
            None
            if self._disk is None
            else self._disk.snapshot(number, canonical=False, pending=log),
            self._compress,
            log=log,
            tail=tail,
        )

    def materialize(self) -> Materialization | None:
        """All keyed rows as a new base of the log; None if a base would be useless."""
        begun = None if self._log is None else self._log.begin_base()
        if self._log is None or begun is None:
            return None
        base, place = begun
        if self._rows is None:
            disk = cast("RocksDBBackend", self._disk)
            return disk.base(self._log, base, place)
        return self._rows.base(
            self._log, base, place, self._operator, self._max_parallelism, self._clock
        )

    def _sections(self, checkpoint: CheckpointId, kind: SnapshotKind) -> PendingSections | None:
        """Sections of rows in memory to be named again; None if the checkpoint shares nothing."""
        if self._shared is None:
            return None
        self._shared.changed(self._keyed.written(), checkpoint)
        if kind not in (SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT):
            return None
        return self._shared.begin(checkpoint, full=kind is SnapshotKind.FULL_CHECKPOINT)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        if self._shared is not None:
            self._shared.named.on_complete(checkpoint)
        if self._disk is not None and self._log is None:
            self._disk.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was aborted."""
        if self._shared is not None:
            self._shared.named.on_aborted(checkpoint)
        if self._disk is not None and self._log is None:
            self._disk.on_aborted(checkpoint)

    def close(self) -> None:
        """Releases the local disk; nothing is used or written afterwards."""
        if self._log is not None:
            self._log.close()
        if self._disk is not None:
            self._disk.close()

    def _on_disk(self, local: LocalPlace, key_type: TypeInformation | None) -> RocksDBBackend:
        from tidegate.state.disk.rocksdb import RocksDBBackend

        return RocksDBBackend(
            self._operator,
            self._key_groups,
            self._max_parallelism,
            self._clock,
            (self.cell, self.pair_cell),
            key_type=key_type,
            where=self._where,
            local=local,
            log=self._log,
        )

    def _column_states(self) -> KeyedColumnStates:
        if self._columns is None:
            # Only operators with columns need PyArrow, which takes long to import.
            from tidegate.state.columns.columnar import KeyedColumnStates

            self._columns = KeyedColumnStates(self._where)
        return self._columns

    def _restore_keyed(self, handle: KeyedStateHandle, reader: StateReads) -> None:
        if not isinstance(handle, KeyGroupsStateHandle):
            raise RestoreRefused(
                f"Keyed state in the form of {type(handle).__name__} can't be read by the HashMap"
                " backend",
                where=self._where,
                remedy="Set state.backend.type: rocksdb if that has written it, or start from a "
                "savepoint in canonical form ('tidegate savepoint --type canonical').",
            )
        where = handle.delegate.physical_id
        data = reader.view(handle.delegate)
        header = keyed_header(data, where)
        if header.key is not None:
            self._keyed.restore_keys(header.key)
        states = [Restored(state) for state in header.states]
        columns: list[tuple[int, memoryview]] = []
        for group in handle.key_groups.intersection(self._key_groups):
            offset = handle.offset_of(group)
            for block in section(data, offset, group, where) if offset else ():
                if block.kind == COLUMNS:
                    columns.append((group, memoryview(block.values)))
                elif block.state < len(states):
                    states[block.state].blocks.append((group, block))
                else:
                    raise FormatError(
                        "A block of keyed state is of no state", where=where, offset=offset
                    )
        for state in states:
            self._keyed.restore(state)
        if header.columns is not None:
            with reading(f"{self._where}, columns"):
                self._column_states().load(header.columns, columns)

    def _restore_columns(self, data: memoryview) -> None:
        """Restores columnar state from a stream of blocks; only this subtask's are used."""
        header = keyed_header(data, self._where)
        assert header.columns is not None, "nothing else is written to a stream of its own"
        blocks = [
            (group, memoryview(block.values))
            for group, found in all_sections(data, self._where)
            if group in self._key_groups
            for block in found
            if block.kind == COLUMNS
        ]
        with reading(f"{self._where}, columns"):
            self._column_states().load(header.columns, blocks)

    def _restore_operator(self, handle: OperatorStateHandle, read: Read) -> None:
        if handle.state_size == 0:
            return
        where = handle.delegate.physical_id
        data = memoryview(read(handle.delegate))
        header = operator_header(data, where)
        self._operator_states.restore(header, handle.states, data, where)
