"""Rows, columns and the plain arithmetic of `flinkformat.java_hash` agree on every key."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat import java_hash
from tests.properties import examples
from tidegate.typeinfo.key_hash import KeyHasher

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
FLOATS = st.floats(allow_nan=False)
DATES = st.dates()
TIMES = st.times()
STAMPS = st.datetimes()
INSTANTS = st.datetimes(timezones=st.just(datetime.UTC))
KEYS = [LONGS, TEXTS, st.booleans(), FLOATS, st.binary(max_size=20), DATES, TIMES, STAMPS, INSTANTS]
MAX_PARALLELISM = st.sampled_from([1, 3, 128, 4096, 32768])


def nano_of_day(time: datetime.time | datetime.datetime) -> int:
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    return seconds * 10**9 + time.microsecond * 1000


def hash_of(key: object) -> int:
    """The hash code of one undeclared key, by the plain arithmetic: Java's, numbers by value."""
    match key:
        case None:
            return 0
        case int():
            return java_hash.hash_long(key)
        case float() if key.is_integer() and -(2**63) <= key < 2**63:
            return java_hash.hash_long(int(key))
        case float():
            return java_hash.hash_double(key)
        case str():
            return java_hash.hash_string(key)
        case bytes():
            return java_hash.hash_bytes(key)
        case datetime.datetime() if key.tzinfo is not None:
            since = key - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return java_hash.hash_instant(
                since // datetime.timedelta(seconds=1), since.microseconds * 1000
            )
        case datetime.datetime():
            date = java_hash.hash_local_date(key.year, key.month, key.day)
            return date ^ java_hash.hash_local_time(nano_of_day(key))
        case datetime.date():
            return java_hash.hash_local_date(key.year, key.month, key.day)
        case datetime.time():
            return java_hash.hash_local_time(nano_of_day(key))
        case tuple():
            return java_hash.hash_tuple(map(hash_of, key))
        case _:
            raise AssertionError(key)


def groups_of(keys: list[object], max_parallelism: int) -> list[int]:
    return [java_hash.key_group_of_hash(hash_of(key), max_parallelism) for key in keys]


@pytest.mark.parametrize("kind", KEYS, ids=str)
@examples(40)
@given(data=st.data(), max_parallelism=MAX_PARALLELISM)
def test_a_batch_agrees_with_each_key(
    kind: st.SearchStrategy[object], data: st.DataObject, max_parallelism: int
) -> None:
    keys = data.draw(st.lists(kind, min_size=1, max_size=30))
    made = KeyHasher(None, max_parallelism).key_groups(keys)
    assert made.tolist() == groups_of(keys, max_parallelism)


@examples(40)
@given(data=st.data(), max_parallelism=MAX_PARALLELISM)
def test_a_batch_of_tuples_agrees_with_each_key(data: st.DataObject, max_parallelism: int) -> None:
    fields = data.draw(st.lists(st.sampled_from(KEYS), max_size=4))
    kinds = st.tuples(*(field | st.none() for field in fields))
    keys = data.draw(st.lists(kinds, min_size=1, max_size=10))
    made = KeyHasher(None, max_parallelism).key_groups(keys)
    assert made.tolist() == groups_of(list(keys), max_parallelism)


ARROW = [
    (LONGS, pa.int64()),
    (st.integers(-128, 127), pa.int8()),
    (st.integers(0, 2**32 - 1), pa.uint32()),
    (st.text(max_size=20), pa.string()),
    (st.text(max_size=20), pa.large_string()),
    (st.text(max_size=20), pa.string_view()),
    (st.text(max_size=5), pa.dictionary(pa.int32(), pa.string())),
    (st.booleans(), pa.bool_()),
    (FLOATS, pa.float64()),
    (st.floats(width=32, allow_nan=False), pa.float32()),
    (st.binary(max_size=20), pa.binary()),
    (st.binary(min_size=3, max_size=3), pa.binary(3)),
    (DATES, pa.date32()),
    (DATES, pa.date64()),
    (TIMES, pa.time64("us")),
    (TIMES.map(lambda time: time.replace(microsecond=0)), pa.time32("s")),
    (STAMPS, pa.timestamp("us")),
    (STAMPS.map(lambda stamp: stamp.replace(microsecond=0)), pa.timestamp("s")),
    (INSTANTS, pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize(("kind", "arrow"), ARROW, ids=[str(arrow) for _, arrow in ARROW])
@examples(40)
@given(data=st.data(), max_parallelism=MAX_PARALLELISM)
def test_a_column_agrees_with_its_values(
    kind: st.SearchStrategy[object],
    arrow: pa.DataType,
    data: st.DataObject,
    max_parallelism: int,
) -> None:
    keys = data.draw(st.lists(kind, min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(keys) - 1))
    column = pa.array(keys, arrow).slice(start)
    made = KeyHasher(None, max_parallelism).key_groups_of_column(column)
    assert made.tolist() == groups_of(keys[start:], max_parallelism)
