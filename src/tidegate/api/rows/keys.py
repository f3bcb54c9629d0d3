"""Computes the keys of rows by a ``KeyBy``."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from flinkformat.row import Row
from tidegate.api.rows.batches import shown
from tidegate.errors import GraphError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.api.operator import KeyBy


def keys_of_rows(values: list[object], key: KeyBy, where: str) -> list[object]:
    """Key of each row: from the selector, or the column.

    Raises GraphError for a row without the column, UserCodeFailed for what the selector raises.
    """
    if key.selector is not None:
        return _selected(key.selector, values, where)
    column = cast("str", key.column)
    try:
        return [cast("Any", value)[column] for value in values]
    except (KeyError, TypeError):
        if all(_has_attribute(kind, column) for kind in set(map(type, values))):
            return list(map(attrgetter(column), values))
        # A row that has no such column is told of.
        return [_field(value, column, where) for value in values]


def _selected(
    selector: Callable[[object], object], values: list[object], where: str
) -> list[object]:
    keys: list[object] = []
    try:
        keys.extend(map(selector, values))
        if len(keys) < len(values):
            # `map` takes a StopIteration that leaves the selector for its own end.
            raise StopIteration("raised by the selector itself")
    except Exception as error:
        # The first frame is this one.
        frames = error.__traceback__ and error.__traceback__.tb_next
        raise UserCodeFailed(
            f"the key selector raised {type(error).__name__}: {error}",
            where=f"{where}, at the row {shown(values[len(keys)])}",
            remedy="The traceback below starts in your code.",
            trace="".join(traceback.format_exception(type(error), error, frames)).rstrip(),
        ) from error
    return keys


def _has_attribute(kind: Any, name: str) -> bool:
    """True if rows of a class are dataclasses or named tuples with that field."""
    if issubclass(kind, Mapping):
        return False
    if dataclasses.is_dataclass(kind):
        return any(each.name == name for each in dataclasses.fields(kind))
    return name in getattr(kind, "_fields", ())


def _field(row: Any, column: str, where: str) -> object:
    names = list(_names(row))
    if column not in names:
        has = f"it has {', '.join(map(str, names))}" if names else "it has no columns"
        raise GraphError(
            f"there is no column '{column}' in the row {shown(row)}; {has}",
            where=where,
            remedy="Give key_by the name of a column that every row has, or a function.",
        )
    return row[column] if isinstance(row, Mapping | Row) else getattr(row, column)


def _names(row: Any) -> Iterable[str]:
    if isinstance(row, Mapping):
        return cast("Mapping[str, object]", row)
    if dataclasses.is_dataclass(row):
        return [each.name for each in dataclasses.fields(row)]
    if isinstance(row, Row):
        return row.names or ()
    return getattr(row, "_fields", ())
