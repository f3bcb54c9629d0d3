"""Copies of values that are still needed while user code may change the originals."""

from __future__ import annotations

import copy
import datetime
import decimal
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Final, cast

from flinkformat.row import Row
from tidegate.loops.forms import INTERPRETED
from tidegate.typeinfo.types import (
    BYTES,
    BasicTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.loops.forms import Loops

IMMUTABLE: Final = frozenset(
    {
        int, float, str, bytes, bool, type(None), complex, decimal.Decimal, datetime.date,
        datetime.time, datetime.datetime, datetime.timedelta,
    }
)  # fmt: skip
"""Types whose values nobody can change; a subclass of theirs might add attributes."""


_LAZY: Final = (GeneratorType, CoroutineType, AsyncGeneratorType)


class ReturnedLazily(TypeError):
    """A function returned something lazy, such as a generator, instead of a record.

    kind: its type.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(f"a {kind} is not a record")
        self.kind = kind


def _copy_otherwise(value: object) -> object:
    """Copies what is nested, and what `loops.copies` does not know."""
    kind = type(value)
    if kind is Row:
        return cast("Row", value).copy(private_copy)
    if kind is tuple and _is_frozen(value):
        return value
    if isinstance(value, _LAZY):
        raise ReturnedLazily(kind.__name__)
    return copy.deepcopy(value)


private_copy: Final = INTERPRETED.copier(IMMUTABLE, _copy_otherwise).copy
"""A copy that shares nothing mutable with a value; the value itself if it is immutable."""


def _is_frozen(value: object) -> bool:
    """True if the value is deeply immutable; looks into tuples."""
    if type(value) is tuple:
        return all(map(_is_frozen, cast("tuple[object, ...]", value)))
    return type(value) in IMMUTABLE


def copier_of(type_info: TypeInformation | None) -> Callable[[object], object] | None:
    """Function that copies values of a type; None if they are immutable."""
    return None if type_info is not None and is_immutable(type_info) else private_copy


def copier_of_results(
    type_info: TypeInformation | None, loops: Loops
) -> Callable[[object], object] | None:
    """Function that copies results that are converted later; None if no copy is needed.

    Results for a scalar or a tuple of scalars are checked then: see `Converter.batch`, which
    refuses there what was changed meanwhile.
    """
    parts = type_info.children if isinstance(type_info, TupleTypeInfo) else (type_info,)
    plain = all(part is not None and not part.children and is_immutable(part) for part in parts)
    return None if plain else loops.copier(IMMUTABLE, _copy_otherwise).copy


def is_immutable(type_info: TypeInformation) -> bool:
    if isinstance(type_info, TupleTypeInfo):
        return all(map(is_immutable, type_info.children))
    return type_info == BYTES or isinstance(type_info, BasicTypeInfo | SqlTimeTypeInfo)
