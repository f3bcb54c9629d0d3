"""A large share of a checkpoint: written while it is encoded, with a part of it in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from flinkformat.handles import ByteStreamStateHandle, InputChannelStateHandle
from tests.state.files_world import Driver
from tests.state.world import Subtask, merged, restored
from tidegate.api.state import ValueStateDescriptor
from tidegate.errors import StorageFailed
from tidegate.model.control import CheckpointFigures
from tidegate.model.elements import AlignmentType, Barrier, CheckpointOptions
from tidegate.model.files import FileChecksum
from tidegate.model.ids import CheckpointId, OperatorId
from tidegate.model.settings import CheckpointSettings
from tidegate.slot.channel_state import ChannelStateResult
from tidegate.slot.subtask.snapshot import SnapshotTimes, SubtaskSnapshot
from tidegate.storage.stores import Stores
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from tidegate.storage.places import Place

TEXT = ValueStateDescriptor("text", Types.STRING())
OPERATOR = OperatorId(bytes(16))
CHECKSUM = FileChecksum(1, 2)
PART = 1_000
GROUP = 2_500
"""Bytes of a key group, at most."""


class Share:
    """One subtask's share with some 40,000 bytes of state, and the folder that it goes to."""

    def __init__(self, folder: Path, *, durable: Sequence[Awaitable[None]] = ()) -> None:
        settings = CheckpointSettings(
            storage="filesystem", directory=str(folder), inline_threshold_bytes=0
        )
        self.folder = folder
        self.driver = Driver(settings, Stores())
        self.place: Place = self.driver.place(1)
        self.subtask = Subtask(step_ms=1_000, max_parallelism=32)  # each slice is one piece
        state = self.subtask.backend.keyed_state(TEXT)
        for key in range(500):
            self.subtask.on(key)
            state.update(f"{key:080}")
        self.before = self.subtask.dump("text")
        self.pending = self.subtask.backend.snapshot(CheckpointId(1))
        barrier = Barrier(CheckpointId(1), 0, CheckpointOptions())
        in_flight = ChannelStateResult(barrier)
        in_flight.complete((), (), {})
        self.snapshot = SubtaskSnapshot(
            barrier,
            [(OPERATOR, self.pending)],
            durable,
            in_flight,
            (OPERATOR, OPERATOR),
            SnapshotTimes(0.0, 0.0, 0, 0, 0),
            part_bytes=PART,
            after_finish=False,
        )
        self.fails_at = -1
        self.calls = 0

    async def run_blocking(self, call: Callable[[], object]) -> object:
        """Runs it a turn of the loop later."""
        await asyncio.sleep(0)
        self.calls += 1
        if self.calls == self.fails_at:
            raise StorageFailed("the disk is full")
        return call()

    async def encode(self, slices: int = 10_000) -> list[int]:
        """Encode as a slot does; the bytes that waited behind each slice."""
        waited: list[int] = []
        while len(waited) < slices:
            if not self.snapshot.is_held_up and self.snapshot.encode(0.1):
                break
            waited.append(self.pending.waiting)
            await asyncio.sleep(0)
        return waited

    def ready(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.snapshot.ready(self.place, self.run_blocking, lambda: None))

    def files(self) -> list[Path]:
        return [file for file in self.folder.rglob("*") if file.is_file()]


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share(tmp_path)


def test_no_more_than_some_parts_are_in_memory_and_all_is_restored(share: Share) -> None:
    async def work() -> None:
        ready = share.ready()
        waited = await share.encode()
        await ready
        assert share.calls > 5 and PART < max(waited) <= 4 * PART + GROUP
        states = await share.snapshot.write(share.place, share.run_blocking)
        assert states is not None
        [again] = restored([states[OPERATOR]], reader=share.driver.reader(), max_parallelism=32)
        assert merged([again], TEXT) == share.before
        assert len(share.files()) == 1 and len(share.place.checksums) == 1

    asyncio.run(work())


def test_what_was_written_of_one_that_is_given_up_goes(share: Share) -> None:
    async def work() -> None:
        ready = share.ready()
        await share.encode(slices=100)
        assert share.files()
        ready.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ready
        await share.snapshot.discard(share.run_blocking)
        assert share.files() == [] and share.snapshot.encode(1.0)

    asyncio.run(work())


def test_one_that_was_cancelled_while_it_was_written_leaves_nothing(share: Share) -> None:
    async def work() -> None:
        ready = share.ready()
        await share.encode(slices=100)
        share.snapshot.cancel()
        await ready
        assert await share.snapshot.write(share.place, share.run_blocking) is None
        assert share.files() == []

    asyncio.run(work())


@pytest.mark.parametrize("given_up", [False, True])
def test_state_is_written_while_operators_make_durable_what_is_theirs(
    tmp_path: Path, given_up: bool
) -> None:
    async def work() -> None:
        flushed = asyncio.get_running_loop().create_future()
        share = Share(tmp_path, durable=[flushed])
        ready = share.ready()
        await share.encode()
        await ready
        durable = asyncio.create_task(share.snapshot.durable())
        writing = asyncio.create_task(share.snapshot.write(share.place, share.run_blocking))
        for _ in range(10):
            await asyncio.sleep(0)
        assert share.files() and not writing.done()
        if given_up:
            share.snapshot.cancel()
            assert await writing is None and share.files() == []
            durable.cancel()
        else:
            flushed.set_result(None)
            assert OPERATOR in (await writing or {})

    asyncio.run(work())


def test_storage_that_fails_in_the_middle_ends_the_encoding(share: Share) -> None:
    async def work() -> None:
        share.fails_at = 3
        ready = share.ready()
        await share.encode(slices=100)
        with pytest.raises(StorageFailed, match="the disk is full"):
            await ready
        await share.snapshot.discard(share.run_blocking)
        assert share.snapshot.encode(0.1) and not share.snapshot.is_held_up
        assert share.files() == []

    asyncio.run(work())


def test_one_that_the_next_snapshot_encodes_is_not_held_up(share: Share) -> None:
    async def work() -> None:
        ready = share.ready()
        while not share.snapshot.is_held_up:
            share.snapshot.encode(0.1)
        share.subtask.backend.snapshot(CheckpointId(2))
        assert not share.snapshot.is_held_up and share.snapshot.encode(0.1)
        await ready

    asyncio.run(work())


def test_each_figure_of_a_snapshot_is_told_under_its_name() -> None:
    options = CheckpointOptions(alignment=AlignmentType.UNALIGNED)
    barrier = Barrier(CheckpointId(1), 0, options)
    in_flight = ChannelStateResult(barrier)
    handle = InputChannelStateHandle(0, 0, 0, (4,), 33, ByteStreamStateHandle("in flight", b""))
    in_flight.complete((handle,), (), {"/in flight": CHECKSUM})
    snapshot = SubtaskSnapshot(
        barrier,
        [],
        [],
        in_flight,
        (OPERATOR, OPERATOR),
        SnapshotTimes(1.0, 1.012, 25, 40, 77),
        part_bytes=PART,
        after_finish=False,
    )
    place = SimpleNamespace(bytes_written=100, checksums={"/state": CHECKSUM})
    assert snapshot.figures(1.5, cast("Place", place)) == CheckpointFigures(
        sync_ms=12,
        async_ms=488,
        alignment_ms=25,
        start_delay_ms=40,
        bytes_written=133,
        processed_bytes=77,
        persisted_bytes=33,
        unaligned=True,
        checksums={"/state": CHECKSUM, "/in flight": CHECKSUM},
    )
