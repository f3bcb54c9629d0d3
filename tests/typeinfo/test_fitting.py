from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tidegate.typeinfo.fitting import conflict
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import TypeInformation, Types


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Stats:
    x: int
    y: float


STRING, INT, LONG, DOUBLE = Types.STRING(), Types.INT(), Types.LONG(), Types.DOUBLE()
PAIR = Types.TUPLE([LONG, DOUBLE])
NAMED = Types.ROW_NAMED(["x", "y"], [LONG, DOUBLE])
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        (INT, LONG),
        (INT, Types.BOOLEAN()),
        (DOUBLE, LONG),
        (Types.BIG_DEC(), LONG),
        (Types.INSTANT(), Types.SQL_TIMESTAMP()),
        (Types.CHAR(), STRING),
        (STRING, Types.PICKLED_BYTE_ARRAY()),
        (Types.PICKLED_BYTE_ARRAY(), STRING),
        (Types.LIST(DOUBLE), Types.LIST(LONG)),
        (Types.LIST(LONG), Types.TUPLE([LONG])),
        (Types.MAP(STRING, DOUBLE), Types.MAP(STRING, LONG)),
        (NAMED, PAIR),
        (NAMED, Types.LIST(LONG)),
        (NAMED, Types.MAP(STRING, DOUBLE)),
        (NAMED, type_of_hint(Point)),
        (PAIR, type_of_hint(Point)),
        (type_of_hint(Point), PAIR),
        (type_of_hint(Stats), NAMED),
    ],
    ids=str,
)
def test_these_fit(declared: TypeInformation, found: TypeInformation) -> None:
    assert conflict(declared, found) is None


@pytest.mark.parametrize(
    ("declared", "found", "told"),
    [
        (INT, STRING, "it is declared Integer, and it is String"),
        (INT, DOUBLE, "it is declared Integer, and it is Double"),
        (STRING, LONG, "it is declared String, and it is Long"),
        (Types.BOOLEAN(), LONG, "it is declared Boolean, and it is Long"),
        (BYTES, Types.LIST(LONG), "and it is ListTypeInfo<Long>"),
        (Types.LIST(LONG), BYTES, "it is declared ListTypeInfo<Long>"),
        (Types.LIST(LONG), Types.LIST(STRING), "it is declared Long, and it is String"),
        (Types.LIST(LONG), Types.MAP(LONG, LONG), "it is declared ListTypeInfo<Long>"),
        (Types.MAP(STRING, LONG), Types.MAP(STRING, STRING), "Long, and it is String"),
        (Types.MAP(STRING, LONG), PAIR, "it is declared MapTypeInfo"),
        (PAIR, Types.TUPLE([LONG]), "TupleTypeInfo(Long)"),
        (PAIR, STRING, "TupleTypeInfo(Long, Double), and it is String"),
        (PAIR, Types.MAP(STRING, LONG), "and it is MapTypeInfo"),
        (PAIR, type_of_hint(Stats), "and it is Stats"),
        (type_of_hint(Stats), type_of_hint(Point), "Stats(x: Long, y: Double), and it is Point"),
        (NAMED, Types.TUPLE([LONG, STRING]), "field 'y' is declared Double, and it is String"),
        (
            Types.ROW([NAMED]),
            Types.TUPLE([Types.TUPLE([STRING, DOUBLE])]),
            "field 'f0.x' is declared Long, and it is String",
        ),
    ],
    ids=str,
)
def test_these_cannot_fit(declared: TypeInformation, found: TypeInformation, told: str) -> None:
    assert told in str(conflict(declared, found))
