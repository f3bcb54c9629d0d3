"""Each rule of checkpoint coordination §14.4: nobody is held back, snapshots come at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.barriers.exactly_once import AlignedBarriers
from tidegate.checkpoint.barriers.modes import make_barrier_handler
from tidegate.checkpoint.barriers.protocol import (
    ABORTED_MAX,
    AbortedByDriver,
    BarrierArrived,
    BarrierCommand,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
)
from tidegate.checkpoint.barriers.tracker import COUNTED_MAX, BarrierTracker
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ChannelId, CheckpointId
from tidegate.model.settings import CheckpointingMode, CheckpointSettings

A, B, C = CHANNELS = [ChannelId(0, producer, 0) for producer in range(3)]


def barrier(checkpoint: int) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 1_000 * checkpoint, CheckpointOptions())


def arrives(
    tracker: BarrierTracker, channel: ChannelId, checkpoint: int, now_ms: int = 0
) -> list[BarrierCommand]:
    return tracker.handle(BarrierArrived(channel, barrier(checkpoint)), now_ms)


def cancelled(tracker: BarrierTracker, channel: ChannelId, checkpoint: int) -> list[BarrierCommand]:
    return tracker.handle(CancelArrived(channel, CheckpointId(checkpoint)), 0)


def given_up(checkpoint: int, reason: FailureReason) -> list[BarrierCommand]:
    return [Decline(CheckpointId(checkpoint), reason), Cancel(CheckpointId(checkpoint))]


CANCELLED = FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
SUBSUMED = FailureReason.CHECKPOINT_DECLINED_SUBSUMED


def test_the_mode_decides_the_handler() -> None:
    modes = {
        CheckpointingMode.AT_LEAST_ONCE: BarrierTracker,
        CheckpointingMode.EXACTLY_ONCE: AlignedBarriers,
    }
    for mode, handler in modes.items():
        assert type(make_barrier_handler(CheckpointSettings(mode=mode), [A])) is handler


@pytest.mark.feature("F130")
def test_the_last_barrier_brings_the_snapshot_and_no_channel_waits_for_it() -> None:
    tracker = BarrierTracker(CHANNELS)
    assert arrives(tracker, A, 1, 10) == []
    assert arrives(tracker, B, 1, 20) == []
    assert tracker.aligning == 1
    assert arrives(tracker, C, 1, 35) == [Snapshot(barrier(1), 25)]
    assert tracker.aligning is None and tracker.wake_at_ms is None


def test_a_single_channel_brings_the_snapshot_at_once() -> None:
    assert arrives(BarrierTracker([A]), A, 4) == [Snapshot(barrier(4), 0)]


def test_several_checkpoints_are_counted_at_a_time() -> None:
    tracker = BarrierTracker([A, B])
    for checkpoint in (1, 2, 3):
        assert arrives(tracker, A, checkpoint) == []
    for checkpoint in (1, 2, 3):
        assert arrives(tracker, B, checkpoint) == [Snapshot(barrier(checkpoint), 0)]


def test_a_snapshot_makes_what_is_older_obsolete() -> None:
    tracker = BarrierTracker(CHANNELS)
    arrives(tracker, A, 1)
    arrives(tracker, A, 2)
    arrives(tracker, B, 2)
    assert arrives(tracker, C, 2) == [Snapshot(barrier(2), 0)]
    assert arrives(tracker, B, 1) == arrives(tracker, C, 1) == []


def test_the_oldest_of_too_many_is_forgotten() -> None:
    tracker = BarrierTracker([A, B])
    for checkpoint in range(1, COUNTED_MAX + 2):
        arrives(tracker, A, checkpoint)
    assert arrives(tracker, B, 1) == []
    assert arrives(tracker, B, 2) == [Snapshot(barrier(2), 0)]


def test_a_cancel_barrier_is_told_once_and_the_rest_still_counted() -> None:
    tracker = BarrierTracker(CHANNELS)
    arrives(tracker, A, 1)
    assert cancelled(tracker, B, 1) == given_up(1, CANCELLED)
    assert cancelled(tracker, C, 1) == []
    assert tracker.aligning is None
    assert arrives(tracker, A, 2) == []


def test_a_cancel_barrier_gives_up_what_is_older_too() -> None:
    tracker = BarrierTracker([A, B])
    arrives(tracker, A, 1)
    arrives(tracker, A, 2)
    assert cancelled(tracker, B, 2) == given_up(1, SUBSUMED) + given_up(2, CANCELLED)


def test_a_cancel_barrier_may_come_before_all_barriers() -> None:
    tracker = BarrierTracker([A, B])
    assert cancelled(tracker, A, 3) == given_up(3, CANCELLED)
    assert arrives(tracker, B, 3) == []
    assert cancelled(BarrierTracker([A]), A, 3) == given_up(3, CANCELLED)


def test_a_cancel_barrier_of_what_is_over_changes_nothing() -> None:
    tracker = BarrierTracker([A])
    arrives(tracker, A, 3)
    assert cancelled(tracker, A, 3) == cancelled(tracker, A, 2) == []


def test_a_channel_that_ends_counts_as_having_delivered_and_the_newest_wins() -> None:
    tracker = BarrierTracker([A, B])
    arrives(tracker, A, 1)
    arrives(tracker, A, 2)
    assert tracker.handle(ChannelEnded(B), 0) == [Snapshot(barrier(2), 0)]
    assert arrives(tracker, A, 3) == [Snapshot(barrier(3), 0)]


def test_without_checkpoints_after_tasks_finish_an_end_gives_all_up() -> None:
    tracker = BarrierTracker([A, B], after_tasks_finish=False)
    arrives(tracker, A, 1)
    arrives(tracker, A, 2)
    ended = FailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
    assert tracker.handle(ChannelEnded(B), 0) == given_up(1, ended) + given_up(2, ended)


def test_a_trigger_of_the_driver_waits_for_open_channels_to_end() -> None:
    tracker = BarrierTracker([A, B])
    assert tracker.handle(TriggeredByDriver(barrier(1)), 5) == []
    assert tracker.handle(ChannelEnded(A), 6) == []
    assert tracker.handle(ChannelEnded(B), 9) == [Snapshot(barrier(1), 4)]
    assert tracker.handle(TriggeredByDriver(barrier(2)), 9) == [Snapshot(barrier(2), 0)]


def test_what_the_driver_gave_up_is_passed_on_once() -> None:
    tracker = BarrierTracker([A, B])
    arrives(tracker, A, 1)
    assert tracker.handle(AbortedByDriver(CheckpointId(1)), 0) == [Cancel(CheckpointId(1))]
    assert tracker.handle(AbortedByDriver(CheckpointId(1)), 0) == []
    assert arrives(tracker, B, 1) == []
    assert tracker.handle(AbortedByDriver(CheckpointId(2)), 0) == []
    assert arrives(tracker, A, 2) == [Cancel(CheckpointId(2))]
    assert arrives(tracker, B, 2) == []
    assert tracker.handle(AbortedByDriver(CheckpointId(2)), 0) == []


def test_of_too_many_aborts_none_is_forgotten() -> None:
    tracker = BarrierTracker([A])
    for checkpoint in range(1, ABORTED_MAX + 2):
        tracker.handle(AbortedByDriver(CheckpointId(checkpoint)), 0)
    for checkpoint in (1, 2):
        assert arrives(tracker, A, checkpoint) == [Cancel(CheckpointId(checkpoint))]
    assert arrives(tracker, A, ABORTED_MAX + 2) == [Snapshot(barrier(ABORTED_MAX + 2), 0)]


def test_time_alone_changes_nothing() -> None:
    assert BarrierTracker([A]).handle(TimeReached(), 99) == []


@pytest.mark.parametrize(
    "event",
    [BarrierArrived(C, barrier(1)), CancelArrived(C, CheckpointId(1)), ChannelEnded(C)],
)
def test_what_an_ended_channel_brings_is_a_fault_of_our_own(
    event: BarrierArrived | CancelArrived | ChannelEnded,
) -> None:
    tracker = BarrierTracker(CHANNELS)
    tracker.handle(ChannelEnded(C), 0)
    with pytest.raises(AssertionError):
        tracker.handle(event, 0)


MARKS = st.lists(st.sampled_from(["barrier", "barrier", "barrier", "cancel", "none"]), max_size=9)


@given(
    marks=st.lists(MARKS, min_size=1, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=1, max_size=20),
)
def test_a_snapshot_has_all_before_its_barriers_and_each_checkpoint_one_outcome(
    marks: list[list[str]], order: list[int]
) -> None:
    left = {
        channel: [(mark, number) for number, mark in enumerate(each, 1) if mark != "none"]
        for channel, each in zip(CHANNELS, marks, strict=False)
    }
    tracker = BarrierTracker(list(left))
    seen = dict.fromkeys(left, 0)
    taken: list[int] = []
    declined: list[int] = []
    step = 0
    while left:
        channel = list(left)[order[step % len(order)] % len(left)]
        step += 1
        if not left[channel]:
            del left[channel], seen[channel]
            commands = tracker.handle(ChannelEnded(channel), 0)
        else:
            mark, number = left[channel].pop(0)
            seen[channel] = number
            arrived = arrives if mark == "barrier" else cancelled
            commands = arrived(tracker, channel, number)
        for command in commands:
            if isinstance(command, Snapshot):
                assert all(number >= command.barrier.checkpoint for number in seen.values())
                taken.append(command.barrier.checkpoint)
            elif isinstance(command, Decline):
                declined.append(command.checkpoint)
            else:
                assert isinstance(command, Cancel)
    assert tracker.aligning is None
    assert taken == sorted(set(taken))
    assert len(set(declined)) == len(declined)
    assert not set(taken) & set(declined)
