"""Functions of whole Arrow batches, with and without columnar keyed state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
import pyarrow as pa

from tidegate.api.operator import Operator
from tidegate.api.rows.batches import batch_as_arrow
from tidegate.api.rows.columns import as_found, fitted, one_schema
from tidegate.errors import BadRecord, GraphError, TidegateError, UserCodeFailed, with_article
from tidegate.model.elements import MIN_TIMESTAMP_MS, ArrowBatch, RowBatch
from tidegate.operators.failures import ReturnedBeside, raise_user_code_failed
from tidegate.operators.function import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.rows.columns import Columns
    from tidegate.api.state import ColumnState, ColumnStateDescriptor, KeyedColumns
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

BATCH_CALL_S: Final = 0.1
"""How long a call with a batch is to take, seconds."""

_COLUMNS_MAX: Final = 1000
"""Columns of rows that are brought to one schema; rows of ever other names would add more."""


class BatchOperator(FunctionOperator):
    """Base of operators on Arrow batches."""

    piece_s = BATCH_CALL_S

    def __init__(
        self,
        function: object,
        method: str,
        output_schema: pa.Schema | None = None,
        form: Form = "arrow",
    ) -> None:
        super().__init__(function, method)
        self._output_schema = output_schema
        self._form: Form = form

    def open(self, context: OperatorContext) -> None:
        self._give = giver(self._form)
        self._input = ArrowInput(context.info.name)
        self._first_schema: pa.Schema | None = None
        super().open(context)

    def _apply(self, batch: ArrowBatch, *arguments: object) -> Any:
        try:
            return self._call(self._give(batch.batch), *arguments)
        except BaseException as error:
            row = first_row(batch.batch)
            raise_user_code_failed(error, operator=self._name, row=row)

    def _checked(self, result: object) -> pa.RecordBatch:
        declared = self._output_schema
        try:
            found = taken(result, declared)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise self._wrong(
                f"returned a data frame that does not become Arrow columns: {error}",
                "Make the columns of one type each, and of that of output_schema.",
            ) from error
        if found is None:
            raise self._wrong(
                f"returned {with_article(type(result))}, not a batch",
                "Return a pyarrow RecordBatch or Table, or a DataFrame of pandas or polars.",
            )
        if declared is None:
            return self._like_the_first(found)
        if found.schema.equals(declared):
            return found
        if found.schema.names == declared.names:
            fitting = found if found.schema.types == declared.types else _widened(found, declared)
            if fitting is not None:
                return pa.RecordBatch.from_arrays(fitting.columns, schema=declared)
        raise self._wrong(
            f"returned a batch that is not of its declared schema: "
            f"{schema_difference(declared, found.schema)}",
            "Make the function's result and output_schema agree.",
        )

    def _like_the_first(self, found: pa.RecordBatch) -> pa.RecordBatch:
        first = self._first_schema
        if first is None:
            self._first_schema = found.schema
        elif found.schema.names != first.names or found.schema.types != first.types:
            raise self._wrong(
                "changed the schema in the middle of the stream: "
                f"{schema_difference(first, found.schema, 'before')}",
                "Give the call an output_schema, and bring each result to it.",
            )
        return found

    def _wrong(self, what: str, remedy: str) -> TidegateError:
        place = f"operator '{self._name}'"
        return UserCodeFailed(f"the function of {place} {what}", where=place, remedy=remedy)


class MapBatchesOperator(BatchOperator):
    """One batch of the same length for each batch, so that rows keep their timestamps."""

    def __init__(
        self, function: object, output_schema: pa.Schema | None = None, form: Form = "arrow"
    ) -> None:
        super().__init__(function, "map", output_schema, form)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        given = self._input.batch(batch)
        result = self._checked(self._apply(given))
        if result.num_rows != len(given):
            raise self._wrong(
                f"returned {result.num_rows} rows for {len(given)}",
                "Return a row for each; flat_map_batches may change their number.",
            )
        out.emit(ArrowBatch(result, given.timestamps_ms))


class FlatMapBatchesOperator(BatchOperator):
    """Any number of batches for each batch; their rows have no timestamps."""

    def __init__(
        self, function: object, output_schema: pa.Schema | None = None, form: Form = "arrow"
    ) -> None:
        super().__init__(function, "flat_map", output_schema, form)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        given = self._input.batch(batch)
        return self._emit_all(given, self._apply(given), out)

    def _emit_all(self, given: ArrowBatch, results: Any, out: Output) -> Steps | None:
        if results is None:
            return None
        if isinstance(results, Iterator | list | tuple):
            return self._emit_each(self._drawn(given, cast("Iterable[object]", results)), out)
        checked = self._checked(results)
        if checked.num_rows:
            out.emit(ArrowBatch(checked))
        return None

    def _emit_each(self, results: Iterator[object], out: Output) -> Steps:
        for result in results:
            checked = self._checked(result)
            if checked.num_rows:
                out.emit(ArrowBatch(checked))
                if not out.has_room:
                    yield None

    def _drawn(self, given: ArrowBatch, results: Iterable[object]) -> Iterator[object]:
        try:
            beside = yield from results
            if beside is not None:
                raise ReturnedBeside(beside)
        except BaseException as error:
            row = first_row(given.batch)
            raise_user_code_failed(error, operator=self._name, row=row)


class FilterBatchesOperator(BatchOperator):
    """Keeps the rows for which the function's mask is true: booleans, Arrow or NumPy."""

    def __init__(self, function: object, form: Form = "arrow") -> None:
        super().__init__(function, "filter", form=form)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        given = self._input.batch(batch)
        mask = self._mask(self._apply(given), len(given))
        kept = given.batch.filter(mask)
        if kept.num_rows:
            stamps = given.timestamps_ms
            chosen = mask.fill_null(False).to_numpy(zero_copy_only=False)
            out.emit(ArrowBatch(kept, None if stamps is None else stamps[chosen]))

    def _mask(self, result: Any, rows: int) -> pa.BooleanArray:
        try:
            mask = _array_of_mask(result)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise self._wrong(
                f"returned {with_article(type(result))}, not a boolean for each row",
                "Return an array or list of booleans, such as pc.greater(batch['n'], 2).",
            ) from error
        if not pa.types.is_boolean(mask.type) or len(mask) != rows:
            raise self._wrong(
                f"returned {len(mask)} values of type {mask.type} for {rows} rows",
                "Return a boolean for each row.",
            )
        return cast("pa.BooleanArray", mask)


def _array_of_mask(result: Any) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks()
    if isinstance(result, pa.Array):
        return result
    if str(getattr(result, "dtype", "")) == "boolean":
        result = result.to_numpy(dtype=bool, na_value=False)  # pandas, where <NA> is no boolean
    return pa.array(np.asarray(result))


class KeyColumnContext:
    """The ``BatchContext`` of a keyed batch function; one for each operator, set for each batch."""

    __slots__ = ("_columns", "_context", "key_index", "timestamps_ms", "watermark_ms")

    def __init__(self, context: OperatorContext, columns: KeyedColumns) -> None:
        self._context = context
        self._columns = columns
        self.key_index: np.ndarray[Any, Any] = np.empty(0, np.int64)
        self.timestamps_ms: np.ndarray[Any, Any] | None = None
        self.watermark_ms = MIN_TIMESTAMP_MS

    @property
    def keys_total(self) -> int:
        return len(self._columns)

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        return self._context.state.column_state(descriptor)


class ProcessBatchesOperator(FlatMapBatchesOperator):
    """A keyed batch function. key_column: the column by which the edge before it is keyed."""

    def __init__(
        self,
        function: object,
        output_schema: pa.Schema | None,
        key_column: str,
        key_type: TypeInformation | None = None,
        form: Form = "arrow",
    ) -> None:
        BatchOperator.__init__(self, function, "process_batch", output_schema, form)
        self._key_column = key_column
        self._key_type = key_type

    def open(self, context: OperatorContext) -> None:
        self._columns = context.state.keyed_columns(self._key_type)
        self._batch = KeyColumnContext(context, self._columns)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        given = self._input.batch(batch)
        assert given.key_groups is not None, "a keyed edge gives key groups"
        keys = given.batch.column(self._key_column)
        self._batch.key_index = self._columns.index(keys, given.key_groups)
        self._batch.timestamps_ms = given.timestamps_ms
        return self._emit_all(given, self._apply(given, self._batch), out)

    def on_watermark(self, watermark: Watermark, out: Output) -> None:
        self._batch.watermark_ms = watermark.ms
        out.emit_watermark(watermark)


class ArrowInput:
    """Batches as Arrow columns; those made of rows get one schema where their types allow it.

    Else a column that holds no value, or only whole numbers, would have another type in a batch
    that ends there. schema: columns that are known before the first batch.
    """

    def __init__(self, operator: str, schema: pa.Schema | None = None) -> None:
        self._operator = operator
        self._schema = schema

    def batch(self, batch: Batch) -> ArrowBatch:
        """The batch as columns. Raises UserCodeFailed if its rows can't be converted."""
        if isinstance(batch, ArrowBatch):
            return batch
        try:
            made = columns_of(batch)
        except BadRecord as error:
            place = f"operator '{self._operator}'"
            what = f"{place} wants Arrow batches, but {error.what}"
            raise UserCodeFailed(what, where=place, remedy=error.remedy) from error
        found = made.batch.schema
        if not len(batch) or found == self._schema:
            return made
        try:
            schema = found if self._schema is None else one_schema([self._schema, found])
            if schema is None or len(schema) > _COLUMNS_MAX:
                return made
            fitting = fitted(made.batch, schema)
        except BadRecord:
            return made
        self._schema = schema
        return replace(made, batch=fitting)


def columns_of(batch: RowBatch) -> ArrowBatch:
    """A row batch as Arrow columns. Raises BadRecord if its rows can't be converted."""
    stamps, groups = batch.timestamps_ms, batch.key_groups
    return ArrowBatch(
        batch_as_arrow(batch),
        None if stamps is None else np.asarray(stamps, np.int64),
        None,
        None if groups is None else np.asarray(groups),
    )


def _widened(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch | None:
    """The batch in declared types that hold all of its types; None where one does not."""
    try:
        schema = one_schema([declared, batch.schema])
        fits = schema is not None and schema.types == declared.types
        return fitted(batch, declared) if fits else None
    except BadRecord:
        return None


def first_row(batch: pa.RecordBatch) -> object:
    return batch.slice(0, 1).to_pylist()[0] if batch.num_rows else None


def schema_difference(declared: pa.Schema, found: pa.Schema, word: str = "declared") -> str:
    for name in declared.names:
        if name not in found.names:
            return f"field '{name}' is missing"
        wanted, given = declared.field(name).type, found.field(name).type
        if wanted != given:
            return f"field '{name}' is {given}, {word} as {wanted}"
    extra = [name for name in found.names if name not in declared.names]
    if extra:
        return f"field '{extra[0]}' is not {word}"
    return f"fields are in the order {found.names}, {word} as {declared.names}"


Form = Literal["arrow", "table", "pandas", "polars"]
"""What a batch function is given: a RecordBatch, a Table, or a data frame of pandas or polars."""

_FORMS: Final = ("arrow", "table", "pandas", "polars")


def check_form(form: str, call: str) -> None:
    """Raises GraphError for an unknown form, or one whose library is not installed."""
    if form not in _FORMS:
        raise GraphError(
            f"There is no form {form!r} of batches",
            where=call,
            remedy=f"Use one of {', '.join(_FORMS)}.",
        )
    if form in ("pandas", "polars") and find_spec(form) is None:
        raise GraphError(
            f"The form of batches is set to {form}, which is not installed",
            where=call,
            remedy=f"Install it: pip install 'tidegate[{form}]', here and on the executors.",
        )


def giver(form: Form) -> Callable[[pa.RecordBatch], Any]:
    """Function that converts a batch to its form."""
    match form:
        case "arrow":
            return lambda batch: batch
        case "table":
            return lambda batch: pa.Table.from_batches([batch])
        case "pandas":
            return lambda batch: batch.to_pandas()
        case "polars":
            return _polars


def _polars(batch: pa.RecordBatch) -> Any:
    import polars

    return polars.from_arrow(batch)


def taken(result: object, declared: pa.Schema | None) -> pa.RecordBatch | None:
    """The batch of a table or data frame; None for anything else.

    declared: brings columns of these names to these types; where the names are others they stay.
    Raises pa.ArrowException, ValueError or TypeError if a value does not fit.
    """
    library = type(result).__module__.partition(".")[0]
    kind = type(result).__name__
    if isinstance(result, pa.RecordBatch):
        return cast("pa.RecordBatch", result)
    if isinstance(result, pa.Table):
        return _whole(cast("pa.Table", result))
    given: Any = result
    if library == "pandas" and kind == "DataFrame":
        names = [str(name) for name in given.columns]
        schema = declared if declared is not None and declared.names == names else None
        batch = pa.RecordBatch.from_pandas(given, schema=schema, preserve_index=False)
        return batch.replace_schema_metadata(None)
    if library == "polars" and kind == "DataFrame":
        from polars import CompatLevel

        table = given.to_arrow(compat_level=CompatLevel.oldest())
        fits = declared is not None and declared.names == table.column_names
        return _whole(table.cast(declared) if fits else table)
    return None


def _whole(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in table.schema], schema=table.schema
    )


class ToColumns(Operator):
    """Gives each batch its columns, of the declared types where there are such.

    If rows have no declared type, the columns are marked as found.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def process(self, batch: Batch, port: int, out: Output) -> None:
        if isinstance(batch, ArrowBatch):
            made = self._columns.batch(batch.batch)
        else:
            made = self._columns.rows(batch)
            if self._columns.schema is None:
                made = as_found(made)
        out.emit(ArrowBatch(made))
