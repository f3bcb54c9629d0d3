"""Classes whose call makes a record of its arguments and does nothing else."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from flinkformat.row import Row
from tidegate.api.rows.column_rows import is_plain_namedtuple, is_transparent
from tidegate.loops.copies import is_plain_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

_MADE_BY_DATACLASSES = "<string>"
"""The file of code that ``dataclasses`` has written."""


def only_makes_a_record(kind: Any) -> bool:
    """True for `Row` and for classes of named tuples and dataclasses, as they were generated."""
    if kind is Row:
        return True
    if not isinstance(kind, type):
        return False
    if issubclass(kind, tuple):
        return is_plain_namedtuple(kind) and "__init__" not in kind.__dict__
    return is_plain_dataclass(kind) and _is_made_as_generated(kind)


def _is_made_as_generated(kind: Any) -> bool:
    init: Callable[..., None] | None = kind.__dict__.get("__init__")
    code = getattr(init, "__code__", None)
    own = fields(kind)
    names = tuple(each.name for each in own)
    return (
        code is not None
        and code.co_filename == _MADE_BY_DATACLASSES
        # An InitVar would be one more.
        and code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] == names
        and all(each.default_factory is MISSING for each in own)
        and not hasattr(kind, "__post_init__")
        and (kind.__setattr__ is object.__setattr__ or kind.__dataclass_params__.frozen)
        and is_transparent(kind, names)
    )
