from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

from tidegate.errors import GraphError
from tidegate.typeinfo.types import (
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
    holds_pickled,
)


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "Integer"),
        (Types.BIG_DEC(), "BigDecimal"),
        (Types.CHAR(), "Char"),
        (Types.FLOAT(), "Float"),
        (Types.SQL_TIMESTAMP(), "SqlTimeTypeInfo(Timestamp)"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), "TupleTypeInfo(String, Integer)"),
        (Types.ROW([Types.STRING(), Types.INT()]), "RowTypeInfo(f0: String, f1: Integer)"),
        (
            Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]),
            "RowTypeInfo(a: String, b: Integer)",
        ),
        (Types.LIST(Types.LONG()), "ListTypeInfo<Long>"),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), "MapTypeInfo<String, Double>"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PrimitiveArrayTypeInfo<Byte>"),
        (Types.BASIC_ARRAY(Types.INT()), "BasicArrayTypeInfo<Integer>"),
        (Types.OBJECT_ARRAY(Types.INT()), "ObjectArrayTypeInfo<Integer>"),
        (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    ],
)
def test_a_type_prints_as_flink_prints_it(type_info: TypeInformation, text: str) -> None:
    assert str(type_info) == text


def test_types_are_equal_by_structure_and_survive_pickling() -> None:
    first = Types.MAP(Types.STRING(), Types.TUPLE([Types.INT(), Types.ROW([Types.LONG()])]))
    second = Types.MAP(Types.STRING(), Types.TUPLE([Types.INT(), Types.ROW([Types.LONG()])]))
    assert first == second == pickle.loads(pickle.dumps(first))
    assert hash(first) == hash(second)
    assert Types.INT() != Types.LONG()
    assert Types.TUPLE([Types.INT()]) != Types.ROW([Types.INT()])


def test_a_row_type_knows_its_fields() -> None:
    row = RowTypeInfo([Types.INT(), Types.STRING()], ["id", "name"])
    assert row.get_field_names() == ["id", "name"]
    assert row.get_field_types() == [Types.INT(), Types.STRING()]
    assert row.get_field_index("name") == 1
    assert TupleTypeInfo([Types.INT()]).get_field_types() == [Types.INT()]


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_names_that_do_not_fit_the_fields_are_refused(names: list[str]) -> None:
    with pytest.raises(GraphError, match="can't be named"):
        Types.ROW_NAMED(names, [Types.INT(), Types.INT()])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Types.LIST(Types.INT), "Types.LIST takes types, not Types.INT"),
        (lambda: Types.LIST(int), "Types.LIST takes types, not int"),
        (lambda: Types.OBJECT_ARRAY(3), "Types.OBJECT_ARRAY takes types, not 3"),
        (lambda: Types.MAP(Types.STRING(), Types.INT), "Types.MAP takes types, not Types.INT"),
        (lambda: Types.ROW([Types.INT, Types.INT()]), "Types.ROW takes types, not Types.INT"),
        (lambda: Types.ROW([Types.INT(), int]), "Types.ROW takes types, not int"),
        (lambda: Types.ROW(Types.INT()), "Types.ROW takes a list of types, not Integer"),
        (lambda: Types.ROW_NAMED(["n"], [Types.INT]), "Types.ROW_NAMED takes types, not Types"),
        (lambda: Types.TUPLE([Types.INT, Types.STRING]), "Types.TUPLE takes types, not Types.INT"),
        (lambda: Types.TUPLE(Types.INT), "Types.TUPLE takes a list of types, not Types.INT"),
        (lambda: Types.PRIMITIVE_ARRAY(Types.STRING()), "is for numbers and truth values, not Str"),
        (lambda: Types.PRIMITIVE_ARRAY(Types.INT), "PRIMITIVE_ARRAY takes types, not Types.INT"),
        (lambda: Types.BASIC_ARRAY(Types.ROW([Types.INT()])), "is for basic types, not RowType"),
    ],
)
def test_parts_that_are_no_types_are_refused(make: Callable[[], object], what: str) -> None:
    with pytest.raises(GraphError) as refused:
        make()
    assert what in refused.value.what
    assert refused.value.where.startswith("Types.")
    assert refused.value.remedy


def test_a_pickled_part_is_found_however_deep() -> None:
    assert holds_pickled(Types.LIST(Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()])))
    assert not holds_pickled(Types.LIST(Types.TUPLE([Types.INT()])))
