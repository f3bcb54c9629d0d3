"""What holds for an aligning subtask whatever comes on its channels, and in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.barriers import (
    AbortedByDriver,
    AlignedBarriers,
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


@st.composite
def streams(draw: st.DrawFn) -> dict[ChannelId, list[int | str]]:
    """Channels with ascending barriers, some of which are cancelled or missing."""
    made: dict[ChannelId, list[int | str]] = {}
    for channel in CHANNELS[: draw(st.integers(1, 4))]:
        marks: list[int | str] = []
        for checkpoint in range(1, draw(st.integers(0, 6)) + 1):
            marks.extend(["row"] * draw(st.integers(0, 2)))
            mark = draw(st.sampled_from([checkpoint, checkpoint, checkpoint, -checkpoint, None]))
            marks += [] if mark is None else [mark]
        made[channel] = [*marks, *(["row"] * draw(st.integers(0, 1)))]
    return made


@pytest.mark.feature("F122", "F124")
@given(streams=streams(), data=st.data())
def test_no_row_behind_a_barrier_is_read_before_the_snapshot_and_nobody_waits_for_ever(
    streams: dict[ChannelId, list[int | str]], data: st.DataObject
) -> None:
    reader = Reader(streams)
    while reader.channels:
        assert reader.readable(), "every channel is blocked, and no barrier is left to come"
        reader.step(data.draw(st.sampled_from(reader.readable())))
        if data.draw(st.integers(0, 9)) == 0:
            aborted = AbortedByDriver(CheckpointId(data.draw(st.integers(1, 6))))
            reader.perform(reader.handler.handle(aborted, 0))
    assert reader.handler.aligning is None
    assert reader.snapshots == sorted(set(reader.snapshots))
    assert len(set(reader.declined)) == len(reader.declined)
    assert not set(reader.snapshots) & set(reader.declined)
