"""Looks at byte code: a function qualifies if calling it with symbols shows all that it does.

Such a function loads its arguments, constants, and globals or cells that hold numbers, texts or
truth values; it computes, compares, takes fields, writes values into texts and builds tuples. It
calls nothing, stores nothing and has no branches. Where its result may be a record, it may call the
record's class at its end.
"""

from __future__ import annotations

import builtins
import dis
import sys
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.api.rows.records import only_makes_a_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from dis import Instruction
    from types import CellType, CodeType

_ALWAYS = frozenset(
    {
        "BINARY_OP",
        "BINARY_SUBSCR",
        "BUILD_CONST_KEY_MAP",
        "BUILD_MAP",
        "BUILD_STRING",
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
_ALLOWED: Final[Mapping[tuple[int, int], frozenset[str]]] = {
    (3, 11): _ALWAYS | {"FORMAT_VALUE", "UNARY_POSITIVE"},
    (3, 12): _ALWAYS | {"CALL_INTRINSIC_1", "FORMAT_VALUE", "RETURN_CONST"},
    (3, 13): _ALWAYS | {"CALL_INTRINSIC_1", "FORMAT_SIMPLE", "LOAD_FAST_LOAD_FAST", "RETURN_CONST"},
}
"""Instructions by version of Python; on any other version nothing qualifies."""

_UNARY_POSITIVE: Final = 5
"""The only CALL_INTRINSIC_1 that computes; source: CPython, INTRINSIC_UNARY_POSITIVE."""

_LISTS: Final = frozenset({"BUILD_LIST", "LIST_APPEND", "LIST_EXTEND", "LIST_TO_TUPLE"})
_LIST_TO_TUPLE: Final = 6
"""The CALL_INTRINSIC_1 that is named LIST_TO_TUPLE elsewhere; source: CPython."""

_CALLS: Final = frozenset({"CALL", "CALL_KW"})
_OF_A_CALL: Final = _CALLS | {"KW_NAMES", "PRECALL", "PUSH_NULL"}
_AHEAD_OF_ALL: Final = frozenset({"COPY_FREE_VARS", "NOP", "PUSH_NULL", "RESUME"})
_LOADS: Final = frozenset(
    {"LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL"}
)

_NONE: Final = ("LOAD_CONST", None)
"""The instruction in front of an ``is`` that asks for None."""

NUMBERS: Final = frozenset({int, float, str, bool})


class NotPure(Exception):
    """Says why a function does not qualify; ``line 12 calls a function``."""


def check(function: object) -> FunctionType:
    """The plain function, if it qualifies. Raises NotPure."""
    return _checked(function, frozenset(), frozenset({_UNARY_POSITIVE}))


def check_of_record(function: object) -> FunctionType:
    """The plain function, if it does no more than make a record at its end besides.

    Raises NotPure.
    """
    calls_class = type(function) is FunctionType and _record_of(function) is not None
    more = _OF_A_CALL if calls_class else frozenset[str]()
    return _checked(function, more, frozenset({_UNARY_POSITIVE}))


def check_of_window(function: object) -> FunctionType:
    """The plain function, if it does no more than make lists and unpack its last argument besides.

    Raises NotPure.
    """
    return _checked(function, _LISTS, frozenset({_UNARY_POSITIVE, _LIST_TO_TUPLE}))


def _checked(function: object, more: frozenset[str], intrinsics: frozenset[int]) -> FunctionType:
    """more: instructions beside those of all. intrinsics: arguments that CALL_INTRINSIC_1 has."""
    if type(function) is not FunctionType:
        raise NotPure(f"it is {_kind(function)}, not a function written in Python")
    allowed = _ALLOWED.get(sys.version_info[:2])
    if allowed is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise NotPure(f"Python {version} has instructions that were not looked at yet")
    code = function.__code__
    if code.co_flags & 0x2A0 or function.__defaults__ or function.__kwdefaults__:
        raise NotPure("it is a generator or coroutine, or has defaults")
    if code.co_flags & 0x0C or code.co_kwonlyargcount:
        raise NotPure("it takes any number of arguments, or some by name alone")
    refused = list(_refused(code, allowed | more, intrinsics))
    if refused:
        # What a reader knows the line by, such as a call, comes behind what prepares it.
        told = [each for each in refused if _act(each[0]) is not None] or refused
        name, line = told[0]
        raise NotPure(f"line {line} {_act(name) or f'does what symbols do not show ({name})'}")
    return function


def _refused(
    code: CodeType, allowed: frozenset[str], intrinsics: frozenset[int]
) -> Iterator[tuple[str, int]]:
    """Names of instructions that do what symbols do not show, with their lines."""
    last_argument = (
        ("LOAD_FAST", code.co_varnames[code.co_argcount - 1]) if code.co_argcount else None
    )
    before: tuple[str, object] | None = None
    for each in dis.get_instructions(code):
        known = each.opname in allowed
        if each.opname == "CALL_INTRINSIC_1":
            known = known and each.arg in intrinsics
        elif each.opname == "LIST_EXTEND":
            # Of elements; a symbol would give parts without an end.
            known = known and before == last_argument
        elif each.opname == "IS_OP":
            known = before == _NONE
        elif each.opname == "FORMAT_VALUE":
            known = not each.arg  # without a conversion and a format
        if not known:
            line = None if each.positions is None else each.positions.lineno
            yield each.opname, line or code.co_firstlineno
        before = each.opname, each.argval


def noting(
    function: FunctionType, formatted: object, joined: object, remainder: object
) -> FunctionType:
    """A function that asks symbols by operators for what Python does not ask them about.

    It compares with None by ``==`` and ``!=`` where this one does by ``is``: of what symbols stand
    for both say the same. ``f"{value}"`` is ``value @ formatted``, the parts of an f-string are
    ``parts @ joined``, and ``a % b`` is ``(a, b) @ remainder``. function: a checked one, so that
    nothing jumps and instructions may be more.
    """
    code = function.__code__
    instructions = list(dis.get_instructions(code))
    ends = [each.offset for each in instructions[1:]] + [len(code.co_code)]
    first = len(code.co_consts)
    made = b"".join(
        _noted(each, first) or code.co_code[each.offset : end]
        for each, end in zip(instructions, ends, strict=True)
    )
    if made == code.co_code:
        return function
    noted = code.replace(
        co_code=made,
        co_consts=(*code.co_consts, formatted, joined, remainder),
        co_stacksize=code.co_stacksize + 1,
    )
    return FunctionType(noted, function.__globals__, closure=function.__closure__)


def _noted(instruction: Instruction, first: int) -> bytes:
    """The bytes for an instruction; none where it may stay. first: place of `formatted`."""
    match instruction.opname:
        case "IS_OP":
            return _operator("!=" if instruction.arg else "==")
        case "FORMAT_VALUE" | "FORMAT_SIMPLE":
            return _loaded(first) + _operator("@")
        case "BUILD_STRING":
            build = bytes([dis.opmap["BUILD_TUPLE"], instruction.arg or 0])
            return build + _loaded(first + 1) + _operator("@")
        case "BINARY_OP" if instruction.argrepr == "%":
            pair = bytes([dis.opmap["BUILD_TUPLE"], 2])
            return pair + _loaded(first + 2) + _operator("@")
        case _:
            return b""


def _loaded(constant: int) -> bytes:
    high, low = divmod(constant, 256)
    return bytes([dis.opmap["EXTENDED_ARG"], high, dis.opmap["LOAD_CONST"], low])


def _record_of(function: FunctionType) -> str | None:
    """Name of the record's class that a function calls with all that it computes, and no more.

    None where it calls anything else, or nothing.
    """
    known = list(dis.get_instructions(function.__code__))
    calls = [at for at, each in enumerate(known) if each.opname in _CALLS]
    steps = [each for each in known if each.opname not in _AHEAD_OF_ALL]
    if len(calls) != 1 or known[calls[0] + 1].opname != "RETURN_VALUE":
        return None
    # What is loaded first is what the last call is of, unless it is used by what comes next.
    called, then = steps[:2]
    if called.opname not in ("LOAD_GLOBAL", "LOAD_DEREF") or then.opname not in _LOADS:
        return None
    name = str(called.argval)
    is_read_once = [each.argval for each in steps if each.opname == called.opname].count(name) == 1
    held = dict(_cells(function)).get(name)
    try:
        value = function.__globals__.get(name) if held is None else held.cell_contents
    except ValueError:
        return None
    return name if is_read_once and only_makes_a_record(value) else None


def _cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


@cache
def _operator(sign: str) -> bytes:
    """The instruction of an operator, as this Python compiles it."""
    code = compile(f"a {sign} b", "", "eval")
    known = list(dis.get_instructions(code))
    at = next(i for i, each in enumerate(known) if each.opname in ("BINARY_OP", "COMPARE_OP"))
    return code.co_code[known[at].offset : known[at + 1].offset]


@frozen
class Reads:
    """The globals and cells that a function reads. record: the one that it calls, if it does."""

    cells: tuple[tuple[str, CellType], ...]
    names: tuple[str, ...]
    scope: Mapping[str, object]
    record: str | None = None

    @staticmethod
    def of(function: FunctionType) -> Reads:
        instructions = dis.get_instructions(function.__code__)
        names = [str(each.argval) for each in instructions if each.opname == "LOAD_GLOBAL"]
        record = _record_of(function)
        once = tuple(dict.fromkeys(names))
        return Reads(tuple(_cells(function)), once, function.__globals__, record)

    def now(self) -> tuple[object, ...]:
        """Their values. Raises NotPure unless each is a number, a text or a truth value.

        What is called has to be the class of a record.
        """
        found: list[object] = []
        for name, cell in self.cells:
            try:
                found.append(self._value(name, cell.cell_contents))
            except ValueError:
                raise NotPure(f"it reads '{name}', which has no value yet") from None
        for name in self.names:
            if name not in self.scope and not hasattr(builtins, name):
                raise NotPure(f"it reads '{name}', which does not exist")
            found.append(self._value(name, self.scope.get(name, getattr(builtins, name, None))))
        return tuple(found)

    def _value(self, name: str, value: object) -> object:
        known = only_makes_a_record(value) if name == self.record else type(value) in NUMBERS
        if not known:
            raise NotPure(f"it reads '{name}', which is {_kind(value)}")
        return value


NOTHING: Final = Reads((), (), {})


def _act(instruction: str) -> str | None:
    """Says what an instruction does; None for those that mean little to a reader."""
    if "CALL" in instruction or instruction in ("KW_NAMES", "LOAD_METHOD", "PRECALL", "PUSH_NULL"):
        return "calls a function"
    if "JUMP" in instruction or instruction in ("UNARY_NOT", "TO_BOOL", "FOR_ITER", "GET_ITER"):
        return "decides or repeats something"
    if "STORE" in instruction or "DELETE" in instruction or instruction.startswith("MAKE_"):
        return "stores something"
    if instruction in ("FORMAT_VALUE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"):
        return "writes a value into a text by a format of its own"
    return None


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
