"""Credit of one channel, against any order of offers, grants and sizes."""

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.elements import (
    ArrowBatch,
    Barrier,
    CheckpointOptions,
    Element,
    RowBatch,
    Watermark,
)
from tidegate.model.ids import CheckpointId
from tidegate.transport.credit import CreditedSender, credit_for

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(1, 9)),
        st.tuples(st.just("grant"), st.integers(1, 3)),
        st.tuples(st.just("size"), st.integers(1, 5)),
        st.tuples(st.just("mark"), st.just(0)),
    ),
    max_size=60,
)


def flat(elements: Iterable[Element]) -> list[object]:
    """Rows and marks in order, however the rows are cut into batches."""
    return [
        value
        for each in elements
        for value in (each.values if isinstance(each, RowBatch) else [each])
    ]


@given(credit=st.integers(1, 4), actions=ACTIONS)
def test_order_is_kept_and_credit_is_never_overdrawn(
    credit: int, actions: list[tuple[str, int]]
) -> None:
    sender = CreditedSender(credit, 1, 1)
    offered: list[Element] = []
    sent: list[Element] = []
    granted = 0
    for at, (action, number) in enumerate(actions):
        size, before = sender.rows, len(sent)
        match action:
            case "grant":
                out = sum(isinstance(e, RowBatch) for e in sent) - granted
                back = min(number, out)  # a reader gives back only what it has taken
                granted += back
                sent += sender.grant(back)
            case "size":
                sender.rows = number
            case _:
                rows = RowBatch([(at, row) for row in range(number)])
                offered.append(Watermark(at) if action == "mark" else rows)
                sent += sender.offer(offered[-1])
        assert flat(sent) == flat(offered)[: len(flat(sent))]
        assert all(len(e) < 2 * size for e in sent[before:] if isinstance(e, RowBatch))
        in_flight = sum(isinstance(e, RowBatch) for e in sent) - granted
        assert 0 <= in_flight <= credit
        left = flat(offered)[len(flat(sent)) :]
        assert sender.has_room == (not left)
        waiting = [value for batch in sender.batches_waiting() for value in batch.values]
        assert waiting == [value for value in left if not isinstance(value, Watermark)]
        if left:  # what waits, waits for credit and for nothing else
            assert in_flight == credit and not isinstance(left[0], Watermark)
    while sender.waiting:
        sent += sender.grant(1)
    assert flat(sent) == flat(offered)


def test_what_waits_is_cut_by_the_size_that_counts_when_it_goes() -> None:
    sender = CreditedSender(2, 1, 1)
    assert sender.offer(RowBatch(list(range(20)))) == [RowBatch([0]), RowBatch([1])]
    assert sender.batches_left() == 18
    sender.rows = 8
    assert sender.batches_left() == 18 / 8
    assert sender.grant(1) == [RowBatch(list(range(2, 10)))]
    assert sender.batches_waiting() == [RowBatch(list(range(10, 20)))]
    assert sender.grant(1) == [RowBatch(list(range(10, 20)))], "no crumbs: less than twice the size"
    assert sender.batches_left() == 0


def test_arrow_batches_are_cut_by_a_size_of_their_own() -> None:
    sender = CreditedSender(2, 1, 300)
    batch = ArrowBatch(pa.record_batch({"v": list(range(1_000))}))
    assert sender.offer(batch) == [batch.piece(0, 300), batch.piece(300, 600)]
    assert sender.grant(1) == [batch.piece(600, 1_000)]


def test_a_barrier_overtakes_the_rest_of_a_batch_of_which_some_has_gone() -> None:
    sender = CreditedSender(1, 1, 1)
    barrier = Barrier(CheckpointId(7), 0, CheckpointOptions())
    assert sender.offer(RowBatch([1, 2, 3])) == [RowBatch([1])]
    sender.offer(barrier)
    assert sender.take_barrier(CheckpointId(7)) == (barrier, [RowBatch([2, 3])])
    assert sender.grant(2) == [RowBatch([2]), RowBatch([3])]


def test_as_many_batches_are_on_their_way_as_are_worth_it() -> None:
    assert [credit_for(rows, 4) for rows in (1, 2, 3, 2_048)] == [2, 3, 4, 4]
    assert credit_for(2_048, 1) == 1


def test_a_mark_needs_no_credit_but_keeps_its_place() -> None:
    sender = CreditedSender(1, 1, 1)
    assert sender.offer(RowBatch([1]))
    assert sender.offer(Watermark(1))
    assert not sender.offer(RowBatch([2]))
    assert not sender.offer(Watermark(2))
    assert sender.grant(1) == [RowBatch([2]), Watermark(2)]


def test_a_channel_without_credit_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        CreditedSender(0, 1, 1)


def test_a_barrier_is_taken_out_of_what_waits_with_the_batches_before_it() -> None:
    sender = CreditedSender(1, 1, 1)
    batches = [RowBatch([number]) for number in range(4)]
    barrier = Barrier(CheckpointId(7), 0, CheckpointOptions())
    older = Barrier(CheckpointId(6), 0, CheckpointOptions())
    for element in (*batches[:2], older, batches[2], Watermark(1), barrier, batches[3]):
        sender.offer(element)
    assert sender.holds(CheckpointId(7)) and not sender.holds(CheckpointId(8))
    assert sender.batches_waiting() == batches[1:]
    assert sender.take_barrier(CheckpointId(8)) == (None, [])
    assert sender.take_barrier(CheckpointId(7)) == (barrier, batches[1:3])
    assert not sender.holds(CheckpointId(7))
    assert sender.grant(9) == [batches[1], older, batches[2], Watermark(1), batches[3]]
