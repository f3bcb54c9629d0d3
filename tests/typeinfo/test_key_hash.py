from __future__ import annotations

import datetime
import os
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from flinkformat.java_hash import (
    hash_big_decimal,
    hash_boolean,
    hash_bytes,
    hash_double,
    hash_float,
    hash_instant,
    hash_long,
    hash_row,
    hash_string,
    hash_tuple,
    hash_uuid,
    key_group_of_hash,
)
from flinkformat.key_groups import subtask_of_key_group
from flinkformat.row import Row, RowKind
from tidegate.errors import ConfigError, UnsupportedKey
from tidegate.typeinfo.hash_columns import SMALL_BATCH
from tidegate.typeinfo.hints import TypeHint, declared_key_type
from tidegate.typeinfo.key_hash import KeyHasher, key_type_of, subtasks_of
from tidegate.typeinfo.types import TypeInformation, Types


class Color(StrEnum):
    RED = "red"


class Route(NamedTuple):
    origin: str
    number: int


class Status(IntEnum):
    OK = 200


class Level(Enum):
    LOW = 1
    HIGH = 2


class Size(Enum):
    LOW = 1


class Rights(Flag):
    READ = auto()
    WRITE = auto()


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True)
class Leg:
    route: Route
    level: Level


@dataclass
class Changeable:
    x: int


@dataclass(frozen=True)
class Checked:
    x: int

    def __post_init__(self) -> None:
        assert self.x


@dataclass(frozen=True)
class Compared:
    x: int
    note: int = field(compare=False)


class Later:
    """Gives a member of an enumeration that no other process finds by its name."""

    @staticmethod
    def made() -> Enum:
        return Enum("Local", "A B")["A"]


def group(text: str) -> int:
    return key_group_of_hash(hash_string(text), 128)


def test_a_batch_of_texts_has_the_key_groups_of_each_text() -> None:
    made = KeyHasher(None, 128).key_groups(["a", "", "hello", "a"])
    assert made.tolist() == [81, group(""), group("hello"), 81]
    assert made.dtype == np.int16


@pytest.mark.parametrize("greatest", [65_535, 65_536, 2**40])
@pytest.mark.parametrize("max_parallelism", [128, 100])
def test_a_large_batch_of_numbers_has_the_key_groups_of_each(
    greatest: int, max_parallelism: int
) -> None:
    numbers = [*range(0, greatest, greatest // 999), greatest]
    made = KeyHasher(None, max_parallelism).key_groups(numbers)
    each = [key_group_of_hash(hash_long(number), max_parallelism) for number in numbers]
    assert made.tolist() == each


def test_an_empty_batch_has_no_key_groups_and_no_type() -> None:
    hasher = KeyHasher(None, 128)
    assert hasher.key_groups([]).tolist() == []
    assert hasher.key_type is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a", "String"),
        (1, "Long"),
        (True, "Number(Boolean)"),
        (1.0, "Number(Double)"),
        (Decimal("1.1"), "Number(BigDecimal)"),
        (Status.OK, "Long"),
        (Color.RED, "String"),
        (Level.LOW, "Enum(Level)"),
        (np.int64(1), "Long"),
        (np.str_("a"), "String"),
        (np.datetime64("2026-01-01"), "SqlTimeTypeInfo(Date)"),
        (UUID(int=1), "UUID"),
        (datetime.timedelta(1), "Duration"),
        (
            Leg(Route("JFK", 7), Level.LOW),
            "Leg(route: Route(origin: String, number: Long), level: Enum(Level))",
        ),
        ([1, ["a"]], "TupleTypeInfo(Long, TupleTypeInfo(String))"),
        (b"a", "PrimitiveArrayTypeInfo<Byte>"),
        (datetime.date(2026, 1, 1), "SqlTimeTypeInfo(Date)"),
        (datetime.time(1), "SqlTimeTypeInfo(Time)"),
        (datetime.datetime(2026, 1, 1), "SqlTimeTypeInfo(Timestamp)"),  # noqa: DTZ001
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "Instant"),
        (("a", (1, 2.0)), "TupleTypeInfo(String, TupleTypeInfo(Long, Number(Double)))"),
        (Route("JFK", 7), "Route(origin: String, number: Long)"),
    ],
)
def test_a_key_says_what_it_is(key: object, name: str) -> None:
    assert str(key_type_of(key)) == name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "1"),
        ("LOW", Level.LOW),
        (Level.LOW, "LOW"),
        (Level.LOW, Size.LOW),
        (UUID(int=1), str(UUID(int=1))),
        (Point(1, 2), (1, 2)),
        ((1, 2), Point(1, 2)),
        ("a", b"a"),
        ((1, 2), (1, 2, 3)),
        ((1, "a"), ("a", 1)),
        ((1, 2), Route("a", 1)),
        (datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),  # noqa: DTZ001
        (datetime.time(1), datetime.time(1, tzinfo=datetime.UTC)),
        ("a", None),
    ],
)
def test_a_second_type_of_key_in_one_stream_is_refused(first: object, second: object) -> None:
    hasher = KeyHasher(None, 128, where="operator 'count'")
    hasher.key_groups([first])
    for batch in ([second], [first, second]):
        with pytest.raises(UnsupportedKey) as raised:
            hasher.key_groups(batch)
        assert "operator 'count'" in raised.value.where
        assert raised.value.what.startswith("A second type of key in one stream")
        assert raised.value.remedy


def test_the_refusal_of_a_second_type_shows_both_keys() -> None:
    hasher = KeyHasher(None, 128)
    hasher.key_groups(["JFK"])
    with pytest.raises(UnsupportedKey) as raised:
        hasher.key_groups(["LGA", 1.5])
    assert raised.value.what == (
        "A second type of key in one stream: 1.5 (float) after String such as 'JFK'"
    )


@pytest.mark.parametrize(
    "key",
    [
        None,
        object(),
        [{}],
        {"a": 1},
        {1},
        bytearray(b"a"),
        lambda: 1,
        ("a", {1}),
        float("nan"),
        np.float32("nan"),
        Decimal("nan"),
        (1, float("nan")),
        1j,
        Changeable(1),
        Checked(1),
        Compared(1, 2),
        Rights.READ | Rights.WRITE,
        np.datetime64("NaT"),
        np.datetime64(1, "ns"),
        np.array([1]),
        Later.made(),
    ],
)
def test_a_key_without_a_stable_hash_is_refused(key: object) -> None:
    with pytest.raises(UnsupportedKey, match="can't be a key") as raised:
        KeyHasher(None, 128).key_groups([key])
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (Changeable(1), "Declare Changeable with @dataclass(frozen=True)."),
        (Compared(1, 2), "Key by a tuple of the fields that tell two of them apart."),
        (Later.made(), "Declare it: key_by(…, key_type=Local)."),
        (Rights.READ | Rights.WRITE, "Key by its number: .value."),
    ],
)
def test_a_refusal_says_what_would_be_a_key(key: object, remedy: str) -> None:
    with pytest.raises(UnsupportedKey) as raised:
        KeyHasher(None, 128, where="operator 'count'").key_groups([key])
    assert raised.value.remedy == remedy
    assert raised.value.where == "operator 'count'"


def test_a_class_that_can_change_is_refused_as_it_is_declared() -> None:
    declared = declared_key_type(Changeable, where="key_type")
    with pytest.raises(UnsupportedKey, match="it can be changed"):
        KeyHasher(declared, 128)


@pytest.mark.parametrize(
    ("hint", "given", "key"),
    [
        (bool, [1, 0.0, np.bool_(True)], [True, False, True]),
        (float, [1, True, Decimal("0.5"), -0.0], [1.0, 1.0, 0.5, 0.0]),
        (int, [1.0, True, Decimal("1.00"), np.uint8(7)], [1, 1, 1, 7]),
        (Decimal, [1, 0.5, Decimal("1.10"), Decimal("1E+2")], ["1", "0.5", "1.1", "100"]),
        (str, [Color.RED, np.str_("a")], ["red", "a"]),
        (Color, ["red", Color.RED], [Color.RED, Color.RED]),
        (Status, [200, 200.0, np.int64(200)], [Status.OK] * 3),
        (Route, [("JFK", 7.0), Route("LGA", 8)], [Route("JFK", 7), Route("LGA", 8)]),
        (tuple[str, int], [Route("JFK", 7), ["LGA", 8]], [("JFK", 7), ("LGA", 8)]),
        (Point, [Point(1, 2.0)], [Point(1.0, 2.0)]),
    ],
)
def test_a_key_is_brought_to_its_declared_type(
    hint: TypeHint, given: list[object], key: list[object]
) -> None:
    hasher = KeyHasher(declared_key_type(hint, where="key_type"), 128)
    keys, groups = hasher.keyed(given)
    shown = list(map(str, keys)) if hint is Decimal else list(keys)
    assert (shown, list(map(type, shown))) == (key, list(map(type, key)))
    assert groups.tolist() == hasher.key_groups(keys).tolist()


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        (Types.BOOLEAN(), 2),
        (Types.LONG(), 1.5),
        (Types.LONG(), Decimal("Infinity")),
        (Types.DOUBLE(), Decimal("0.1")),
        (Types.DOUBLE(), 2**53 + 1),
        (Types.DOUBLE(), 10**400),
        (Types.BIG_DEC(), float("inf")),
        (Types.STRING(), Level.LOW),
        (Types.SQL_DATE(), datetime.datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_what_equals_no_key_of_the_declared_type_is_refused(
    declared: TypeInformation, key: object
) -> None:
    with pytest.raises(UnsupportedKey, match=r"is not of the declared type|can't be a key"):
        KeyHasher(declared, 128).key_groups([key])


@pytest.mark.parametrize(
    ("declared", "key", "code"),
    [
        (Types.BIG_DEC(), Decimal("1.1"), hash_big_decimal(11, 1)),
        (Types.BIG_DEC(), Decimal("-100"), hash_big_decimal(-100, 0)),
        (Types.BOOLEAN(), True, hash_boolean(True)),
        (Types.DOUBLE(), 2.0, hash_double(2.0)),
        (None, UUID(int=2**100 + 5), hash_uuid(2**100 + 5)),
        (None, datetime.timedelta(seconds=-1, microseconds=7), hash_instant(-1, 7000)),
        (None, Level.LOW, hash_string("LOW")),
        (None, Point(1, 2.5), hash_tuple([hash_long(1), hash_double(2.5)])),
    ],
)
def test_keys_have_the_hash_codes_of_java(
    declared: TypeInformation | None, key: object, code: int
) -> None:
    made = KeyHasher(declared, 32768).key_groups([key])
    assert made.tolist() == [key_group_of_hash(code, 32768)]


def test_an_instant_is_one_key_in_every_zone() -> None:
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    there = noon.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    keys, groups = KeyHasher(None, 128).keyed([there, noon])
    assert keys == [noon, noon] and [key.tzinfo for key in keys] == [datetime.UTC] * 2  # type: ignore[attr-defined]
    assert groups[0] == groups[1]


def test_keys_that_are_plain_are_given_back_as_they_are() -> None:
    given: list[object] = [("a", 1, 2.5), ("b", 2, 0.5)]
    keys, _ = KeyHasher(None, 128).keyed(given)
    assert keys is given


def test_an_integer_beyond_64_bits_is_refused() -> None:
    with pytest.raises(UnsupportedKey, match=f"{2**63} does not fit Long, which has 64 bits"):
        KeyHasher(None, 128).key_groups([1, 2**63])


@pytest.mark.parametrize(
    "declared",
    [
        Types.LIST(Types.INT()),
        Types.MAP(Types.INT(), Types.INT()),
        Types.BIG_INT(),
        Types.TUPLE([Types.STRING(), Types.LIST(Types.INT())]),
    ],
)
def test_a_declared_type_without_a_stable_hash_is_refused_before_any_key(
    declared: TypeInformation,
) -> None:
    with pytest.raises(UnsupportedKey, match="is not a type of key"):
        KeyHasher(declared, 128)


def test_max_parallelism_is_checked() -> None:
    with pytest.raises(ConfigError, match="not within bounds"):
        KeyHasher(None, 32769)


def test_a_declared_integer_hashes_as_its_own_width() -> None:
    # Long folds -1 to 0; Integer's hash is the number.
    assert KeyHasher(None, 128).key_groups([-1]).tolist() == [key_group_of_hash(0, 128)]
    for declared in (Types.INT(), Types.SHORT(), Types.BYTE()):
        hasher = KeyHasher(declared, 128)
        assert hasher.key_groups([-1]).tolist() == [key_group_of_hash(-1, 128)]
    assert KeyHasher(Types.LONG(), 128).key_groups([-1]).tolist() == [key_group_of_hash(0, 128)]


def test_a_key_beyond_its_declared_width_is_refused() -> None:
    with pytest.raises(UnsupportedKey, match="The key 128 does not fit Byte, which has 8 bits"):
        KeyHasher(Types.BYTE(), 128).key_groups([1, 128])


def test_a_key_of_another_type_than_declared_is_refused() -> None:
    with pytest.raises(UnsupportedKey, match=r"5 \(int\) is not of the declared type String"):
        KeyHasher(Types.STRING(), 128).key_groups(["a", 5])


def test_a_pickled_key_type_counts_as_undeclared() -> None:
    hasher = KeyHasher(Types.PICKLED_BYTE_ARRAY(), 128)
    assert hasher.key_groups(["a"]).tolist() == [81]
    assert hasher.key_type == Types.STRING()


def test_a_declared_row_hashes_as_flinks_row() -> None:
    hasher = KeyHasher(Types.ROW([Types.STRING()]), 128)
    expected = key_group_of_hash(hash_row([hash_string("hello")]), 128)
    assert hasher.key_groups([Row("hello")]).tolist() == [expected]
    for bad in (Row("a", "b"), Row(None), Row.of_kind(RowKind.DELETE, "a")):
        with pytest.raises(UnsupportedKey):
            hasher.key_groups([bad])


def test_a_field_of_a_tuple_may_be_null_and_counts_as_zero() -> None:
    made = KeyHasher(None, 32768).key_groups([(-700281212, None), (-700281212, "x"), (None, None)])
    declared = KeyHasher(Types.TUPLE([Types.LONG(), Types.STRING()]), 32768)
    assert declared.key_groups([(-700281212, None)]).tolist() == made.tolist()[:1]
    assert made.tolist()[2] == key_group_of_hash(0, 32768)


LONG_TEXTS = ["x" * 70_000, "", "ab" * 100_000, "y", "é" * 66_000, "\0" * 65_536, "🙂" * 40_000]


@pytest.mark.parametrize("texts", [LONG_TEXTS, [t for t in LONG_TEXTS if t.isascii()][:4]])
def test_texts_longer_than_the_tables_hash_right(texts: list[str]) -> None:
    keys = texts + [f"short-{i}" for i in range(SMALL_BATCH)] + texts
    made = KeyHasher(None, 32768).key_groups(keys)
    assert made.tolist() == [key_group_of_hash(hash_string(key), 32768) for key in keys]


def test_bytes_longer_than_the_tables_hash_right() -> None:
    keys = [b"x" * 70_000, b"", b"\xff" * 65_536] + [bytes([i]) for i in range(SMALL_BATCH)]
    made = KeyHasher(None, 32768).key_groups(keys)
    assert made.tolist() == [key_group_of_hash(hash_bytes(key), 32768) for key in keys]


def test_the_subtask_of_each_key_group() -> None:
    groups = np.array([0, 5, 20_000, 32_767], np.int16)
    made = subtasks_of(groups, 32_768, 32_768).tolist()
    assert made == [subtask_of_key_group(int(g), 32_768, 32_768) for g in groups]


@pytest.mark.parametrize("width", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32()])
def test_an_integer_column_of_any_width_is_long(width: pa.DataType) -> None:
    column = pa.array([0, 1, 100], width)
    expected = KeyHasher(None, 128).key_groups([0, 1, 100])
    assert KeyHasher(None, 128).key_groups_of_column(column).tolist() == expected.tolist()


def test_a_declared_width_holds_for_a_column_too() -> None:
    column = pa.array([-1, 5], pa.int64())
    expected = KeyHasher(Types.INT(), 128).key_groups([-1, 5])
    made = KeyHasher(Types.INT(), 128).key_groups_of_column(column)
    assert made.tolist() == expected.tolist()
    with pytest.raises(UnsupportedKey, match="The key 2147483648 does not fit 32 bits"):
        KeyHasher(Types.INT(), 128).key_groups_of_column(pa.array([2**31]))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array(["a", None]), "1 of 2 keys are null"),
        (pa.array([[1]]), "can't be a key"),
        (pa.array([None]), "can't be a key"),
        (pa.array([2**64 - 1], pa.uint64()), "does not fit 64 bits"),
    ],
)
def test_a_column_without_stable_hashes_is_refused(column: pa.Array, text: str) -> None:
    with pytest.raises(UnsupportedKey, match=text):
        KeyHasher(None, 128).key_groups_of_column(column)


def test_rows_and_columns_of_one_stream_share_its_type() -> None:
    hasher = KeyHasher(None, 128)
    hasher.key_groups_of_column(pa.array([1]))
    assert hasher.key_groups([1]).tolist() == hasher.key_groups_of_column(pa.array([1])).tolist()
    with pytest.raises(UnsupportedKey, match="are Long, and this column has String"):
        hasher.key_groups_of_column(pa.array(["a"]))
    with pytest.raises(UnsupportedKey, match="'a'"):
        hasher.key_groups(["a"])


def test_a_declared_float_hashes_in_single_precision() -> None:
    keys = [0.1, -2.25, *([1.0] * SMALL_BATCH)]
    expected = [key_group_of_hash(hash_float(key), 128) for key in keys]
    assert KeyHasher(Types.FLOAT(), 128).key_groups(keys).tolist() == expected
    column = pa.array(keys, pa.float32())
    assert KeyHasher(Types.FLOAT(), 128).key_groups_of_column(column).tolist() == expected


@pytest.mark.parametrize("arrow", [pa.string(), pa.int64(), pa.date32(), pa.binary()], ids=str)
def test_an_empty_column_has_no_key_groups(arrow: pa.DataType) -> None:
    assert KeyHasher(None, 128).key_groups_of_column(pa.array([], arrow)).tolist() == []


def test_a_row_of_another_kind_of_field_is_refused() -> None:
    with pytest.raises(UnsupportedKey, match="field 0"):
        KeyHasher(Types.ROW([Types.STRING()]), 128, where="count").key_groups([Row(5)])


def test_a_dictionary_column_hashes_as_its_values() -> None:
    column = pa.chunked_array([["a", "b", "a"], ["c"]]).dictionary_encode()
    expected = KeyHasher(None, 128).key_groups(["a", "b", "a", "c"])
    assert KeyHasher(None, 128).key_groups_of_column(column).tolist() == expected.tolist()


@pytest.mark.slow
def test_the_seed_of_pythons_hash_does_not_matter() -> None:
    program = (
        "from tidegate.typeinfo.key_hash import KeyHasher\n"
        "keys = [('a', 1, 2.5, True, b'x'), ('b', -7, 0.0, False, b'')]\n"
        "print(KeyHasher(None, 32768).key_groups(keys).tolist())\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
