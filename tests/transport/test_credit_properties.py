"""Credit of one channel, against any order of offers and grants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.elements import Barrier, CheckpointOptions, Element, RowBatch, Watermark
from tidegate.model.ids import CheckpointId
from tidegate.transport.credit import CreditedSender

ACTIONS = st.lists(st.one_of(st.just("batch"), st.just("mark"), st.integers(1, 3)), max_size=60)


@given(credit=st.integers(1, 4), actions=ACTIONS)
def test_order_is_kept_and_credit_is_never_overdrawn(credit: int, actions: list[str | int]) -> None:
    sender = CreditedSender(credit)
    offered: list[Element] = []
    sent: list[Element] = []
    granted = 0
    for number, action in enumerate(actions):
        if isinstance(action, int):
            out = sum(isinstance(e, RowBatch) for e in sent) - granted
            back = min(action, out)  # a reader gives back only what it has taken
            granted += back
            sent += sender.grant(back)
        else:
            element = RowBatch([number]) if action == "batch" else Watermark(number)
            offered.append(element)
            if sender.offer(element):
                sent.append(element)
        assert sent == offered[: len(sent)]
        in_flight = sum(isinstance(e, RowBatch) for e in sent) - granted
        assert 0 <= in_flight <= credit
        assert sender.waiting == len(offered) - len(sent)
        assert sender.has_room == (sender.waiting == 0)
        if sender.waiting:  # what waits, waits for credit and for nothing else
            assert in_flight == credit and isinstance(offered[len(sent)], RowBatch)
    while sender.waiting:
        sent += sender.grant(1)
    assert sent == offered


def test_a_mark_needs_no_credit_but_keeps_its_place() -> None:
    sender = CreditedSender(1)
    assert sender.offer(RowBatch([1]))
    assert sender.offer(Watermark(1))
    assert not sender.offer(RowBatch([2]))
    assert not sender.offer(Watermark(2))
    assert sender.grant(1) == [RowBatch([2]), Watermark(2)]


def test_a_channel_without_credit_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        CreditedSender(0)


def test_a_barrier_is_taken_out_of_what_waits_with_the_batches_before_it() -> None:
    sender = CreditedSender(1)
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
