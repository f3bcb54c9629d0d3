"""Takes the rows of a batch apart into columns, and makes rows of columns.

Rows are taken apart by compiled code alone: interpreted, looking at whole columns is faster where
rows are tuples, and leaving rows as they are where they are not.
"""

from __future__ import annotations

from typing import Any, Final

_NEW: Final[Any] = object.__new__


Field = tuple[list[Any], list[int]]
"""A field of the rows, and the rows where it is None; there stands what `nothing_of` gives."""


def nothing_of(kind: type) -> Any:
    """Stands for None in a column of numbers or truth values; texts have None itself."""
    return None if kind is str else kind()


def fields_of_tuples(values: list[Any], record: type, kinds: list[type]) -> list[Field] | None:
    """The fields of the values; None if one is not a tuple of those types or None.

    record: the class of each value exactly, `tuple` or one derived from it. Each has one field a
    kind, which is of exactly that type or None.
    """
    width = len(kinds)
    for value in values:
        kind = type(value)
        if kind is not record:
            return None
        fields: tuple[Any, ...] = value
        if len(fields) != width:
            return None
    found = _fields(len(values), kinds)
    for at in range(width):
        column, nulls = found[at]
        if not _take_field(values, at, kinds[at], column, nulls):
            return None
    return found


# A loop of its own: within the other one it takes three times as long.
def _take_field(
    values: list[Any], at: int, kind: type, column: list[Any], nulls: list[int]
) -> bool:
    for row, value in enumerate(values):
        fields: tuple[Any, ...] = value
        field: Any = fields[at]
        if type(field) is kind:
            column[row] = field
        elif field is None:
            nulls.append(row)
        else:
            return False
    return True


def fields_of_dicts(
    values: list[Any], names: tuple[str, ...], kinds: list[type]
) -> list[Field] | None:
    """The values of dicts by name; None if one is not a dict of these names in this order.

    Each value has to be None or of exactly the type of its name.
    """
    found = _fields(len(values), kinds)
    columns, nulls = _apart(found)
    for row, value in enumerate(values):
        if type(value) is not dict or not _take_entries(value, row, names, kinds, columns, nulls):
            return None
    return found


def fields_of_records(
    values: list[Any], record: type, names: tuple[str, ...], kinds: list[type]
) -> list[Field] | None:
    """The attributes of objects by name; None if one has others, or another class.

    record: their class, whose instances have a dict of attributes. Each value has to be None or of
    exactly the type of its name.
    """
    found = _fields(len(values), kinds)
    columns, nulls = _apart(found)
    for row, value in enumerate(values):
        if type(value) is not record:
            return None
        if not _take_entries(value.__dict__, row, names, kinds, columns, nulls):
            return None
    return found


def _fields(rows: int, kinds: list[type]) -> list[Field]:
    found: list[Field] = []
    for kind in kinds:
        column: list[Any] = [nothing_of(kind)] * rows
        nulls: list[int] = []
        found.append((column, nulls))
    return found


def _apart(fields: list[Field]) -> tuple[list[list[Any]], list[list[int]]]:
    columns: list[list[Any]] = []
    nulls: list[list[int]] = []
    for column, rows in fields:
        columns.append(column)
        nulls.append(rows)
    return columns, nulls


def _take_entries(
    entries: dict[Any, Any],
    row: int,
    names: tuple[Any, ...],
    kinds: list[type],
    columns: list[list[Any]],
    nulls: list[list[int]],
) -> bool:
    if len(entries) != len(kinds):
        return False
    at = 0
    for name, field in entries.items():
        # Most names are one object throughout.
        if name is not names[at] and (type(name) is not str or name != names[at]):
            return False
        if type(field) is kinds[at]:
            columns[at][row] = field
        elif field is None:
            nulls[at].append(row)
        else:
            return False
        at += 1  # noqa: SIM113 - enumerate would make a tuple a field
    return True


def dicts_of(names: tuple[Any, ...], columns: list[list[Any]]) -> list[Any]:
    """A dict for each row. columns: one a name, of which there is one at least."""
    made: list[Any] = []
    for row in range(len(columns[0])):
        entries: dict[Any, Any] = {}
        for at, name in enumerate(names):
            entries[name] = columns[at][row]
        made.append(entries)
    return made


def records_of(record: Any, names: tuple[Any, ...], columns: list[list[Any]]) -> list[Any]:
    """An object of a class for each row, made without a call of it, as unpickling does.

    names: of its attributes. columns: one a name, of which there is one at least.
    """
    made: list[Any] = []
    for row in range(len(columns[0])):
        one: Any = _NEW(record)
        entries: dict[Any, Any] = one.__dict__
        for at, name in enumerate(names):
            entries[name] = columns[at][row]
        made.append(one)
    return made
