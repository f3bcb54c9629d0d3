"""Keys of rows, as an edge that is keyed gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.rows.batches import as_rows
from tidegate.errors import UnsupportedKey
from tidegate.typeinfo.key_hash import key_type_of
from tidegate.typeinfo.plain_keys import may_be_alike

if TYPE_CHECKING:
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.typeinfo.types import TypeInformation


def keys_of(rows: RowBatch) -> tuple[list[object], list[int]]:
    """Keys and key groups of rows on a keyed edge."""
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
