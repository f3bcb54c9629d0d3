"""The queues in front of a subtask, read in turn."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.subtask import From
from tidegate.model.elements import ArrowBatch, Element, RowBatch, Watermark
from tidegate.model.ids import ChannelId
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.transport.debloat import Backlog


class Inputs:
    """A gate over some channels; what it granted and how often it called."""

    def __init__(self, count: int) -> None:
        self.granted: list[int] = []
        self.calls = 0
        self.channels = [
            InputChannel(ChannelId(0, n, 0), n % 2, From(n, self.granted, [])) for n in range(count)
        ]
        self.gate = Gate(self.channels, self)

    def ready(self) -> None:
        self.calls += 1

    def put(self, channel: int, element: Element) -> None:
        self.gate.put(self.channels[channel], element)

    def poll(self, rows_max: int = 100) -> tuple[int, Element] | None:
        found = self.gate.poll(rows_max)
        return None if found is None else (self.channels.index(found[0]), found[1])

    def drain(self, rows_max: int = 100) -> list[tuple[int, Element]]:
        found: list[tuple[int, Element]] = []
        while (one := self.poll(rows_max)) is not None:
            found.append(one)
        return found


def rows(*values: object) -> RowBatch:
    return RowBatch(list(values))


def test_channels_are_read_in_turn() -> None:
    inputs = Inputs(3)
    for n in range(2):
        for channel in range(3):
            inputs.put(channel, rows(channel, n))
    assert [channel for channel, _ in inputs.drain()] == [0, 1, 2, 0, 1, 2]


def test_an_empty_gate_gives_nothing() -> None:
    inputs = Inputs(2)
    assert inputs.poll() is None and not inputs.gate.readable


def test_a_long_batch_is_read_in_pieces_and_granted_with_the_last_one() -> None:
    inputs = Inputs(2)
    batch = RowBatch([1, 2, 3, 4, 5], [10, 20, 30, 40, 50], list("abcde"), [1, 2, 3, 4, 5])
    inputs.put(0, batch)
    inputs.put(1, rows("x"))
    assert inputs.poll(2) == (0, batch.piece(0, 2))
    assert inputs.granted == []
    assert inputs.poll(2) == (0, batch.piece(2, 4))
    assert inputs.granted == []
    assert inputs.poll(2) == (0, batch.piece(4, 5))
    assert inputs.granted == [0]
    assert inputs.poll(2) == (1, rows("x"))


def test_a_batch_that_fits_is_passed_as_it_is() -> None:
    inputs = Inputs(1)
    batch = rows(1, 2)
    inputs.put(0, batch)
    found = inputs.poll(2)
    assert found is not None and found[1] is batch
    assert inputs.granted == [0]


def test_an_arrow_batch_is_cut_without_copying() -> None:
    inputs = Inputs(1)
    batch = ArrowBatch(pa.record_batch({"v": list(range(1000))}))
    inputs.put(0, batch)
    assert inputs.poll(600) == (0, batch.piece(0, 600))
    assert inputs.granted == []
    assert inputs.poll(600) == (0, batch.piece(600, 1000))
    assert inputs.granted == [0]


def test_more_credit_goes_to_every_sender_and_less_is_kept_back_from_the_next_batches() -> None:
    inputs = Inputs(2)
    inputs.gate.add_credit(2)
    assert sorted(inputs.granted) == [0, 0, 1, 1]
    inputs.granted.clear()
    inputs.gate.add_credit(-2)
    for _ in range(3):
        inputs.put(0, rows(1))
    inputs.drain()
    assert inputs.granted == [0], "two of three batches give no credit back"
    inputs.gate.add_credit(1)
    assert inputs.granted == [0, 0]
    inputs.put(1, rows(1))
    inputs.drain()
    assert inputs.granted == [0, 0], "one of two was given back by then"


def test_a_mark_costs_no_credit() -> None:
    inputs = Inputs(1)
    inputs.put(0, Watermark(1))
    assert inputs.poll() == (0, Watermark(1))
    assert inputs.granted == []


@pytest.mark.feature("F127")
def test_a_blocked_channel_is_passed_over_and_keeps_its_credit() -> None:
    inputs = Inputs(2)
    inputs.put(0, rows("held"))
    inputs.put(1, rows("read"))
    inputs.gate.block(ChannelId(0, 0, 0))
    inputs.put(0, rows("held too"))
    assert inputs.drain() == [(1, rows("read"))]
    assert inputs.granted == [1] and not inputs.gate.readable
    inputs.gate.unblock([ChannelId(0, 0, 0)])
    assert inputs.drain() == [(0, rows("held")), (0, rows("held too"))]


def test_unblocking_calls_for_a_turn_only_where_something_waits() -> None:
    inputs = Inputs(2)
    inputs.gate.block(ChannelId(0, 0, 0))
    inputs.gate.unblock([ChannelId(0, 0, 0)])
    assert inputs.calls == 0
    inputs.gate.block(ChannelId(0, 0, 0))
    inputs.put(0, rows(1))
    assert inputs.calls == 0
    inputs.gate.unblock([ChannelId(0, 0, 0)])
    assert inputs.calls == 1 and inputs.gate.readable


def test_the_backlog_is_what_waits_in_row_batches() -> None:
    inputs = Inputs(3)
    assert inputs.gate.backlog == Backlog()
    inputs.put(0, rows(1, 2, 3))
    inputs.put(0, Watermark(1))
    inputs.put(0, rows(4))
    inputs.put(1, rows(5))
    inputs.put(2, ArrowBatch(pa.record_batch({"v": [6]})))
    assert inputs.gate.backlog == Backlog(rows=5, batches=3, channels=2)
    inputs.poll(2)
    assert inputs.gate.backlog == Backlog(rows=3, batches=3, channels=2)


def test_a_channel_that_is_not_there_cannot_be_blocked() -> None:
    with pytest.raises(KeyError):
        Inputs(1).gate.block(ChannelId(9, 9, 9))


@given(data=st.data())
def test_nothing_is_lost_doubled_or_reordered_whatever_is_blocked(data: st.DataObject) -> None:
    inputs = Inputs(3)
    put: dict[int, list[object]] = {0: [], 1: [], 2: []}
    got: dict[int, list[object]] = {0: [], 1: [], 2: []}
    blocked: set[int] = set()
    batches = 0
    actions = st.sampled_from(["put", "poll", "poll", "block", "unblock"])
    for number in range(data.draw(st.integers(0, 40))):
        action = data.draw(actions)
        channel = data.draw(st.integers(0, 2))
        if action == "put":
            values: list[object] = [(number, n) for n in range(data.draw(st.integers(1, 5)))]
            put[channel] += values
            batches += 1
            inputs.put(channel, RowBatch(values))
        elif action == "poll":
            waits = any(put[c] != got[c] for c in range(3) if c not in blocked)
            assert inputs.gate.readable == waits
            found = inputs.poll(data.draw(st.integers(1, 3)))
            assert (found is not None) == waits
            if found is not None:
                assert found[0] not in blocked
                assert isinstance(found[1], RowBatch)
                got[found[0]] += found[1].values
        elif action == "block" and inputs.channels[channel].taken == 0:
            blocked.add(channel)  # a barrier comes between batches, never within one
            inputs.gate.block(inputs.channels[channel].id)
        elif action == "unblock":
            blocked.discard(channel)
            inputs.gate.unblock([inputs.channels[channel].id])
    inputs.gate.unblock([channel.id for channel in inputs.channels])
    for channel, element in inputs.drain(2):
        assert isinstance(element, RowBatch)
        got[channel] += element.values
    assert got == put
    assert len(inputs.granted) == batches
