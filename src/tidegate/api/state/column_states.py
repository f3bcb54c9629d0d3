"""Columnar state: a column of values, one a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pyarrow as pa
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class ColumnStateDescriptor:
    """A column of values, one a key. default: the value of a key not yet written.

    Numbers, booleans, timestamps, dates and durations are kept as NumPy arrays, and without a
    default they begin at 0. Texts, bytes, decimals, times, lists and structs are kept as Python
    objects, which are replaced and never changed; they begin as None.
    """

    name: str
    type: pa.DataType
    default: object = None


class ColumnState(Protocol):
    """A column with one value a key, addressed by the key's row."""

    def get(self, index: np.ndarray) -> np.ndarray:
        """The values of these rows: a copy, shape (rows,)."""
        ...

    def put(self, index: np.ndarray, values: np.ndarray) -> None:
        """Sets the values of these rows; for a row named twice, the last value counts."""
        ...

    def at(self, ufunc: np.ufunc, index: np.ndarray, values: ArrayLike) -> None:
        """``column[row] = ufunc(column[row], value)`` for each row and value, one after another.

        A row named twice takes both: ``counts.at(np.add, ctx.key_index, 1)`` counts. Two or three
        nanoseconds a row where values are of the column's own type, many more otherwise.
        """
        ...


class KeyedColumns(Protocol):
    """Columnar state over all keys that an operator has seen, which have dense rows."""

    def index(self, keys: pa.Array, key_groups: np.ndarray) -> np.ndarray:
        """Row of each key, int64, shape (rows,); new keys get the next free rows."""
        ...

    def __len__(self) -> int: ...

    def column(self, descriptor: ColumnStateDescriptor) -> ColumnState: ...


class KeyedPane(Protocol):
    """Columns of those keys that were added to one number, such as a slice of time."""

    def add(self, rows: np.ndarray) -> None:
        """Adds rows to the pane; call it before their values are put."""
        ...

    def rows(self) -> np.ndarray:
        """Rows of the pane, ascending."""
        ...

    def column(self, descriptor: ColumnStateDescriptor) -> ColumnState: ...

    def pack(self) -> None:
        """Compacts the pane, which will probably only be read from now on."""
        ...


class KeyedPanes(Protocol):
    """Columnar state by number, a pane for each; a key that is in no pane is forgotten."""

    def index(self, keys: pa.Array, key_groups: np.ndarray) -> np.ndarray:
        """Row of each key, int64, shape (rows,), the same in all panes."""
        ...

    def keys(self, rows: np.ndarray) -> pa.Array:
        """Keys of rows, in the Arrow type of keys of their kind."""
        ...

    def key_groups(self, rows: np.ndarray) -> np.ndarray:
        """Key groups of these rows."""
        ...

    def pane(self, namespace: int) -> KeyedPane:
        """The pane of that number, created on demand."""
        ...

    def namespaces(self) -> list[int]:
        """Numbers of all panes, ascending."""
        ...

    def drop(self, namespaces: Iterable[int]) -> None:
        """Forgets panes; keys may have other rows afterwards."""
        ...

    def temporary(self) -> KeyedPane: ...
