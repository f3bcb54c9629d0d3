"""Evaluates expressions over columns, with the bounds of whole numbers known exactly.

Python's numbers do not overflow, divide by zero with an error, and compare whole with floating
numbers exactly. So each operation knows between which bounds its results lie, and raises `Doubt`
before NumPy could give anything else than Python. Operations of floating numbers that IEEE 754
fixes to the last bit are the same in both.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

import numpy as np

from flinkformat.frozen import frozen
from tidegate.model.nullable import Nullable, kind_of
from tidegate.traced.symbols import (
    ARITHMETIC,
    COMPARISONS,
    SAMENESS,
    Binary,
    Constant,
    Expression,
    Field,
    Text,
    Unary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tidegate.model.nullable import FieldValues

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
EXACT: Final = 2**53
"""Up to here each whole number is a floating number too."""
SHIFT_MAX: Final = 62

INT, FLOAT, BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
TEXT: Final = np.dtype(np.object_)
"""Texts, each exactly a `str`; nothing else is a column of objects."""


_NONE: Final = Constant(None)
_NOWHERE: Final = np.zeros((), np.bool_)


class Doubt(Exception):
    """A result might differ from Python's: let the function itself compute this batch."""


@frozen
class Bounds:
    """Whole numbers from low to high, both included."""

    low: int
    high: int

    @property
    def is_long(self) -> bool:
        return self.low >= LONG_MIN and self.high <= LONG_MAX

    @property
    def is_exact(self) -> bool:
        return self.low >= -EXACT and self.high <= EXACT

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high


@frozen
class Column:
    """Values of one expression, of a type above, of shape (rows,), or () for a constant.

    bounds: of whole numbers; None for others.
    """

    values: NDArray[Any]
    bounds: Bounds | None = None


@frozen
class _There:
    """A column of which some values may not be there. nulls: where; None if all are."""

    column: Column
    nulls: NDArray[np.bool_] | None


Fields = dict[Field, "FieldValues"]
"""Columns of the batch by what a function calls them."""


def evaluated(
    expressions: Sequence[Expression | None], fields: Fields, rows: int
) -> list[FieldValues | None] | None:
    """A column for each expression; None where one might differ from what Python computes.

    A field with nulls is passed on as it is, and compared whether it is the same.
    """
    evaluation = Evaluation(fields, rows)
    try:
        return [None if each is None else evaluation.column(each) for each in expressions]
    except Doubt:
        return None


def evaluated_whole(
    expressions: Sequence[Expression | None], fields: Fields, rows: int
) -> list[NDArray[Any] | None] | None:
    """Gives what ``evaluated`` gives; None too where a column has nulls."""
    whole: list[NDArray[Any] | None] = []
    for each in evaluated(expressions, fields, rows) or ():
        if isinstance(each, Nullable):
            return None
        whole.append(each)
    return whole or None


class Evaluation:
    """Evaluates expressions over one batch; a field's bounds are found once."""

    def __init__(self, fields: Fields, rows: int) -> None:
        self._fields = fields
        self._rows = rows
        self._bounds: dict[Field, Bounds] = {}

    def column(self, expression: Expression) -> FieldValues:
        """The values of an expression, shape (rows,). Raises Doubt."""
        if isinstance(expression, Field):
            return self._field(expression)
        values = self._value(expression).values
        return values if values.ndim else np.full(self._rows, values)

    def _field(self, field: Field) -> FieldValues:
        found = self._fields.get(field)
        if found is None or kind_of(found) not in (INT, FLOAT, BOOL, TEXT):
            raise Doubt(f"{field} is no column")
        return found

    def _value(self, expression: Expression) -> Column:
        match expression:
            case Field():
                values = self._field(expression)
                if isinstance(values, Nullable):
                    raise Doubt(f"{expression} has nulls")
                return Column(values, self._bounds_of(expression, values))
            case Constant(value):
                return constant(value)
            case Unary(operation, operand):
                return unary(operation, self._value(operand))
            case Binary(operation, left, right) if operation in SAMENESS:
                return self._same(operation, left, right)
            case Binary(operation, left, right):
                return binary(operation, self._value(left), self._value(right))
            case Text(parts):
                return joined([self._value(each) for each in parts])
            case _:
                assert_never(expression)

    def _same(self, operation: str, left: Expression, right: Expression) -> Column:
        """Compares whether two are the same; None is the same as None and nothing else."""
        if _NONE in (left, right):
            nulls = self._there(right if left == _NONE else left).nulls
            absent = _NOWHERE if nulls is None else nulls
            return Column(absent if operation == "eq" else ~absent)
        one, other = self._there(left), self._there(right)
        found = compared(operation, one.column, other.column)
        if one.nulls is None and other.nulls is None:
            return found
        absent = [_NOWHERE if each.nulls is None else each.nulls for each in (one, other)]
        both, either = absent[0] & absent[1], absent[0] | absent[1]
        if operation == "eq":
            return Column((found.values & ~either) | both)
        return Column((found.values | either) & ~both)

    def _there(self, expression: Expression) -> _There:
        values = self._field(expression) if isinstance(expression, Field) else None
        if not isinstance(values, Nullable):
            return _There(self._value(expression), None)
        bounds = self._bounds_of(cast("Field", expression), values.values)
        return _There(Column(values.values, bounds), values.nulls)

    def _bounds_of(self, field: Field, values: NDArray[Any]) -> Bounds | None:
        if values.dtype != INT:
            return None
        if not len(values):
            return Bounds(0, 0)
        if field not in self._bounds:
            self._bounds[field] = Bounds(int(values.min()), int(values.max()))
        return self._bounds[field]


def constant(value: float | str | bool | None) -> Column:
    """A column of rank 0. Raises Doubt for a number of more than 64 bits, and for None."""
    if value is None:
        raise Doubt("None is no value of a column")
    if type(value) is int:
        bounds = Bounds(value, value)
        if not bounds.is_long:
            raise Doubt(f"{value} has more than 64 bits")
        return Column(np.array(value, INT), bounds)
    if type(value) is float:
        return Column(np.array(value, FLOAT))
    return Column(np.array(value, BOOL if type(value) is bool else TEXT))


def unary(operation: str, operand: Column) -> Column:
    """Computes with each value of a column. Raises Doubt."""
    bounds = operand.bounds
    if bounds is None:
        if operand.values.dtype != FLOAT or operation == "invert":
            raise Doubt("truth values and texts are not computed with")
        return Column(-operand.values if operation == "neg" else operand.values)
    match operation:
        case "pos":
            return operand
        case "neg":
            return whole(np.negative, Bounds(-bounds.high, -bounds.low), operand.values)
        case _:
            return whole(np.invert, Bounds(~bounds.high, ~bounds.low), operand.values)


def binary(operation: str, left: Column, right: Column) -> Column:
    """Computes with two columns, row by row. Raises Doubt."""
    if operation in COMPARISONS:
        return compared(operation, left, right)
    if left.bounds is not None and right.bounds is not None and operation != "truediv":
        return _WHOLE[operation](left, right, left.bounds, right.bounds)
    kinds = {left.values.dtype, right.values.dtype}
    if operation in ("and_", "or_", "xor") and kinds == {BOOL}:
        return Column(getattr(operator, operation)(left.values, right.values))
    if operation not in ARITHMETIC or operation in ("floordiv", "mod") or not kinds <= {INT, FLOAT}:
        raise Doubt(f"{operation} of {left.values.dtype} and {right.values.dtype}")
    exact(left, right)
    if operation == "truediv" and not np.all(right.values):
        raise Doubt("a division by zero")
    # Overflow gives infinity and invalid operations NaN, as in Python; NumPy would warn.
    with np.errstate(all="ignore"):
        return Column(getattr(operator, operation)(_floats(left), _floats(right)))


def compared(operation: str, left: Column, right: Column) -> Column:
    kinds = {left.values.dtype, right.values.dtype}
    if not kinds <= {INT, FLOAT} and not (len(kinds) == 1 and operation in ("eq", "ne")):
        raise Doubt("a truth value or a text is compared")
    if kinds == {INT, FLOAT}:
        exact(left, right)
    return Column(getattr(operator, operation)(left.values, right.values))


def joined(parts: Sequence[Column]) -> Column:
    """Texts of whole numbers and texts, one after the other. Raises Doubt."""
    if not {each.values.dtype for each in parts} <= {INT, TEXT}:
        raise Doubt("a text of a floating number or a truth value")
    template, values = "", list[list[object]]()
    for each in parts:
        if each.values.ndim:
            template += "%s"
            values.append(each.values.tolist())
        else:
            template += str(each.values[()]).replace("%", "%%")
    if not values:
        return constant(template % ())
    # No value is a tuple, which would be taken for several.
    rows = values[0] if len(values) == 1 else zip(*values, strict=True)
    return Column(np.array(list(map(template.__mod__, rows)), TEXT))


def exact(*columns: Column) -> None:
    """Raises Doubt where a whole number might not be a floating number."""
    if not all(each.bounds is None or each.bounds.is_exact for each in columns):
        raise Doubt("whole numbers beyond 2^53 meet floating numbers")


def _floats(column: Column) -> NDArray[np.float64]:
    return column.values.astype(FLOAT, copy=False)


def whole(function: Callable[..., NDArray[Any]], bounds: Bounds, *values: NDArray[Any]) -> Column:
    """A column of whole numbers within bounds. Raises Doubt beyond 64 bits."""
    if not bounds.is_long:
        raise Doubt("whole numbers of more than 64 bits")
    return Column(np.asarray(function(*values)), bounds)


def _add(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    return whole(np.add, Bounds(a.low + b.low, a.high + b.high), left.values, right.values)


def _sub(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    return whole(np.subtract, Bounds(a.low - b.high, a.high - b.low), left.values, right.values)


def _mul(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return whole(np.multiply, Bounds(min(corners), max(corners)), left.values, right.values)


def _floordiv(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    if b.has_zero:
        raise Doubt("a division by zero")
    corners = [x // y for x in (a.low, a.high) for y in (b.low, b.high)]
    return whole(np.floor_divide, Bounds(min(corners), max(corners)), left.values, right.values)


def _mod(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    if b.has_zero:
        raise Doubt("a division by zero")
    bounds = Bounds(0, b.high - 1) if b.low > 0 else Bounds(b.low + 1, 0)
    if a.low >= 0 and b.low == b.high > 0:
        # NumPy divides by a scalar several times faster than its % takes the remainder.
        return whole(lambda x, y: x - x // y * y, bounds, left.values, right.values)
    return whole(np.remainder, bounds, left.values, right.values)


def _bits(function: Callable[..., NDArray[Any]]) -> Callable[..., Column]:
    def of(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
        bits = max(each.bit_length() for each in (a.low, a.high, b.low, b.high))
        low = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits)
        high = (1 << bits) - 1
        if function is np.bitwise_and:
            # Of a number that is not negative only bits of its own are left.
            high = min([high, *(each.high for each in (a, b) if each.low >= 0)])
            low = 0 if a.low >= 0 or b.low >= 0 else low
        return whole(function, Bounds(low, high), left.values, right.values)

    return of


def _lshift(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    if not 0 <= b.low <= b.high <= SHIFT_MAX:
        raise Doubt("a shift by less than 0 or many bits")
    corners = [x << y for x in (a.low, a.high) for y in (b.low, b.high)]
    return whole(np.left_shift, Bounds(min(corners), max(corners)), left.values, right.values)


def _rshift(left: Column, right: Column, a: Bounds, b: Bounds) -> Column:
    if not 0 <= b.low <= b.high <= SHIFT_MAX:
        raise Doubt("a shift by less than 0 or many bits")
    corners = [x >> y for x in (a.low, a.high) for y in (b.low, b.high)]
    return whole(np.right_shift, Bounds(min(corners), max(corners)), left.values, right.values)


_WHOLE: Final[Mapping[str, Callable[[Column, Column, Bounds, Bounds], Column]]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "mod": _mod,
    "and_": _bits(np.bitwise_and),
    "or_": _bits(np.bitwise_or),
    "xor": _bits(np.bitwise_xor),
    "lshift": _lshift,
    "rshift": _rshift,
}
