"""Results of reduce functions in the type in which the next call expects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.row import Row
from tidegate.typeinfo.types import RecordTypeInfo, RowTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.loops.forms import Loops
    from tidegate.typeinfo.types import TypeInformation


def typed_reduce(
    call: Callable[[object, object], object],
    type_info: TypeInformation | None,
    operator: str,
    loops: Loops,
) -> Callable[[object, object], object]:
    from tidegate.api.rows.conversion import Conversion

    match type_info:
        case TupleTypeInfo():
            return loops.typed_reduce(call, tuple, Conversion(type_info, operator).value)
        case RecordTypeInfo(python_class=type() as kind):
            return loops.typed_reduce(call, kind, Conversion(type_info, operator).value)
        case RowTypeInfo(field_names=names):
            return _reduce_of_rows(call, names, Conversion(type_info, operator).value)
        case _:
            return call


def _reduce_of_rows(
    call: Callable[[object, object], object],
    names: tuple[str, ...],
    bring: Callable[[object], object],
) -> Callable[[object, object], object]:
    def reduce(old: object, new: object) -> object:
        result = call(old, new)
        is_right = isinstance(result, Row) and result.names == names
        return result if is_right else bring(result)

    return reduce
