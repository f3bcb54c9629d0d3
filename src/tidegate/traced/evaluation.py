"""Evaluates expressions over columns, with the bounds of whole numbers known exactly.

Python's numbers do not overflow, divide by zero with an error, and compare whole with floating
numbers exactly. So each operation knows between which bounds its results lie, and raises `Doubt`
before NumPy could give anything else than Python. Operations of floating numbers that IEEE 754
fixes to the last bit are the same in both.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np

from tidegate.traced.symbols import (
    ARITHMETIC,
    COMPARISONS,
    Binary,
    Constant,
    Expression,
    Field,
    Unary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
EXACT: Final = 2**53
"""Up to here each whole number is a floating number too."""
SHIFT_MAX: Final = 62

INT, FLOAT, BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)


class Doubt(Exception):
    """A result might differ from Python's: let the function itself compute this batch."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one expression: int64, float64 or bool, shape (rows,), or () for a constant.

    bounds: of whole numbers; None for others.
    """

    values: NDArray[Any]
    bounds: Bounds | None = None


Fields = dict[tuple[int, int | str | None], "NDArray[Any]"]
"""Columns of the batch by argument and field."""


def evaluated(
    expressions: Sequence[Expression | None], fields: Fields, rows: int
) -> list[NDArray[Any] | None] | None:
    """A column for each expression; None where one might differ from what Python computes."""
    evaluation = Evaluation(fields, rows)
    try:
        return [None if each is None else evaluation.column(each) for each in expressions]
    except Doubt:
        return None


class Evaluation:
    """Evaluates expressions over one batch; a field's bounds are found once."""

    def __init__(self, fields: Fields, rows: int) -> None:
        self._fields = fields
        self._rows = rows
        self._bounds: dict[tuple[int, int | str | None], Bounds] = {}

    def column(self, expression: Expression) -> NDArray[Any]:
        """The values of an expression, shape (rows,). Raises Doubt."""
        if isinstance(expression, Field):
            return self._field(expression)
        values = self._value(expression).values
        return values if values.ndim else np.full(self._rows, values)

    def _field(self, field: Field) -> NDArray[Any]:
        found = self._fields.get((field.argument, field.name))
        if found is None or found.dtype not in (INT, FLOAT, BOOL):
            raise Doubt(f"{field} is no column of numbers")
        return found

    def _value(self, expression: Expression) -> Column:
        match expression:
            case Field(argument, name):
                values = self._field(expression)
                return Column(values, self._bounds_of((argument, name), values))
            case Constant(value):
                return constant(value)
            case Unary(operation, operand):
                return unary(operation, self._value(operand))
            case Binary(operation, left, right):
                return binary(operation, self._value(left), self._value(right))
            case _:
                assert_never(expression)

    def _bounds_of(self, name: tuple[int, int | str | None], values: NDArray[Any]) -> Bounds | None:
        if values.dtype != INT:
            return None
        if not len(values):
            return Bounds(0, 0)
        if name not in self._bounds:
            self._bounds[name] = Bounds(int(values.min()), int(values.max()))
        return self._bounds[name]


def constant(value: float | str | bool) -> Column:
    """A column of rank 0. Raises Doubt for what is no column of numbers."""
    if type(value) is int:
        bounds = Bounds(value, value)
        if not bounds.is_long:
            raise Doubt(f"{value} has more than 64 bits")
        return Column(np.array(value, INT), bounds)
    if type(value) is float:
        return Column(np.array(value, FLOAT))
    if type(value) is bool:
        return Column(np.array(value, BOOL))
    raise Doubt("texts are not computed")


def unary(operation: str, operand: Column) -> Column:
    """Computes with each value of a column. Raises Doubt."""
    bounds = operand.bounds
    if bounds is None:
        if operand.values.dtype != FLOAT or operation == "invert":
            raise Doubt("truth values are not computed with")
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
    if operation not in ARITHMETIC or operation in ("floordiv", "mod") or BOOL in kinds:
        raise Doubt(f"{operation} of {left.values.dtype} and {right.values.dtype}")
    exact(left, right)
    if operation == "truediv" and not np.all(right.values):
        raise Doubt("a division by zero")
    # Overflow gives infinity and invalid operations NaN, as in Python; NumPy would warn.
    with np.errstate(all="ignore"):
        return Column(getattr(operator, operation)(_floats(left), _floats(right)))


def compared(operation: str, left: Column, right: Column) -> Column:
    kinds = {left.values.dtype, right.values.dtype}
    if BOOL in kinds and not (kinds == {BOOL} and operation in ("eq", "ne")):
        raise Doubt("a truth value is compared")
    if kinds == {INT, FLOAT}:
        exact(left, right)
    return Column(getattr(operator, operation)(left.values, right.values))


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
