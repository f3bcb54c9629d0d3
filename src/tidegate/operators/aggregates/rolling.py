"""Rolling aggregates of one field on a keyed stream: sum, min, max, min_by, max_by.

Each row gives what its key has come to. ``sum``, ``min`` and ``max`` change only the field, in the
first row of the key; ``min_by`` and ``max_by`` give whole rows, of equal ones the first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flinkformat.row import Row
from tidegate.api.rows.batches import shown
from tidegate.errors import TidegateError, UserCodeFailed, with_article
from tidegate.operators.aggregates.reduce import ReduceOperator

if TYPE_CHECKING:
    from tidegate.typeinfo.types import TypeInformation

RollingCall = Literal["sum", "min", "max", "min_by", "max_by"]
Field = int | str
Get = Callable[[Any], Any]
Put = Callable[[Any, Any], Any]


class RollingOperator(ReduceOperator):
    """A reduce whose function is one of ours.

    call: which. field: its position or its name; 0 of a row that is a plain number or text.
    """

    def __init__(
        self, call: RollingCall, field: Field, type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(_Rolling(call, field), type_info)
        # A sum may leave the bounds of its type; all else was in the input.
        self.keeps_type = call != "sum"
        self._call_name = call
        self._field = field

    def _failure(self, error: Exception, row: object) -> TidegateError:
        if isinstance(error, TidegateError):
            return error
        place = f"operator '{self._name}'"
        reason = f"{type(error).__name__}: {error}"
        return UserCodeFailed(
            f"{self._call_name} of field {self._field!r} does not work: {reason}",
            where=f"{place}, field {self._field!r}, at the row {shown(row)}",
            remedy="Name a field that every row has, of values that can be "
            f"{'added' if self._call_name == 'sum' else 'compared'}.",
        )


class _Rolling:
    """The function of two rows; a plain callable, made again after shipping."""

    def __init__(self, call: RollingCall, field: Field) -> None:
        self._arguments = (call, field)
        self._merge = _merge(call, field)

    def __call__(self, old: Any, new: Any) -> Any:
        return self._merge(old, new)

    def __reduce__(self) -> tuple[object, ...]:
        return _Rolling, self._arguments


def _merge(call: RollingCall, field: Field) -> Callable[[Any, Any], Any]:
    access = _Access(field)
    match call:
        case "sum":

            def merge(old: Any, new: Any) -> Any:
                get, put = access[type(old)]
                # Only what is a number adds up to 0: texts and lists would be strung together.
                return put(old, 0 + get(old) + get(new))

        case "min" | "max":
            better = operator.lt if call == "min" else operator.gt

            def merge(old: Any, new: Any) -> Any:
                get, put = access[type(old)]
                now = get(new)
                return put(old, now) if better(now, get(old)) else old

        case _:
            better = operator.lt if call == "min_by" else operator.gt

            def merge(old: Any, new: Any) -> Any:
                get, _ = access[type(old)]
                return new if better(get(new), get(old)) else old

    return merge


class _Access(dict[type, "tuple[Get, Put]"]):
    """Access to a field, by kind of row: reads it, and copies the row with a new value."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self._field = field

    def __missing__(self, kind: type) -> tuple[Get, Put]:
        found = self[kind] = self._learned(kind)
        return found

    def _learned(self, kind: type) -> tuple[Get, Put]:
        field = self._field
        if kind in (tuple, list):
            # Names of a tuple's fields are f0, f1, ...
            index = int(str(field).removeprefix("f"))
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


def _dict_with(field: Field, row: dict[Any, Any], value: object) -> dict[Any, Any]:
    return {**row, field: value}


def _row_with(field: Field, row: Row, value: object) -> Row:
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
