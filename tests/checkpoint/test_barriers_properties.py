"""What holds for an aligning subtask whatever comes on its channels, and in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.barriers.exactly_once import AlignedBarriers
from tidegate.checkpoint.barriers.protocol import (
    AbortedByDriver,
    BarrierArrived,
    BarrierCommand,
    Block,
    CancelArrived,
    ChannelEnded,
    Decline,
    Snapshot,
    Unblock,
)
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.ids import ChannelId, CheckpointId

CHANNELS = [ChannelId(0, producer, 0) for producer in range(4)]


def barrier(checkpoint: int) -> Barrier:
    return Barrier(CheckpointId(checkpoint), 0, CheckpointOptions())


@given(order=st.permutations(CHANNELS))
def test_snapshots_once_whatever_the_order_of_barriers(order: list[ChannelId]) -> None:
    barriers = AlignedBarriers(order)
    commands = [
        command
        for channel in order
        for command in barriers.handle(BarrierArrived(channel, barrier(1)), 0)
    ]
    assert commands.count(Snapshot(barrier(1), 0)) == 1
    assert commands[-1] == Unblock(tuple(order))


@dataclass
class Reader:
    """A subtask that reads its channels as the handler lets it.

    Each channel is a list of marks: a positive number is a barrier, a negative one a cancel
    barrier, "row" a batch; after its last one it ends.
    """

    channels: dict[ChannelId, list[int | str]]
    handler: AlignedBarriers = field(init=False)
    blocked: list[ChannelId] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    declined: list[int] = field(default_factory=list)
    read: dict[ChannelId, int] = field(default_factory=dict)
    behind: dict[ChannelId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.handler = AlignedBarriers(list(self.channels))

    def readable(self) -> list[ChannelId]:
        return [c for c in self.channels if c not in self.blocked]

    def step(self, channel: ChannelId) -> None:
        if not self.channels[channel]:
            del self.channels[channel]
            self.perform(self.handler.handle(ChannelEnded(channel), 0))
            return
        mark = self.channels[channel].pop(0)
        if mark == "row":
            pending = self.handler.aligning
            assert pending is None or self.behind.get(channel, 0) < pending, (
                "a row behind the barrier was read before the snapshot"
            )
            return
        assert isinstance(mark, int)
        self.behind[channel] = abs(mark)
        if mark > 0:
            self.perform(self.handler.handle(BarrierArrived(channel, barrier(mark)), 0))
        else:
            self.perform(self.handler.handle(CancelArrived(channel, CheckpointId(-mark)), 0))

    def perform(self, commands: list[BarrierCommand]) -> None:
        for command in commands:
            match command:
                case Block(channel):
                    assert channel not in self.blocked
                    self.blocked.append(channel)
                case Unblock(channels):
                    assert list(channels) == self.blocked
                    self.blocked = []
                case Snapshot(taken):
                    assert all(self.behind.get(c) == taken.checkpoint for c in self.channels)
                    self.snapshots.append(taken.checkpoint)
                case Decline(checkpoint):
                    self.declined.append(checkpoint)
                case _:
                    pass


MARKS = st.lists(
    st.sampled_from(["row", "barrier", "barrier", "barrier", "cancel", "none"]), max_size=9
)


def stream(marks: list[str]) -> list[int | str]:
    """Marks of one channel: each but a row is about the next checkpoint."""
    made: list[int | str] = []
    checkpoint = 0
    for mark in marks:
        checkpoint += mark != "row"
        if mark != "none":
            made.append({"row": "row", "barrier": checkpoint, "cancel": -checkpoint}[mark])
    return made


@pytest.mark.feature("F122", "F124")
@given(
    marks=st.lists(MARKS, min_size=1, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    aborts=st.dictionaries(st.integers(0, 40), st.integers(1, 6), max_size=3),
)
def test_no_row_behind_a_barrier_is_read_before_the_snapshot_and_nobody_waits_for_ever(
    marks: list[list[str]], order: list[int], aborts: dict[int, int]
) -> None:
    reader = Reader(dict(zip(CHANNELS, map(stream, marks), strict=False)))
    step = 0
    while reader.channels:
        readable = reader.readable()
        assert readable, "every channel is blocked, and no barrier is left to come"
        reader.step(readable[order[step % len(order)] % len(readable)])
        if step in aborts:
            aborted = AbortedByDriver(CheckpointId(aborts[step]))
            reader.perform(reader.handler.handle(aborted, 0))
        step += 1
    assert reader.handler.aligning is None
    assert reader.snapshots == sorted(set(reader.snapshots))
    assert len(set(reader.declined)) == len(reader.declined)
    assert not set(reader.snapshots) & set(reader.declined)
