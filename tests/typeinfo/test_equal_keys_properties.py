"""What is equal in Python is one key: in one key group, and one entry of every state."""

from __future__ import annotations

import copy
import datetime
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.properties import examples
from tidegate.state.format.encoding import Keys, StoredKeys, encoded_keys
from tidegate.typeinfo.hints import declared_key_type
from tidegate.typeinfo.key_hash import KeyHasher

LONG_BOUND = 2**63


class Status(IntEnum):
    OFF = 0
    ON = 1
    OK = 200


class Color(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any


def forms_of_number(number: int) -> list[object]:
    """All that is equal to a whole number and may be a key."""
    forms: list[object] = [number, np.int64(number), Decimal(number), Decimal(number).scaleb(0)]
    forms += [Decimal(f"{number}.000")]
    if float(number) == number:
        forms += [float(number), np.float64(number)]
    if int(np.float32(number)) == number:
        forms.append(np.float32(number))
    if number in (0, 1):
        forms += [bool(number), np.bool_(bool(number))]
    if number == 0:
        forms += [-0.0, Decimal("-0.0")]
    forms += [each for each in Status if each == number]
    return forms


WHOLE = st.integers(-LONG_BOUND, LONG_BOUND - 1) | st.integers(-3, 300)
FRACTIONS = st.floats(allow_nan=False, width=32).map(
    lambda number: [number, np.float32(number), np.float64(number), Decimal(number)]
)
TEXTS = st.text(max_size=5).map(lambda text: [text, np.str_(text)]) | st.just(["red", Color.RED])
ZONES = [datetime.UTC, ZoneInfo("UTC"), datetime.timezone(datetime.timedelta(hours=-7))]
MICROS = st.integers(-(10**15), 10**15).map(lambda micros: datetime.timedelta(microseconds=micros))
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INSTANTS = MICROS.map(lambda since: [(EPOCH + since).astimezone(zone) for zone in ZONES])
SPANS = st.timedeltas().map(lambda span: [span, *_numpy_span(span)])
EQUAL = WHOLE.map(forms_of_number) | FRACTIONS | TEXTS | INSTANTS | SPANS


def _numpy_span(span: datetime.timedelta) -> list[object]:
    micros = span // datetime.timedelta(microseconds=1)
    return [np.timedelta64(micros, "us")] if abs(micros) < 2**62 else []


@st.composite
def equal_keys(draw: st.DrawFn) -> list[object]:
    """Keys that are equal, plain ones or tuples and classes of such."""
    first = draw(EQUAL)
    form = draw(st.sampled_from(["plain", "tuple", "named", "record"]))
    if form == "plain":
        return draw(st.lists(st.sampled_from(first), min_size=2, max_size=6))
    second = draw(EQUAL)
    pairs = st.lists(st.tuples(st.sampled_from(first), st.sampled_from(second)), min_size=2)
    found = draw(pairs)
    if form == "record":
        return [Point(*each) for each in found]
    tuples = [tuple, lambda each: Pair(*each)] if form == "named" else [tuple]
    return [draw(st.sampled_from(tuples))(each) for each in found]


@examples(200)
@given(keys=equal_keys(), max_parallelism=st.sampled_from([128, 32768]))
def test_equal_keys_are_in_one_key_group_whichever_came_first(
    keys: list[object], max_parallelism: int
) -> None:
    together = KeyHasher(None, max_parallelism).key_groups(keys).tolist()
    # Each by a subtask of its own, which sees no other key.
    apart = [KeyHasher(None, max_parallelism).key_groups([key]).tolist()[0] for key in keys]
    assert set(together) == set(apart) == {together[0]}


@examples(200)
@example(keys=[float("inf"), Decimal("Infinity"), np.float32("inf")])
@example(keys=["a\x00", np.str_("a\x00")])
@example(keys=[b"a\x00", np.bytes_(b"a\x00")])
@example(keys=[(0, EPOCH), Pair(0, EPOCH)])
@example(keys=[Point((1, "a"), EPOCH), Point(Pair(1, "a"), EPOCH)])
@given(keys=equal_keys())
def test_equal_keys_are_one_entry_of_a_dict_and_one_name_on_disk(keys: list[object]) -> None:
    # Each by a sender of its own, which sees no other key.
    plain = [KeyHasher(None, 128).keyed([key])[0][0] for key in keys]
    assert len(set(plain)) == 1
    learned = Keys(None, "here")
    stored = StoredKeys(learned, None, "here")
    names = {stored.encode_each([key])[0] for key in plain}
    # Equal parts of a key are one object here, and two there.
    names |= set(stored.encode_each(copy.deepcopy(plain)))
    assert len(names) == 1
    assert stored.decode_each(list(names)) == [plain[0]]
    block = encoded_keys(learned.of(plain[0]), plain, "here")
    assert set(learned.of(plain[0]).decode_many(block)) == set(plain)


@examples(100)
@given(number=WHOLE, kind=st.sampled_from([int, float, bool, Decimal]))
def test_equal_numbers_become_one_key_of_a_declared_type(number: int, kind: type) -> None:
    hasher = KeyHasher(declared_key_type(kind, where="key_type"), 32768)
    if (kind is bool and number not in (0, 1)) or (kind is float and float(number) != number):
        return
    keys, groups = hasher.keyed(forms_of_number(number))
    assert {(type(key), str(key)) for key in keys} == {(kind, str(kind(number)))}
    assert len(set(groups.tolist())) == 1


@examples(60)
@given(
    numbers=st.lists(
        st.floats(width=32, allow_nan=False) | st.integers(-300, 300).map(float),
        min_size=1,
        max_size=20,
    ),
    arrow=st.sampled_from([pa.float64(), pa.float32()]),
)
def test_a_column_of_numbers_lies_where_its_values_do(
    numbers: list[float], arrow: pa.DataType
) -> None:
    column = pa.array(np.array(numbers, arrow.to_pandas_dtype()))
    made = KeyHasher(None, 32768).key_groups_of_column(column)
    assert made.tolist() == KeyHasher(None, 32768).key_groups(column.to_pylist()).tolist()


@pytest.mark.parametrize("first", ["1", b"1", (1,), datetime.timedelta(1)], ids=repr)
def test_a_number_is_no_key_of_another_type(first: object) -> None:
    hasher = KeyHasher(None, 128)
    hasher.key_groups([first])
    with pytest.raises(Exception, match="A second type of key in one stream: 1 "):
        hasher.key_groups([1])
