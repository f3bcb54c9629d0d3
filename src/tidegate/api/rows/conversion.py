"""Converts results to their declared type when they leave their operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.rows.batches import shown
from tidegate.api.rows.column_rows import NARROW, TUPLE, ColumnRows, fields_of_type
from tidegate.errors import UserCodeFailed, with_article
from tidegate.loops.forms import INTERPRETED
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.nullable import values_of
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import RowTypeInfo, is_any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegate.api.operator import Operator
    from tidegate.api.rows.column_rows import RowForm
    from tidegate.loops.forms import Loops
    from tidegate.model.elements import Batch
    from tidegate.typeinfo.types import TypeInformation


Convert = Callable[["Batch"], "Batch"]


def output_conversions(
    operator: Operator, name: str, loops: Loops = INTERPRETED
) -> dict[str | None, Convert]:
    """Conversions of an operator's output, by side output; None is the main output.

    Left out where there is nothing to do.
    """
    types: dict[str | None, TypeInformation | None] = {**operator.side_types}
    if not operator.keeps_type:
        types[None] = operator.result_type
    return {
        tag: Conversion(of, name, loops).batch
        for tag, of in types.items()
        if of is not None and not is_any(of)
    }


class Conversion:
    """Converts batches to a declared type. operator: its name, for messages."""

    def __init__(
        self, type_info: TypeInformation, operator: str, loops: Loops = INTERPRETED
    ) -> None:
        self._type = type_info
        self._converter = Converter(type_info, loops)
        self._fields: tuple[object, ...] | None = None
        self._operator = operator

    def batch(self, batch: Batch) -> Batch:
        """The batch with converted values; Arrow batches are unchanged.

        Raises UserCodeFailed with the value and the field that does not fit.
        """
        if isinstance(batch, ArrowBatch):
            return batch
        if isinstance(batch, ColumnRows):
            made = self._columns(batch)
            if made is not None:
                return made
        try:
            values = self._converter.batch(batch.values)
        except Misfit as misfit:
            raise self._refusal(misfit, batch.values[misfit.index]) from None
        if values is batch.values:
            return batch
        return RowBatch(values, batch.timestamps_ms, batch.keys, batch.key_groups)

    def _columns(self, batch: ColumnRows) -> ColumnRows | None:
        """The batch in the form of the declared type; None where rows have to be looked at."""
        if self._fields is None:
            self._fields = fields_of_type(self._type, narrow=True) or (None,)
        form, *kinds = self._fields
        if form is None or kinds != list(batch.fields[1:]):
            return None
        types = self._type.children or (self._type,)
        for column, of in zip(batch.columns, types, strict=False):
            end = NARROW.get(of)
            if end is not None and not _within(values_of(column), end):
                return None
        if batch.form == form:
            return batch
        becomes_row = batch.form == TUPLE and isinstance(self._type, RowTypeInfo)
        return batch.formed(cast("RowForm", form)) if becomes_row else None

    def value(self, value: object) -> object:
        """Converts one value. Raises as ``batch``."""
        try:
            return self._converter.batch([value])[0]
        except Misfit as misfit:
            raise self._refusal(misfit, value) from None

    def _refusal(self, misfit: Misfit, value: object) -> UserCodeFailed:
        field = f", field '{field_name(misfit.path)}'" if misfit.path else ""
        return UserCodeFailed(
            f"operator '{self._operator}' gave what is not of its declared type{field}: "
            f"{misfit_text(misfit)}",
            where=f"operator '{self._operator}'{field}, at the result {shown(value)}",
            remedy=(
                f"Return values of output_type, {self._type}, or declare the type that is returned."
            ),
        )


def _within(numbers: NDArray[Any], end: int) -> bool:
    """True if each number is at least -end and less than it."""
    return not len(numbers) or (-end <= int(numbers.min()) and int(numbers.max()) < end)


def field_name(path: tuple[str, ...]) -> str:
    """Text for a path of fields: ``orders[0].amount``."""
    return ".".join(path).replace(".[", "[")


def misfit_text(misfit: Misfit) -> str:
    """Text that says what was found and what was expected."""
    value = misfit.value
    found = "None" if value is None else f"{shown(value)}, {with_article(type(value))},"
    reason = f" ({misfit.reason})" if misfit.reason else ""
    return f"{found} is not of type {misfit.expected}{reason}"
