from __future__ import annotations

import datetime
from typing import NamedTuple

import pytest

from flinkformat.row import Row, RowKind
from tidegate.model.duration import Instant
from tidegate.typeinfo.convert import Converter
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.text import text_of
from tidegate.typeinfo.types import TypeInformation, Types

ROW = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.INT()])


class Point(NamedTuple):
    x: int
    ok: bool


@pytest.mark.parametrize(
    ("type_info", "value", "expected"),
    [
        (None, ("a", True, None), "('a', True, None)"),
        (Types.PICKLED_BYTE_ARRAY(), None, "None"),
        (Types.STRING(), "it's", "it's"),
        (Types.STRING(), None, "null"),
        (Types.LONG(), 7, "7"),
        (Types.DOUBLE(), 0.1, "0.1"),
        (Types.FLOAT(), 0.1, "0.1"),
        (Types.FLOAT(), 16_777_216, "1.6777216E7"),
        (Types.FLOAT(), 9_999_999, "9999999.0"),
        (Types.FLOAT(), 12_345_678, "1.2345678E7"),
        (Types.FLOAT(), 1e-4, "1.0E-4"),
        (Types.FLOAT(), 3.4e38, "3.4E38"),
        (Types.FLOAT(), 1.4e-45, "1.4E-45"),
        (Types.FLOAT(), -0.0, "-0.0"),
        (Types.FLOAT(), 100, "100.0"),
        (Types.FLOAT(), float("nan"), "NaN"),
        (Types.DOUBLE(), 1e7, "1.0E7"),
        (Types.DOUBLE(), 1e-3, "0.001"),
        (Types.DOUBLE(), -1.5e-7, "-1.5E-7"),
        (Types.DOUBLE(), 12_345_678.25, "1.234567825E7"),
        (Types.DOUBLE(), 5e-324, "4.9E-324"),
        (Types.DOUBLE(), 0.0, "0.0"),
        (Types.DOUBLE(), float("inf"), "Infinity"),
        (Types.DOUBLE(), float("-inf"), "-Infinity"),
        (Types.BOOLEAN(), True, "true"),
        (Types.BOOLEAN(), False, "false"),
        (Types.SQL_DATE(), datetime.date(2024, 2, 29), "2024-02-29"),
        (Types.SQL_TIME(), datetime.time(1, 2, 3, 999_000), "01:02:03"),
        (
            Types.SQL_TIMESTAMP(),
            datetime.datetime.fromisoformat("2024-02-29T01:02"),
            "2024-02-29 01:02:00.0",
        ),
        (
            Types.SQL_TIMESTAMP(),
            datetime.datetime.fromisoformat("2024-02-29T01:02:03.120000"),
            "2024-02-29 01:02:03.12",
        ),
        (Types.INSTANT(), Instant(0, 500_000_000), "1970-01-01T00:00:00.500Z"),
        (Types.INSTANT(), Instant(-1, 1), "1969-12-31T23:59:59.000000001Z"),
        (
            Types.INSTANT(),
            datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "2024-01-01T00:00:00Z",
        ),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1), "(a,1)"),
        (Types.TUPLE([Types.STRING(), ROW]), ("a", None), "(a,null)"),
        (ROW, Row("a", True, None), "+I[a,True,None]"),
        (ROW, Row.of_kind(RowKind.UPDATE_BEFORE, "a", False, 1), "-U[a,False,1]"),
        (Types.ROW([Types.FLOAT(), Types.DOUBLE()]), Row(0.5, 1e7), "+I[0.5,10000000.0]"),
        (Types.LIST(ROW), [Row("a", True, None)], "[+I[a, true, null]]"),
        (Types.LIST(Types.INT()), [1, 2], "[1, 2]"),
        (Types.BASIC_ARRAY(Types.STRING()), ["a", None], "[a, null]"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\xff", "[1, -1]"),
        (Types.MAP(Types.STRING(), Types.BOOLEAN()), {"a": True, "b": False}, "{a=true, b=false}"),
        (type_of_hint(Point), Point(1, True), "Point(x=1,ok=true)"),
    ],
    ids=str,
)
def test_a_value_of_a_type_as_text(
    type_info: TypeInformation | None, value: object, expected: str
) -> None:
    (typed,) = [value] if type_info is None else Converter(type_info).batch([value])
    assert text_of(type_info)(typed) == expected
