"""Symbols that note what a function does with them, and the expressions that come of it."""

from __future__ import annotations

import operator
from itertools import chain
from operator import attrgetter, itemgetter
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from tidegate.api.rows.column_rows import TUPLE, VALUE, form_of
from tidegate.traced.projection import Projection
from tidegate.traced.purity import (
    NOTHING,
    NUMBERS,
    NotPure,
    Reads,
    check,
    check_of_record,
    check_of_window,
    noting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FunctionType

    from tidegate.api.rows.column_rows import RowForm


@frozen
class Field:
    """A field of an argument by position or name; the argument itself if the name is None.

    attribute: True for ``row.name``, False for ``row["name"]``.
    """

    argument: int
    name: int | str | None
    attribute: bool = False


@frozen
class Constant:
    """The same value in each row. value: None only beside what is compared with it."""

    value: int | float | str | bool | None


@frozen
class Unary:
    """operation: its name in the module ``operator``."""

    operation: str
    operand: Expression


@frozen
class Binary:
    """operation: its name in the module ``operator``."""

    operation: str
    left: Expression
    right: Expression


@frozen
class Text:
    """The parts one after the other, as an f-string writes them."""

    parts: tuple[Expression, ...]


Expression = Field | Constant | Unary | Binary | Text

DEPTH_MAX: Final = 260
"""Operations one within the other, at most: they are evaluated by calls within calls."""


@frozen
class Traced:
    """The results of a pure function. form: how a result is made of the expressions.

    arguments: how many the function takes. seen: the values of `reads` that it was traced with.
    """

    function: object
    expressions: tuple[Expression, ...]
    form: RowForm
    arguments: int
    reads: Reads
    seen: tuple[object, ...]

    @property
    def is_tuple(self) -> bool:
        """True if a result is a tuple, False if it is the only expression."""
        return self.form.is_tuple

    def is_current(self) -> bool:
        """True if globals and cells hold what they held then. Raises NotPure."""
        now = self.reads.now()
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0, and compute differently.
        return now == self.seen and [*map(repr, now)] == [*map(repr, self.seen)]


def trace(function: object, arguments: int = 1, *, named: bool = False) -> Traced:
    """Calls a function once, with symbols. Raises NotPure for one that does not qualify.

    ``itemgetter``, ``attrgetter`` and projections are known by their type. named: its result may
    be a dict, or a record whose class it calls.
    """
    made: list[Expression] = []
    symbols = [Symbol(Field(index, None), made) for index in range(arguments)]
    if type(function) in (itemgetter, attrgetter, Projection):
        return _traced(function, _fields_taken(function, symbols[0]), arguments, NOTHING)
    result, reads, seen = _called(function, check_of_record if named else check, symbols)
    return _traced(function, result, arguments, reads, seen, made=made, named=named)


def trace_window(function: object, width: int | None) -> Traced:
    """Calls a function of key, window and elements once, with symbols. Raises NotPure.

    It has to return a list of one result. The only element is argument 2; width: its fields, None
    if it is no tuple.
    """
    made: list[Expression] = []
    element: object = Symbol(Field(2, None), made)
    if width is not None:
        element = tuple(Symbol(Field(2, index), made) for index in range(width))
    given = [Symbol(Field(0, None), made), Symbol(Field(1, None), made), [element]]
    results, reads, seen = _called(function, check_of_window, given)
    if type(results) is not list or len(cast("list[object]", results)) != 1:
        raise NotPure("it does not return a list of one result")
    return _traced(function, cast("list[object]", results)[0], 3, reads, seen, made=made)


def _called(
    function: object, check: Callable[[object], FunctionType], given: Sequence[object]
) -> tuple[object, Reads, tuple[object, ...]]:
    """What it returns for these arguments, and what it reads. Raises NotPure."""
    own: list[object] = []
    if isinstance(function, MethodType):
        own, function = [Symbol(OWN, [])], function.__func__
    plain = check(function)
    taken = plain.__code__.co_argcount - len(own)
    if taken != len(given):
        raise NotPure(f"it takes {taken} arguments, not {len(given)}")
    reads = Reads.of(plain)
    seen = reads.now()
    try:
        return noting(plain, _FORMATTED, _JOINED, _REMAINDER)(*own, *given), reads, seen
    except NotPure:
        raise
    except Exception as error:
        raise NotPure(f"symbols do not take it: {type(error).__name__}: {error}") from None


def _traced(
    function: object,
    result: object,
    arguments: int,
    reads: Reads,
    seen: tuple[object, ...] = (),
    *,
    made: Sequence[Expression] = (),
    named: bool = False,
) -> Traced:
    """made: all that was computed on the way to the result."""
    form, parts = form_of(result)
    if not named and form not in (TUPLE, VALUE):
        raise NotPure(f"its result is of type {type(result).__name__}")
    if not parts:
        raise NotPure("its result has no fields")
    expressions = tuple(map(_expression, parts))
    _check_parts(expressions, made)
    return Traced(function, expressions, form, arguments, reads, seen)


def _check_parts(expressions: Sequence[Expression], made: Sequence[Expression]) -> None:
    """Raises NotPure if something made is in none of them, or some are too deep to be evaluated."""
    kept: set[int] = set()
    level, depth = list(expressions), 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise NotPure(f"it has more than {DEPTH_MAX} operations one within the other")
        kept.update(map(id, level))
        level = [part for each in level for part in parts_of(each)]
    if any(id(each) not in kept for each in made):
        raise NotPure(
            "it computes what its result does not have, and an error of that would be lost"
        )


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that it is computed from."""
    match expression:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return left, right
        case Text(parts):
            return parts
        case _:
            return ()


def _fields_taken(getter: object, row: Symbol) -> object:
    """Fields that a getter takes; called with a symbol, it would take dots for parts of it."""
    if type(getter) is Projection:
        return tuple(row[index] for index in getter.indexes)
    names = cast("tuple[object, ...]", cast("Any", getter).__reduce__()[1])
    if any(type(name) is str and "." in name for name in names) and type(getter) is attrgetter:
        raise NotPure("it takes a part of a field")
    if type(getter) is attrgetter:
        taken = [attribute_of(row, str(name)) for name in names]
    else:
        taken = [row[name] for name in names]
    return tuple(taken) if len(taken) > 1 else taken[0]


def _expression(value: object) -> Expression:
    if type(value) is Symbol:
        expression = expression_of(value)
        if expression is OWN:
            raise NotPure("it reads its own object")
        return expression
    if type(value) in NUMBERS:
        return Constant(value)  # pyright: ignore[reportArgumentType]
    raise NotPure(f"a result has a part of type {type(value).__name__}")


class Symbol:
    """Stands for a value of a row. What Python asks of it and it can't note, it refuses.

    made: gets the expressions that can raise an error, of it and of all that is computed with it.
    """

    __slots__ = ("_expression", "_made")

    def __init__(self, expression: Expression, made: list[Expression]) -> None:
        object.__setattr__(self, "_expression", expression)
        object.__setattr__(self, "_made", made)

    def __getitem__(self, name: object) -> Symbol:
        return _field_of(self, name, attribute=False)

    def __getattribute__(self, name: str) -> Symbol:
        """Gives fields alone: what every object has, such as its class, would be the symbol's."""
        if name.startswith("__"):
            raise AttributeError(name)
        return attribute_of(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise NotPure("it changes a value")

    def __bool__(self) -> bool:
        raise NotPure("it decides by a value")

    def __repr__(self) -> str:
        raise NotPure("it makes a text of a value")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _field_of(symbol: Symbol, name: object, *, attribute: bool) -> Symbol:
    whole = expression_of(symbol)
    if whole is OWN:
        raise NotPure("it reads its own object")
    if not isinstance(whole, Field) or whole.name is not None:
        raise NotPure("it takes a part of a field")
    if type(name) is not int and type(name) is not str:
        raise NotPure("it takes a field by something else than a number or a name")
    return _made_of(symbol, Field(whole.argument, name, attribute))


def attribute_of(symbol: Symbol, name: str) -> Symbol:
    return _field_of(symbol, name, attribute=True)


def _made_of(symbol: Symbol, expression: Expression) -> Symbol:
    """A symbol for what is computed with another one."""
    made: list[Expression] = object.__getattribute__(symbol, "_made")
    made.append(expression)
    return Symbol(expression, made)


def expression_of(symbol: Symbol) -> Expression:
    return object.__getattribute__(symbol, "_expression")


OWN: Final = Field(-1, None)
"""The object whose method is traced, of which it may not use anything."""


class _Formatted:
    """Notes what ``f"{value}"`` makes of a value that stands in front of it: ``value @ self``."""

    def __rmatmul__(self, value: object) -> Symbol:
        return _text_of(value)


class _Joined:
    """Notes what an f-string makes of its parts: ``parts @ self``."""

    def __rmatmul__(self, parts: tuple[object, ...]) -> Symbol:
        return _text_of(*parts)


class _Remainder:
    """Computes ``left % right`` of two values in front of it: ``(left, right) @ self``.

    A text would take a symbol for its values, and leave it out where it has no place for them.
    """

    def __rmatmul__(self, values: tuple[Any, Any]) -> object:
        left, right = values
        if isinstance(left, str | bytes):
            raise NotPure("it puts values into a text by %")
        return left % right


def _text_of(*values: object) -> Symbol:
    parts = map(_expression, values)
    flat = [each.parts if isinstance(each, Text) else (each,) for each in parts]
    made = next((object.__getattribute__(v, "_made") for v in values if type(v) is Symbol), [])
    return Symbol(Text(tuple(chain.from_iterable(flat))), made)


_FORMATTED: Final = _Formatted()
_JOINED: Final = _Joined()
_REMAINDER: Final = _Remainder()

ARITHMETIC: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod")
BITS: Final = ("and_", "or_", "xor", "lshift", "rshift")
SAMENESS: Final = ("eq", "ne")
COMPARISONS: Final = ("lt", "le", *SAMENESS, "ge", "gt")
UNARY: Final = ("neg", "pos", "invert")


def _binary(operation: str, *, reflected: bool) -> Any:
    def method(self: Symbol, other: object) -> Symbol:
        if type(other) is str and operation not in SAMENESS:
            raise NotPure("it does more with a text than compare whether it is the same")
        is_none = other is None and operation in SAMENESS
        left, right = _expression(self), Constant(None) if is_none else _expression(other)
        if reflected:
            left, right = right, left
        return _made_of(self, Binary(operation, left, right))

    return method


def _unary(operation: str) -> Any:
    return lambda self: _made_of(self, Unary(operation, _expression(self)))


for _name in ARITHMETIC + BITS:
    assert hasattr(operator, _name), "expressions are told by the module's names"
    setattr(Symbol, f"__{_name.rstrip('_')}__", _binary(_name, reflected=False))
    setattr(Symbol, f"__r{_name.rstrip('_')}__", _binary(_name, reflected=True))
for _name in COMPARISONS:
    setattr(Symbol, f"__{_name}__", _binary(_name, reflected=False))
for _name in UNARY:
    setattr(Symbol, f"__{_name}__", _unary(_name))
