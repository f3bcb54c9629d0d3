"""Collections and tables that a program passes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import GraphError, with_article

if TYPE_CHECKING:
    import pyarrow as pa

ENDLESS: Final = 10_000_000
"""Values of an iterator after which it is taken for one without an end."""

_FRAMES: Final = {("pandas", "DataFrame"), ("polars", "DataFrame")}
_TABLES: Final = {("pyarrow", "Table"), ("pyarrow", "RecordBatch"), *_FRAMES}
_COLUMNS: Final = {("pyarrow", "ChunkedArray"): "to_pylist", ("numpy", "ndarray"): "tolist"}


def is_table(given: object) -> bool:
    """True for a table of Arrow, pandas or polars; loads none of them."""
    return _kind(given) in _TABLES


def values_of(given: object) -> list[Any]:
    """Values of an iterable. Raises GraphError for anything else, and for one without an end."""
    if isinstance(given, Mapping):
        raise _unfit(given, "a mapping, of which only the keys would be taken", "its items()")
    if isinstance(given, str | bytes):
        raise _unfit(given, "a text, of which each character would be a record", "a list of texts")
    library, kind = _kind(given)
    as_python = _COLUMNS.get((library, kind))
    if library == "pyarrow" and kind.endswith("Array"):
        as_python = "to_pylist"
    if as_python is not None:
        return getattr(given, as_python)()
    if not isinstance(given, Iterable):
        raise _unfit(given, with_article(type(given)), "a list, or another iterable of values")
    values = cast("Iterable[Any]", given)
    if isinstance(given, Sized):
        return list(values)
    taken = list(islice(values, ENDLESS + 1))
    if len(taken) > ENDLESS:
        raise GraphError(
            f"{type(given).__name__} has given {ENDLESS:,} values and does not end",
            where="from_collection",
            remedy="A collection is held in memory: take env.generate or a source for a stream "
            "without an end, and hand in a list where there really are so many values.",
        )
    return taken


def table_of(given: object, call: str) -> pa.Table:
    """A table of Arrow, pandas or polars as Arrow's.

    Raises GraphError for anything else, and for columns that do not become Arrow's.
    """
    import pyarrow as pa

    from tidegate.operators.arrow.frames import taken

    if isinstance(given, pa.Table):
        return given
    try:
        batch = taken(given, None)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise GraphError(
            f"the data frame does not become Arrow columns: {error}",
            where=call,
            remedy="Make the values of each column of one type.",
        ) from None
    if batch is None:
        raise GraphError(
            f"{call} takes a table or data frame, not {type(given).__name__}",
            where=call,
            remedy="Give a pyarrow.Table or RecordBatch, or a DataFrame of pandas or polars; "
            "from_collection takes lists.",
        )
    return pa.Table.from_batches([batch])


def _kind(given: object) -> tuple[str, str]:
    kind = type(given)
    return kind.__module__.partition(".")[0], kind.__name__


def _unfit(given: object, what: str, instead: str) -> GraphError:
    return GraphError(
        f"from_collection was given {what}",
        where="from_collection",
        remedy=f"Give {instead}.",
    )
