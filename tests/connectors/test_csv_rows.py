"""Lines of CSV as rows of a type, and rows as lines."""

import pickle
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tidegate import ConfigError, Row, Types
from tidegate.connectors import CsvRowDeserializationSchema, CsvRowSerializationSchema

Reads = CsvRowDeserializationSchema.Builder
Writes = CsvRowSerializationSchema.Builder
ORDER = Types.ROW_NAMED(
    ["id", "name", "prices"], [Types.LONG(), Types.STRING(), Types.LIST(Types.DOUBLE())]
)
ALL = Types.ROW(
    [
        Types.BOOLEAN(),
        Types.BIG_DEC(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
    ]
)


def test_csv_rows_go_there_and_back_also_pickled() -> None:
    writes = pickle.loads(pickle.dumps(Writes(ORDER).build()))
    reads = pickle.loads(pickle.dumps(Reads(ORDER).build()))
    row = Row(id=7, name='say "hi", Ann', prices=[1.5, 2.0])
    line = writes.serialize(row)
    assert line == b'7,"say ""hi"", Ann",1.5;2.0\n'
    assert reads.deserialize(line) == row
    assert pickle.loads(pickle.dumps(writes)).serialize((7, "é", [])) == "7,é,\n".encode()
    assert pickle.loads(pickle.dumps(reads)).produced_type == ORDER


def test_each_type_is_written_as_text() -> None:
    moment = datetime.fromisoformat("2024-02-01 12:30")
    row = Row(True, Decimal("1.10"), b"\0\1", [1, 2], date(2024, 2, 1), time(12, 30), moment)
    line = Writes(ALL).build().serialize(row)
    assert line == b"true,1.10,AAE=,1;2,2024-02-01,12:30:00,2024-02-01 12:30:00\n"
    assert list(Reads(ALL).build().deserialize(line)) == list(row)


def test_lines_are_written_and_read_in_the_form_that_is_told() -> None:
    writes = (
        Writes(ORDER)
        .set_field_delimiter("|")
        .set_line_delimiter("\r\n")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_null_literal("n/a")
        .build()
    )
    reads = (
        Reads(ORDER)
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_null_literal("n/a")
        .set_allow_comments(True)
        .build()
    )
    row = Row(id=None, name="a|b", prices=[1.0, 2.0])
    line = writes.serialize(row)
    assert line == b"n/a|'a|b'|1.0/2.0\r\n"
    assert reads.deserialize(line) == row
    assert reads.deserialize(b"# n/a||") is None


def test_without_quotes_delimiters_are_escaped_or_refused() -> None:
    row = Row(id=1, name="a,b", prices=None)
    plain = Writes(ORDER).disable_quote_character()
    with pytest.raises(ValueError, match="cannot become a line of CSV"):
        plain.build().serialize(row)
    line = plain.set_escape_character("\\").set_line_delimiter("").build().serialize(row)
    assert line == b"1,a\\,b,"
    reads = Reads(ORDER).set_escape_character("\\").build()
    assert reads.deserialize(line) == Row(id=1, name="a,b", prices=[])


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])), number=st.integers(-(2**63), 2**63 - 1)
)
@examples(60)
def test_any_text_comes_back(text: str, number: int) -> None:
    line = Writes(ORDER).build().serialize((number, text, [0.1]))
    assert line is not None
    read = Reads(ORDER).build().deserialize(line)
    assert read == Row(id=number, name=text, prices=[0.1])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"seven,Ann,1.0", "field 'id': 'seven' is not of type Long"),
        (b"7,Ann,1.0;x", "field 'prices': '1.0;x' is not of type ListTypeInfo<Double>"),
        (b"7,Ann", "has 2 fields, but must have 3"),
        (b"", "has 1 fields, but must have 3"),
        (b"7,Ann,1\n8,Bo,2", "is 2 lines of CSV"),
        (b'7,"Ann,1', "is not a line of CSV"),
        (b"7,\xff,1", "codec can't decode"),
    ],
)
def test_a_line_that_is_no_such_row_is_bad_or_passed_over(line: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Reads(ORDER).build().deserialize(line)
    assert Reads(ORDER).set_ignore_parse_errors(True).build().deserialize(line) is None


def test_a_missing_value_is_empty_and_an_empty_text_is_a_text() -> None:
    line = Writes(ORDER).build().serialize(Row(id=None, name=None, prices=None))
    assert line == b",,\n"
    assert Reads(ORDER).build().deserialize(line) == Row(id=None, name="", prices=[])


def test_a_value_that_is_not_of_its_type_is_told_with_its_field() -> None:
    with pytest.raises(ValueError, match="field 'id': 'seven' is not of type Long"):
        Writes(ORDER).build().serialize(Row(id="seven", name="Ann", prices=[]))


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Reads(Types.LONG()), "type of the rows is Long"),
        (lambda: Writes(Types.ROW_NAMED(["of"], [ORDER])), r"hold the fields 'of' \(RowTypeInfo"),
        (lambda: Reads(ORDER).set_field_delimiter("::"), "takes one character, not '::'"),
        (lambda: Writes(ORDER).set_quote_character(""), "takes one character, not ''"),
        (lambda: Writes(ORDER).set_line_delimiter(";"), "set_line_delimiter was given ';'"),
        (lambda: Reads(ORDER).set_array_element_delimiter(""), "Nothing would stand between"),
    ],
)
def test_a_form_that_is_none_is_refused(build: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build()
