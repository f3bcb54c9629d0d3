"""State that was taken from a snapshot of Flink, on its way into a savepoint of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from tidegate.errors import FormatError, TidegateError
from tidegate.migration.translations import NotTaken, translation_of
from tidegate.snapshots.writing.new_snapshot import (
    NewElements,
    NewState,
    OperatorRewrite,
    operator_of,
)
from tidegate.state.format.blocks import PRESENT, Block, StateHeader
from tidegate.state.format.encoding import each_encoded_as_declared, encoded_as_declared
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flinkformat.handles import StateDistribution
    from flinkformat.snapshots import OperatorState
    from flinkformat.state.entries import FlinkEntry
    from flinkformat.state.headers import FlinkState
    from tidegate.api.state import StateDescriptor
    from tidegate.migration.translations import Translation
    from tidegate.migration.types import Keys
    from tidegate.model.ids import CheckpointId
    from tidegate.snapshots.rows import OperatorInfo
    from tidegate.snapshots.writing.new_snapshot import NewSnapshot
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation

_SAMPLES: Final = 100
_ROWS_AT_ONCE: Final = 4096


class TakenKeyedState:
    """A keyed state under conversion. refusal: why it is skipped, once known."""

    def __init__(self, state: FlinkState, declared: Mapping[str, StateDescriptor]) -> None:
        self.state = state
        self.translation: Translation | None = None
        self.refusal: Exception | None = None
        self.count = 0
        self.samples: list[Any] = []
        self._entries: dict[int, list[tuple[Any, Any]]] = {}
        self._waiting: list[tuple[FlinkEntry, Any, tuple[Any, Any]]] = []
        try:
            self.translation = translation_of(state, declared)
        except NotTaken as error:
            self.refusal = error

    def take(self, entry: FlinkEntry, keys: Keys) -> None:
        """Converts an entry, or notes why it can't. Raises as `Keys.key_groups` does."""
        self.count += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(entry.value)
        if self.translation is None or self.refusal is not None:
            return
        key = entry.key
        try:
            key = keys.convert(key)
            value, space = self.translation.convert(entry.value), self.translation.space
            place = key if space is None else (key, space(entry))
        except (ValueError, FormatError) as error:
            self.refusal = NotTaken(f"{told(error)} (key {key!r})")
            return
        self._waiting.append((entry, key, (place, value)))
        if len(self._waiting) == _ROWS_AT_ONCE:
            self._place(keys)

    def _place(self, keys: Keys) -> None:
        groups = keys.key_groups(
            [entry.key for entry, _, _ in self._waiting],
            [entry.key_group for entry, _, _ in self._waiting],
            [key for _, key, _ in self._waiting],
        )
        for group, (_, _, pair) in zip(groups, self._waiting, strict=True):
            self._entries.setdefault(group, []).append(pair)
        self._waiting.clear()

    def is_taken(self, keys: Keys) -> bool:
        """Converts what is left; False if it has no entries or is skipped. Raises as `take`."""
        if self.translation is None or self.refusal is not None or not self.count:
            return False
        self._place(keys)
        return True

    def new(self, key: TypeInformation, where: str) -> NewState:
        """The entries, to be written. key: type of the keys. where: names the operator."""
        made = self.translation
        assert made is not None, "it was taken"
        spaces = made.namespace and serializer_of(made.namespace).snapshot().to_bytes()
        written = serializer_of(made.type_info).snapshot().to_bytes()
        header = StateHeader(made.name, made.kind, written, spaces, ttl=made.ttl)
        under = key if made.namespace is None else TupleTypeInfo([key, made.namespace])
        values, where = serializer_of(made.type_info), f"{where}, state '{made.name}'"
        rows = _Rows(self._entries, serializer_of(under), values, where)
        return NewState(header, rows, replaces=False)


@frozen
class _Rows:
    """Keys and values by key group, as blocks. where: for errors."""

    entries: Mapping[int, list[tuple[Any, Any]]]
    keys: Serializer
    values: Serializer
    where: str

    def blocks(self, group: int) -> Iterator[Block]:
        """Entries of a key group. Raises UserError for values that can't be written."""
        pairs = self.entries.get(group)
        if pairs:
            names = [key for key, _ in pairs]
            keys = encoded_as_declared(self.keys, names, f"{self.where}, keys")
            values = encoded_as_declared(
                self.values, [value for _, value in pairs], self.where, names.__getitem__
            )
            yield Block(PRESENT, 0, len(pairs), keys, values)


@frozen
class TakenOperatorState:
    """An operator state of one subtask, converted."""

    made: Translation
    mode: StateDistribution
    elements: list[Any]

    def encoded(self, where: str) -> NewElements:
        name, serializer = self.made.name, serializer_of(self.made.type_info)
        header = StateHeader(name, self.made.kind, serializer.snapshot().to_bytes())
        pieces = each_encoded_as_declared(serializer, self.elements, f"{where}, state '{name}'")
        return NewElements(header, self.mode, pieces)


@frozen
class TakenOperator:
    """All state of an operator. key: type of the keys. subtasks: operator state by index."""

    info: OperatorInfo
    key: TypeInformation | None
    keyed: Sequence[TakenKeyedState]
    subtasks: Mapping[int, Sequence[TakenOperatorState]]

    def write(self, checkpoint: CheckpointId, new: NewSnapshot) -> OperatorState:
        """Writes the operator, a file for each subtask and kind of state.

        Raises UserError for a value that can't be written, StorageFailed.
        """
        where, key, put = f"operator '{self.info}'", None, list[NewState]()
        if self.keyed:
            assert self.key is not None, "where there are entries there are keys"
            key = serializer_of(self.key).snapshot().to_bytes()
            put = [state.new(self.key, where) for state in self.keyed]
        rewrite = OperatorRewrite(self.info, checkpoint, new, key, put)
        subtasks = {
            index: rewrite.subtask(
                index, [each.encoded(where) for each in self.subtasks.get(index, ())]
            )
            for index in range(self.info.parallelism)
        }
        return operator_of(self.info, subtasks)


def told(error: Exception) -> str:
    return error.what if isinstance(error, TidegateError) else str(error)
