"""Checks of declared types while a program is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.errors import GraphError
from tidegate.typeinfo.fitting import NUMBERS, conflict
from tidegate.typeinfo.hints import declared_type, type_of_return
from tidegate.typeinfo.types import MapTypeInfo, TupleTypeInfo, TypeInformation, is_any, names_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.typeinfo.hints import TypeHint


def result_type(
    given: TypeHint | None, func: object, method: str, *, iterable: bool = False
) -> TypeInformation | None:
    """The declared type of what a function gives; None for any Python object.

    method: of a function object. iterable: the function gives several results.
    Raises GraphError if the function's annotation says that it returns something else.
    """
    declared = declared_type(given, where=f"output_type of {method}")
    check_returned(func, method, declared, f"output_type of {method}", iterable=iterable)
    return declared


def check_returned(
    func: object,
    method: str,
    declared: TypeInformation | None,
    where: str,
    *,
    iterable: bool = False,
) -> None:
    """Raises GraphError if a function is annotated with what can't become a declared type."""
    if declared is None:
        return
    call = cast("Callable[..., object]", getattr(func, method, func))
    returned = type_of_return(call, iterable=iterable)
    unfit = None if returned is None else conflict(declared, returned)
    if unfit is not None:
        name = getattr(call, "__qualname__", method)
        raise GraphError(
            f"{name} is annotated to return {returned}, which cannot be {declared}: {unfit}",
            where=where,
            remedy="Declare what the function returns, or correct its annotation.",
        )


def converted(values: list[Any], type_info: TypeInformation, where: str) -> list[Any]:
    """The values as a declared type has them. Raises GraphError with the element and the field."""
    # Only programs that declare types pay for importing it.
    from tidegate.api.rows.conversion import field_name, misfit_text
    from tidegate.typeinfo.convert import Converter, Misfit

    try:
        return Converter(type_info).batch(values)
    except Misfit as misfit:
        field = f", field '{field_name(misfit.path)}'" if misfit.path else ""
        raise GraphError(
            f"element {misfit.index} is not of the declared type{field}: {misfit_text(misfit)}",
            where=f"{where}, element {misfit.index}{field}",
            remedy=f"Give values of {type_info}, or leave out type_info.",
        ) from None


def united(types: list[TypeInformation | None]) -> TypeInformation | None:
    """The type of a union. Raises GraphError for streams that are declared to be of two types."""
    known = [each for each in types if each is not None and not is_any(each)]
    other = next((each for each in known if each != known[0]), None)
    if other is not None:
        raise GraphError(
            f"Cannot union streams of different types: {known[0]} and {other}",
            where="union",
            remedy="Bring them to one type with map(..., output_type) before.",
        )
    return known[0] if known and len(known) == len(types) else None


def projected(type_info: TypeInformation | None, indexes: tuple[int, ...]) -> TypeInformation:
    """The type of some fields of a tuple. Raises GraphError for no tuple, or no such field."""
    if not isinstance(type_info, TupleTypeInfo):
        raise GraphError(
            f"Only tuple streams can be projected, and this one is of {type_info or 'no type'}",
            where="project",
            remedy="Declare the stream's type as Types.TUPLE([...]) in the call that made it.",
        )
    width = len(type_info.field_types)
    wrong = [index for index in indexes if not 0 <= index < width]
    if wrong or not indexes:
        raise GraphError(
            f"there is no field {wrong[0]} in {type_info}" if wrong else "no field was named",
            where="project",
            remedy=f"Name fields from 0 to {width - 1}.",
        )
    return TupleTypeInfo([type_info.field_types[index] for index in indexes])


def check_column(type_info: TypeInformation | None, column: str, call: str) -> None:
    """Raises GraphError if the declared records have fields, and none of that name."""
    if type_info is None or is_any(type_info) or isinstance(type_info, MapTypeInfo):
        return
    names = () if isinstance(type_info, TupleTypeInfo) else names_of(type_info)
    if column not in names:
        raise GraphError(
            f"there is no column '{column}' in {type_info}",
            where=call,
            remedy=f"Name one of {', '.join(names)}."
            if names
            else "Give a function of the record.",
        )


def check_field(type_info: TypeInformation | None, field: int | str, call: str) -> None:
    """Raises GraphError if declared records have no such field, or it is none to add up."""
    if isinstance(type_info, MapTypeInfo):
        return
    is_position = isinstance(field, int) and not isinstance(field, bool) and field >= 0
    if not is_position and not isinstance(field, str):
        raise GraphError(
            f"there is no field {field!r}",
            where=call,
            remedy="Name a field, or a position from 0.",
        )
    if type_info is None or is_any(type_info):
        return
    of = type_info
    if names := names_of(type_info):
        index = names.index(field) if field in names else field
        if not isinstance(index, int) or not 0 <= index < len(names):
            raise GraphError(
                f"there is no field {field!r} in {type_info}",
                where=call,
                remedy=f"Name one of {', '.join(names)}, or a position from 0.",
            )
        of = type_info.children[index]
    elif field != 0:
        raise GraphError(
            f"{type_info} has no field {field!r}", where=call, remedy=f"Leave it out: {call}()."
        )
    if call == "sum" and not is_any(of) and of not in NUMBERS:
        raise GraphError(
            f"field {field!r} is {of}, which cannot be summed",
            where=call,
            remedy="Name a field of numbers.",
        )
    if call != "sum" and of.children:
        raise GraphError(
            f"field {field!r} is {of}, which has no order",
            where=call,
            remedy="Name a field of numbers, texts or times.",
        )
