"""The state of one operator in one subtask: what the slot restores, hands out and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.model.elements import CheckpointOptions
from tidegate.state.format.headers import reading
from tidegate.state.heap.in_memory import HeapBackend, WholeStreams
from tidegate.state.heap.increments import SharedSections
from tidegate.state.log.changelog_backend import ChangelogBackend
from tidegate.state.log.logged import LoggedHeap
from tidegate.state.pending import PendingSnapshot
from tidegate.state.user.operator_state import OperatorStates
from tidegate.state.user.timers import KeyedTimers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.model.restore import RestoredOperatorState
    from tidegate.state.columns.columnar import KeyedColumnStates
    from tidegate.state.disk.local_folders import LocalPlace
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.protocols import KeyedBackend, Materialization, StateReads
    from tidegate.state.scope import StateScope
    from tidegate.typeinfo.types import TypeInformation

_DEFAULT: Final = CheckpointOptions()


def keyed_backend(
    scope: StateScope,
    *,
    local: LocalPlace | None = None,
    shared_as: str | None = None,
    log: ChangeLog | None = None,
) -> KeyedBackend:
    """The backend of keyed rows that a job asks for.

    local: where rows are on disk; None for memory. shared_as: UUID as text, under which checkpoints
    of rows in memory name again what did not change; None where each writes all of them. log: where
    changes go, and what checkpoints then name; None where they are not logged.
    """
    if local is not None:
        # Only rows on disk need RocksDB, which takes long to import.
        from tidegate.state.disk.rocksdb import RocksDBBackend

        disk = RocksDBBackend(scope, local, log=log)
        return disk if log is None else ChangelogBackend(scope, disk, disk, log)
    streams = WholeStreams() if shared_as is None else SharedSections(scope, shared_as)
    heap = HeapBackend(scope, streams, logged=log is not None)
    if log is None:
        return heap
    return ChangelogBackend(scope, heap, LoggedHeap(heap.states, log.append), log)


class OperatorBackend:
    """All state of one operator in one subtask: keyed rows, columns, and operator state.

    On the slot's loop only. `restore` comes first; then states are asked for by name, in ``open``
    or later. keyed: in memory, where it is not given.
    """

    def __init__(self, scope: StateScope, keyed: KeyedBackend | None = None) -> None:
        self.scope = scope
        self.cell = scope.cell
        self.pair_cell = scope.pair_cell
        self._keyed = keyed or keyed_backend(scope)
        self._operator_states = OperatorStates(scope)
        self._columns: KeyedColumnStates | None = None
        self._pending: PendingSnapshot | None = None
        # What compresses takes long to import, and is not waited for where a snapshot is written.
        _ = scope.compress

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        """The keyed state of that name; made or restored. Raises SerializerIncompatible.

        namespace: type of what stands beside the key in ``pair_cell``; None for the key alone.
        """
        return self._keyed.state(descriptor, namespace)

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
        """Key group, key and stored entry of all that a keyed state holds; no write meanwhile."""
        return self._keyed.scan(state)

    @property
    def before_batch(self) -> Callable[[Batch], None] | None:
        """To be called with each batch before the operator is; None where that is not needed."""
        return self._before_batch if self._keyed.prepares else None

    def _before_batch(self, batch: Batch) -> None:
        encoding = self._pending is not None and not self._pending.is_encoded
        self._keyed.before_batch(batch, encoding=encoding)

    def restore(self, state: RestoredOperatorState, reader: StateReads) -> None:
        """Take in what a snapshot holds for this subtask; before any state is asked for.

        May run off the loop while nothing else touches this. Raises FormatError,
        SerializerIncompatible, RestoreRefused, StorageFailed.
        """
        for header, batches in self._keyed.restore(state.managed_keyed, reader):
            with reading(f"{self.scope.where}, columns"):
                self._column_states().load(header, batches)
        for handle in state.managed_operator:
            self._operator_states.restore(handle, reader)

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions = _DEFAULT
    ) -> PendingSnapshot:
        """The quick part of a snapshot: all states as they are now.

        An earlier one that is not encoded yet is encoded first.
        """
        if self._pending is not None:
            self._pending.finish()
        columns = None if self._columns is None else self._columns.snapshot()
        states = self._operator_states.snapshot(checkpoint)
        keyed = self._keyed.snapshot(checkpoint, options, columns)
        self._pending = PendingSnapshot(self.scope.clock, keyed, states)
        return self._pending

    def materialize(self) -> Materialization | None:
        """All keyed rows, for a log to begin anew; None where that would be of no use."""
        return self._keyed.materialize()

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete."""
        self._keyed.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up."""
        self._keyed.on_aborted(checkpoint)

    def close(self) -> None:
        """Give the local disk back; nothing is used or written any more."""
        self._keyed.close()

    def _column_states(self) -> KeyedColumnStates:
        if self._columns is None:
            # Only operators with columns need PyArrow, which takes long to import.
            from tidegate.state.columns.columnar import KeyedColumnStates

            self._columns = KeyedColumnStates(self.scope.where)
        return self._columns
