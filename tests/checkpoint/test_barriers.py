"""Each row of the tables of checkpoint coordination §14.1 and §14.2."""

from __future__ import annotations

import pytest

from tidegate.checkpoint.barriers.exactly_once import AlignedBarriers
from tidegate.checkpoint.barriers.modes import make_barrier_handler
from tidegate.checkpoint.barriers.protocol import (
    ABORTED_MAX,
    AbortedByDriver,
    BarrierAnnounced,
    BarrierArrived,
    BarrierCommand,
    BarrierEvent,
    Block,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    EndAnnounced,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ChannelId, CheckpointId
from tidegate.model.settings import CheckpointSettings

A, B, C = (ChannelId(0, producer, 0) for producer in range(3))


def barrier(checkpoint: int) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 1_000 * checkpoint, CheckpointOptions())


def arrives(
    handler: AlignedBarriers, channel: ChannelId, checkpoint: int, now_ms: int = 0
) -> list[BarrierCommand]:
    return handler.handle(BarrierArrived(channel, barrier(checkpoint)), now_ms)


def cancelled(
    handler: AlignedBarriers, channel: ChannelId, checkpoint: int
) -> list[BarrierCommand]:
    return handler.handle(CancelArrived(channel, CheckpointId(checkpoint)), 0)


def given_up(checkpoint: int, reason: FailureReason) -> list[BarrierCommand]:
    return [Decline(CheckpointId(checkpoint), reason), Cancel(CheckpointId(checkpoint))]


SUBSUMED = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
ON_CANCEL = FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
END_OF_STREAM = FailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM


def test_a_channel_is_blocked_from_its_barrier_on() -> None:
    handler = AlignedBarriers([A, B])
    assert arrives(handler, A, 1) == [Block(A)]
    assert handler.aligning == 1


@pytest.mark.feature("F124", "F125")
def test_the_last_barrier_brings_the_snapshot_and_only_then_the_channels_back() -> None:
    handler = AlignedBarriers([A, B, C])
    assert arrives(handler, B, 1, now_ms=10) == [Block(B)]
    assert arrives(handler, A, 1, now_ms=14) == [Block(A)]
    assert arrives(handler, C, 1, now_ms=25) == [
        Block(C),
        Snapshot(barrier(1), alignment_ms=15),
        Unblock((B, A, C)),
    ]
    assert handler.aligning is None


def test_alignment_takes_from_the_first_barrier_to_the_last() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1, now_ms=100)
    assert Snapshot(barrier(1), alignment_ms=250) in arrives(handler, B, 1, now_ms=350)


def test_one_channel_alone_is_aligned_at_once() -> None:
    handler = AlignedBarriers([A])
    assert arrives(handler, A, 1) == [Block(A), Snapshot(barrier(1), 0), Unblock((A,))]


def test_checkpoints_follow_one_another() -> None:
    handler = AlignedBarriers([A, B])
    for checkpoint in (1, 2, 5):
        arrives(handler, A, checkpoint)
        assert Snapshot(barrier(checkpoint), 0) in arrives(handler, B, checkpoint)


def test_a_newer_barrier_gives_up_the_older_checkpoint() -> None:
    handler = AlignedBarriers([A, B, C])
    arrives(handler, A, 1)
    assert arrives(handler, B, 2) == [Unblock((A,)), *given_up(1, SUBSUMED), Block(B)]
    assert handler.aligning == 2


def test_a_barrier_of_a_checkpoint_that_was_given_up_changes_nothing() -> None:
    handler = AlignedBarriers([A, B, C])
    arrives(handler, A, 1)
    arrives(handler, B, 2)
    assert arrives(handler, C, 1) == []


def test_a_barrier_of_a_completed_checkpoint_changes_nothing() -> None:
    handler = AlignedBarriers([A, B])
    handler.handle(TriggeredByDriver(barrier(3)), 0)
    handler.handle(ChannelEnded(A), 0)
    arrives(handler, B, 3)
    assert handler.aligning is None
    assert arrives(handler, B, 3) == []
    assert arrives(handler, B, 2) == []


def test_a_cancel_barrier_gives_up_the_checkpoint_that_is_aligning() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    assert cancelled(handler, B, 1) == [Unblock((A,)), *given_up(1, ON_CANCEL)]
    assert arrives(handler, A, 2) == [Block(A)]


@pytest.mark.feature("F245")
def test_a_cancel_barrier_that_comes_before_any_barrier_gives_its_checkpoint_up() -> None:
    handler = AlignedBarriers([A, B])
    assert cancelled(handler, A, 1) == given_up(1, ON_CANCEL)
    assert arrives(handler, B, 1) == []


def test_a_cancel_barrier_of_a_newer_checkpoint_gives_up_the_older_one_too() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    assert cancelled(handler, B, 2) == [
        Unblock((A,)),
        *given_up(1, SUBSUMED),
        *given_up(2, ON_CANCEL),
    ]


def test_a_cancel_barrier_that_is_late_changes_nothing() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 2)
    assert cancelled(handler, B, 1) == []
    arrives(handler, B, 2)
    assert cancelled(handler, B, 2) == []


def test_a_channel_that_ends_counts_as_having_delivered_its_barrier() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    assert handler.handle(ChannelEnded(B), 7) == [Snapshot(barrier(1), 7), Unblock((A,))]
    assert arrives(handler, A, 2) == [Block(A), Snapshot(barrier(2), 0), Unblock((A,))]


def test_a_channel_that_ends_while_nothing_is_aligned_is_only_forgotten() -> None:
    handler = AlignedBarriers([A, B, C])
    assert handler.handle(ChannelEnded(C), 0) == []
    assert arrives(handler, A, 1) == [Block(A)]


def test_an_end_gives_the_checkpoint_up_where_finished_tasks_take_no_part() -> None:
    handler = AlignedBarriers([A, B, C], after_tasks_finish=False)
    arrives(handler, A, 1)
    assert handler.handle(ChannelEnded(B), 0) == [Unblock((A,)), *given_up(1, END_OF_STREAM)]
    assert arrives(handler, C, 1) == []


def test_a_source_takes_its_snapshot_when_the_driver_asks() -> None:
    handler = AlignedBarriers([])
    assert handler.handle(TriggeredByDriver(barrier(1)), 0) == [Snapshot(barrier(1), 0)]
    assert handler.handle(TriggeredByDriver(barrier(1)), 0) == []


def test_a_trigger_behind_finished_producers_waits_for_the_ends_of_their_channels() -> None:
    handler = AlignedBarriers([A, B])
    assert handler.handle(TriggeredByDriver(barrier(1)), 0) == []
    assert handler.handle(ChannelEnded(A), 1) == []
    assert handler.handle(ChannelEnded(B), 2) == [Snapshot(barrier(1), 2)]


def test_an_abort_by_the_driver_lets_the_channels_go() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    assert handler.handle(AbortedByDriver(CheckpointId(1)), 0) == [
        Unblock((A,)),
        Cancel(CheckpointId(1)),
    ]
    assert arrives(handler, B, 1) == []


def test_an_abort_of_a_newer_checkpoint_leaves_the_older_alignment_alone() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    assert handler.handle(AbortedByDriver(CheckpointId(2)), 0) == []
    assert Snapshot(barrier(1), 0) in arrives(handler, B, 1)
    assert arrives(handler, A, 2) == [Cancel(CheckpointId(2))]
    assert arrives(handler, B, 2) == []


def test_an_abort_that_is_late_changes_nothing() -> None:
    handler = AlignedBarriers([A])
    arrives(handler, A, 3)
    assert handler.handle(AbortedByDriver(CheckpointId(2)), 0) == []
    assert Snapshot(barrier(4), 0) in arrives(handler, A, 4)


def test_of_too_many_aborts_the_older_ones_are_remembered_as_all_that_is_older() -> None:
    handler = AlignedBarriers([A])
    for checkpoint in range(2, 2 * ABORTED_MAX + 4, 2):
        handler.handle(AbortedByDriver(CheckpointId(checkpoint)), 0)
    for checkpoint in (1, 2):
        assert arrives(handler, A, checkpoint) == [Cancel(CheckpointId(checkpoint))]
    assert Snapshot(barrier(3), 0) in arrives(handler, A, 3)
    assert arrives(handler, A, 4) == [Cancel(CheckpointId(4))]


WAITING: tuple[BarrierEvent, ...] = ()
COLLECTING: tuple[BarrierEvent, ...] = (BarrierArrived(A, barrier(1)),)
TABLE = {
    "waiting, a barrier, not all": (WAITING, BarrierArrived(A, barrier(1)), [Block(A)], 1),
    "waiting, an end": (WAITING, ChannelEnded(C), [], None),
    "waiting, an abort": (WAITING, AbortedByDriver(CheckpointId(1)), [], None),
    "waiting, an announcement": (
        WAITING,
        BarrierAnnounced(A, barrier(1), queued=True, age_ms=0),
        [],
        None,
    ),
    "waiting, time passes": (WAITING, TimeReached(), [], None),
    "collecting, a barrier, not all": (
        COLLECTING,
        BarrierArrived(B, barrier(1)),
        [Block(B)],
        1,
    ),
    "collecting, the last barrier": (
        (*COLLECTING, BarrierArrived(B, barrier(1))),
        BarrierArrived(C, barrier(1)),
        [Block(C), Snapshot(barrier(1), 0), Unblock((A, B, C))],
        None,
    ),
    "collecting, an end, not all": (COLLECTING, ChannelEnded(B), [], 1),
    "collecting, the last end": (
        (*COLLECTING, ChannelEnded(B)),
        ChannelEnded(C),
        [Snapshot(barrier(1), 0), Unblock((A,))],
        None,
    ),
    "collecting, an abort": (
        COLLECTING,
        AbortedByDriver(CheckpointId(1)),
        [Unblock((A,)), Cancel(CheckpointId(1))],
        None,
    ),
    "collecting, an announcement": (COLLECTING, EndAnnounced(B), [], 1),
}
"""State and event of §14.2; what is commanded, and which checkpoint is aligning then."""


@pytest.mark.feature("F123")
@pytest.mark.parametrize("row", TABLE)
def test_each_row_of_the_table_of_states(row: str) -> None:
    before, event, commands, aligning = TABLE[row]
    handler = AlignedBarriers([A, B, C])
    for earlier in before:
        handler.handle(earlier, 0)
    assert handler.handle(event, 0) == commands
    assert handler.aligning == aligning


def test_time_alone_changes_nothing() -> None:
    handler = make_barrier_handler(CheckpointSettings(), [A, B])
    assert handler.wake_at_ms is None
    assert handler.handle(TimeReached(), 99) == []


@pytest.mark.parametrize("event", [BarrierArrived(C, barrier(1)), ChannelEnded(C)])
def test_what_an_ended_channel_brings_is_a_fault_of_our_own(
    event: BarrierArrived | ChannelEnded,
) -> None:
    handler = AlignedBarriers([A, B, C])
    handler.handle(ChannelEnded(C), 0)
    with pytest.raises(AssertionError):
        handler.handle(event, 0)


def test_reading_a_blocked_channel_is_a_fault_of_our_own() -> None:
    handler = AlignedBarriers([A, B])
    arrives(handler, A, 1)
    with pytest.raises(AssertionError, match="while it was blocked"):
        arrives(handler, A, 2)
