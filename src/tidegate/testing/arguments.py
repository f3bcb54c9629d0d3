"""Times that a test gives to the harness, checked before anything has happened."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def whole_ms(value: int, name: str) -> int:
    """A time in milliseconds. Raises GraphError for one that is no whole number."""
    try:
        return index(value)
    except TypeError:
        raise GraphError(
            f"{name} is {value!r}, which is no whole number of milliseconds",
            where="OperatorHarness",
            remedy="Give an int.",
        ) from None


def forward_ms(ms: int) -> int:
    """A time to let pass, in milliseconds. Raises GraphError for one below 0."""
    if whole_ms(ms, "The time to advance by") < 0:
        raise GraphError(
            f"The clock cannot go back by {-ms} ms",
            where="OperatorHarness.advance_time",
            remedy="Give a number from 0 on; start_ms says where the clock begins.",
        )
    return index(ms)


def stamps(timestamps: Sequence[int] | Column | None, rows: int) -> list[int] | None:
    """Event times of a batch, in milliseconds. Raises GraphError unless each row has one.

    A column may have times of any unit, or floats that are whole numbers.
    """
    if timestamps is None:
        return None
    if len(timestamps) != rows:
        raise GraphError(
            f"There are {rows} records and {len(timestamps)} timestamps",
            where="OperatorHarness",
            remedy="Give a timestamp for each record, or none.",
        )
    given = _of_column(timestamps) if isinstance(timestamps, Column) else timestamps
    return [whole_ms(each, "A timestamp") for each in given]


@runtime_checkable
class Column(Protocol):
    """A column of NumPy, Arrow or pandas."""

    def __array__(self) -> NDArray[np.generic]: ...

    def __len__(self) -> int: ...


def _of_column(column: Column) -> list[Any]:
    import numpy as np

    values = np.asarray(column)
    if values.dtype.kind == "M":
        whole = values.astype("datetime64[ms]").astype(np.int64)
        return [
            "NaT" if lacks else ms
            for lacks, ms in zip(np.isnat(values), whole.tolist(), strict=True)
        ]
    found: list[Any] = values.tolist()
    return [int(each) if isinstance(each, float) and each.is_integer() else each for each in found]
