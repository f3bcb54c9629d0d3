from __future__ import annotations

import datetime
import sys
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from flinkformat.row import Row
from tidegate.errors import FormatError, UserError
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.serializers import (
    PickleSerializer,
    SerializerSnapshot,
    TypedSerializer,
    join_lists,
    serializer_of,
)
from tidegate.typeinfo.types import TypeInformation, Types

LONG_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


@dataclass
class Stats:
    count: int
    mean: float = 0.0
    tags: list[str] = field(default_factory=list)


class Point(NamedTuple):
    x: int
    y: int = 0


class Color(Enum):
    RED = 1


def shape(value: Any) -> Any:
    """A value with the exact type of each of its parts, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return type(value), [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(each) for each in value]
    return type(value), value


def back(type_info: TypeInformation | None, values: list[Any]) -> list[Any]:
    serializer = serializer_of(type_info)
    return serializer.decode_many(memoryview(serializer.encode_many(values)))


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.STRING(), ["a", "", "é🙂", None]),
        (Types.LONG(), [0, -1, 2**63 - 1, -(2**63)]),
        (Types.DOUBLE(), [1.5, -0.0, float("inf")]),
        (Types.BOOLEAN(), [True, False, None]),
        (Types.BIG_DEC(), [Decimal("1.10"), Decimal("-0")]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"ab", b""]),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, 2], []]),
        (Types.SQL_DATE(), [datetime.date(2026, 1, 2), None]),
        (Types.SQL_TIME(), [datetime.time(1, 2, 3, 4)]),
        (Types.SQL_TIMESTAMP(), [datetime.datetime(2026, 1, 2, 3, 4, 5, 6)]),  # noqa: DTZ001
        (LONG_PAIR, [(1, 2), (None, 3), None]),
        (Types.TUPLE([]), [()]),
        (Types.LIST(LONG_PAIR), [[(1, 2)], []]),
        (Types.MAP(Types.STRING(), LONG_PAIR), [{"b": (1, 2), "a": None}, {}]),
        (Types.MAP(LONG_PAIR, Types.DOUBLE()), [{(1, 2): 0.5}]),
        (Types.MAP(Types.SQL_DATE(), Types.INT()), [{datetime.date(2026, 1, 2): 1}]),
        (type_of_hint(Stats), [Stats(1, 0.5, ["a"]), Stats(2), None]),
        (type_of_hint(Point), [Point(1, 2), Point(3)]),
        (type_of_hint(dict[str, list[Point]]), [{"a": [Point(1)]}]),
    ],
    ids=str,
)
def test_values_of_a_declared_type_come_back_as_they_were(
    type_info: TypeInformation, values: list[Any]
) -> None:
    serializer = serializer_of(type_info)
    assert isinstance(serializer, TypedSerializer)
    piece = serializer.encode_many(values)
    assert piece[:1] == b"\x01"
    assert shape(serializer.decode_many(piece)) == shape(values)


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.LONG(), [1, 2**63, -(2**70)]),
        (Types.LONG(), [1, 1.5, True]),
        (Types.DOUBLE(), [1.0, 1]),
        (Types.STRING(), ["a", "\ud800"]),
        (Types.STRING(), [Color.RED]),
        (Types.BOOLEAN(), [1]),
        (LONG_PAIR, [[1, 2]]),
        (LONG_PAIR, [(1, 2, 3)]),
        (LONG_PAIR, [(Decimal(1), 2)]),
        (LONG_PAIR, [(1, 2), (1.5, True)]),
        (LONG_PAIR, [(1, 2), (2**80, 1)]),
        (LONG_PAIR, [Point(1, 2)]),
        (Types.LIST(Types.LONG()), [(1,)]),
        (Types.LIST(Types.LONG()), [[1], [1.5, "a"]]),
        (Types.MAP(Types.STRING(), Types.LONG()), [OrderedDict(a=1)]),
        (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1}, {"a": 1.5}]),
        (Types.SQL_TIMESTAMP(), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)]),
        (Types.SQL_DATE(), [datetime.date(2026, 1, 1), "tomorrow"]),
        (type_of_hint(Stats), [Stats(1), Stats("many"), Stats(2.5, tags=["a"])]),  # type: ignore[arg-type]
        (type_of_hint(Stats), [{"count": 1}]),
        (type_of_hint(Point), [Point(1), Point("x", None)]),  # type: ignore[arg-type]
        (type_of_hint(Point), [(1, 2)]),
        (Types.ROW([Types.INT()]), [Row(1), Row(a=2), None]),
        (Types.LIST(Types.ROW([Types.INT()])), [[Row(1)]]),
        (Types.INSTANT(), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)]),
    ],
    ids=str,
)
def test_values_that_are_not_as_declared_come_back_as_they_were_all_the_same(
    type_info: TypeInformation, values: list[Any]
) -> None:
    assert shape(back(type_info, values)) == shape(values)


def test_a_list_of_ones_own_is_not_kept() -> None:
    serializer = serializer_of(LONG_PAIR)
    values: list[object] = [(1, 2)]
    piece = serializer.encode_many(values)
    values.clear()
    assert serializer.decode_many(piece) == [(1, 2)]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None, True, 1, 1.0, "a", b"a"],
        [(1, 2), (3, [4]), (Color.RED,)],
        [{"a": {1, 2}, "b": (1, [2, {"c": 3}])}],
        [Decimal("1.1"), 2**100, complex(1, 2), Color.RED, Point(1)],
        [bytearray(b"a"), frozenset({1})],
        ["a", "\ud800"],
    ],
    ids=str,
)
def test_undeclared_values_come_back_as_they_were(values: list[Any]) -> None:
    assert shape(back(None, values)) == shape(values)


def test_undeclared_values_may_hold_themselves() -> None:
    loop: list[Any] = []
    loop.append(loop)
    flat, cyclic = back(None, [1, loop])
    assert flat == 1
    assert cyclic[0] is cyclic


def test_an_object_of_a_class_that_cannot_be_imported_goes_by_value() -> None:
    class Local:
        def __init__(self) -> None:
            self.count = 3

    ((copy,),) = back(None, [(Local(),)])
    assert copy.count == 3


def test_a_value_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(UserError, match="can't be pickled") as raised:
        serializer_of(None).encode_many([threading.Lock()])
    assert "open()" in raised.value.remedy


def test_a_class_whose_hints_are_unknown_elsewhere_is_rebuilt_field_by_field() -> None:
    @dataclass
    class Inner:
        at: datetime.date

    @dataclass
    class Outer:
        inner: Inner
        pairs: dict[str, tuple[int, int]]

    # Inner is no global, so that its hints can't be looked up; the type is given by hand.
    type_info = type_of_hint(Stats)
    assert type_of_hint(Outer) == Types.PICKLED_BYTE_ARRAY()
    inner = type_of_hint(Inner)
    outer = type(type_info)(  # type: ignore[call-arg]
        "Outer",
        "dataclass",
        ("inner", "pairs"),
        (inner, type_of_hint(dict[str, tuple[int, int]])),
        frozenset(),
        Outer,
    )
    values = [Outer(Inner(datetime.date(2026, 1, 2)), {"a": (1, 2)}), None]
    assert shape(back(outer, values)) == shape(values)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x03abc", b"\x01", b"\x01\xc1", b"\x01\x81", b"\x02x"]
)
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        serializer_of(LONG_PAIR).decode_many(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x92\xa1\x9ea",
        b"\x01" + b"\x91" * 100_000,
        b"\x01\x91\x82\xa1y\x01\xa1z\x02",
    ],
    ids=["no text", "nested", "a field is missing"],
)
def test_what_a_record_cannot_be_made_of_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        serializer_of(type_of_hint(Point)).decode_many(data)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x90", b"\x01\x92\x01\x02"])
def test_a_piece_of_one_value_has_one(data: bytes) -> None:
    with pytest.raises(FormatError):
        serializer_of(type_of_hint(Point)).decode_each([data])


@pytest.mark.parametrize(
    "data", [b"\x01\x91", b"\x01\x91\xdd\xff\xff\xff\xff\x01", b"\x01\x91\xdc"]
)
def test_a_list_that_says_more_than_it_has_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="list can't be read"):
        join_lists([data, data])


@pytest.mark.parametrize("element", [Types.LONG(), None])
def test_pieces_of_lists_of_any_length_are_joined(element: TypeInformation | None) -> None:
    serializer = serializer_of(None if element is None else Types.LIST(element))
    lists = [list(range(size)) for size in (15, 0, 16, 70_000, 1)]
    joined = join_lists(serializer.encode_each(lists))
    assert serializer.decode_each([joined]) == [[each for some in lists for each in some]]


def test_what_is_no_list_is_not_joined_to_one() -> None:
    with pytest.raises(FormatError, match="list can't be read"):
        join_lists(serializer_of(Types.LONG()).encode_each([1, 2]))


def test_pickled_state_is_not_read_as_messagepack() -> None:
    with pytest.raises(FormatError, match="no known encoding"):
        serializer_of(None).decode_many(serializer_of(LONG_PAIR).encode_many([(1, 2)]))


def test_a_class_that_is_gone_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("bygone")
    kind = type("Bygone", (), {"__module__": "bygone"})
    module.Bygone = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bygone", module)
    piece = PickleSerializer().encode_many([kind()])
    monkeypatch.delitem(sys.modules, "bygone")
    with pytest.raises(UserError, match="bygone"):
        PickleSerializer().decode_many(piece)


@pytest.mark.parametrize(
    "type_info",
    [
        Types.LONG(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.INSTANT(),
        Types.SQL_TIME(),
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.STRING())]),
        Types.MAP(Types.STRING(), Types.TUPLE([Types.BIG_INT()])),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        type_of_hint(Stats),
        type_of_hint(Point),
    ],
    ids=str,
)
def test_a_snapshot_comes_back_from_its_bytes(type_info: TypeInformation) -> None:
    snapshot = serializer_of(type_info).snapshot()
    assert SerializerSnapshot.from_bytes(snapshot.to_bytes()) == snapshot


def test_a_pickles_snapshot_names_its_python() -> None:
    assert serializer_of(None).snapshot().python.startswith("3.")
    assert serializer_of(Types.INT()).snapshot().python == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name":"msgpack","version":1,"type":"Nonsense"}',
        b'{"name":"msgpack","version":1,"type":{"tuple":7}}',
        b'{"name":"msgpack","version":1,"type":{"what":"Long"}}',
        b'{"name":"msgpack","version":"1","type":"Long"}',
        b'{"name":"msgpack","version":1,"type":{"map":["Long"]}}',
        b'{"name":"msgpack","version":1,"type":{"row":[["a","Long"],["a","Long"]]}}',
        b'{"type":' * 100_000,
    ],
)
def test_a_damaged_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        SerializerSnapshot.from_bytes(data)


def test_the_bytes_of_a_snapshot_and_a_piece_stay_what_they_are() -> None:
    # Golden: pieces and snapshots of this release have to be readable for good.
    serializer = serializer_of(type_of_hint(dict[str, Point]))
    assert serializer.snapshot().to_bytes() == (
        b'{"name":"msgpack","version":1,"type":{"map":["String",'
        b'{"namedtuple":"Point","fields":[["x","Long"],["y","Long"]]}]}}'
    )
    piece = bytes.fromhex("0191 81 a161 920102")
    assert serializer.encode_many([{"a": Point(1, 2)}]) == piece
    assert serializer.decode_many(piece) == [{"a": Point(1, 2)}]
    stats = bytes.fromhex("0191 83 a5636f756e74 01 a46d65616e cb3fe0000000000000 a474616773 91a161")
    assert serializer_of(type_of_hint(Stats)).encode_many([Stats(1, 0.5, ["a"])]) == stats


def test_an_undeclared_namedtuple_made_by_the_old_function_is_pickled() -> None:
    plain = namedtuple("plain", "a")
    assert type_of_hint(plain) == Types.PICKLED_BYTE_ARRAY()
