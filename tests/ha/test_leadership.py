from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.ha.world import SteppedClock, Timed, over_zookeeper
from tidegate.errors import (
    ConfigError,
    LeadershipLost,
    OutcomeUnknown,
    RestoreRefused,
    StorageFailed,
)
from tidegate.ha.chain import (
    HaStore,
    JobRecord,
    MemoryHaStore,
    Pointer,
    claim_path,
    decode,
    last_beat,
    newest_record,
    place_path,
)
from tidegate.ha.filesystem import FileSystemHaStore, open_chain
from tidegate.ha.leadership import HaWorld, Leadership, lead
from tidegate.model.chance import SeededChance
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, JobId
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from tests.e2e.zookeeper import ZooKeeperServer


async def run_here(call: Callable[[], object]) -> object:
    return call()


Open = Callable[[], AbstractAsyncContextManager[HaStore]]
"""Opens the store on the loop that is to use it."""


@asynccontextmanager
async def over_files(folder: str) -> AsyncIterator[HaStore]:
    yield FileSystemHaStore(Stores().open(folder), run_here)


@asynccontextmanager
async def over_memory(store: HaStore) -> AsyncIterator[HaStore]:
    yield store


def opens(kind: str, request: pytest.FixtureRequest) -> Open:
    match kind:
        case "memory":
            return lambda: over_memory(MemoryHaStore())
        case "files":
            folder: Path = request.getfixturevalue("tmp_path")
            return lambda: over_files(str(folder))
        case "files in memory":
            return lambda: over_memory(FileSystemHaStore(MemoryFiles().store(), run_here))
        case _:
            server: ZooKeeperServer = request.getfixturevalue("zookeeper")
            return lambda: over_zookeeper(server.settings())


class Drivers:
    """Drivers of one job on one machine, each with its own chance."""

    def __init__(self, store: HaStore) -> None:
        self.clock = SteppedClock()
        self.store = Timed(store, self.clock)
        self.started = 0
        self.leaders: list[Leadership] = []

    async def start(
        self,
        *,
        resume: bool = False,
        recover: bool = False,
        standby: bool = False,
        store: HaStore | None = None,
        start: Callable[[JobId], Awaitable[Pointer]] | None = None,
    ) -> Leadership:
        self.started += 1
        world = HaWorld(
            store or self.store, self.clock, SeededChance(self.started), self.clock.pause
        )
        leader = await lead(
            world, "orders", resume=resume, recover=recover, standby=standby, start=start
        )
        self.leaders.append(leader)
        return leader


def play(store: Open, script: Callable[[Drivers], Awaitable[None]]) -> None:
    async def main() -> None:
        async with store() as opened:
            drivers = Drivers(opened)
            try:
                await script(drivers)
            finally:
                for leader in drivers.leaders:
                    await leader.close()

    asyncio.run(main())


@pytest.fixture(
    params=["memory", "files", "files in memory", pytest.param("zookeeper", marks=pytest.mark.slow)]
)
def store(request: pytest.FixtureRequest) -> Open:
    return opens(request.param, request)


def pointers(*checkpoints: int) -> tuple[Pointer, ...]:
    return tuple(Pointer(CheckpointId(n), f"/c/chk-{n}") for n in checkpoints)


async def complete(leader: Leadership, *, retained: int = 1) -> CheckpointId:
    """Takes an id and adds a checkpoint under it, as the coordinator does."""
    checkpoint = await leader.next_checkpoint_id()
    known = [pointer.checkpoint for pointer in leader.completed]
    await leader.add(checkpoint, f"/c/chk-{checkpoint}", retained=[*known, checkpoint][-retained:])
    return checkpoint


def test_ids_count_from_one_without_a_gap(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        leader = await drivers.start()
        assert (leader.epoch, leader.completed, leader.previous) == (1, (), None)
        assert len(leader.job) == 32
        assert [await leader.next_checkpoint_id() for _ in range(3)] == [1, 2, 3]
        assert await leader.next_checkpoint_id(above=7) == 8
        assert await leader.next_checkpoint_id(above=2) == 9

    play(store, script)


SAVEPOINT = Pointer(CheckpointId(4), "/s/savepoint-1", claimed=True)


async def from_savepoint(job: JobId) -> Pointer:
    return SAVEPOINT


def test_a_snapshot_that_was_claimed_stays_so_under_the_next_leader(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start(start=from_savepoint)
        assert await first.next_checkpoint_id() == 5
        await first.close()
        second = await drivers.start(resume=True)
        assert (second.job, second.completed) == (first.job, (SAVEPOINT,))
        await complete(second, retained=1)
        await second.close()
        third = await drivers.start(resume=True)
        assert SAVEPOINT not in third.completed and third.claimed == (SAVEPOINT.location,)

    play(store, script)


def test_a_job_has_begun_with_the_snapshot_it_starts_from_or_not_at_all(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        seen: list[JobRecord | None] = []

        async def looked(job: JobId) -> Pointer:
            seen.append(await newest_record(drivers.store))
            return SAVEPOINT

        first = await drivers.start(start=looked)
        assert seen == [None]
        first_record = await drivers.store.read(place_path(1, 1))
        assert first_record is not None
        record = decode(first_record, "")
        assert isinstance(record, JobRecord)
        assert (record.job, record.completed, record.next_id) == (first.job, (SAVEPOINT,), 6)

    play(store, script)


def test_where_the_snapshot_cannot_be_read_the_job_before_is_still_the_last(store: Open) -> None:
    async def refuse(job: JobId) -> Pointer:
        raise RestoreRefused("there is no savepoint")

    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.end(JobStatus.SUSPENDED)
        with pytest.raises(RestoreRefused):
            await drivers.start(start=refuse)
        third = await drivers.start(resume=True)
        assert (third.job, third.completed) == (first.job, pointers(1))

    play(store, script)


def test_a_job_that_has_checkpoints_of_its_own_is_not_asked_where_it_starts(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start(recover=True, start=from_savepoint)
        await complete(first)
        await first.close()
        second = await drivers.start(recover=True, start=from_savepoint)
        assert second.completed == (Pointer(CheckpointId(5), "/c/chk-5"),)

    play(store, script)


def test_the_newest_checkpoints_stand_oldest_first(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        leader = await drivers.start()
        for _ in range(3):
            await complete(leader, retained=2)
        assert leader.completed == pointers(2, 3)
        await leader.add(CheckpointId(4), "/s/savepoint-1")
        assert leader.completed == (*pointers(2, 3), Pointer(CheckpointId(4), "/s/savepoint-1"))
        record = await newest_record(drivers.store)
        assert record is not None
        assert (record.job, record.completed) == (leader.job, leader.completed)
        assert not record.released

    play(store, script)


def test_a_dead_leaders_job_goes_on_with_higher_ids_and_its_checkpoints(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        for _ in range(5):
            used = await complete(first)
        await first.close()  # as a killed process does: without a word
        second = await drivers.start(resume=True)
        assert (second.job, second.epoch) == (first.job, 2)
        assert second.completed == first.completed == pointers(5)
        assert used < await second.next_checkpoint_id() <= used + 2

    play(store, script)


def test_a_job_that_was_suspended_goes_on_at_once_without_a_gap(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.end(JobStatus.SUSPENDED)
        before_ms = drivers.clock.now_ms
        second = await drivers.start(resume=True)
        assert drivers.clock.now_ms == before_ms
        assert await second.next_checkpoint_id() == 2

    play(store, script)


def test_a_job_that_took_no_checkpoint_is_told_how_to_take_some(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await first.end(JobStatus.CANCELED)
        with pytest.raises(ConfigError, match=r"execution\.checkpointing\.interval"):
            await drivers.start(resume=True)

    play(store, script)


def test_a_fresh_job_over_an_ended_chain_has_a_new_id_and_counts_from_one(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first, retained=9)
        await complete(first, retained=9)
        await first.end(JobStatus.CANCELED, retained=[CheckpointId(2)])
        second = await drivers.start()
        assert second.job != first.job
        assert second.epoch == 2
        assert second.completed == ()
        assert await second.next_checkpoint_id() == 1
        assert second.previous is not None
        assert second.previous.status is JobStatus.CANCELED
        assert second.previous.completed == pointers(2)
        await second.end(JobStatus.SUSPENDED)
        resumed = await drivers.start(resume=True)
        assert resumed.previous is not None
        assert resumed.previous.former == (first.job,), "it was begun anew after that job"

    play(store, script)


def test_a_fresh_job_over_a_dead_leaders_chain_leaves_its_checkpoints_alone(
    store: Open,
) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.close()
        second = await drivers.start()
        assert drivers.clock.now_ms >= 3_000
        assert (second.epoch, second.completed) == (2, ())
        assert second.job != first.job
        assert second.previous is not None
        assert second.previous.completed == pointers(1)

    play(store, script)


def test_an_ended_job_can_be_resumed_from_what_it_retained(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.end(JobStatus.FAILED)
        second = await drivers.start(resume=True)
        assert second.completed == pointers(1)

    play(store, script)


WOULD_HAVE_HELPED = {
    JobStatus.FINISHED: "end it by a stop with savepoint",
    JobStatus.CANCELED: "and a savepoint by",
    JobStatus.FAILED: "or DELETE_ON_CANCELLATION",
}


@pytest.mark.parametrize(("status", "helps"), WOULD_HAVE_HELPED.items())
def test_an_ended_job_that_retained_nothing_is_not_begun_again_by_resuming(
    store: Open, status: JobStatus, helps: str
) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.end(status, retained=[])
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"(?s){status.value}. and kept no.*{helps}"):
                await drivers.start(resume=True)
        assert (await drivers.start()).completed == ()

    play(store, script)


def test_a_job_whose_leader_died_before_its_first_checkpoint_begins_again(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await first.close()
        second = await drivers.start(resume=True)
        assert (second.job, second.completed) == (first.job, ())

    play(store, script)


def test_recovering_begins_what_nobody_began_and_goes_on_with_what_is_not_over(
    store: Open,
) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start(recover=True)
        await complete(first)
        await first.close()
        second = await drivers.start(recover=True)
        assert (second.job, second.completed) == (first.job, pointers(1))
        await second.end(JobStatus.SUSPENDED)
        third = await drivers.start(recover=True)
        assert (third.job, third.epoch, third.completed) == (first.job, 3, pointers(1))

    play(store, script)


def test_recovering_runs_a_job_anew_that_was_brought_to_its_end(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start(recover=True)
        await complete(first)
        await first.end(JobStatus.CANCELED)
        await first.conclude()
        second = await drivers.start(recover=True)
        assert second.job != first.job
        assert (second.completed, second.status) == ((), JobStatus.RUNNING)

    play(store, script)


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED])
def test_an_ended_job_whose_driver_died_over_it_is_not_run_again(
    store: Open, status: JobStatus
) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start(recover=True)
        await drivers.clock.pause(1_000)
        await complete(first)
        await first.end(status)
        for _ in range(2):  # the second one dies before it has concluded, too
            again = await drivers.start(recover=True)
            assert (again.job, again.status) == (first.job, status)
            await drivers.clock.pause(1_000)
            await again.close()
        await again.conclude()
        assert (await drivers.start(recover=True)).job != first.job

    play(store, script)


def test_there_has_to_be_something_to_resume(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        with pytest.raises(ConfigError, match="no earlier run of job 'orders'"):
            await drivers.start(resume=True)

    play(store, script)


def test_a_second_execute_is_refused_within_seconds_and_does_no_harm(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        for resume in (False, True):
            before_ms = drivers.clock.now_ms
            with pytest.raises(ConfigError, match="already running") as caught:
                await drivers.start(resume=resume)
            assert "another name" in caught.value.remedy
            assert drivers.clock.now_ms - before_ms <= 1_000
        await complete(first)
        assert not first.is_lost

    play(store, script)


def test_of_two_that_start_at_once_one_leads_and_the_other_knows(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        outcomes = await asyncio.gather(drivers.start(), drivers.start(), return_exceptions=True)
        await drivers.clock.pause(2_000)
        refused = [outcome for outcome in outcomes if isinstance(outcome, ConfigError)]
        lost = [leader for leader in drivers.leaders if leader.is_lost]
        assert len(refused) + len(lost) == 1

    play(store, script)


def test_a_standby_takes_over_when_the_leader_dies(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        standby = asyncio.create_task(drivers.start(resume=True, standby=True))
        await drivers.clock.pause(20_000)
        assert not standby.done()
        await complete(first)
        await first.close()
        second = await standby
        assert second.completed == pointers(1)

    play(store, script)


@pytest.mark.parametrize("act", ["id", "confirm", "add", "end"])
def test_a_deposed_leader_can_do_nothing_more(store: Open, act: str) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        await complete(first)
        await first.close()
        await drivers.start(resume=True)
        with pytest.raises(LeadershipLost, match="Another driver leads"):
            match act:
                case "id":
                    await first.next_checkpoint_id(above=10)
                case "confirm":
                    await first.confirm()
                case "add":
                    await first.add(CheckpointId(2), "/c/chk-2")
                case _:
                    await first.end(JobStatus.FINISHED)
        assert first.is_lost
        with pytest.raises(LeadershipLost):
            await first.next_checkpoint_id()
        record = await newest_record(drivers.store)
        assert record is not None
        assert (record.epoch, record.completed) == (2, pointers(1))

    play(store, script)


def test_a_leader_that_lives_on_learns_that_it_was_deposed(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        first = await drivers.start()
        told = asyncio.create_task(first.lost())

        async def one_that_sees_no_beats() -> None:
            world = HaWorld(
                drivers.store, drivers.clock, SeededChance(9), drivers.clock.pause, lease_ms=0
            )
            world.store.list, listing = hidden_beats(world.store), world.store.list
            drivers.leaders.append(await lead(world, "orders", resume=True))
            world.store.list = listing

        await one_that_sees_no_beats()
        await drivers.clock.pause(1_000)
        assert told.done()
        assert first.is_lost

    play(store, script)


def test_a_leader_whose_records_were_deleted_notices_and_is_still_deposed(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        old = await drivers.start()
        await complete(old)
        everything = [path for kind in KINDS for path in await drivers.store.list(kind)]
        await drivers.store.delete(everything)
        await complete(old)
        await asyncio.wait_for(old.deleted(), 60)
        await old.close()
        new = await drivers.start()
        assert new.epoch > old.epoch, "the claim stands again"
        with pytest.raises(LeadershipLost):
            await complete(old)

    play(store, script)


def test_a_leader_whose_claim_another_has_taken_since_leads_no_more(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        leader = await drivers.start()
        claim = claim_path(leader.epoch)
        await drivers.store.delete([claim])
        assert await drivers.store.create(claim, b"of another driver")
        with pytest.raises(LeadershipLost):
            await complete(leader)
        assert leader.is_lost

    play(store, script)


KINDS = ("claims/", "chains/", "beats/")


def hidden_beats(store: Open) -> Callable[[str], Awaitable[list[str]]]:
    listing = store.list

    async def listed(prefix: str) -> list[str]:
        return [] if prefix == "beats/" else await listing(prefix)

    return listed


class Unanswering:
    """A store that does what it is asked, or not, and does not answer for a while."""

    def __init__(self, inner: HaStore) -> None:
        self.inner = inner
        self.failures = 0
        self.happens = True
        self.read, self.list, self.delete = inner.read, inner.list, inner.delete

    async def create(self, path: str, data: bytes) -> bool:
        if path.startswith("chains/") and self.failures:
            self.failures -= 1
            if self.happens:
                await self.inner.create(path, data)
            raise StorageFailed("no answer")
        return await self.inner.create(path, data)


@pytest.mark.parametrize("happens", [True, False])
def test_a_write_without_an_answer_is_asked_again_until_it_is_known(
    store: Open, happens: bool
) -> None:
    async def script(drivers: Drivers) -> None:
        slow = Unanswering(drivers.store)
        leader = await drivers.start(store=slow)
        slow.failures, slow.happens = 3, happens
        await complete(leader)
        assert leader.completed == pointers(1)

    play(store, script)


@pytest.mark.parametrize("happens", [True, False])
def test_an_unknown_outcome_is_settled_by_the_next_call(store: Open, happens: bool) -> None:
    async def script(drivers: Drivers) -> None:
        slow = Unanswering(drivers.store)
        leader = await drivers.start(store=slow)
        first = await leader.next_checkpoint_id()
        slow.failures, slow.happens = 5, happens
        with pytest.raises(OutcomeUnknown, match="unknown whether"):
            await leader.add(first, "/c/chk-1")
        assert leader.completed == ()
        second = await leader.next_checkpoint_id()
        assert second == 2
        assert leader.completed == pointers(1)
        await leader.add(second, "/c/chk-2", retained=[second])
        assert leader.completed == pointers(2)

    play(store, script)


def test_an_unknown_outcome_ends_in_a_loss_where_somebody_took_over(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        slow = Unanswering(drivers.store)
        leader = await drivers.start(store=slow)
        slow.failures, slow.happens = 5, False
        with pytest.raises(OutcomeUnknown):
            await leader.add(CheckpointId(1), "/c/chk-1")
        await leader.close()
        await drivers.start(resume=True)
        with pytest.raises(LeadershipLost):
            await leader.next_checkpoint_id()

    play(store, script)


@pytest.mark.slow
def test_a_long_run_and_many_runs_leave_few_files(store: Open) -> None:
    async def script(drivers: Drivers) -> None:
        for _ in range(3):
            leader = await drivers.start()
            for _ in range(200):
                await complete(leader)
            await drivers.clock.pause(5_000)
            beats = await drivers.store.list("beats/")
            assert len(beats) <= 2
            assert await last_beat(drivers.store) == beats[-1]
            await leader.end(JobStatus.FINISHED)
            await leader.conclude()
        assert await drivers.store.list("beats/") == []
        chains = await drivers.store.list("chains/")
        assert len([path for path in chains if "/0000000003/" in path]) <= 128
        assert len([path for path in chains if "/0000000003/" not in path]) == 2
        assert len(await drivers.store.list("claims/")) == 3

    play(store, script)


def test_a_folder_without_atomic_create_is_refused_with_what_to_do(tmp_path: Path) -> None:
    stores = Stores()
    with pytest.raises(ConfigError, match="cannot tell who leads") as caught:
        asyncio.run(open_chain(stores, f"local://{tmp_path}", "orders", run_here))
    assert caught.value.where.endswith("/.jobs/orders")


def test_a_folder_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed, match="checkpoint folder cannot be written") as caught:
        asyncio.run(open_chain(Stores(), f"{tmp_path}/file/c", "orders", run_here))
    assert "name another folder" in caught.value.remedy


def test_the_chain_of_a_named_job_lies_in_the_checkpoint_folder(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_chain(Stores(), str(tmp_path), "my orders", run_here)
        assert await store.create("claims/1", b"x")

    asyncio.run(main())
    assert (tmp_path / ".jobs/my%20orders/claims/1").read_bytes() == b"x"
