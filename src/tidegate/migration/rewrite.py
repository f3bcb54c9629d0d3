"""A snapshot of Flink as a canonical savepoint of Flink, which stands alone in its folder.

So state of RocksDB's files becomes state that any backend of Flink starts from, and a checkpoint
whose files lie in a folder that it shares with others becomes one that can be moved.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from flinkformat.handles import (
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
)
from flinkformat.snapshots import FINISHED, CheckpointProperties, SavepointFormatType, SavepointType
from flinkformat.state.operator_state import write_operator_states
from flinkformat.state.sections import write_canonical_keyed
from tidegate.errors import ConfigError, FormatError, UserCodeFailed
from tidegate.operators.failures import user_trace
from tidegate.snapshots.flink_snapshot import FlinkSnapshot
from tidegate.snapshots.writing.new_snapshot import NewSnapshot
from tidegate.snapshots.writing.writer import check_empty, deleted_on_failure
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from flinkformat.handles import (
        KeyedStateHandle,
        OperatorStateHandle,
        StateMetaInfo,
        StreamStateHandle,
    )
    from flinkformat.snapshots import Finished, OperatorState, SubtaskState
    from flinkformat.state.operator_state import FlinkOperatorState
    from flinkformat.state.reading import FlinkKeyedState

    Changes = Mapping[str, Callable[[Any], Any]]
    """By the name of an operator state, what makes its new elements of the old ones."""
    _Stream = tuple[bytes, dict[str, StateMetaInfo]]


def rewrite_flink_savepoint(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    moved: Mapping[str, str] | None = None,
    operator_state: Mapping[str, Changes] | None = None,
) -> None:
    """Writes a checkpoint or savepoint of Flink as a canonical savepoint of Flink.

    target: the new savepoint's folder. moved: from a folder as a checkpoint names it to where that
    is now. All that is no keyed state is kept as it is. A subtask's keyed state is held in memory.
    operator_state: by an operator's uid, or its id in hex, and by a state's name, a function from
    what the state holds to what it shall: of a list, split or union, the elements of all subtasks
    in one list, dealt out anew over them; of a broadcast state one dict.

    Raises RestoreRefused if there is no snapshot or a file of it is missing, FormatError for
    state that can't be read, by operator, subtask and byte, or an element that its serializer has
    no form for, ConfigError for a snapshot that holds data in flight or is Tidegate's own, for a
    state to change that is not there, and for a target that is not empty, UserCodeFailed,
    StorageFailed. Nothing is left in the target after a failure.
    """
    folder = paths.absolute(fspath(target))
    check_empty(folder)
    snapshot = FlinkSnapshot.open(source, moved=moved)
    changes = dict(operator_state or {})
    known = {each.uid or each.operator_id.hex(): each for each in snapshot.operators}
    _check_known(changes, known, "operator", snapshot.path)
    changed = {
        known[name].operator_id: _changed(snapshot, known[name], of_operator)
        for name, of_operator in changes.items()
    }
    new = NewSnapshot(folder)
    savepoint = SavepointType.savepoint(SavepointFormatType.CANONICAL)
    with deleted_on_failure(folder):
        operators = tuple(
            _Rewrite(snapshot, new, each, changed.get(each.operator_id, {})).operator()
            for each in snapshot.operators
        )
        new.complete(
            replace(
                snapshot.metadata,
                operators=operators,
                properties=CheckpointProperties.for_savepoint(savepoint, forced=True),
            )
        )


def _check_known(asked: Iterable[str], known: Collection[str], what: str, where: str) -> None:
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise ConfigError(
            f"The snapshot has no {what} '{unknown[0]}' to change",
            where=where,
            remedy=f"Name one of: {', '.join(sorted(known)) or '(there is none)'}.",
        )


def _changed(
    snapshot: FlinkSnapshot, operator: OperatorState, changes: Changes
) -> dict[int, _Stream]:
    where = f"{snapshot.path}, operator '{operator.uid or operator.operator_id.hex()}'"
    subtasks = {
        index: {each.state.name: each for each in states}
        for index, states in snapshot.operator_state(operator)
    }
    names = {name for states in subtasks.values() for name in states}
    _check_known(changes, names, "operator state", where)
    for name, change in changes.items():
        place = f"{where}, operator state '{name}'"
        holders = [states for states in subtasks.values() if name in states]
        shares = _shares([states[name] for states in holders], change, place)
        for states, share in zip(holders, shares, strict=True):
            states[name] = replace(states[name], elements=share)
    try:
        return {
            index: write_operator_states(list(states.values()))
            for index, states in subtasks.items()
        }
    except FormatError as error:
        error.where = ", ".join(filter(None, [where, error.where]))
        raise


def _shares(
    held: list[FlinkOperatorState], change: Callable[[Any], Any], where: str
) -> list[list[Any]]:
    is_broadcast = held[0].mode is StateDistribution.BROADCAST
    try:
        if is_broadcast:
            entries = dict(change(held[0].elements[0]))
            return [[entries] for _ in held]
        elements = list(change([element for each in held for element in each.elements]))
    except Exception as error:
        raise UserCodeFailed(
            f"The change of an operator state failed: {type(error).__name__}: {error}",
            where=where,
            remedy=f"Return {'a dict' if is_broadcast else 'a list of the elements'}.",
            trace=user_trace(error),
        ) from error
    return [elements[position :: len(held)] for position in range(len(held))]


class _Rewrite:
    def __init__(
        self,
        snapshot: FlinkSnapshot,
        new: NewSnapshot,
        operator: OperatorState,
        changed: Mapping[int, _Stream],
    ) -> None:
        self._snapshot = snapshot
        self._new = new
        self._operator = operator
        self._changed = changed

    def operator(self) -> OperatorState:
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
                "The snapshot holds data in flight, which a savepoint cannot hold",
                where=f"{self._snapshot.path}, subtask {index}",
                remedy="Name an aligned checkpoint or a savepoint.",
            )
        return replace(
            state,
            managed_keyed=None if part is None else self._keyed(part),
            raw_keyed=self._copied_keyed(index, state.raw_keyed),
            managed_operator=self._managed_lists(index, state.managed_operator),
            raw_operator=self._copied_lists(index, state.raw_operator),
        )

    def _keyed(self, part: FlinkKeyedState) -> KeyGroupsSavepointStateHandle:
        most = self._operator.max_parallelism
        entries = part.entries()
        data, offsets = write_canonical_keyed(part.header, most, part.key_groups, entries)
        handle = self._new.write([data])
        return KeyGroupsSavepointStateHandle(part.key_groups, offsets, handle)

    def _copied_keyed(self, index: int, handle: KeyedStateHandle | None) -> KeyedStateHandle | None:
        if isinstance(handle, KeyGroupsStateHandle):
            return replace(handle, delegate=self._copied(index, handle.delegate))
        assert handle is None, "raw keyed state is written by key group"
        return None

    def _managed_lists(
        self, index: int, handle: OperatorStateHandle | None
    ) -> OperatorStateHandle | None:
        if index not in self._changed:
            return self._copied_lists(index, handle)
        data, states = self._changed[index]
        stream = self._new.write([data])
        return OperatorStreamStateHandle(states, stream)

    def _copied_lists(
        self, index: int, handle: OperatorStateHandle | None
    ) -> OperatorStateHandle | None:
        if handle is None or not handle.states:
            return None
        return OperatorStreamStateHandle(handle.states, self._copied(index, handle.delegate))

    def _copied(self, index: int, stream: StreamStateHandle) -> StreamStateHandle:
        data = self._snapshot.read(self._operator, index, stream)
        return self._new.write([data])
