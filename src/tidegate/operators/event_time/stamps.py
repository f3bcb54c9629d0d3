"""Event times of records, from a user's function or from a column."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from tidegate.api.rows.batches import as_rows, shown
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.api.watermarks import TimestampAssigner
from tidegate.errors import BadRecord, GraphError, UserCodeFailed
from tidegate.model.elements import MIN_TIMESTAMP_MS, ArrowBatch, RowBatch
from tidegate.model.nullable import Nullable
from tidegate.operators.failures import raise_user_code_failed
from tidegate.traced.calls import batch_call, why_by_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tidegate.api.watermarks import Assigner, WatermarkStrategy
    from tidegate.model.elements import Batch
    from tidegate.traced.calls import BatchCall

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
_PER_MILLISECOND: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def stamp_by(assigner: Assigner, operator: str, *, trace: bool = True) -> Callable[[Batch], Batch]:
    """Function that gives a batch its timestamps. operator: its name, for messages.

    trace: whether a pure function is evaluated over columns.
    """
    if isinstance(assigner, str):
        return ColumnStamps(assigner, operator).stamped
    call = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner
    return FunctionStamps(call, operator, batch_call(call, 2, enabled=trace)).stamped


def assigner_by_row(strategy: WatermarkStrategy) -> Mapping[str, str]:
    """The strategy's function of rows, as ``Operator.by_row`` tells of it."""
    assigner = strategy.assigner
    if assigner is None or isinstance(assigner, str):
        return {}
    call = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner
    return {"timestamps": why_by_row(call, 2)}


class FunctionStamps:
    """Timestamps from a user's function of a row and its former timestamp.

    of_columns: the function over columns; None if it has to be called.
    """

    def __init__(
        self, call: Callable[[Any, int], int], operator: str, of_columns: BatchCall | None
    ) -> None:
        self._call = call
        self._operator = operator
        self._of_columns = of_columns

    def stamped(self, batch: Batch) -> Batch:
        """The batch with timestamps; the function sees Arrow rows as dicts."""
        rows = as_rows(batch)
        if isinstance(rows, ColumnRows) and self._of_columns is not None:
            stamps = self._stamps_of(rows, self._of_columns)
            if stamps is not None:
                return rows.stamped(stamps) if rows is batch else _with(batch, stamps)
        old = rows.timestamps_ms or repeat(MIN_TIMESTAMP_MS, len(rows))
        found: list[object] = []
        try:
            found.extend(map(self._call, rows.values, old))
        except BaseException as error:
            self._fail(error, rows, len(found))
        if len(found) < len(rows):
            # `map` takes a StopIteration that leaves the function for its own end.
            stopped = StopIteration("raised by the function itself")
            self._fail(stopped, rows, len(found))
        try:
            stamps = array("q", cast("list[int]", found))
        except (TypeError, OverflowError):
            raise self._misfit(rows.values, found) from None
        if isinstance(batch, RowBatch) and set(map(type, found)) == {int}:
            # The objects that the function gave are often those of the rows, and near in memory.
            return _with_list(batch, found)
        return _with(batch, stamps)

    def _stamps_of(self, batch: ColumnRows, call: BatchCall) -> NDArray[np.int64] | None:
        import numpy as np

        old = batch.stamps
        if old is None:
            old = np.full(len(batch), MIN_TIMESTAMP_MS)
        found = call(batch, old)
        if found is None or call.is_tuple or isinstance(found[0], Nullable):
            return None
        return found[0] if found[0].dtype == np.int64 else None

    def _fail(self, error: BaseException, rows: RowBatch, at: int) -> NoReturn:
        raise_user_code_failed(error, operator=self._operator, row=rows.values[at], at=at)

    def _misfit(self, values: Sequence[object], found: Sequence[object]) -> UserCodeFailed:
        index = _first_misfit(found)
        return UserCodeFailed(
            f"the timestamp assigner of operator '{self._operator}' gave {shown(found[index])}, "
            "which is not a number of milliseconds",
            where=f"operator '{self._operator}', at the row {shown(values[index])}",
            remedy="Return milliseconds since 1970 as an int of 64 bits.",
        )


class ColumnStamps:
    """Timestamps from a column of milliseconds or of times; times without a zone are in UTC."""

    def __init__(self, column: str, operator: str) -> None:
        self._column = column
        self._operator = operator

    def stamped(self, batch: Batch) -> Batch:
        if isinstance(batch, ArrowBatch):
            return _with(batch, self._of_arrow(batch.batch))
        if isinstance(batch, ColumnRows):
            column = batch.column(self._column)
            if column is not None and not isinstance(column, Nullable) and column.dtype.kind == "i":
                return batch.stamped(column)
        found = self._of_rows(batch.values)
        try:
            return _with(batch, array("q", cast("list[int]", found)))
        except (TypeError, OverflowError):
            return _with(batch, array("q", self._converted(batch.values, found)))

    def _of_rows(self, values: list[Any]) -> list[object]:
        column = self._column
        try:
            return [value[column] for value in values]
        except (KeyError, TypeError, IndexError):
            return [self._field(value) for value in values]

    def _field(self, value: Any) -> object:
        try:
            return value[self._column]
        except (KeyError, TypeError, IndexError):
            pass
        try:
            return getattr(value, self._column)
        except AttributeError:
            raise self._missing(_names_of(value), f"at the row {shown(value)}") from None

    def _converted(self, values: Sequence[object], found: Sequence[object]) -> list[int]:
        stamps: list[int] = []
        for value, field in zip(values, found, strict=True):
            stamp = _millis(field)
            if stamp is None:
                raise BadRecord(
                    f"the column '{self._column}' holds {shown(field)}, which is not a time",
                    where=f"operator '{self._operator}', at the row {shown(value)}",
                    remedy="Event time is an int of milliseconds since 1970, or a datetime.",
                )
            stamps.append(stamp)
        return stamps

    def _of_arrow(self, batch: pa.RecordBatch) -> np.ndarray:
        position = batch.schema.get_field_index(self._column)
        if position < 0:
            raise self._missing(batch.schema.names, "")
        column = batch.column(position)
        if column.null_count:
            row = batch.slice(column.is_null().to_pylist().index(True), 1).to_pylist()[0]
            raise BadRecord(
                f"the column '{self._column}' holds a null, which is not a time",
                where=f"operator '{self._operator}', at the row {shown(row)}",
                remedy="Leave such rows out before event time is taken from them.",
            )
        stamps = arrow_millis(column)
        if stamps is None:
            raise GraphError(
                f"the column '{self._column}' holds {column.type}, which is not a time",
                where=f"operator '{self._operator}'",
                remedy="Event time is a column of integers, milliseconds since 1970, or of "
                "timestamps or dates.",
            )
        return stamps

    def _missing(self, names: Sequence[str], place: str) -> GraphError:
        there = f"there are {', '.join(names)}" if names else "the record has no named columns"
        return GraphError(
            f"there is no column '{self._column}' to take event time from; {there}",
            where=f"operator '{self._operator}'" + (f", {place}" if place else ""),
            remedy="Give with_timestamp_assigner the name of a column, or a function.",
        )


def arrow_millis(column: pa.Array) -> np.ndarray | None:
    """Milliseconds of a column without nulls: integers, timestamps of any unit, dates.

    Shape (rows,), int64; finer units are rounded down. None for any other type.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64()).to_numpy()
    if pa.types.is_timestamp(kind):
        ticks = column.cast(pa.int64()).to_numpy()
        return ticks * 1_000 if kind.unit == "s" else ticks // _PER_MILLISECOND[kind.unit]
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()).to_numpy() * _DAY_MS
    return None


def _millis(field: object) -> int | None:
    """Milliseconds of a field of a record; None if it is not a time."""
    if isinstance(field, datetime):
        aware = field if field.tzinfo is not None else field.replace(tzinfo=UTC)
        field = (aware - _EPOCH) // _MILLISECOND
    elif isinstance(field, date):
        field = (field - _EPOCH.date()).days * _DAY_MS
    return None if _first_misfit([field]) == 0 else cast("int", field)


def _first_misfit(found: Sequence[object]) -> int:
    """Index of the first value that is not an integer of 64 bits; -1 if there is none."""
    for index, stamp in enumerate(found):
        try:
            array("q", cast("list[int]", [stamp]))
        except (TypeError, OverflowError):
            return index
    return -1


def _names_of(value: object) -> Sequence[str]:
    if isinstance(value, Mapping):
        return [str(name) for name in cast("Mapping[object, object]", value)]
    for listed in ("names", "_fields", "__dataclass_fields__", "__dict__"):
        if names := getattr(value, listed, None):
            return tuple(names)
    return ()


def _with(batch: Batch, stamps: array[int] | np.ndarray) -> Batch:
    if isinstance(batch, RowBatch):
        return _with_list(batch, stamps.tolist())
    import numpy as np

    own = np.asarray(stamps, np.int64)
    return ArrowBatch(batch.batch, own, batch.key_column, batch.key_groups)


def _with_list(batch: RowBatch, stamps: list[Any]) -> RowBatch:
    return RowBatch(batch.values, stamps, batch.keys, batch.key_groups)
