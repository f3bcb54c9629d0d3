"""States of a Python job in words, `UID/NAME=KIND:TYPE`, as the command line takes them.

KIND is value, list, map, reducing, aggregating or broadcast; TYPE is one of `Types` by its name,
with the types of its parts in parentheses, such as `TUPLE(STRING,LONG)`; a map has two.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.state.composites import ListSerializer
from flinkformat.state.values import TtlValue
from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.errors import ConfigError
from tidegate.migration.pyflink import PREFIX, likely_types
from tidegate.typeinfo.types import PICKLED, BasicTypeInfo, TupleTypeInfo, Types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flinkformat.state.headers import FlinkState
    from tidegate.api.state import StateDescriptor
    from tidegate.typeinfo.types import TypeInformation

_PLAIN: Final = (
    *("STRING", "BYTE", "BOOLEAN", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR", "BIG_INT"),
    *("BIG_DEC", "INSTANT", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP", "PICKLED_BYTE_ARRAY"),
)
_OF_MANY: Final = ("TUPLE", "ROW")
_OF_PARTS: Final = {"LIST": 1, "PRIMITIVE_ARRAY": 1, "BASIC_ARRAY": 1, "OBJECT_ARRAY": 1, "MAP": 2}
_KINDS: Final = ("value", "list", "map", "reducing", "aggregating", "broadcast")
_UNKNOWN: Final = "TYPE"
_DECLARATION: Final = re.compile(r"(?P<uid>.+)/(?P<name>[^/=]+)=(?P<kind>[a-z]+):(?P<type>.+)")


def declared_states(texts: Iterable[str]) -> dict[str, list[StateDescriptor]]:
    """Descriptors by uid. Raises ConfigError for a text that is not a declaration."""
    found: dict[str, list[StateDescriptor]] = {}
    for text in texts:
        match = _DECLARATION.fullmatch(text.strip())
        if match is None or match["kind"] not in _KINDS:
            raise _refused(text, f"KIND is one of {', '.join(_KINDS)}")
        types = _types(match["type"], text)
        wanted = 2 if match["kind"] in ("map", "broadcast") else 1
        if len(types) != wanted:
            raise _refused(text, f"a {match['kind']} state has {wanted} type(s), not {len(types)}")
        found.setdefault(match["uid"], []).append(_descriptor(match["kind"], match["name"], types))
    return found


def _descriptor(kind: str, name: str, types: list[TypeInformation]) -> StateDescriptor:
    nobody: Any = None  # functions are the job's; here nothing is reduced
    match kind:
        case "value":
            return ValueStateDescriptor(name, types[0])
        case "list":
            return ListStateDescriptor(name, types[0])
        case "reducing":
            return ReducingStateDescriptor(name, nobody, types[0])
        case "aggregating":
            return AggregatingStateDescriptor(name, nobody, types[0])
        case _:
            return MapStateDescriptor(name, types[0], types[1])


def _types(text: str, where: str) -> list[TypeInformation]:
    """Types in a text, which is read as calls of Python: nothing of it is run."""
    try:
        found = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, ast.List):
        raise _refused(where, f"{text!r} is not a list of types, or its parentheses are not closed")
    return [_type(each, where) for each in found.elts]


def _type(found: ast.expr, where: str) -> TypeInformation:
    name, parts = found, list[ast.expr]()
    if isinstance(found, ast.Call) and not found.keywords:
        name, parts = found.func, found.args
    known = name.id.upper() if isinstance(name, ast.Name) else ""
    if known in _PLAIN and found is name:
        return getattr(Types, known)()
    if known not in _OF_MANY and known not in _OF_PARTS:
        names = ", ".join((*_PLAIN, *_OF_MANY, *_OF_PARTS))
        raise _refused(where, f"{ast.unparse(found)!r} is not a type; there are {names}")
    if not parts:
        raise _refused(where, f"{known} has the types of its parts in parentheses")
    types = [_type(part, where) for part in parts]
    if known in _OF_MANY:
        return getattr(Types, known)(types)
    if len(types) != _OF_PARTS[known]:
        raise _refused(where, f"{known} has {_OF_PARTS[known]} part(s), not {len(types)}")
    return getattr(Types, known)(*types)


def _refused(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"{text!r} declares no state: {why}",
        where="--state",
        remedy="Write UID/NAME=KIND:TYPE, such as orders/total=value:LONG or "
        "orders/seen=map:STRING,TUPLE(LONG,DOUBLE).",
    )


def proposal(uid: str, state: FlinkState, values: Sequence[Any]) -> str:
    """A declaration that fits the values seen of a state, and other types that fit too.

    values: of entries, or the maps of a broadcast state.
    """
    name = state.name.removeprefix(PREFIX)
    if isinstance(state.value, ListSerializer):
        lists = cast("Sequence[list[Any]]", values)
        kind = "list" if any(len(each) > 1 for each in lists) else "value"
        elements = [element for each in lists for element in each]
        options = _options(elements)
        if not options:
            options = _options(elements, several=True)
            kind = "list" if options else kind
        shown, others = options[0] if options else _UNKNOWN, options[1:]
    else:
        maps = cast("Sequence[dict[Any, Any]]", values)
        kind = "map" if state.is_keyed else "broadcast"
        keys = _options(key for each in maps for key in each) or [_UNKNOWN]
        of_values = _options(value for each in maps for value in each.values()) or [_UNKNOWN]
        shown = f"{keys[0]},{of_values[0]}"
        others = [f"{key},{value}" for key in keys for value in of_values][1:]
    alike = f" (or, as far as its bytes tell, {'; '.join(others)})" if others else ""
    return f"--state '{uid}/{name}={kind}:{shown}'{alike}"


def _options(elements: Iterable[Any], *, several: bool = False) -> list[str]:
    data: list[Any] = [each.value if isinstance(each, TtlValue) else each for each in elements]
    there = [each for each in data if each is not None]
    return [_name(each) for each in likely_types(there, several=several)]


def _name(type_info: TypeInformation) -> str:
    match type_info:
        case TupleTypeInfo(fields):
            return f"TUPLE({','.join(map(_name, fields))})"
        case BasicTypeInfo():
            return next(name for name in _PLAIN if getattr(Types, name)() == type_info)
        case _:
            assert type_info == PICKLED, "no other types are proposed"
            return "PICKLED_BYTE_ARRAY"
