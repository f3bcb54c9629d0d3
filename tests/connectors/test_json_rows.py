"""JSON objects as rows of a type, and back: numbers, times, and what is not of the type."""

import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tidegate import Instant, Row, Types
from tidegate.connectors import JsonRowDeserializationSchema, JsonRowSerializationSchema
from tidegate.typeinfo.types import TypeInformation

EAST = timezone(timedelta(hours=2))


def reader(of: TypeInformation) -> Callable[[bytes], Any]:
    """Reads the field x of a JSON object."""
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["x"], [of]))
    reads = pickle.loads(pickle.dumps(builder.build()))
    return lambda data: reads.deserialize(b'{"x":' + data + b"}")["x"]


def writer(of: TypeInformation) -> Callable[[Any], bytes]:
    """Writes a value as the field x of a JSON object."""
    builder = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["x"], [of]))
    writes = pickle.loads(pickle.dumps(builder.build()))
    return lambda value: writes.serialize(Row(x=value))[5:-1]


DECIMALS = [b"12345678901234567.89", b"1234567890123456789012.50", b"-0.10", b"7"]


@pytest.mark.parametrize("data", DECIMALS)
def test_a_decimal_is_a_number_with_all_its_digits(data: bytes) -> None:
    value = reader(Types.BIG_DEC())(data)
    assert type(value) is Decimal
    assert str(value).encode() == data
    assert writer(Types.BIG_DEC())(value) == data


def test_a_decimal_that_an_earlier_release_wrote_as_text_is_read() -> None:
    reads = reader(Types.BIG_DEC())
    assert reads(b'"12345678901234567.89"') == Decimal("12345678901234567.89")
    for data in (b'"NaN"', b'"Infinity"', b'"much"', b"1e99999999999999999999"):
        with pytest.raises(ValueError):
            reads(data)


def test_other_numbers_beside_a_decimal_stay_floats() -> None:
    of = Types.ROW_NAMED(
        ["p", "d", "any"], [Types.BIG_DEC(), Types.DOUBLE(), Types.PICKLED_BYTE_ARRAY()]
    )
    row = reader(of)(b'{"p":0.1,"d":0.1,"any":{"a":[0.5]}}')
    assert row == Row(p=Decimal("0.1"), d=0.1, any={"a": [0.5]})
    assert (type(row["d"]), type(row["any"]["a"][0])) == (float, float)
    with pytest.raises(ValueError, match="out of range"):
        reader(of)(b'{"p":0.1,"d":1e400,"any":null}')


def test_times_are_read_with_the_z_that_flink_writes() -> None:
    at = datetime(2018, 11, 12, 12, 12, 12)  # noqa: DTZ001
    assert reader(Types.SQL_TIMESTAMP())(b'"2018-11-12T12:12:12Z"') == at
    assert reader(Types.SQL_TIMESTAMP())(b'"2018-11-12T12:12:12"') == at
    assert reader(Types.SQL_TIME())(b'"12:12:12Z"') == time(12, 12, 12)
    for data in (b'"2018-11-12T12:12:12+01:00"', b'"tomorrow"'):
        with pytest.raises(ValueError):
            reader(Types.SQL_TIMESTAMP())(data)
    schema = '{"type":"object","properties":{"at":{"type":"string","format":"date-time"}}}'
    builder = JsonRowDeserializationSchema.builder().json_schema(schema).ignore_parse_errors()
    assert builder.build().deserialize(b'{"at":"2018-11-12T12:12:12Z"}') == Row(at=at)


INSTANTS: list[tuple[object, bytes]] = [
    (datetime(2024, 1, 1, tzinfo=timezone.utc), b'"2024-01-01T00:00:00Z"'),  # noqa: UP017
    (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1))), b'"2024-01-01T00:00:00+01:00"'),
    (Instant(1_704_067_200, 123_456_789), b'"2024-01-01T00:00:00.123456789Z"'),
]


@pytest.mark.parametrize(("instant", "data"), INSTANTS)
def test_an_instant_goes_there_and_back(instant: object, data: bytes) -> None:
    assert writer(Types.INSTANT())(instant) == data
    assert reader(Types.INSTANT())(data) == instant


def test_an_instant_is_written_to_the_second_or_the_nanosecond() -> None:
    assert writer(Types.INSTANT())(Instant(0)) == b'"1970-01-01T00:00:00Z"'
    with pytest.raises(ValueError, match="year"):
        writer(Types.INSTANT())(Instant(10**15))
    with pytest.raises(ValueError, match="with a zone"):
        reader(Types.INSTANT())(b'"2024-01-01T00:00:00"')


def test_whole_numbers_as_keys_of_maps_are_read_again() -> None:
    of = Types.MAP(Types.INT(), Types.DOUBLE())
    data = writer(of)({-1: 0.5})
    assert data == b'{"-1":0.5}'
    assert reader(of)(data) == {-1: 0.5}
    with pytest.raises(ValueError, match="one"):
        reader(of)(b'{"one":0.5}')


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Types.INT(), "not a number"),
        (Types.INT(), 2**31),
        (Types.LONG(), 2**63),
        (Types.LONG(), np.uint64(2**63)),
        (Types.LONG(), -(2**63) - 1),
        (Types.SQL_TIMESTAMP(), datetime(2024, 1, 1, tzinfo=EAST)),
        (Types.SQL_TIME(), time(1, 2, tzinfo=EAST)),
        (Types.SQL_TIMESTAMP(), date(2024, 1, 1)),
        (Types.STRING(), 5),
        (Types.BIG_DEC(), Decimal("NaN")),
        (Types.LIST(Types.INT()), ["1"]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": "1"}),
        (Types.ROW_NAMED(["y"], [Types.BOOLEAN()]), Row(y=1)),
    ],
)
def test_what_is_not_of_the_type_is_not_written(of: TypeInformation, value: object) -> None:
    with pytest.raises(ValueError, match=r"field 'x.*is not of type"):
        writer(of)(value)


WRITTEN: list[tuple[TypeInformation, object, bytes]] = [
    (Types.FLOAT(), 0.1, b"0.1"),
    (Types.DOUBLE(), 1, b"1.0"),
    (Types.DOUBLE(), float("nan"), b"null"),
    (Types.LONG(), 2**63 - 1, b"9223372036854775807"),
    (Types.LONG(), -(2**63), b"-9223372036854775808"),
    (Types.LONG(), np.int64(5), b"5"),
    (Types.LONG(), None, b"null"),
    (Types.SQL_TIMESTAMP(), datetime(2024, 1, 1, 1, 2, 3, 4), b'"2024-01-01T01:02:03.000004"'),  # noqa: DTZ001
    (Types.SQL_TIMESTAMP(), None, b"null"),
    (Types.BIG_INT(), 2**70, b"1180591620717411303424"),
    (Types.SQL_DATE(), date(2024, 2, 29), b'"2024-02-29"'),
    (Types.SQL_TIME(), time(1, 2), b'"01:02:00"'),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", b'"AP8="'),
    (
        Types.LIST(Types.ROW_NAMED(["y"], [Types.INT()])),
        [{"y": 1, "more": 2}, None],
        b'[{"y":1},null]',
    ),
    (Types.INT(), None, b"null"),
]


@pytest.mark.parametrize(("of", "value", "data"), WRITTEN)
def test_values_are_written_as_their_type_says(
    of: TypeInformation, value: object, data: bytes
) -> None:
    assert writer(of)(value) == data


def test_a_row_without_one_of_the_fields_is_not_written() -> None:
    of = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
    writes = JsonRowSerializationSchema.builder().with_type_info(of).build()
    assert writes.serialize((1, 2)) == writes.serialize(Row(1, 2)) == b'{"a":1,"b":2}'
    for row in (Row(a=1), (1,), {"a": 1}, 1):
        with pytest.raises(ValueError, match="is not of type"):
            writes.serialize(row)
