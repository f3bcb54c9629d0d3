"""Checks that the values of a batch have their declared types; for compiled code alone.

Interpreted, `typeinfo.convert` looks at the types of whole columns, which is faster than these
loops are then.
"""

from __future__ import annotations


def scalars_fit(values: list[object], kind: type) -> bool:
    """True if each value is None or of exactly that type."""
    for value in values:  # noqa: SIM110 - `all` takes a generator, which costs more
        if type(value) is not kind and value is not None:
            return False
    return True


def tuples_fit(values: list[object], kinds: list[type]) -> bool:
    """True if each value is a tuple of one field a kind, each None or of exactly that type."""
    width = len(kinds)
    for value in values:
        if type(value) is not tuple:
            return False
        fields: tuple[object, ...] = value
        if len(fields) != width:
            return False
        for field, kind in zip(fields, kinds):  # noqa: B905 - slow if strict
            if type(field) is not kind and field is not None:
                return False
    return True
