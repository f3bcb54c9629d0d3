"""Compares the type hint of a function with its declared type, before anything runs."""

from __future__ import annotations

from itertools import starmap
from typing import Final

from flinkformat.frozen import frozen
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INT,
    LONG,
    PICKLED,
    SHORT,
    SQL_TIMESTAMP,
    STRING,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    names_of,
)

INTEGERS: Final = frozenset({BYTE, SHORT, INT, LONG, BIG_INT})
NUMBERS: Final = INTEGERS | {FLOAT, DOUBLE, BIG_DEC}
_WHOLE: Final = INTEGERS | {BOOLEAN}
_TEXTS: Final = frozenset({STRING, CHAR})
_REAL: Final = _WHOLE | {FLOAT, DOUBLE}
_ACCEPTED: Final[dict[TypeInformation, frozenset[TypeInformation]]] = {
    **dict.fromkeys(INTEGERS, _WHOLE),
    **dict.fromkeys(_TEXTS, _TEXTS),
    FLOAT: _REAL,
    DOUBLE: _REAL,
    BIG_DEC: INTEGERS | {BIG_DEC},
    INSTANT: frozenset({SQL_TIMESTAMP}),
}
"""Other types of which some values can become the declared one."""


@frozen
class Conflict:
    """Two types that can't be converted. path: of the field, outermost first."""

    declared: TypeInformation
    found: TypeInformation
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        field = f"field '{'.'.join(self.path)}' is declared" if self.path else "it is declared"
        return f"{field} {self.declared}, and it is {self.found}"


def conflict(declared: TypeInformation, found: TypeInformation) -> Conflict | None:
    """Reason why no value of a type can become one of the declared type; None if one might.

    A pickled type may be anything, so it fits every type and every type fits it.
    """
    if PICKLED in (declared, found) or declared == found:
        return None
    match declared:
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            return _conflict_of_fields(declared, found)
        case MapTypeInfo(key, value):
            if not isinstance(found, MapTypeInfo):
                return Conflict(declared, found)
            return conflict(key, found.key_type) or conflict(value, found.value_type)
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if declared != BYTES:
            if isinstance(found, ListTypeInfo | PrimitiveArrayTypeInfo) and found != BYTES:
                return conflict(of, found.element_type)
            return None if isinstance(found, TupleTypeInfo) else Conflict(declared, found)
        case _:
            fits = found in _ACCEPTED.get(declared, frozenset())
            return None if fits else Conflict(declared, found)


def _conflict_of_fields(declared: TypeInformation, found: TypeInformation) -> Conflict | None:
    if isinstance(found, ListTypeInfo):
        return None
    if isinstance(found, MapTypeInfo):
        return Conflict(declared, found) if isinstance(declared, TupleTypeInfo) else None
    is_other_class = isinstance(found, RecordTypeInfo) and (
        found.kind == "dataclass" or isinstance(declared, RecordTypeInfo)
    )
    if is_other_class or len(found.children) != len(declared.children) or not names_of(found):
        return Conflict(declared, found)
    pairs = zip(declared.children, found.children, strict=True)
    for name, within in zip(names_of(declared), starmap(conflict, pairs), strict=True):
        if within is not None:
            return Conflict(within.declared, within.found, (name, *within.path))
    return None
