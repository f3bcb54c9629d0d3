"""State that was taken from a snapshot of Flink, on its way into a savepoint of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import OperatorState, SubtaskState
from tidegate.snapshots.writing.operator_rewrite import (
    KeyedRewrite,
    NewElements,
    NewState,
    rewritten_operator_state,
)
from tidegate.state.format.blocks import PRESENT, Block
from tidegate.state.format.headers import StateHeader
from tidegate.state.format.misfits import each_encoded_as_declared, encoded_as_declared
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flinkformat.handles import StateDistribution
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.snapshots.writing.new_snapshot import NewSnapshot
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class TakenKeyedState:
    """A keyed state, as the state backends hold it.

    kind: of `state.kinds.Kind`. namespace: its type, where entries are under pairs of a key and a
    namespace. ttl: whether values are pairs of a time and a value. entries: by key group.
    """

    name: str
    kind: str
    type_info: TypeInformation | None
    namespace: TypeInformation | None
    ttl: bool
    entries: Mapping[int, list[tuple[Any, Any]]]

    @property
    def header(self) -> StateHeader:
        spaces = self.namespace and serializer_of(self.namespace).snapshot().to_bytes()
        written = serializer_of(self.type_info).snapshot().to_bytes()
        return StateHeader(self.name, self.kind, written, spaces, ttl=self.ttl)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The entries of a keyed state as blocks. key: type of the keys. where: for errors."""

    state: TakenKeyedState
    key: TypeInformation
    where: str

    def blocks(self, group: int) -> Iterator[Block]:
        """Entries of a key group. Raises UserError for values that can't be written."""
        state, pairs = self.state, self.state.entries.get(group)
        if not pairs:
            return
        under = self.key if state.namespace is None else TupleTypeInfo([self.key, state.namespace])
        keys = encoded_as_declared(
            serializer_of(under), [key for key, _ in pairs], f"{self.where}, keys"
        )
        values = encoded_as_declared(
            serializer_of(state.type_info),
            [value for _, value in pairs],
            self.where,
            lambda index: pairs[index][0],
        )
        yield Block(PRESENT, 0, len(pairs), keys, values)


@dataclass(frozen=True, slots=True)
class TakenOperatorState:
    """An operator state of one subtask. kind: ``operator list`` or ``broadcast``."""

    name: str
    kind: str
    type_info: TypeInformation
    mode: StateDistribution
    elements: list[Any]

    def encoded(self, where: str) -> NewElements:
        """Elements as pieces. Raises UserError for values that can't be written."""
        serializer = serializer_of(self.type_info)
        header = StateHeader(self.name, self.kind, serializer.snapshot().to_bytes())
        pieces = each_encoded_as_declared(
            serializer, self.elements, f"{where}, state '{self.name}'"
        )
        return NewElements(header, self.mode, pieces)


@dataclass(frozen=True, slots=True)
class TakenOperator:
    """All state of an operator. key: type of the keys. subtasks: operator state by index."""

    id: OperatorId
    uid: str | None
    name: str | None
    parallelism: int
    max_parallelism: int
    key: TypeInformation | None
    keyed: Sequence[TakenKeyedState]
    subtasks: Mapping[int, Sequence[TakenOperatorState]]

    def write(self, checkpoint: CheckpointId, new: NewSnapshot) -> OperatorState:
        """Writes the operator, a file for each subtask and kind of state.

        Raises UserError for a value that can't be written, StorageFailed.
        """
        where = f"operator '{self.uid or self.name or self.id.hex()}'"
        rewrite = self._keyed(checkpoint, where)
        subtasks: dict[int, SubtaskState] = {}
        for index in range(self.parallelism):
            groups = KeyGroupRange.of(index, self.parallelism, self.max_parallelism)
            keyed = None if rewrite is None else rewrite.write(groups, new)
            elements = [each.encoded(where) for each in self.subtasks.get(index, ())]
            operator = rewritten_operator_state(self.id, checkpoint, None, (), elements, new)
            state = SubtaskState(managed_keyed=keyed, managed_operator=operator)
            if not state.is_empty:
                subtasks[index] = state
        return OperatorState(
            operator_id=self.id,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            name=self.name,
            uid=self.uid,
            subtasks=subtasks,
        )

    def _keyed(self, checkpoint: CheckpointId, where: str) -> KeyedRewrite | None:
        if not self.keyed:
            return None
        assert self.key is not None, "where there are entries there are keys"
        put = [
            NewState(state.header, _Rows(state, self.key, f"{where}, state '{state.name}'"), False)
            for state in self.keyed
        ]
        key = serializer_of(self.key).snapshot().to_bytes()
        return KeyedRewrite(self.id, checkpoint, self.max_parallelism, key, (), (), put, where)
