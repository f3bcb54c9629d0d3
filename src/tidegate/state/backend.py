"""The state of one operator in one subtask: what the slot restores, hands out and snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from tidegate.model.elements import CheckpointOptions
from tidegate.state.format.blocks import COLUMNS_NAME, reading
from tidegate.state.heap.in_memory import HeapBackend
from tidegate.state.heap.increments import SharedSections
from tidegate.state.log.changelog_backend import ChangelogBackend
from tidegate.state.pending import PendingSnapshot
from tidegate.state.user.operator_state import OperatorStates
from tidegate.state.user.timers import KeyedTimers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.api.state import (
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        State,
        StateDescriptor,
    )
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.model.restore import RestoredOperatorState
    from tidegate.state.columns.columnar import KeyedColumnStates
    from tidegate.state.disk.files import LocalPlace
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.changelog_backend import BackgroundBase
    from tidegate.state.protocols import KeyedBackend
    from tidegate.state.scope import StateScope
    from tidegate.storage.reading import StateReads
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

        keyed = RocksDBBackend(scope, local, log=log)
    else:
        shared = None if shared_as is None else SharedSections(scope, shared_as)
        keyed = HeapBackend(scope, shared=shared, log=log)
    return keyed if log is None else ChangelogBackend(keyed, log)


@dataclass(slots=True)
class StatesOfKey:
    """A copy of the state of one key. entries: by state, each with its key and namespace.

    left_out: names of states that are not in it, or not whole.
    """

    backend: OperatorBackend
    keyed: HeapBackend
    entries: dict[str, list[tuple[object, object]]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def put(self, name: str, group: int, rows: list[tuple[object, object]]) -> None:
        """Put entries into a state."""
        self.keyed.put(name, group, rows)
        self.entries[name] = rows


class OperatorBackend:
    """All state of one operator in one subtask: keyed rows, columns, and operator state.

    On the slot's loop only. `restore` comes first; then states are asked for by name, in ``open``
    or later: they are new or restored. Asking raises SerializerIncompatible and RestoreRefused for
    what does not fit. keyed: in memory, where it is not given; it answers for rows as
    `protocols.KeyedBackend` says.
    """

    def __init__(self, scope: StateScope, keyed: KeyedBackend | None = None) -> None:
        self.scope = scope
        self.cell = scope.cell
        self.pair_cell = scope.pair_cell
        self._keyed = keyed = keyed or HeapBackend(scope)
        self.keyed_state, self.scan = keyed.state, keyed.scan
        self.close, self.sizes = keyed.close, keyed.sizes
        self._operator_states = states = OperatorStates(scope)
        self.operator_state, self.broadcast_state = states.list_state, states.broadcast_state
        self._columns: KeyedColumnStates | None = None
        self._pending: PendingSnapshot | None = None
        self._timers: list[KeyedTimers] = []
        self._asked: dict[str, tuple[StateDescriptor, TypeInformation | None]] = {}
        # What compresses takes long to import, and is not waited for where a snapshot is written.
        _ = scope.compress

    def timers(
        self, name: str, namespace: TypeInformation | None, alarm: Callable[[int], None]
    ) -> KeyedTimers:
        """Timers of that name. alarm: of processing time."""
        timers = KeyedTimers(self, name, namespace, alarm)
        self._timers.append(timers)
        return timers

    def note_states(self) -> None:
        """Note from now on which states are asked for, so that `of_key` finds them."""
        asked, state = self._asked, self._keyed.state

        def noted(descriptor: StateDescriptor, namespace: TypeInformation | None = None) -> State:
            asked[descriptor.name] = descriptor, namespace
            return state(descriptor, namespace)

        self.keyed_state = noted

    def of_key(self, key: object, group: int, lasts: Callable[[], bool]) -> StatesOfKey:
        """A copy of what this holds of one key, with operator state; `note_states` came before.

        lasts: false once looking has taken too long; then the rest is left out.
        """
        scope = replace(self.scope, cell=type(self.scope.cell)())
        copy = HeapBackend(scope)
        states = StatesOfKey(OperatorBackend(scope, copy), copy)
        states.backend._operator_states = self._operator_states
        states.left_out = () if self._columns is None else ("columns",)
        for name, (descriptor, namespace) in self._asked.items():
            states.backend.keyed_state(descriptor, namespace)
            rows: list[tuple[object, object]] = []
            for found_group, found, entry in self.scan(name):
                if not lasts():
                    states.left_out += (name,)
                    break
                whose = found if namespace is None else cast("tuple[object, object]", found)[0]
                if found_group == group and whose == key:
                    rows.append((found, entry))
            if rows:
                states.put(name, group, rows)
        return states

    def entries(self) -> Mapping[str, int]:
        """Entries by keyed state in memory, and keys of columns. Any thread may ask."""
        columns = {} if self._columns is None else {COLUMNS_NAME: len(self._columns)}
        return {**self._keyed.entries(), **columns}

    def figure(self, name: str) -> int | None:
        """A figure of the library that keeps keyed state, such as RocksDB. Any thread may ask."""
        return self._keyed.figure(name)

    @property
    def timers_waiting(self) -> int:
        """Number of timers that will fire, of event time and of processing time."""
        return sum(each.event.waiting + each.processing.waiting for each in self._timers)

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        """Dense rows of the operator's keys."""
        return self._column_states().keyed_columns(key_type)

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        return self._column_states().column(descriptor)

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        """Columns by number, a pane each."""
        return self._column_states().keyed_panes(key_type)

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

    def materialize(self) -> BackgroundBase | None:
        """All keyed rows, for a log to begin anew; None where that would be of no use."""
        keyed = self._keyed
        return keyed.materialize() if isinstance(keyed, ChangelogBackend) else None

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete."""
        self._keyed.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up."""
        self._keyed.on_aborted(checkpoint)

    def _column_states(self) -> KeyedColumnStates:
        if self._columns is None:
            # Only operators with columns need PyArrow, which takes long to import.
            from tidegate.state.columns.columnar import KeyedColumnStates

            self._columns = KeyedColumnStates(self.scope.where)
        return self._columns
