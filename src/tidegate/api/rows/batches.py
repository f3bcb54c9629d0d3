"""Conversion between batches of rows and Arrow batches.

PyArrow is loaded by the first Arrow batch: a program of rows alone never waits for it. A record
of Arrow columns is a dict of column name to Python value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from flinkformat.row import Row
from tidegate.api.rows.column_rows import ColumnRows, RowForm
from tidegate.errors import BadRecord, with_article
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.nullable import Nullable, kind_of
from tidegate.typeinfo.copies import IMMUTABLE, private_copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tidegate.model.elements import Batch
    from tidegate.model.nullable import FieldValues


def as_rows(batch: Batch) -> RowBatch:
    """The batch as rows; Arrow rows become dicts. Keeps keys and key groups.

    Columns of numbers, truth values and texts stay columns until rows are asked for. Raises
    UnsupportedKey for keys that are NaN: each would be a key of its own.
    """
    if isinstance(batch, RowBatch):
        return batch
    key = batch.key_column
    if key is not None:
        _refuse_nan(batch.batch.column(key), key)
    stamps, groups = batch.timestamps_ms, batch.key_groups
    columns = _column_rows(batch)
    if columns is not None:
        return columns
    keys = None if key is None else _keys(batch.batch.column(key))
    return RowBatch(
        dict_rows(batch.batch),
        None if stamps is None else stamps.tolist(),
        keys,
        None if groups is None else groups.tolist(),
    )


def _refuse_nan(keys: pa.Array, name: str) -> None:
    import numpy as np
    import pyarrow as pa

    if not (pa.types.is_float32(keys.type) or pa.types.is_float64(keys.type)):
        return
    if np.isnan(keys.drop_null().to_numpy(zero_copy_only=False)).any():
        from tidegate.typeinfo.plain_keys import refusal_of_nan  # few programs have such keys

        raise refusal_of_nan(math.nan, f"key column '{name}'")


def _keys(column: pa.Array) -> list[object]:
    """The keys of a column; instants in UTC, since Python compares those of one zone by its clocks.

    There an hour comes twice in autumn.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return cast("list[object]", column.to_pylist())


def _column_rows(batch: ArrowBatch) -> ColumnRows | None:
    """The batch as columns of the fields of dicts; None if one of them has to be looked into."""
    import numpy as np

    names, groups = tuple(batch.batch.schema.names), batch.key_groups
    if not names or len(set(names)) < len(names):
        return None
    columns: list[FieldValues] = []
    for name, each in zip(names, batch.batch.columns, strict=True):
        column = _plain_column(each)
        if column is None or (name == batch.key_column and isinstance(column, Nullable)):
            return None
        columns.append(column)
    key = batch.key_column
    return ColumnRows(
        columns,
        form=RowForm(names=names),
        stamps=batch.timestamps_ms,
        key_column=None if key is None else names.index(key),
        groups=None if groups is None else groups.astype(np.int16, copy=False),
    )


@cache
def _plain_types() -> dict[pa.DataType, type]:
    """Arrow's types of columns whose values NumPy holds too, with NumPy's."""
    import pyarrow as pa

    whole = [pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint32(), pa.uint16(), pa.uint8()]
    return {
        **dict.fromkeys(whole, int),
        **dict.fromkeys([pa.float64(), pa.float32()], float),
        **dict.fromkeys([pa.string(), pa.large_string()], object),
        pa.bool_(): bool,
    }


def _plain_column(column: pa.Array) -> FieldValues | None:
    """A column as int64, float64, bool, or texts as objects; None for other types."""
    kind = _plain_types().get(column.type)
    if kind is None:
        return None
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False).astype(kind, copy=False)
    filled = column if kind is object else column.fill_null(kind())
    return Nullable(
        filled.to_numpy(zero_copy_only=False).astype(kind, copy=False),
        column.is_null().to_numpy(zero_copy_only=False),
    )


def dict_rows(batch: pa.RecordBatch) -> list[object]:
    """A dict for each row; maps within columns become dicts if their keys are hashable."""
    if not any(map(_holds_map, batch.schema.types)):
        return cast("list[object]", batch.to_pylist())  # six times as fast as with maps in view
    try:
        return cast("list[object]", batch.to_pylist(maps_as_pydicts="lossy"))
    except TypeError:
        columns = [_values(column) for column in batch.columns]
        names = batch.schema.names
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _holds_map(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _holds_map(kind.storage_type)
    return pa.types.is_nested(kind) and (
        pa.types.is_map(kind)
        or any(_holds_map(kind.field(at).type) for at in range(kind.num_fields))
    )


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
        columns = [_column(name, None, [row.get(name) for row in mappings]) for name in names]
        return pa.RecordBatch.from_arrays(columns, names)
    _check_names(mappings, set(schema.names))
    columns = [
        _column(field.name, field.type, [row.get(field.name) for row in mappings])
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batch_as_arrow(batch: RowBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """The rows of a batch as columns, as `as_arrow` gives them; what is a column stays one."""
    made = None
    if isinstance(batch, ColumnRows):
        made = named_columns(batch, mapping_names(batch.form), schema)
    return as_arrow(batch.values, schema) if made is None else made


def mapping_names(form: RowForm) -> tuple[str, ...]:
    """Names of the fields of each row of this form, as a mapping; empty where rows have to tell."""
    kind = form.record
    if kind is None or kind is Row or form.is_tuple:
        return form.names
    tells = issubclass(kind, Mapping) or hasattr(kind, "_asdict") or hasattr(kind, "as_dict")
    declared = tuple(field.name for field in dataclasses.fields(cast("Any", kind)))
    return () if tells or declared != form.names else declared


def named_columns(
    rows: ColumnRows, names: Sequence[str], schema: pa.Schema | None
) -> pa.RecordBatch | None:
    """Columns of Arrow made of those of the rows, which get these names.

    schema: as `as_arrow` takes it, and raises. None without rows or names, and where a row has a
    name that the schema does not.
    """
    import pyarrow as pa

    if not len(rows) or not names or (schema is not None and not set(names) <= set(schema.names)):
        return None
    columns = dict(zip(names, rows.columns[: rows.width], strict=True))
    if schema is None:
        made = [_arrow_column(name, None, column) for name, column in columns.items()]
        return pa.RecordBatch.from_arrays(made, list(columns))
    made = [
        _arrow_column(field.name, field.type, columns[field.name])
        if field.name in columns
        else _column(field.name, field.type, [None] * len(rows))
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _arrow_column(name: str, kind: pa.DataType | None, column: FieldValues) -> pa.Array:
    import pyarrow as pa

    kinds = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "O": pa.string()}
    own = kinds[kind_of(column).kind]
    if kind is None or kind == own:
        try:
            if isinstance(column, Nullable):
                return pa.array(column.values, own, mask=column.nulls)
            return pa.array(column, own)
        except (pa.ArrowException, ValueError):
            pass  # a text that has no bytes: half of a surrogate pair
    return _column(name, kind, column.tolist())


def _column(name: str, kind: pa.DataType | None, values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        index = _first_misfit(values, kind)
        raise _misfit(name, values[index], index, kind, str(error)) from error
    from tidegate.api.rows.exact import first_changed, mixes_zones  # which loads PyArrow

    if (index := first_changed(values, column)) is not None:
        raise _misfit(name, values[index], index, kind, f"{column.type} would change it")
    if kind is None and pa.types.is_timestamp(column.type) and mixes_zones(values):
        raise BadRecord(
            f"column '{name}' holds times with a zone and times without",
            where="a batch of rows",
            remedy="Give all a zone or none, or declare the column's type: times without are UTC.",
        )
    return column


def _misfit(name: str, value: object, index: int, kind: pa.DataType | None, why: str) -> BadRecord:
    return BadRecord(
        f"column '{name}' holds {shown(value)}, which does not fit "
        f"{'the values before it' if kind is None else kind}: {why}",
        where=f"row {index} of a batch",
        remedy="Give the columns' types as a schema, or make the values of one type.",
    )


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
    """The batch for a further consumer: mutable values are copied, columns are shared."""
    if isinstance(batch, ColumnRows):
        # Rows are made anew of the same columns, where one can be changed.
        return batch.piece(0, len(batch)) if batch.form.is_mutable else batch
    if isinstance(batch, ArrowBatch) or IMMUTABLE.issuperset(map(type, batch.values)):
        return batch
    values = list(map(private_copy, batch.values))
    return RowBatch(values, batch.timestamps_ms, batch.keys, batch.key_groups)
