from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pytest

from tidegate.errors import GraphError
from tidegate.typeinfo.arrow import arrow_type_of, schema_of, type_of_arrow, type_of_schema
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import TypeInformation, Types


class Delay(NamedTuple):
    carrier: str
    minutes: float


@pytest.mark.parametrize(
    "type_info",
    [
        Types.BYTE(),
        Types.SHORT(),
        Types.INT(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.BOOLEAN(),
        Types.STRING(),
        Types.BIG_DEC(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.INSTANT(),
        Types.LIST(Types.LIST(Types.INT())),
        Types.MAP(Types.STRING(), Types.DOUBLE()),
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.STRING())]),
    ],
    ids=str,
)
def test_a_type_comes_back_from_arrow(type_info: TypeInformation) -> None:
    assert type_of_arrow(arrow_type_of(type_info)) == type_info


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), Types.SHORT()),
        (pa.uint16(), Types.INT()),
        (pa.uint32(), Types.LONG()),
        (pa.uint64(), Types.BIG_INT()),
        (pa.dictionary(pa.int8(), pa.large_string()), Types.STRING()),
        (pa.large_list(pa.int64()), Types.LIST(Types.LONG())),
        (pa.timestamp("ns"), Types.SQL_TIMESTAMP()),
        (pa.null(), Types.PICKLED_BYTE_ARRAY()),
    ],
    ids=str,
)
def test_an_arrow_type_is_the_narrowest_type_that_holds_it(
    arrow: pa.DataType, expected: TypeInformation
) -> None:
    assert type_of_arrow(arrow) == expected


def test_tuples_rows_and_records_are_columns() -> None:
    expected = pa.schema([("f0", pa.string()), ("f1", pa.int32())])
    assert schema_of(Types.TUPLE([Types.STRING(), Types.INT()])) == expected
    named = pa.schema([("carrier", pa.string()), ("minutes", pa.float64())])
    assert schema_of(type_of_hint(Delay)) == named
    row = Types.ROW_NAMED(["carrier", "minutes"], [Types.STRING(), Types.DOUBLE()])
    assert type_of_schema(named) == row
    assert schema_of(Types.LONG()) == pa.schema([("value", pa.int64())])


@pytest.mark.parametrize(
    "type_info", [Types.PICKLED_BYTE_ARRAY(), Types.BIG_INT(), Types.LIST(Types.BIG_INT())]
)
def test_a_type_without_an_arrow_type_is_refused(type_info: TypeInformation) -> None:
    with pytest.raises(GraphError, match="has no Arrow type"):
        schema_of(type_info)


@pytest.mark.parametrize(
    ("type_info", "field"),
    [
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.BIG_INT()]), "b"),
        (Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]), "f1"),
        (Types.ROW_NAMED(["a"], [Types.LIST(Types.TUPLE([Types.BIG_INT()]))]), "a[].f0"),
        (Types.ROW([Types.MAP(Types.STRING(), Types.BIG_INT())]), "f0[value]"),
    ],
    ids=str,
)
def test_a_field_without_an_arrow_type_is_named(type_info: TypeInformation, field: str) -> None:
    with pytest.raises(GraphError, match="has no Arrow type") as raised:
        schema_of(type_info)
    assert raised.value.where == f"Arrow schema, field '{field}'"


def test_a_row_without_fields_has_no_columns() -> None:
    assert schema_of(Types.ROW([])) == schema_of(Types.TUPLE([])) == pa.schema([])
