"""Conversion between batches of rows and Arrow batches.

PyArrow is loaded by the first Arrow batch: a program of rows alone never waits for it. A record
of Arrow columns is a dict of column name to Python value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from tidegate.errors import BadRecord, with_article
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.typeinfo.copies import IMMUTABLE, private_copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tidegate.model.elements import Batch


def as_rows(batch: Batch) -> RowBatch:
    """The batch as rows; Arrow rows become dicts. Keeps keys and key groups."""
    if isinstance(batch, RowBatch):
        return batch
    stamps, groups = batch.timestamps_ms, batch.key_groups
    keys = None if batch.key_column is None else batch.batch.column(batch.key_column).to_pylist()
    return RowBatch(
        dict_rows(batch.batch),
        None if stamps is None else stamps.tolist(),
        keys,
        None if groups is None else groups.tolist(),
    )


def dict_rows(batch: pa.RecordBatch) -> list[object]:
    """A dict for each row; maps within columns become dicts if their keys are hashable."""
    try:
        return cast("list[object]", batch.to_pylist(maps_as_pydicts="lossy"))
    except TypeError:
        columns = [_values(column) for column in batch.columns]
        names = batch.schema.names
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[object]:
    try:
        return column.to_pylist(maps_as_pydicts="lossy")
    except TypeError:
        return column.to_pylist()  # maps as lists of pairs


def as_arrow(rows: Sequence[object], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """The rows as columns. Rows are mappings, named tuples, dataclasses or have ``as_dict``.

    schema: names and types to bring them to; None takes the names of all rows and finds the types.
    Raises BadRecord that names the column and the first row which does not fit.
    """
    import pyarrow as pa

    mappings = [
        row if type(row) is dict else _mapping(row, index) for index, row in enumerate(rows)
    ]
    if schema is None:
        names = list(dict.fromkeys(chain.from_iterable(mappings)))
        return pa.RecordBatch.from_arrays([_column(name, None, mappings) for name in names], names)
    _check_names(mappings, set(schema.names))
    columns = [_column(field.name, field.type, mappings) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(name: str, kind: pa.DataType | None, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    import pyarrow as pa

    values = [row.get(name) for row in rows]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        index = _first_misfit(values, kind)
        raise BadRecord(
            f"column '{name}' holds {shown(values[index])}, which does not fit "
            f"{'the values before it' if kind is None else kind}: {error}",
            where=f"row {index} of a batch",
            remedy="Give the columns' types as a schema, or make the values of one type.",
        ) from error


def _first_misfit(values: Sequence[object], kind: pa.DataType | None) -> int:
    """Finds the shortest failing prefix; it ends with the value that does not fit."""
    import pyarrow as pa

    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            pa.array(values[:middle], kind)
            good = middle
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            bad = middle
    return bad - 1


def _check_names(rows: Sequence[Mapping[str, object]], names: set[str]) -> None:
    for index, row in enumerate(rows):
        if unknown := [name for name in row if name not in names]:
            raise BadRecord(
                f"the row has columns that the schema does not: {', '.join(map(str, unknown))}",
                where=f"row {index} of a batch: {shown(row)}",
                remedy=f"The schema has {', '.join(sorted(names))}.",
            )


def _mapping(row: object, index: int) -> Mapping[str, Any]:
    value: Any = row
    if isinstance(row, Mapping):
        return cast("Mapping[str, Any]", row)
    if hasattr(value, "_asdict"):
        return cast("Mapping[str, Any]", value._asdict())
    if getattr(value, "names", None) is not None and hasattr(value, "as_dict"):
        return cast("Mapping[str, Any]", value.as_dict())
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    raise BadRecord(
        f"{with_article(type(row))} has no named fields, so it cannot become Arrow columns",
        where=f"row {index} of a batch: {shown(row)}",
        remedy="Make it a dict, a named tuple, a dataclass or a Row with names in a `map` before.",
    )


def shown(value: object, limit: int = 200) -> str:
    """A value as text for a message: its repr, shortened."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def raised(error: BaseException) -> str:
    """An exception as text for a message: its class and message."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as again:
        return f"{name}, whose text raises {type(again).__name__}"


def take(rows: RowBatch, chosen: list[int]) -> RowBatch:
    """The rows at these positions, in that order; all of them are the batch itself."""
    if len(chosen) == len(rows):
        return rows
    if len(chosen) <= 1:
        start = chosen[0] if chosen else 0
        return rows.piece(start, start + len(chosen))
    pick = itemgetter(*chosen)
    return RowBatch(
        list(pick(rows.values)),
        None if rows.timestamps_ms is None else list(pick(rows.timestamps_ms)),
        None if rows.keys is None else list(pick(rows.keys)),
        None if rows.key_groups is None else list(pick(rows.key_groups)),
    )


def arrow_take(batch: ArrowBatch, chosen: NDArray[np.intp]) -> ArrowBatch:
    """The rows at these positions, which are positions of rows, in that order; with their keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Looking for positions out of bounds takes Arrow as long as taking the rows.
    rows = cast("pa.RecordBatch", pc.take(batch.batch, pa.array(chosen), boundscheck=False))
    stamps, groups = batch.timestamps_ms, batch.key_groups
    return ArrowBatch(
        rows,
        None if stamps is None else stamps.take(chosen),
        batch.key_column,
        None if groups is None else groups.take(chosen),
    )


def copied(batch: Batch) -> Batch:
    """The batch for a further consumer: mutable values are copied, Arrow batches are shared."""
    if isinstance(batch, ArrowBatch) or IMMUTABLE.issuperset(map(type, batch.values)):
        return batch
    values = list(map(private_copy, batch.values))
    return RowBatch(values, batch.timestamps_ms, batch.keys, batch.key_groups)
