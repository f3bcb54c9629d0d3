"""Rolling reduce on a keyed stream: each row emits the reduced value of its key."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from flinkformat.row import Row
from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.rows.batches import as_rows, shown
from tidegate.api.rows.column_rows import TUPLE, ColumnRows, fields_of_type
from tidegate.api.rows.records import only_makes_a_record
from tidegate.errors import TidegateError, UserCodeFailed, with_article
from tidegate.loops.forms import loops_with
from tidegate.loops.tables import REDUCED_TO_NONE
from tidegate.model.elements import MAX_WATERMARK_MS, RowBatch
from tidegate.operators.aggregates.reduced_type import typed_reduce
from tidegate.operators.emit import ahead_of, emit_rows, then_fail
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator, has_life, row_call
from tidegate.operators.keys import keys_of
from tidegate.traced.calls import names_of
from tidegate.traced.folds import Fold, FoldKind, Folds, folds_of
from tidegate.traced.purity import NotPure

if TYPE_CHECKING:
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.rows.column_rows import RowForm
    from tidegate.api.state import ReducingState
    from tidegate.loops.cells import KeyCell
    from tidegate.model.elements import Batch, Watermark
    from tidegate.operators.aggregates.folded import FoldedKeys
    from tidegate.typeinfo.types import TypeInformation


STATE_NAME = "_reduce_state"


class ReduceOperator(FunctionOperator):
    """A rolling reduce. type_info: of the values; None for any picklable value."""

    _shown_call: str = "reduce"

    def __init__(self, function: object, type_info: TypeInformation | None = None) -> None:
        super().__init__(function, "reduce")
        self._type_info = type_info

    def open(self, context: OperatorContext) -> None:
        call = row_call(self._function, self._method)
        loops = loops_with(context.state.cell)
        reduce = typed_reduce(call, self._type_info, context.info.name, loops)
        descriptor = ReducingStateDescriptor(STATE_NAME, reduce, self._type_info)
        self._state = cast("ReducingState[object]", context.state.keyed_state(descriptor))
        self._cell = context.state.cell
        self._by_row = has_life(self._function)
        self._context = context
        self._final_only = context.info.settings.final_only
        self._folded = self._folded_keys() if context.info.settings.trace_functions else None
        super().open(context)

    def _folded_keys(self) -> FoldedKeys | None:
        from tidegate.operators.aggregates.folded import FoldedKeys

        try:
            return FoldedKeys(self._folds(), _Reduced(self._state, self._cell))
        except NotPure:
            return None

    def _folds(self) -> Folds:
        """The function as folds of columns. Raises NotPure if it has to be called."""
        return folds_of(row_call(self._function, self._method))

    @property
    def by_row(self) -> Mapping[str, str]:
        try:
            self._folds()
        except NotPure as reason:
            return {self._shown_call: str(reason)}
        return {self._shown_call: ""}

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = as_rows(batch)
        if self._folded is not None:
            if isinstance(rows, ColumnRows):
                columns = self._folded.add(rows)
                if columns is not None:
                    if not self._final_only:
                        out.emit(ColumnRows(columns, form=rows.form, stamps=rows.stamps))
                    return None
            else:
                self._folded.forget()
        keys, groups = keys_of(rows)
        results: list[object] = []
        stamps, failure = rows.timestamps_ms, None
        try:
            if self._by_row:
                self._add_by_row(rows, self._emitter(results))
            else:
                self._state.add_rows(keys, groups, rows.values, self._emitter(results))
        except BaseException as error:
            failure = self._failure(error, rows, len(results))
            stamps = None if stamps is None else stamps[: len(results)]
        if not self._final_only:
            out.emit(RowBatch(results, stamps))
        return None if failure is None else then_fail(failure)

    def _add_by_row(self, rows: RowBatch, emit: Callable[[object], None]) -> None:
        """Reduces row by row, for a function that may use state of the current key."""
        keys, groups = keys_of(rows)
        cell, state = self._cell, self._state
        for value, cell.key, cell.group in zip(rows.values, keys, groups, strict=True):
            state.add(value)
            reduced = state.get()
            if reduced is None and value is not None:
                raise TypeError(REDUCED_TO_NONE)
            emit(reduced)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Emits the reduced value of each key at the end of a batch job."""
        if not (self._final_only and watermark.ms == MAX_WATERMARK_MS):
            return super().on_watermark(watermark, out)
        if self._folded is not None:
            self._folded.flush()
        finals = (final for _, _, final in self._context.state.scan(STATE_NAME))
        return ahead_of(watermark, emit_rows(finals, self._draws, out), out)

    def snapshot(self, context: SnapshotContext) -> None:
        if self._folded is not None:
            self._folded.flush()
        super().snapshot(context)

    def _failure(self, error: BaseException, rows: RowBatch, at: int) -> TidegateError:
        return user_code_failed(error, operator=self._name, row=rows.values[at], at=at)

    def _emitter(self, results: list[object]) -> Callable[[object], None]:
        own, append = self._own, results.append
        return append if own is None else lambda result: append(own(result))


class _Reduced:
    """The state of a reduce, read and written a batch at a time."""

    def __init__(self, state: ReducingState[object], cell: KeyCell) -> None:
        self._cell = cell
        self._get = state.get
        self._read_ahead = state.read_ahead
        self.write = state.put_rows

    def read(self, keys: Sequence[object], key_groups: Sequence[int]) -> list[object]:
        self._read_ahead(keys, key_groups)
        cell, get, found = self._cell, self._get, list[object]()
        for cell.key, cell.group in zip(keys, key_groups, strict=True):
            found.append(get())
        return found


RollingCall = Literal["sum", "min", "max", "min_by", "max_by"]
_FOLDS: Final = {"sum": FoldKind.TOTAL, "min": FoldKind.MIN, "max": FoldKind.MAX}
FieldName = int | str
Get = Callable[[Any], Any]
Put = Callable[[Any, Any], Any]


class RollingOperator(ReduceOperator):
    """A reduce whose function is one of ours.

    call: which. field: its position or its name; 0 of a row that is a plain number or text.
    """

    def __init__(
        self, call: RollingCall, field: FieldName, type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(_Rolling(call, field), type_info)
        # A sum may leave the bounds of its type; all else was in the input.
        self.keeps_type = call != "sum"
        self._call_name = self._shown_call = call
        self._field = field

    def _folds(self) -> Folds:
        kind = _FOLDS.get(self._call_name)
        if kind is None:
            raise NotPure("it gives whole rows")
        shape = None if self._type_info is None else fields_of_type(self._type_info)
        if shape is None:
            raise NotPure("the rows are not declared as numbers, or records of numbers and texts")
        form, count = cast("RowForm", shape[0]), len(shape) - 1
        if form.record is not None and not only_makes_a_record(form.record):
            raise NotPure("the class of the rows does more than hold fields")
        at = self._place_in(form, count)
        term = next(name for name, place in names_of(form, count, 1).items() if place == at)
        folds = [Fold(FoldKind.KEEP) for _ in range(count)]
        folds[at] = Fold(kind, term)
        return Folds(tuple(folds), form=form, argument=1, traced=None)

    def _place_in(self, form: RowForm, count: int) -> int:
        if self._field in form.names:
            return form.names.index(self._field)
        at = str(self._field).removeprefix("f" if form == TUPLE else "")
        if not at.isdecimal() or int(at) >= count:
            raise NotPure(f"the rows have no field {self._field!r}")
        return int(at)

    def _failure(self, error: BaseException, rows: RowBatch, at: int) -> TidegateError:
        if isinstance(error, TidegateError):
            return error
        place = f"operator '{self._name}'"
        reason = f"{type(error).__name__}: {error}"
        return UserCodeFailed(
            f"{self._call_name} of field {self._field!r} does not work: {reason}",
            where=f"{place}, field {self._field!r}, at the row {shown(rows.values[at])}",
            remedy="Name a field that every row has, of values that can be "
            f"{'added' if self._call_name == 'sum' else 'compared'}.",
        )


class _Rolling:
    """The function of two rows; a plain callable, made again after shipping."""

    def __init__(self, call: RollingCall, field: FieldName) -> None:
        self._arguments = (call, field)
        self._merge = _merge(call, field)

    def __call__(self, old: Any, new: Any) -> Any:
        return self._merge(old, new)

    def __reduce__(self) -> tuple[object, ...]:
        return _Rolling, self._arguments


def _merge(call: RollingCall, field: FieldName) -> Callable[[Any, Any], Any]:
    access = _Access(field)
    match call:
        case "sum":

            def merge(old: Any, new: Any) -> Any:
                get, put = access[type(old)]
                # Only what is a number adds up to 0: texts and lists would be strung together.
                return put(old, 0 + get(old) + get(new))

        # As in Java, NaN is greater than all numbers. A call to say so would cost 50 ns a row.
        case "min":

            def merge(old: Any, new: Any) -> Any:
                get, put = access[type(old)]
                now, held = get(new), get(old)
                return put(old, now) if now < held or (held != held and now == now) else old

        case "max":

            def merge(old: Any, new: Any) -> Any:
                get, put = access[type(old)]
                now, held = get(new), get(old)
                return put(old, now) if now > held or (now != now and held == held) else old

        case "min_by":

            def merge(old: Any, new: Any) -> Any:
                get, _ = access[type(old)]
                now, held = get(new), get(old)
                return new if now < held or (held != held and now == now) else old

        case "max_by":

            def merge(old: Any, new: Any) -> Any:
                get, _ = access[type(old)]
                now, held = get(new), get(old)
                return new if now > held or (now != now and held == held) else old

    return merge


class _Access(dict[type, "tuple[Get, Put]"]):
    """Access to a field, by kind of row: reads it, and copies the row with a new value."""

    def __init__(self, field: FieldName) -> None:
        super().__init__()
        self._field = field

    def __missing__(self, kind: type) -> tuple[Get, Put]:
        found = self[kind] = self._learned(kind)
        return found

    def _learned(self, kind: type) -> tuple[Get, Put]:
        field = self._field
        if kind in (tuple, list):
            # Names of a tuple's fields are f0, f1, ...
            place = str(field).removeprefix("f")
            if not place.isdecimal():
                raise TypeError(f"{with_article(kind)} has no field {field!r}")
            index = int(place)
            return operator.itemgetter(index), partial(_tuple_with, index)
        if kind is dict:
            return operator.itemgetter(field), partial(_dict_with, field)
        if kind is Row:
            return operator.itemgetter(field), partial(_row_with, field)
        names = _names(kind)
        if names is None:
            if field != 0:
                raise TypeError(f"{with_article(kind)} has no field {field!r}")
            return _same, _other
        name = names[field] if isinstance(field, int) else field
        return operator.attrgetter(name), partial(_record_with, name)


def _tuple_with(index: int, row: Any, value: object) -> Any:
    return type(row)((*row[:index], value, *row[index + 1 :]))


def _dict_with(field: FieldName, row: dict[Any, Any], value: object) -> dict[Any, Any]:
    return {**row, field: value}


def _row_with(field: FieldName, row: Row, value: object) -> Row:
    changed = row.copy(_same)
    changed[field] = value
    return changed


def _record_with(name: str, row: Any, value: object) -> Any:
    changes = {name: value}
    return row._replace(**changes) if hasattr(row, "_replace") else replace(row, **changes)


def _same(row: Any) -> Any:
    return row


def _other(row: Any, value: Any) -> Any:
    return value


def _names(kind: Any) -> tuple[str, ...] | None:
    """Field names of a named tuple or dataclass; None for a value without fields."""
    if hasattr(kind, "_fields"):
        return kind._fields
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None
