"""Keys of rows, as an edge that is keyed gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.row import Row
from tidegate.api.operator import Operator
from tidegate.api.rows.batches import as_rows, shown
from tidegate.api.rows.keys import keys_of_rows
from tidegate.errors import GraphError, UnsupportedKey
from tidegate.model.elements import RowBatch
from tidegate.typeinfo.key_hash import KeyHasher, key_type_of, subtasks_of
from tidegate.typeinfo.plain_keys import may_be_alike

if TYPE_CHECKING:
    from tidegate.api.operator import KeyBy, OperatorContext, Output
    from tidegate.model.elements import Batch
    from tidegate.typeinfo.types import TypeInformation


def keys_of(rows: RowBatch) -> tuple[list[object], list[int]]:
    assert rows.keys is not None and rows.key_groups is not None, "a keyed edge gives keys"
    return rows.keys, rows.key_groups


class SharedKeys:
    """Sees to it that the keys of two streams have one type: others would never meet.

    where: name of the operator. The keys of one stream have one type already.
    """

    def __init__(self, where: str) -> None:
        self._where = f"operator '{where}'"
        self._types: dict[int, TypeInformation] = {}

    def checked(self, batch: Batch, port: int) -> RowBatch:
        """Rows of a batch, with checked keys. Raises UnsupportedKey."""
        rows = as_rows(batch)
        if port not in self._types and rows.values:
            key = keys_of(rows)[0][0]
            found = self._types[port] = key_type_of(key, where=self._where)
            for held in self._types.values():
                if not may_be_alike(held, found):
                    raise UnsupportedKey(
                        f"The keys of the two streams have two types, {held} and {found}: key "
                        f"{key!r} of input {port + 1} does not fit the other input",
                        where=self._where,
                        remedy="Let both key selectors give keys of one type.",
                    )
        return rows


class ReinterpretOperator(Operator):
    """Gives rows their keys where they are, without an exchange.

    Each must be in the subtask already to which ``key_by`` would send it.
    """

    def __init__(self, key: KeyBy) -> None:
        self._key = key

    def open(self, context: OperatorContext) -> None:
        info = self._info = context.info
        self._where = f"operator '{info.name}'"
        self._hasher = KeyHasher(self._key.key_type, info.max_parallelism, where=self._where)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        rows = as_rows(batch)
        selected = keys_of_rows(rows.values, self._key, self._where)
        keys, groups = self._hasher.keyed(selected)
        info = self._info
        targets = subtasks_of(groups, info.parallelism, info.max_parallelism)
        foreign = (targets != info.subtask).nonzero()[0]
        if len(foreign):
            row = int(foreign[0])
            raise GraphError(
                f"the key {shown(keys[row])} is in subtask {info.subtask + 1}, and key_by would "
                f"send it to {targets[row] + 1}",
                where=f"{self._where}, at the row {shown(rows.values[row])}",
                remedy=(
                    "Reinterpret only streams that were partitioned by this very key; else use "
                    "key_by."
                ),
            )
        out.emit(RowBatch(rows.values, rows.timestamps_ms, list(keys), groups.tolist()))


class WithKeyOperator(Operator):
    """Each row as ``Row(f0=key, f1=row)``."""

    def process(self, batch: Batch, port: int, out: Output) -> None:
        rows = as_rows(batch)
        keys, _ = keys_of(rows)
        pairs = zip(keys, rows.values, strict=True)
        out.emit(RowBatch([Row(f0=key, f1=value) for key, value in pairs], rows.timestamps_ms))
