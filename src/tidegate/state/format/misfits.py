"""Values in a state of a declared type that are of another one: refused when they are encoded.

Asking at each write would cost a seventh of it (14 ns of 100), for the outermost type alone;
encoding looks at the values' types in any case: those that are as declared become MessagePack, and
only what is left is looked into here. What can become the type, such as a whole number where DOUBLE
is declared, passes and comes back as it was put; so does what is only out of the type's bounds,
such as a timestamp with a zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.rows.batches import shown
from tidegate.api.rows.conversion import field_name, misfit_text
from tidegate.errors import UserError
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.plain_keys import in_one_form, with_numbers
from tidegate.typeinfo.serializers import (
    PickleSerializer,
    TypedSerializer,
    holds,
    is_packed,
    serializer_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.typeinfo.serializers import Serializer


def encoded(serializer: Serializer, values: Sequence[object], where: str) -> bytes:
    """Encodes values as one piece. Raises UserError on failure. where: operator and state."""
    try:
        return serializer.encode_many(values)
    except UserError as error:
        raise UserError(error.what, where=where, remedy=error.remedy) from error


def encoded_keys(serializer: Serializer, keys: Sequence[object], where: str) -> bytes:
    """Encodes keys as one piece; undeclared equal keys may come in several forms."""
    key_type = serializer.type_info
    if key_type.children and not holds(serializer, keys):
        numbers = serializer_of(with_numbers(key_type))
        keys = [in_one_form(key, numbers.type_info) for key in keys]
        serializer = numbers if holds(numbers, keys) else PickleSerializer(key_type)
    return encoded(serializer, keys, where)


def encoded_as_declared(
    serializer: Serializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None = None,
) -> bytes:
    """Encodes values as one piece; raises UserError for a value of another type.

    key: gives the key that a value is under, by its index.
    """
    data = encoded(serializer, values, where)
    if isinstance(serializer, TypedSerializer) and not is_packed(data):
        _check(serializer, values, where, key)
    return data


def each_encoded_as_declared(
    serializer: Serializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None = None,
) -> list[bytes]:
    """Encodes each value as a piece of its own; raises as `encoded_as_declared`."""
    try:
        pieces = serializer.encode_each(values)
    except UserError as error:
        raise UserError(error.what, where=where, remedy=error.remedy) from error
    if isinstance(serializer, TypedSerializer) and not all(map(is_packed, pieces)):
        _check(serializer, values, where, key)
    return pieces


def _check(
    serializer: TypedSerializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None,
) -> None:
    converter = Converter(serializer.type_info)
    for index, value in enumerate(values):
        try:
            converter.batch([value])
        except Misfit as misfit:
            if misfit.reason:
                continue
            field = f", field '{field_name(misfit.path)}'" if misfit.path else ""
            under = "" if key is None else f", key {shown(key(index))}"
            raise UserError(
                "The state holds a value that is not of its declared type, "
                f"{serializer.type_info}{field}: "
                f"{misfit_text(misfit)}",
                where=f"{where}{under}, at the entry {shown(value)}",
                remedy="Put values of the declared type, or declare the type that you put.",
            ) from None
