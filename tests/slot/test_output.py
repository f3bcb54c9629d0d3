"""Gathering and credit: when rows leave a channel."""

import numpy as np
import pyarrow as pa

from tests.slot.sent import Sent, rows, values_of
from tests.worlds.subtask import Into
from tidegate.api.rows.column_rows import VALUE, ColumnRows
from tidegate.model.elements import (
    AlignmentType,
    ArrowBatch,
    Barrier,
    CheckpointOptions,
    Element,
    RowBatch,
    Watermark,
)
from tidegate.model.ids import ChannelId, CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.slot.channels.output import ChannelOutput, Room
from tidegate.testing import ManualClock


def test_columns_and_rows_of_one_channel_keep_their_order() -> None:
    sent = Sent(1, rows=100)
    channel = sent.channels[0]
    one, two = (ColumnRows([np.arange(n)], form=VALUE) for n in (3, 2))
    for batch in (one, two, rows(9), one):
        channel.rows(batch, 0)
    assert sent.flushed() == [[0, 1, 2, 0, 1, 9, 0, 1, 2]]
    assert [len(each) for each in sent.batches() if isinstance(each, RowBatch)] == [5, 1, 3]


# --- gathering ------------------------------------------------------------------------------------


def test_few_rows_are_gathered_until_a_batch_is_full() -> None:
    sent = Sent(1, rows=4)
    channel = sent.channels[0]
    channel.rows(rows(1), 100)
    channel.rows(rows(2, 3), 200)
    assert sent.batches() == [] and channel.gathering_since_ms == 100
    channel.rows(rows(4), 300)
    assert sent.batches() == [rows(1, 2, 3, 4)] and channel.gathering_since_ms is None


def test_a_batch_of_half_the_size_or_more_goes_as_it_is() -> None:
    sent = Sent(1, rows=4)
    batch = rows(1, 2)
    sent.channels[0].rows(batch, 0)
    assert sent.batches()[0] is batch


def test_gathering_leaves_the_batches_that_came_as_they_were() -> None:
    sent = Sent(1, rows=100)
    first = RowBatch([1], [10], ["k"], [5])
    sent.channels[0].rows(first, 0)
    sent.channels[0].rows(RowBatch([2], [20], ["l"], [6]), 0)
    sent.channels[0].flush()
    assert first == RowBatch([1], [10], ["k"], [5])
    assert sent.batches() == [RowBatch([1, 2], [10, 20], ["k", "l"], [5, 6])]


def test_a_mark_goes_behind_the_rows_gathered_before_it() -> None:
    sent = Sent(1)
    sent.channels[0].rows(rows(1), 0)
    sent.channels[0].mark(Watermark(5))
    sent.channels[0].rows(rows(2), 0)
    sent.channels[0].arrow(ArrowBatch(pa.record_batch({"v": [3]})))
    assert [values_of(e) for e in sent.batches()] == [[1], [], [2], [3]]


def test_rows_with_and_without_times_do_not_share_a_batch() -> None:
    sent = Sent(1)
    sent.channels[0].rows(rows(1), 0)
    sent.channels[0].rows(RowBatch([2], [20]), 0)
    sent.channels[0].flush()
    assert sent.batches() == [rows(1), RowBatch([2], [20])]


def test_a_channel_begins_with_one_row_and_never_has_more_than_full_batches() -> None:
    settings = SlotSettings(rows=8, arrow_rows=16, credit=4)
    sent: list[Element] = []
    channel = ChannelOutput(ChannelId(0, 0, 0), settings, Into(sent), Room())
    channel.rows(rows(1, 2, 3), 0)
    assert sent == [rows(1), rows(2)], "two batches are on their way, however many rows there are"
    channel.resize(1_000)
    channel.granted(4)
    channel.rows(rows(*range(20)), 0)
    channel.arrow(ArrowBatch(pa.record_batch({"v": list(range(40))})))
    assert [len(each) for each in sent[2:] if isinstance(each, RowBatch | ArrowBatch)] == [
        1,
        8,
        12,
        16,
    ]


def test_where_a_reader_wants_small_batches_long_ones_are_cut() -> None:
    sent = Sent(2, rows=8, credit=2)
    first, second = sent.channels
    first.rows(rows(*range(6)), 0)
    first.resize(2)
    first.rows(RowBatch([1, 2, 3, 4], [10, 20, 30, 40], list("abcd"), [1, 2, 3, 4]), 0)
    assert sent.batches() == [rows(*range(6)), RowBatch([1, 2], [10, 20], list("ab"), [1, 2])]
    assert sent.room.waiting == 1
    first.granted(1)
    assert sent.batches()[2:] == [RowBatch([3, 4], [30, 40], list("cd"), [3, 4])]
    second.rows(rows(1, 2, 3), 0)
    assert sent.batches(1) == [], "the other reader takes full batches"


def test_what_was_gathered_for_a_greater_size_is_cut_too() -> None:
    sent = Sent(1, rows=8)
    channel = sent.channels[0]
    channel.rows(rows(1, 2, 3), 0)
    channel.resize(1)
    channel.flush()
    assert sent.batches() == [rows(1), rows(2), rows(3)]
    channel.resize(8)
    channel.rows(rows(*range(8)), 0)
    assert sent.batches()[3:] == [rows(*range(8))]


def test_an_unaligned_barrier_overtakes_what_is_left_of_a_batch() -> None:
    sent = Sent(1, rows=1, credit=2)
    channel = sent.channels[0]
    channel.rows(rows(1, 2, 3, 4), 0)
    barrier = Barrier(CheckpointId(1), 0, CheckpointOptions(alignment=AlignmentType.UNALIGNED))
    assert channel.barrier(barrier) == [rows(3, 4)]
    assert sent.batches() == [rows(1), rows(2), barrier]


# --- how much at once -----------------------------------------------------------------------------


def test_more_is_given_at_once_as_long_as_nothing_has_to_wait() -> None:
    sent = Sent(2, rows=4, credit=2)
    portion = sent.room.portion()
    assert portion.rows == 1
    for rows_given in (1, 8):
        sent.channels[0].rows(rows(*range(rows_given)), 0)
        portion.given(rows_given, rows_given)
    assert portion.rows == 64
    portion.given(3, 64)
    assert portion.rows == 64, "few rows of those that were allowed tell nothing"
    portion.given(60, 64)
    assert portion.rows > 64, "but who gives rows in groups cannot give all"


def test_where_less_than_half_a_batch_waits_more_is_given_with_care() -> None:
    sent = Sent(1, rows=100, credit=1)
    portion = sent.room.portion()
    channel = sent.channels[0]
    channel.rows(rows(*range(100)), 0)
    channel.arrow(ArrowBatch(pa.record_batch({"v": list(range(50))})))
    portion.given(50, 50)
    assert portion.rows == 100
    channel.arrow(ArrowBatch(pa.record_batch({"v": list(range(100))})))
    portion.given(100, 100)
    assert portion.rows == 100


def test_so_many_rows_are_given_at_once_that_no_channel_has_more_than_one_batch_waiting() -> None:
    sent = Sent(2, rows=1, credit=2)
    portion = sent.room.portion()
    first, second = sent.channels
    first.rows(rows(*range(12)), 0)
    second.rows(rows(*range(4)), 0)
    portion.given(20, 20)
    assert portion.rows == 2, "ten of twenty rows waited in one channel"
    first.granted(10)
    first.rows(rows(1, 2), 0)
    portion.given(2, 2)
    assert portion.rows == 1
    first.granted(2)
    first.rows(rows(1), 0)
    portion.given(1, 1)
    assert portion.rows == 1, "one batch waits, and more is not tried"


def test_a_channel_that_gets_nothing_holds_nothing_back() -> None:
    sent = Sent(2, rows=1_000)
    portion = sent.room.portion()
    sent.channels[1].resize(1)
    for count in (1, 8, 64, 512):
        sent.channels[0].rows(rows(*range(count)), 0)
        portion.given(count, count)
    assert portion.rows == 4_096


def test_what_waited_for_another_reason_is_forgotten() -> None:
    sent = Sent(1, rows=1, credit=1)
    portion = sent.room.portion()
    sent.channels[0].rows(rows(*range(12)), 0)
    portion.forget()
    portion.given(1, 1)
    assert portion.rows == 8


# --- credit ---------------------------------------------------------------------------------------


def test_without_credit_elements_wait_in_order_and_the_subtask_has_no_room() -> None:
    sent = Sent(2, rows=1, credit=1)
    first, second = sent.channels
    first.rows(rows(1), 0)
    first.rows(rows(2), 0)
    first.mark(Watermark(1))
    second.rows(rows(9), 0)
    second.rows(rows(10), 0)
    assert sent.room.waiting == 2
    assert sent.batches(0) == [rows(1)] and sent.batches(1) == [rows(9)]
    assert not first.granted(1), "the other one waits still"
    assert sent.room.waiting == 1
    assert sent.batches(0) == [rows(1), rows(2), Watermark(1)]
    assert second.granted(1)
    assert sent.room.waiting == 0
    assert not second.granted(1), "it had room by then"


def test_the_time_without_room_is_that_in_which_any_channel_waits() -> None:
    clock = ManualClock()
    room = Room(clock)
    assert room.waited_s == 0
    room.begin_wait()
    clock.advance(1_000)
    room.begin_wait()
    clock.advance(500)
    room.end_wait()
    assert room.waited_s == 1.5 and not room.is_free
    clock.advance(250)
    room.end_wait()
    clock.advance(10_000)
    assert room.waited_s == 1.75 and room.is_free
