"""The state of one operator in one subtask: what the slot restores, hands out and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import KeyCell
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.handles import KeyGroupsStateHandle
from tidegate.state.format import COLUMNS, keyed_header, operator_header, reading, section
from tidegate.state.keyed import KeyedStates, Restored
from tidegate.state.operator_state import OperatorStates
from tidegate.state.pending import PendingSnapshot
from tidegate.state.timers import KeyedTimers

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
    from tidegate.clock import Clock
    from tidegate.model.handles import KeyedStateHandle, OperatorStateHandle, StreamStateHandle
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.model.key_groups import KeyGroupRange
    from tidegate.model.snapshots import RestoredOperatorState
    from tidegate.state.columnar import KeyedColumnStates
    from tidegate.typeinfo.types import TypeInformation

    Read = Callable[[StreamStateHandle], bytes]


class OperatorBackend:
    """All state of one operator in one subtask, in memory.

    On the slot's loop only. `restore` comes first; then states are asked for by name, in ``open``
    or later. key_type: of the keys as declared; None for what they are. name: of the operator, for
    errors.
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
        name: str = "",
    ) -> None:
        self.cell = cell
        self.pair_cell = KeyCell()
        self._operator = operator
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._where = f"operator '{name or operator.hex()}'"
        self._keyed = KeyedStates(
            cell,
            self.pair_cell,
            key_groups,
            max_parallelism,
            key_type=key_type,
            now_ms=clock.wall_ms,
            where=self._where,
        )
        self._operator_states = OperatorStates(self._where, first=0 in key_groups)
        self._columns: KeyedColumnStates | None = None
        self._pending: PendingSnapshot | None = None

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
        """The timers of that name; made or restored. alarm: of processing time."""
        return KeyedTimers(self, name, namespace, alarm)

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        """The dense rows of the operator's keys. Raises SerializerIncompatible."""
        return self._column_states().keyed_columns(key_type)

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        """The column of that name; made or restored. Raises SerializerIncompatible."""
        return self._column_states().column(descriptor)

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        """Columns by number, a pane each. Raises SerializerIncompatible."""
        return self._column_states().keyed_panes(key_type)

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[object]:
        """The operator's list of that name; made or restored. Raises RestoreRefused."""
        return self._operator_states.list_state(descriptor)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[object, object]:
        """The operator's map of that name; made or restored. Raises RestoreRefused."""
        return self._operator_states.broadcast_state(descriptor)

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and stored entry of all that a keyed state holds; no write meanwhile."""
        return self._keyed.scan(state)

    def restore(self, state: RestoredOperatorState, read: Read) -> None:
        """Take in what a snapshot holds for this subtask; before any state is asked for.

        read: gives all bytes of a handle. May run off the loop while nothing else touches this.
        Raises FormatError, SerializerIncompatible, RestoreRefused.
        """
        for keyed in state.managed_keyed:
            self._restore_keyed(keyed, read)
        for handle in state.managed_operator:
            self._restore_operator(handle, read)

    def snapshot(self, checkpoint: CheckpointId) -> PendingSnapshot:
        """The quick part of a snapshot: all states as they are now.

        An earlier one that is not encoded yet is encoded first.
        """
        if self._pending is not None:
            self._pending.finish()
        self._pending = PendingSnapshot(
            checkpoint,
            self._operator,
            self._key_groups,
            self._max_parallelism,
            self._clock,
            self._keyed.snapshot(),
            None if self._columns is None else self._columns.snapshot(),
            self._operator_states.snapshot(),
        )
        return self._pending

    def _column_states(self) -> KeyedColumnStates:
        if self._columns is None:
            # Only operators with columns need PyArrow, which takes long to import.
            from tidegate.state.columnar import KeyedColumnStates

            self._columns = KeyedColumnStates(self._where)
        return self._columns

    def _restore_keyed(self, handle: KeyedStateHandle, read: Read) -> None:
        if not isinstance(handle, KeyGroupsStateHandle):
            raise RestoreRefused(
                f"Keyed state in the form of {type(handle).__name__} can't be read by the HashMap"
                " backend",
                where=self._where,
                remedy="Restore from a checkpoint that this backend has written.",
            )
        where = handle.delegate.physical_id
        data = memoryview(read(handle.delegate))
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

    def _restore_operator(self, handle: OperatorStateHandle, read: Read) -> None:
        if handle.state_size == 0:
            return
        where = handle.delegate.physical_id
        data = memoryview(read(handle.delegate))
        header = operator_header(data, where)
        self._operator_states.restore(header, handle.states, data, where)
