"""A snapshot of Flink as a canonical savepoint of Flink, which stands alone in its folder.

So state of RocksDB's files becomes state that any backend of Flink starts from, and a checkpoint
whose files lie in a folder that it shares with others becomes one that can be moved.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError
from tidegate.model.handles import (
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
)
from tidegate.model.snapshots import (
    FINISHED,
    CheckpointProperties,
    SavepointFormatType,
    SavepointType,
)
from tidegate.savepoints.flink.canonical import write_canonical_keyed
from tidegate.savepoints.flink.snapshot import FlinkSnapshot
from tidegate.savepoints.flink.target import NewSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.model.handles import KeyedStateHandle, OperatorStateHandle, StreamStateHandle
    from tidegate.model.snapshots import Finished, OperatorState, SubtaskState
    from tidegate.savepoints.flink.snapshot import FlinkKeyedState


def rewrite_flink_savepoint(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    moved: Mapping[str, str] | None = None,
) -> None:
    """Write a checkpoint or savepoint of Flink as a savepoint of Flink in canonical form.

    target: the new savepoint's folder. moved: from a folder as a checkpoint names it to where that
    is now. All that is no keyed state is kept as it is. A subtask's keyed state is held in memory.

    Raises RestoreRefused where there is no snapshot or a file of it is missing, FormatError for
    state that can't be read, by operator, subtask and byte, ConfigError for a snapshot that holds
    data in flight or is Tidegate's own, and for a target that is one already, StorageFailed.
    """
    snapshot = FlinkSnapshot.open(source, moved=moved)
    new = NewSnapshot(fspath(target), snapshot.metadata.checkpoint_id)
    operators = tuple(_Rewrite(snapshot, new, each).operator() for each in snapshot.operators)
    savepoint = SavepointType.savepoint(SavepointFormatType.CANONICAL)
    new.complete(
        replace(
            snapshot.metadata,
            operators=operators,
            properties=CheckpointProperties.for_savepoint(savepoint, forced=True),
        )
    )


class _Rewrite:
    def __init__(self, snapshot: FlinkSnapshot, new: NewSnapshot, operator: OperatorState) -> None:
        self._snapshot = snapshot
        self._new = new
        self._operator = operator

    def operator(self) -> OperatorState:
        """The operator with its state in the new folder."""
        parts = {part.subtask: part for part in self._snapshot.keyed_state(self._operator)}
        subtasks = {
            index: self._subtask(index, state, parts.get(index))
            for index, state in self._operator.subtasks.items()
        }
        return replace(self._operator, subtasks=subtasks)

    def _subtask(
        self, index: int, state: SubtaskState | Finished, part: FlinkKeyedState | None
    ) -> SubtaskState | Finished:
        if state is FINISHED:
            return state
        if state.input_channel or state.result_subpartition:
            raise ConfigError(
                "The snapshot holds data in flight, which no savepoint can",
                where=f"{self._snapshot.path}, subtask {index}",
                remedy="Name an aligned checkpoint or a savepoint.",
            )
        return replace(
            state,
            managed_keyed=None if part is None else self._keyed(index, part),
            raw_keyed=self._copied_keyed(index, state.raw_keyed),
            managed_operator=self._copied_lists(index, "operator", state.managed_operator),
            raw_operator=self._copied_lists(index, "raw-operator", state.raw_operator),
        )

    def _keyed(self, index: int, part: FlinkKeyedState) -> KeyGroupsSavepointStateHandle:
        most = self._operator.max_parallelism
        entries = part.entries()
        data, offsets = write_canonical_keyed(part.header, most, part.key_groups, entries)
        handle = self._new.write(self._name(index, "keyed"), data)
        return KeyGroupsSavepointStateHandle(part.key_groups, offsets, handle)

    def _copied_keyed(self, index: int, handle: KeyedStateHandle | None) -> KeyedStateHandle | None:
        if isinstance(handle, KeyGroupsStateHandle):
            return replace(handle, delegate=self._copied(index, "raw-keyed", handle.delegate))
        assert handle is None, "raw keyed state is written by key group"
        return None

    def _copied_lists(
        self, index: int, what: str, handle: OperatorStateHandle | None
    ) -> OperatorStateHandle | None:
        if handle is None or not handle.states:
            return None
        return OperatorStreamStateHandle(handle.states, self._copied(index, what, handle.delegate))

    def _copied(self, index: int, what: str, stream: StreamStateHandle) -> StreamStateHandle:
        data = self._snapshot.read(self._operator, index, stream)
        return self._new.write(self._name(index, what), data)

    def _name(self, index: int, what: str) -> str:
        return f"{self._operator.operator_id.hex()}-{index}-{what}"
