"""Columnar state that counts."""

import numpy as np
import pyarrow as pa

from tests.state.world import MAX_PARALLELISM, Subtask
from tidegate.api.state import ColumnStateDescriptor
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import TypeInformation

COUNT = ColumnStateDescriptor("count", pa.int64())


class Columns:
    """Columnar state of a subtask in a test: batches of keys in, values by key out."""

    def __init__(self, subtask: Subtask, key_type: TypeInformation | None = None) -> None:
        self.subtask = subtask
        self.rows = subtask.backend.keyed_columns(key_type)
        self.hasher = KeyHasher(key_type, MAX_PARALLELISM)

    def index(self, keys: pa.Array) -> np.ndarray:
        return self.rows.index(keys, self.hasher.key_groups_of_column(keys))

    def owned(self, keys: pa.Array) -> pa.Array:
        groups = self.hasher.key_groups_of_column(keys)
        mine = self.subtask.key_groups
        return keys.filter(pa.array((groups >= mine.first) & (groups <= mine.last)))

    def values(self, keys: pa.Array, descriptor: ColumnStateDescriptor) -> dict[object, object]:
        state = self.subtask.backend.column_state(descriptor)
        return dict(zip(keys.to_pylist(), state.get(self.index(keys)).tolist(), strict=True))
