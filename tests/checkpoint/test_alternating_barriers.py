"""Each row of the table of checkpoint coordination §14.3, as far as it can be seen from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.checkpoint.barriers.exactly_once import AlignedBarriers, AlternatingBarriers
from tidegate.checkpoint.barriers.modes import make_barrier_handler
from tidegate.checkpoint.barriers.protocol import (
    AbortedByDriver,
    BarrierAnnounced,
    BarrierArrived,
    BarrierCommand,
    Block,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    EndAnnounced,
    FinishPersisting,
    GiveUp,
    Persist,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)
from tidegate.checkpoint.barriers.tracker import BarrierTracker
from tidegate.model.elements import AlignmentType, Barrier, CheckpointOptions
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ChannelId, CheckpointId
from tidegate.model.settings import CheckpointingMode, CheckpointSettings

A, B, C = (ChannelId(0, producer, 0) for producer in range(3))
UNALIGNED = CheckpointOptions(alignment=AlignmentType.UNALIGNED)
TIMED = CheckpointOptions(aligned_timeout_ms=100)
ALIGNED = CheckpointOptions()

SUBSUMED = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
ON_CANCEL = FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
END_OF_STREAM = FailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM


def barrier(checkpoint: int, options: CheckpointOptions = UNALIGNED) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 1_000 * checkpoint, options)


class Handler:
    """The handler, with words for what happens to it."""

    def __init__(self, *channels: ChannelId, after_tasks_finish: bool = True) -> None:
        self.handler = AlternatingBarriers(channels, after_tasks_finish=after_tasks_finish)
        self.now_ms = 0

    def comes(
        self,
        channel: ChannelId,
        checkpoint: int,
        options: CheckpointOptions = UNALIGNED,
        *,
        age_ms: int = 0,
        queued: bool = True,
    ) -> list[BarrierCommand]:
        """A barrier comes into the channel's queue; or, not ``queued``, its announcement."""
        event = BarrierAnnounced(channel, barrier(checkpoint, options), queued, age_ms)
        return self.handler.handle(event, self.now_ms)

    def read(
        self, channel: ChannelId, checkpoint: int, options: CheckpointOptions = UNALIGNED
    ) -> list[BarrierCommand]:
        """A barrier is the next element of its channel."""
        event = BarrierArrived(channel, barrier(checkpoint, options))
        return self.handler.handle(event, self.now_ms)

    def passes(self, ms: int) -> list[BarrierCommand]:
        self.now_ms += ms
        return self.handler.handle(TimeReached(), self.now_ms)


def snapshot(checkpoint: int, alignment_ms: int = 0) -> Snapshot:
    return Snapshot(barrier(checkpoint), alignment_ms)


def timed_out(checkpoint: int, alignment_ms: int) -> Snapshot:
    options = replace(TIMED, alignment=AlignmentType.UNALIGNED)
    return Snapshot(barrier(checkpoint, options), alignment_ms)


def persist(checkpoint: int, *channels: ChannelId) -> Persist:
    return Persist(CheckpointId(checkpoint), channels)


def finish(checkpoint: int, alignment_ms: int = 0) -> FinishPersisting:
    return FinishPersisting(CheckpointId(checkpoint), alignment_ms)


def given_up(checkpoint: int, reason: FailureReason) -> list[BarrierCommand]:
    return [Decline(CheckpointId(checkpoint), reason), Cancel(CheckpointId(checkpoint))]


@pytest.mark.feature("F131")
@pytest.mark.parametrize(
    ("settings", "handler"),
    [
        (CheckpointSettings(), AlignedBarriers),
        (CheckpointSettings(unaligned=True), AlternatingBarriers),
        (CheckpointSettings(mode=CheckpointingMode.AT_LEAST_ONCE), BarrierTracker),
    ],
)
def test_the_mode_decides_the_handler(settings: CheckpointSettings, handler: type) -> None:
    assert type(make_barrier_handler(settings, [A])) is handler


# --- unaligned ------------------------------------------------------------------------------------


@pytest.mark.feature("F120", "F237")
def test_the_first_barrier_brings_the_snapshot_at_once_and_the_last_the_end() -> None:
    handler = Handler(A, B)
    assert handler.comes(A, 1) == [snapshot(1), persist(1, A, B)]
    assert handler.handler.aligning == 1
    handler.now_ms = 30
    assert handler.comes(B, 1) == [finish(1, 30)]
    assert handler.handler.aligning is None


def test_no_channel_is_blocked_and_a_barrier_that_is_read_later_changes_nothing() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1)
    assert handler.read(A, 1) == []
    handler.comes(B, 1)
    assert handler.read(B, 1) == []


def test_of_one_channel_the_first_barrier_is_the_last() -> None:
    assert Handler(A).comes(A, 1) == [snapshot(1), persist(1, A), finish(1)]


def test_a_source_has_nothing_to_persist() -> None:
    source = AlternatingBarriers([])
    assert source.handle(TriggeredByDriver(barrier(1)), 0) == [snapshot(1), finish(1)]


def test_a_trigger_where_all_producers_have_finished_persists_what_they_left() -> None:
    handler = Handler(A, B)
    assert handler.handler.handle(EndAnnounced(A), 0) == []
    assert handler.handler.handle(TriggeredByDriver(barrier(1)), 0) == [
        snapshot(1),
        persist(1, A, B),
    ]
    assert handler.handler.handle(EndAnnounced(B), 5) == [finish(1, 5)]


def test_an_end_counts_when_it_has_come_not_when_it_is_read() -> None:
    handler = Handler(A, B)
    handler.handler.handle(EndAnnounced(B), 0)
    assert handler.comes(A, 1) == [snapshot(1), persist(1, A, B), finish(1)]
    assert handler.handler.handle(ChannelEnded(B), 0) == []
    assert handler.comes(A, 2) == [snapshot(2), persist(2, A), finish(2)]


def test_an_end_gives_a_checkpoint_up_where_finished_tasks_forbid_them() -> None:
    handler = Handler(A, B, after_tasks_finish=False)
    handler.comes(A, 1)
    assert handler.handler.handle(EndAnnounced(B), 0) == []
    assert handler.handler.handle(ChannelEnded(B), 0) == [
        GiveUp(CheckpointId(1)),
        *given_up(1, END_OF_STREAM),
    ]


def test_a_newer_barrier_gives_up_what_is_not_whole() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1)
    assert handler.comes(A, 2) == [
        GiveUp(CheckpointId(1)),
        *given_up(1, SUBSUMED),
        snapshot(2),
        persist(2, A, B),
    ]
    assert handler.comes(B, 1) == [], "obsolete"
    assert handler.comes(B, 2) == [finish(2)]


def test_a_cancel_barrier_gives_up_what_is_not_whole() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1)
    assert handler.handler.handle(CancelArrived(B, CheckpointId(1)), 0) == [
        GiveUp(CheckpointId(1)),
        *given_up(1, ON_CANCEL),
    ]
    assert handler.comes(B, 1) == []


def test_the_driver_gives_up_what_is_not_whole() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1)
    assert handler.handler.handle(AbortedByDriver(CheckpointId(1)), 0) == [
        GiveUp(CheckpointId(1)),
        Cancel(CheckpointId(1)),
    ]
    assert handler.comes(B, 1) == []


def test_a_checkpoint_given_up_ahead_is_never_cut() -> None:
    handler = Handler(A, B)
    handler.handler.handle(AbortedByDriver(CheckpointId(1)), 0)
    assert handler.comes(A, 1) == [Cancel(CheckpointId(1))]
    assert handler.comes(B, 1) == []


# --- aligned, with a time limit -------------------------------------------------------------------


@pytest.mark.feature("F238")
def test_barriers_in_time_are_aligned() -> None:
    handler = Handler(A, B)
    assert handler.comes(A, 1, TIMED) == []
    assert handler.read(A, 1, TIMED) == [Block(A)]
    handler.now_ms = 90
    assert handler.comes(B, 1, TIMED) == []
    assert handler.read(B, 1, TIMED) == [
        Block(B),
        Snapshot(barrier(1, TIMED), 90),
        Unblock((A, B)),
    ]
    assert handler.handler.wake_at_ms is None
    assert handler.passes(1_000) == []


@pytest.mark.feature("F238")
def test_after_the_time_to_align_barriers_overtake() -> None:
    handler = Handler(A, B, C)
    handler.comes(A, 1, TIMED, age_ms=40)
    handler.read(A, 1, TIMED)
    handler.comes(B, 1, TIMED, age_ms=41)
    assert handler.handler.wake_at_ms == 60, "40 ms of 100 had passed already"
    assert handler.passes(59) == []
    assert handler.passes(1) == [timed_out(1, 60), persist(1, B, C), Unblock((A,))]
    assert handler.read(B, 1, TIMED) == []
    handler.now_ms = 70
    assert handler.comes(C, 1, TIMED) == [finish(1, 70)]


def test_the_last_channel_may_be_waited_for_alone() -> None:
    handler = Handler(A, B)
    for channel in (A, B):
        handler.comes(channel, 1, TIMED)
    handler.read(A, 1, TIMED)
    assert handler.passes(100) == [
        timed_out(1, 100),
        persist(1, B),
        Unblock((A,)),
        finish(1, 100),
    ]


@pytest.mark.feature("F236")
def test_an_announcement_starts_the_time_of_a_barrier_that_is_still_to_come() -> None:
    handler = Handler(A, B)
    assert handler.comes(A, 1, TIMED, queued=False) == []
    assert handler.passes(100) == [timed_out(1, 100), persist(1, A, B)]
    assert handler.comes(A, 1, TIMED) == []
    assert handler.comes(B, 1, TIMED) == [finish(1, 100)]


def test_a_barrier_that_its_sender_has_hastened_makes_the_others_hurry() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1, TIMED)
    handler.read(A, 1, TIMED)
    hastened = TIMED.turned_unaligned()
    assert handler.comes(B, 1, hastened) == [
        timed_out(1, 0),
        persist(1, B),
        Unblock((A,)),
        finish(1),
    ]
    assert handler.handler.wake_at_ms is None


def test_the_time_of_a_checkpoint_that_is_given_up_does_not_come() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1, TIMED)
    handler.read(A, 1, TIMED)
    assert handler.handler.handle(AbortedByDriver(CheckpointId(1)), 0) == [
        Unblock((A,)),
        Cancel(CheckpointId(1)),
    ]
    assert handler.handler.wake_at_ms is None
    assert handler.passes(200) == []


def test_an_aligned_checkpoint_is_complete_when_the_last_channel_ends() -> None:
    handler = Handler(A, B)
    handler.comes(A, 1, TIMED)
    handler.read(A, 1, TIMED)
    handler.handler.handle(EndAnnounced(B), 0)
    assert handler.handler.handle(ChannelEnded(B), 0) == [
        Snapshot(barrier(1, TIMED), 0),
        Unblock((A,)),
    ]


# --- forced to align ------------------------------------------------------------------------------


@pytest.mark.feature("F240")
@pytest.mark.parametrize("options", [UNALIGNED, TIMED])
def test_where_nothing_may_be_overtaken_it_aligns_and_gives_the_kind_back(
    options: CheckpointOptions,
) -> None:
    forced = options.forced_aligned()
    assert forced.alignment is AlignmentType.FORCED_ALIGNED
    handler = Handler(A, B)
    assert handler.comes(A, 1, forced) == []
    assert handler.read(A, 1, forced) == [Block(A)]
    assert handler.handler.wake_at_ms is None
    assert handler.comes(B, 1, forced) == []
    assert handler.read(B, 1, forced) == [
        Block(B),
        Snapshot(barrier(1, options), 0),
        *([finish(1)] if options.is_unaligned else []),
        Unblock((A, B)),
    ]


def test_a_savepoint_is_aligned_whatever_the_checkpoints_are() -> None:
    handler = Handler(A, B)
    assert ALIGNED.forced_aligned() == ALIGNED
    assert handler.comes(A, 1, ALIGNED) == []
    handler.read(A, 1, ALIGNED)
    assert handler.read(B, 1, ALIGNED)[1] == Snapshot(barrier(1, ALIGNED), 0)
