"""Looks at byte code: a function qualifies if calling it with symbols shows all that it does.

Such a function loads its arguments, constants, and globals or cells that hold numbers, texts or
truth values; it computes, compares, takes fields and builds tuples. It calls nothing, stores
nothing and has no branches.
"""

from __future__ import annotations

import builtins
import dis
import sys
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CellType, CodeType

_ALWAYS = frozenset(
    {
        "BINARY_OP",
        "BINARY_SUBSCR",
        "BUILD_TUPLE",
        "COMPARE_OP",
        "COPY_FREE_VARS",
        "LOAD_ATTR",
        "LOAD_CONST",
        "LOAD_DEREF",
        "LOAD_FAST",
        "LOAD_GLOBAL",
        "NOP",
        "RESUME",
        "RETURN_VALUE",
        "UNARY_INVERT",
        "UNARY_NEGATIVE",
    }
)
ALLOWED: Final[Mapping[tuple[int, int], frozenset[str]]] = {
    (3, 11): _ALWAYS | {"UNARY_POSITIVE"},
    (3, 12): _ALWAYS | {"CALL_INTRINSIC_1", "RETURN_CONST"},
    (3, 13): _ALWAYS | {"CALL_INTRINSIC_1", "LOAD_FAST_LOAD_FAST", "RETURN_CONST"},
}
"""Instructions by version of Python; on any other version nothing qualifies."""

UNARY_POSITIVE: Final = 5
"""The only CALL_INTRINSIC_1 that computes; source: CPython, INTRINSIC_UNARY_POSITIVE."""

NUMBERS: Final = frozenset({int, float, str, bool})


class NotPure(Exception):
    """Says why a function does not qualify; ``line 12 calls a function``."""


def check(function: object) -> FunctionType:
    """The plain function, if it qualifies. Raises NotPure."""
    if type(function) is not FunctionType:
        raise NotPure(f"it is {_kind(function)}, not a function written in Python")
    allowed = ALLOWED.get(sys.version_info[:2])
    if allowed is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise NotPure(f"Python {version} has instructions that were not looked at yet")
    code = function.__code__
    if code.co_flags & 0x2A0 or function.__defaults__ or function.__kwdefaults__:
        raise NotPure("it is a generator or coroutine, or has defaults")
    if code.co_flags & 0x0C or code.co_kwonlyargcount:
        raise NotPure("it takes any number of arguments, or some by name alone")
    refused = [each for each in _instructions(code) if each[0] not in allowed]
    if refused:
        # What a reader knows the line by, such as a call, comes behind what prepares it.
        told = [each for each in refused if _act(each[0]) is not None] or refused
        name, line = told[0]
        raise NotPure(f"line {line} {_act(name) or f'does what symbols do not show ({name})'}")
    return function


@dataclass(frozen=True, slots=True)
class Reads:
    """The globals and cells that a function reads."""

    cells: tuple[tuple[str, CellType], ...]
    names: tuple[str, ...]
    scope: Mapping[str, object]

    @staticmethod
    def of(function: FunctionType) -> Reads:
        code = function.__code__
        instructions = dis.get_instructions(code)
        names = [str(each.argval) for each in instructions if each.opname == "LOAD_GLOBAL"]
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        return Reads(tuple(cells), tuple(dict.fromkeys(names)), function.__globals__)

    def now(self) -> tuple[object, ...]:
        """Their values. Raises NotPure unless each is a number, a text or a truth value."""
        found: list[object] = []
        for name, cell in self.cells:
            try:
                found.append(_value(name, cell.cell_contents))
            except ValueError:
                raise NotPure(f"it reads '{name}', which has no value yet") from None
        for name in self.names:
            if name not in self.scope and not hasattr(builtins, name):
                raise NotPure(f"it reads '{name}', which does not exist")
            found.append(_value(name, self.scope.get(name, getattr(builtins, name, None))))
        return tuple(found)


NOTHING: Final = Reads((), (), {})


def _value(name: str, value: object) -> object:
    if type(value) not in NUMBERS:
        raise NotPure(f"it reads '{name}', which is {_kind(value)}")
    return value


def _instructions(code: CodeType) -> Iterator[tuple[str, int]]:
    """Names of instructions with their lines."""
    for each in dis.get_instructions(code):
        line = None if each.positions is None else each.positions.lineno
        unlike = each.opname == "CALL_INTRINSIC_1" and each.arg != UNARY_POSITIVE
        yield "CALL" if unlike else each.opname, line or code.co_firstlineno


def _act(instruction: str) -> str | None:
    """Says what an instruction does; None for those that mean little to a reader."""
    if "CALL" in instruction or instruction in ("KW_NAMES", "LOAD_METHOD", "PRECALL", "PUSH_NULL"):
        return "calls a function"
    if "JUMP" in instruction or instruction in ("UNARY_NOT", "TO_BOOL", "FOR_ITER", "GET_ITER"):
        return "decides or repeats something"
    if "STORE" in instruction or "DELETE" in instruction or instruction.startswith("MAKE_"):
        return "stores something"
    return None


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
