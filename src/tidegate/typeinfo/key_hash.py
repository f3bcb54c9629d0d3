"""Key groups of a stream's keys, the same in every process, and Flink's for types that it has.

Keys that are equal in Python are one key: they have one key group and, from here on, one form.
All keys of one stream have one type, save that numbers of no declared type may be mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flinkformat.key_groups import check_parallelism
from tidegate.typeinfo import hash_columns
from tidegate.typeinfo.key_columns import KeyColumn
from tidegate.typeinfo.types import LONG, PICKLED, STRING, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

_TYPES_OF_COLUMNS: Final[dict[np.dtype[Any], TypeInformation]] = {
    np.dtype(np.int64): LONG,
    np.dtype(np.object_): STRING,
}


class KeyHasher:
    """Gives the keys of one stream their key groups, batch by batch, and holds them to one type.

    key_type: None, or a pickled type, for keys that say themselves what they are. where: what
    errors name as the place, such as the operator's name.
    Raises UnsupportedKey at once for a declared type without a stable hash.
    """

    def __init__(
        self, key_type: TypeInformation | None, max_parallelism: int, *, where: str = "key_by"
    ) -> None:
        check_parallelism(1, max_parallelism)
        self._max_parallelism = max_parallelism
        self._where = where
        self._column = KeyColumn(None if key_type == PICKLED else key_type, where)

    @property
    def key_type(self) -> TypeInformation | None:
        """Type of the stream's keys; None until it is declared or seen."""
        return self._column.type_info

    def key_groups(self, keys: Sequence[object]) -> NDArray[np.int16]:
        return self.keyed(keys)[1]

    def keyed(self, keys: Sequence[object]) -> tuple[Sequence[object], NDArray[np.int16]]:
        """Keys as plain Python objects, with their key groups.

        The keys are those given where all are plain already. Groups: shape (keys,), each in
        [0, max_parallelism). Raises UnsupportedKey, before anything is done, for what can't be a
        key and for a key of a second type. A refused batch leaves the stream's type as it was or
        as its first key had it.
        """
        if not keys:
            return keys, np.empty(0, np.int16)
        plain, codes = self._column.read(keys)
        return plain, hash_columns.key_groups_of_codes(codes, self._max_parallelism)

    def groups_of_column(self, keys: NDArray[Any]) -> NDArray[np.int16] | None:
        """Key groups of a column of int64, or of texts as objects; there is one key at least.

        None where they are not of the stream's type as they are: then ``keyed`` takes them.
        """
        key_type = _TYPES_OF_COLUMNS.get(keys.dtype)
        if key_type is None:
            return None
        if self._column.type_info is None:
            self._column.read(keys[:1].tolist())
        if self._column.type_info != key_type:
            return None
        if key_type == LONG:
            codes = hash_columns.codes_of_longs(keys)
        else:
            codes = hash_columns.codes_of_strings(keys.tolist())
        return hash_columns.key_groups_of_codes(codes, self._max_parallelism)

    def key_groups_of_column(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.int16]:
        """Key group of each key of an Arrow column; equal to `key_groups` of its values.

        Unless declared, integers of any width are Long, and other numbers hash by value. Raises
        UnsupportedKey for nulls, for a type without a stable hash, and for a second type.
        """
        # Only a caller that has Arrow comes here: rows alone do not pay for importing it.
        from tidegate.typeinfo.arrow_keys import codes_of_column, key_type_of_column

        key_type = self._column.type_of(key_type_of_column(column, self._where))
        codes = codes_of_column(column, key_type, self._where)
        return hash_columns.key_groups_of_codes(codes, self._max_parallelism)


def key_type_of(key: object, *, where: str = "key") -> TypeInformation:
    """Type of an undeclared key. Raises UnsupportedKey for an impossible key."""
    column = KeyColumn(None, where)
    column.read([key])
    assert column.type_info is not None, "a key that was hashed has a type"
    return column.type_info


def subtasks_of(
    key_groups: NDArray[np.int16], parallelism: int, max_parallelism: int
) -> NDArray[np.int32]:
    """Subtask of each key group, as `subtask_of_key_group` gives for one."""
    return key_groups.astype(np.int32) * parallelism // max_parallelism
