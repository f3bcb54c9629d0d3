"""Routes: to which channel each row goes, and in which form."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.key_groups import KeyGroupRange
from tests.slot.sent import MAX_PARALLELISM, Sent, columns_of, rows, values_of
from tidegate.api.operator import KeyBy
from tidegate.api.rows.batches import copied
from tidegate.api.rows.column_rows import VALUE, ColumnRows
from tidegate.errors import GraphError, UserCodeFailed
from tidegate.model.elements import (
    ArrowBatch,
    Batch,
    RowBatch,
)
from tidegate.model.topology import Partitioner
from tidegate.slot.channels.routes import BLOCK_ROWS
from tidegate.typeinfo.types import Types


@dataclass
class Record:
    k: str
    v: int


Wide = make_dataclass("Wide", [f"f{n}" for n in range(11)])
MANY = 16
"""So many rows at once are made columns though nobody evaluates them."""

KEY = KeyBy(selector=lambda pair: pair[0], key_type=Types.LONG())
CALLED_KEY = KeyBy(selector=lambda pair: str(pair[0]))
NUMBER = KeyBy(selector=lambda number: number * 3 % 7)
PAIRS = [(n % 5, n) for n in range(40)]
DICTS = [{"k": f"k{n % 7}", "v": n} for n in range(40)]
RECORDS = [Record(f"k{n % 7}", n) for n in range(40)]
TEXTS = [(n, f"k{n % 7}" if n % 3 else "\ud800\0ä") for n in range(40)]


def keyed_rows(sent: Sent) -> list[list[tuple[object, ...]]]:
    """What each channel has sent, with times, keys and key groups."""
    return [
        [
            row
            for each in elements
            if isinstance(each, RowBatch)
            for row in zip(
                each.values,
                each.timestamps_ms or [],
                each.keys or [],
                each.key_groups or [],
                strict=True,
            )
        ]
        for elements in sent.elements
    ]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("key", "values"),
    [
        (KEY, PAIRS),
        (KeyBy(selector=itemgetter(1)), PAIRS),
        (KeyBy(selector=lambda pair: pair[0] + pair[1]), PAIRS),
        (NUMBER, list(range(40))),
        (CALLED_KEY, PAIRS),
        (KeyBy(selector=itemgetter(1)), TEXTS),
        (KeyBy(selector=lambda pair: pair[1], key_type=Types.STRING()), TEXTS),
        (KEY, TEXTS),
        (KeyBy(selector=lambda text: text), [text for _, text in TEXTS]),
        (KEY, [*TEXTS[:15], (1, 2), *TEXTS[15:]]),
        (KeyBy(selector=itemgetter(1)), [*TEXTS[:15], (None, "a"), *TEXTS[15:]]),
        (KeyBy(column="k"), [*DICTS[:15], {"k": "a", "v": None}, *DICTS[15:]]),
        (KeyBy(selector=attrgetter("k")), [Record("b", None), *RECORDS]),
        (KeyBy(selector=itemgetter(1)), [(None, 1), *PAIRS]),
        (KeyBy(selector=lambda row: row["k"]), DICTS),
        (KeyBy(column="k"), DICTS),
        (KeyBy(column="v", key_type=Types.LONG()), DICTS),
        (KeyBy(column="k"), [*DICTS[:15], {"v": 1, "k": "a"}, *DICTS[15:]]),
        (KeyBy(selector=attrgetter("k")), RECORDS),
        (KeyBy(column="v"), RECORDS),
        (KEY, [*PAIRS[:15], (1, "x"), *PAIRS[15:]]),
        (KEY, [*PAIRS[:15], (True, 1), *PAIRS[15:]]),
        (KEY, [*PAIRS[:15], (1, 2**70), *PAIRS[15:]]),
    ],
)
def test_rows_of_numbers_are_keyed_as_columns_with_the_same_results(
    key: KeyBy, values: list[object], channels: int
) -> None:
    found: list[object] = []
    for trace, read_as_columns in ((False, True), (True, True), (True, False)):
        sent = Sent(channels, rows=16)
        route = sent.route(Partitioner.HASH, key=key, trace=trace, read_as_columns=read_as_columns)
        for start in range(0, len(values), 10):
            part = values[start : start + 10]
            route.batch(RowBatch(part, list(range(len(part)))), 0)
        sent.flushed()
        found.append(keyed_rows(sent))
        assert any(columns_of(sent)) == (trace and read_as_columns and key is not CALLED_KEY)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("value", "of_columns"),
    [
        (1, True),
        ((1, 2, 3), True),
        ((1, 2, 3, 4), False),
        ({"k": 1, "v": 2}, True),
        ({"k": 1, "v": 2, "w": 3}, False),
        (Record("a", 1), True),
        (Wide(*range(11)), False),
    ],
)
def test_rows_of_many_fields_are_columns_for_who_evaluates_columns(
    value: object, of_columns: bool
) -> None:
    by = {dict: lambda row: row["k"], Record: attrgetter("k"), Wide: attrgetter("f0")}
    key = KeyBy(selector=by.get(type(value), (lambda row: row) if value == 1 else itemgetter(0)))
    for read_as_columns in (True, False):
        sent = Sent(1, rows=MANY)
        route = sent.route(Partitioner.HASH, key=key, read_as_columns=read_as_columns)
        route.batch(rows(*[value] * MANY), 0)
        sent.flushed()
        assert columns_of(sent) == [read_as_columns or of_columns]


def test_rows_that_are_no_columns_are_not_tried_again() -> None:
    sent = Sent(1, rows=4)
    route = sent.route(Partitioner.HASH, key=KEY)
    for batch in ([(1, 2), (3, 4)], [(1, b"x"), (3, b"y")], [(1, 2), (3, 4)]):
        route.batch(rows(*batch), 0)
        sent.flushed()
    assert columns_of(sent) == [True, False, False]


def test_few_rows_stay_rows_for_who_looks_at_rows_and_say_nothing_of_later_ones() -> None:
    sent = Sent(1, rows=MANY)
    route = sent.route(Partitioner.HASH, key=KEY, read_as_columns=False)
    for row, count in (((1, 2), 1), ((1, b"x"), MANY - 1), ((1, 2), MANY)):
        route.batch(rows(*[row] * count), 0)
        sent.flushed()
    assert columns_of(sent) == [False, False, True]


IDENTITY = KeyBy(selector=lambda value: value)
ROUTES = [
    (Partitioner.HASH, IDENTITY, None),
    (Partitioner.REBALANCE, None, None),
    (Partitioner.RESCALE, None, None),
    (Partitioner.SHUFFLE, None, None),
    (Partitioner.GLOBAL, None, None),
    (Partitioner.CUSTOM, IDENTITY, lambda key, count: key % count),
]


@pytest.mark.parametrize(
    ("partitioner", "key", "partition"), ROUTES, ids=[route[0].name for route in ROUTES]
)
@given(
    channels=st.integers(1, 5),
    batches=st.lists(st.lists(st.integers(-9, 9), max_size=12), max_size=6),
    columns=st.booleans(),
)
def test_each_row_goes_to_one_channel_in_order_and_with_its_time(
    partitioner: Partitioner,
    key: KeyBy | None,
    partition: Callable[[object, int], int] | None,
    channels: int,
    batches: list[list[int]],
    columns: bool,
) -> None:
    sent = Sent(channels, rows=4)
    route = sent.route(partitioner, key=key, partition=partition)
    number = 0
    for values in batches:
        times = list(range(number, number + len(values)))
        made = ColumnRows(
            [np.array(values, np.int64)], form=VALUE, stamps=np.array(times, np.int64)
        )
        route.batch(made if columns else RowBatch(list(values), times), 0)
        number += len(values)
    sent.flushed()
    arrived: list[tuple[int, object]] = []
    for elements in sent.elements:
        times = [t for e in elements if isinstance(e, RowBatch) for t in e.timestamps_ms or []]
        values = [v for e in elements for v in values_of(e)]
        assert times == sorted(times)  # the order of what goes over one channel is kept
        arrived += zip(times, values, strict=True)
    assert sorted(arrived) == list(enumerate(v for values in batches for v in values))


@given(
    keys=st.lists(
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=4)), min_size=1, max_size=30
    )
)
def test_a_keyed_row_goes_where_its_key_group_lives_and_brings_it_along(keys: list[object]) -> None:
    keys = [key for key in keys if type(key) is type(keys[0])]
    sent = Sent(3)
    sent.route(Partitioner.HASH, key=IDENTITY).batch(RowBatch(list(keys)), 0)
    sent.flushed()
    for index, elements in enumerate(sent.elements):
        for batch in elements:
            assert isinstance(batch, RowBatch) and batch.keys == batch.values
            held = KeyGroupRange.of(index, 3, MAX_PARALLELISM)
            assert all(group in held for group in batch.key_groups or [])
            assert len(batch.key_groups or []) == len(batch)


def test_arrow_batches_are_split_by_key_as_their_rows_would_be() -> None:
    keys = [f"k{n}" for n in range(50)]
    by_column, by_row = Sent(3, rows=100), Sent(3, rows=100)
    batch = ArrowBatch(pa.record_batch({"k": keys}), np.arange(50))
    by_column.route(Partitioner.HASH, key=KeyBy(column="k")).batch(batch, 0)
    by_row.route(Partitioner.HASH, key=KeyBy(column="k")).batch(
        RowBatch([{"k": key} for key in keys]), 0
    )
    by_row.flushed()
    for there, here in zip(by_column.elements, by_row.elements, strict=True):
        (got,) = there
        assert isinstance(got, ArrowBatch) and got.key_column == "k"
        assert got.timestamps_ms is not None and got.key_groups is not None
        assert [f"k{n}" for n in got.timestamps_ms] == got.batch.column("k").to_pylist()
        expected = [e for e in here if isinstance(e, RowBatch)]
        assert got.batch.column("k").to_pylist() == [k for e in expected for k in e.keys or []]
        assert got.key_groups.tolist() == [g for e in expected for g in e.key_groups or []]


def test_rebalance_deals_out_one_by_one_across_batches_from_its_own_index() -> None:
    sent = Sent(3)
    route = sent.route(Partitioner.REBALANCE, subtask=1)
    route.batch(rows(0, 1), 0)
    route.batch(rows(2, 3, 4, 5), 0)
    assert sent.flushed() == [[2, 5], [0, 3], [1, 4]]


def test_rebalance_deals_out_arrow_batches_whole() -> None:
    sent = Sent(2)
    route = sent.route(Partitioner.REBALANCE)
    for n in range(4):
        route.batch(ArrowBatch(pa.record_batch({"v": [n, n]})), 0)
    assert sent.flushed() == [[0, 0, 2, 2], [1, 1, 3, 3]]


@pytest.mark.parametrize(
    "partitioner", [Partitioner.REBALANCE, Partitioner.RESCALE, Partitioner.SHUFFLE]
)
@given(cuts=st.lists(st.integers(1, 3 * BLOCK_ROWS), max_size=6), as_arrow=st.booleans())
def test_where_it_has_to_be_the_same_again_a_row_goes_to_its_channel_however_batches_are_cut(
    partitioner: Partitioner, cuts: list[int], as_arrow: bool
) -> None:
    total = 3 * BLOCK_ROWS + 5

    def dealt(*sizes: int) -> list[list[object]]:
        sent = Sent(3, rows=total)
        route = sent.route(partitioner, subtask=1, repeatable=True)
        bounds = sorted({0, *(min(sum(sizes[: n + 1]), total) for n in range(len(sizes))), total})
        for start, stop in pairwise(bounds):
            numbers = range(start, stop)
            arrow = ArrowBatch(pa.record_batch({"n": numbers}))
            route.batch(arrow if as_arrow else RowBatch(list(numbers)), now_ms=0)
        return sent.flushed()

    whole = dealt()
    assert all(whole), "each channel gets some"
    assert dealt(*cuts) == whole


def test_rebalance_deals_out_columns_as_columns() -> None:
    sent = Sent(2, rows=100)
    sent.route(Partitioner.REBALANCE).batch(ColumnRows([np.arange(5)], form=VALUE), 0)
    assert sent.flushed() == [[0, 2, 4], [1, 3]]
    assert all(isinstance(each, ColumnRows) for parts in sent.elements for each in parts)


def test_shuffle_reaches_every_channel_and_not_always_in_the_same_turn() -> None:
    sent = Sent(4, rows=1)
    route = sent.route(Partitioner.SHUFFLE)
    for n in range(200):
        route.batch(rows(n), 0)
    counts = [len(values) for values in sent.flushed()]
    assert min(counts) > 20 and len(set(counts)) > 1


def test_global_and_forward_use_the_first_channel() -> None:
    sent = Sent(3)
    sent.route(Partitioner.GLOBAL).batch(rows(1, 2), 0)
    assert sent.flushed() == [[1, 2], [], []]
    alone = Sent(1)
    alone.route(Partitioner.FORWARD).batch(rows(1, 2), 0)
    assert alone.flushed() == [[1, 2]]


def test_broadcast_gives_every_channel_every_row() -> None:
    sent = Sent(3)
    sent.route(Partitioner.BROADCAST).batch(rows(1, 2), 0)
    assert sent.flushed() == [[1, 2]] * 3


@pytest.mark.parametrize("share", [False, True])
def test_broadcast_copies_values_that_can_be_changed_unless_they_may_be_shared(
    share: bool,
) -> None:
    sent = Sent(3, rows=1)
    value = {"seen": [1]}
    sent.route(Partitioner.BROADCAST, share=share).batch(rows(value, "fixed"), 0)
    copies = [values[0] for values in sent.flushed()]
    assert copies == [value] * 3
    assert len({id(copy) for copy in copies}) == (1 if share else 3)
    assert len({id(copy["seen"]) for copy in copies if isinstance(copy, dict)}) == (
        1 if share else 3
    )


def test_what_cannot_be_changed_is_not_copied() -> None:
    batch: Batch = rows(1, "a", None, 2.5, b"x", True)
    assert copied(batch) is batch
    arrow = ArrowBatch(pa.record_batch({"v": [1]}))
    assert copied(arrow) is arrow


def test_the_users_partitioner_is_asked_with_the_key_and_the_number_of_targets() -> None:
    asked: list[tuple[object, int]] = []

    def partition(key: object, count: int) -> int:
        asked.append((key, count))
        return len(asked) % count

    sent = Sent(2)
    key = KeyBy(selector=lambda value: value.upper())
    sent.route(Partitioner.CUSTOM, key=key, partition=partition).batch(rows("a", "b"), 0)
    assert asked == [("A", 2), ("B", 2)]
    assert sent.flushed() == [["b"], ["a"]]


def test_rows_of_an_arrow_batch_keep_their_times_through_a_users_partitioner() -> None:
    sent = Sent(2)
    route = sent.route(
        Partitioner.CUSTOM,
        key=KeyBy(selector=lambda row: row["v"]),
        partition=lambda key, count: key % count,
    )
    route.batch(ArrowBatch(pa.record_batch({"v": [1, 2, 3]}), np.array([10, 20, 30])), 0)
    sent.flushed()
    assert sent.batches(1) == [RowBatch([{"v": 1}, {"v": 3}], [10, 30])]


@pytest.mark.parametrize("chosen", [-1, 2, None, 1.0, "1"])
def test_a_partition_that_does_not_exist_is_refused_with_its_number(chosen: Any) -> None:
    sent = Sent(2)
    route = sent.route(Partitioner.CUSTOM, key=IDENTITY, partition=lambda key, count: chosen)
    with pytest.raises(GraphError, match=f"chose {chosen!r} of 2 partitions") as caught:
        route.batch(rows("a"), 0)
    assert "from 'a' to 'b', at the row 'a'" in str(caught.value)


@pytest.mark.parametrize("raised", [ZeroDivisionError("no"), SystemExit(2), StopIteration()])
def test_a_partitioner_that_raises_is_told_with_edge_and_row(raised: BaseException) -> None:
    def partition(key: object, count: int) -> int:
        if key == "b":
            raise raised
        return np.int64(0)

    route = Sent(2).route(Partitioner.CUSTOM, key=IDENTITY, partition=partition)
    with pytest.raises(
        UserCodeFailed, match=f"the partitioner raised {type(raised).__name__}"
    ) as e:
        route.batch(rows("a", "b"), 0)
    assert "from 'a' to 'b', at the row 'b'" in str(e.value)
    assert "channels/routes.py" not in e.value.trace


def test_arrow_batches_before_a_key_function_are_refused_with_a_remedy() -> None:
    route = Sent(2).route(Partitioner.HASH, key=IDENTITY)
    with pytest.raises(GraphError, match="column's name"):
        route.batch(ArrowBatch(pa.record_batch({"v": [1]})), 0)


def test_a_missing_key_column_is_refused_with_the_columns_there_are() -> None:
    route = Sent(2).route(Partitioner.HASH, key=KeyBy(column="carrier"))
    with pytest.raises(GraphError, match="no column 'carrier'; there are v, w"):
        route.batch(ArrowBatch(pa.record_batch({"v": [1], "w": [2]})), 0)


def test_the_copies_are_one_fewer_than_the_consumers() -> None:
    sent = Sent(2, rows=1)
    value = [1]
    sent.route(Partitioner.BROADCAST).batch(rows(value), 0)
    assert Counter(copy is value for (copy,) in sent.flushed()) == {True: 1, False: 1}
