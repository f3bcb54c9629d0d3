"""Results of reduce functions in the type in which the next call expects them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flinkformat.row import Row
from tidegate.typeinfo.types import RecordTypeInfo, RowTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.typeinfo.types import TypeInformation


def typed_reduce(
    call: Callable[[object, object], object], type_info: TypeInformation | None, operator: str
) -> Callable[[object, object], object]:
    match type_info:
        case TupleTypeInfo():
            is_right: Callable[[object], bool] = partial(_is_a, tuple)
        case RowTypeInfo(field_names=names):
            is_right = partial(_is_row, names)
        case RecordTypeInfo(python_class=type() as kind):
            is_right = partial(_is_a, kind)
        case _:
            return call
    from tidegate.api.rows.conversion import Conversion

    bring = Conversion(type_info, operator).value

    def reduce(old: object, new: object) -> object:
        result = call(old, new)
        return result if is_right(result) else bring(result)

    return reduce


def _is_row(names: tuple[str, ...], value: object) -> bool:
    return isinstance(value, Row) and value.names == names


def _is_a(kind: type, value: object) -> bool:
    return type(value) is kind
