"""A driver's whole life in one loop: however the job ends, the reason is told and nothing stays."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.driver.world import LIMIT_S, IdleProvider, World, graph, run
from tidegate import StreamExecutionEnvironment
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.clock import SystemClock
from tidegate.config.configuration import Configuration
from tidegate.errors import (
    JobCanceled,
    JobFailed,
    JobSuspended,
    RestoreRefused,
    SlotLost,
    StorageFailed,
    TidegateError,
    UserCodeFailed,
)
from tidegate.ha.chain import MemoryHaStore, last_beat, newest_record
from tidegate.ha.leadership import HaWorld, lead
from tidegate.jobmaster.events import CancelRequested, SuspendRequested
from tidegate.minicluster.in_process import LoopProvider
from tidegate.model.chance import SeededChance
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId
from tidegate.transport.memory import MemoryNetwork

if TYPE_CHECKING:
    from tidegate.api.job import CheckpointDone
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.chain import HaStore

WARNED = "records of the job were deleted"


def endless_graph(uid: str = "numbers", **settings: str) -> JobGraph:
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.generate(lambda n: n, rate=100).uid(uid).filter(lambda n: False).print()
    return env.get_job_graph("numbers")


class HungryProvider(LoopProvider):
    """Has no descriptor left when its slots are to be released."""

    def release(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_job_that_finishes_leaves_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        world = World(graph())
        await world.run()
        assert world.result.result().job_id == world.driver.job.id
        assert world.driver.job.view().status is JobStatus.FINISHED

    run(work)
    assert len(capfd.readouterr().out.splitlines()) == 100


def test_a_users_exception_ends_the_job_with_its_traceback() -> None:
    def bad(n: int) -> int:
        return 1 // (n - 50)

    async def work() -> None:
        world = World(graph(bad))
        await world.run()
        error = world.result.exception()
        assert isinstance(error, JobFailed)
        assert "ZeroDivisionError" in str(error) and "1 // (n - 50)" in str(error)
        assert world.driver.job.view().status is JobStatus.FAILED

    run(work)


def test_a_cancelled_job_ends_as_canceled() -> None:
    async def work() -> None:
        world = World(endless_graph())
        running = asyncio.ensure_future(world.run())
        await world.until(JobStatus.RUNNING)
        world.driver.job.inbox.post(CancelRequested("the test"))
        await running
        error = world.result.exception()
        assert isinstance(error, JobCanceled) and "the test" in str(error)

    run(work)


def on_disk(folder: Path) -> dict[str, str]:
    return {
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }


@pytest.mark.parametrize("ends", [CancelRequested("the test"), SuspendRequested("the test")])
def test_a_job_that_was_cancelled_or_suspended_says_so_and_goes_on_with_latest(
    ends: CancelRequested | SuspendRequested, tmp_path: Path
) -> None:
    async def work() -> None:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        world = World(endless_graph(**on_disk(tmp_path)), chain=chain)
        running = asyncio.ensure_future(world.run())
        await world.until(JobStatus.RUNNING)
        await world.completed(2)
        world.driver.job.inbox.post(ends)
        await running
        error = world.result.exception()
        cancelled = isinstance(ends, CancelRequested)
        assert isinstance(error, JobCanceled if cancelled else JobSuspended)
        assert "the test" in error.what and "go on with '--from latest'" in error.remedy
        record = await newest_record(store)
        assert record is not None and record.status is world.driver.job.view().status
        assert record.completed[-1].location in error.remedy

        restore = {"execution.state-recovery.path": "latest"}
        again = World(endless_graph(**on_disk(tmp_path), **restore), chain=chain)
        running = asyncio.ensure_future(again.run())
        await again.until(JobStatus.RUNNING)
        assert again.driver.job.id == world.driver.job.id
        assert again.driver.job.view().restored == record.completed[-1].checkpoint
        again.driver.job.inbox.post(CancelRequested())
        await running

    run(work)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [CancelRequested("the test"), SuspendRequested("the test")])
def test_a_job_that_begins_from_a_named_snapshot_is_not_said_to_begin_from_nothing(
    ends: CancelRequested | SuspendRequested, tmp_path: Path
) -> None:
    async def work() -> list[str]:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        async def until_two(settings: dict[str, str], ends: object, seed: int) -> None:
            world = World(endless_graph(**settings), chain=chain, seed=seed)
            running = asyncio.ensure_future(world.run())
            await world.until(JobStatus.RUNNING)
            await world.completed(2)
            world.driver.job.inbox.post(ends)
            await running

        with structlog.testing.capture_logs() as logs:
            await until_two(on_disk(tmp_path), ends, 1)
            record = await newest_record(store)
            assert record is not None
            named = record.completed[-1].location
            settings = {**on_disk(tmp_path), "execution.state-recovery.path": named}
            await until_two(settings, CancelRequested("the test"), 2)
        told = [log for log in logs if "earlier run" in log["event"]]
        assert [log["starts_from"] for log in told] == [named]
        return [log["event"] for log in told]

    [event] = asyncio.run(work())
    assert event.startswith("the job starts from the snapshot that is named")
    assert ("'--from latest'" in event) == isinstance(ends, SuspendRequested)


def files_in(folder: str) -> list[Path]:
    return sorted(Path(folder).iterdir())


def move(file: str, target: str) -> None:
    Path(file).rename(target)


def lose_metadata(checkpoint: str) -> None:
    Path(checkpoint, "_metadata").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [True, False])
def test_a_driver_that_is_refused_its_start_leaves_the_job_as_it_was_and_free_to_lead(
    damaged: bool, tmp_path: Path
) -> None:
    async def work() -> None:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        world = World(endless_graph("numbers", **on_disk(tmp_path)), chain=chain)
        running = asyncio.ensure_future(world.run())
        await world.until(JobStatus.RUNNING)
        await world.completed(1)
        world.driver.job.inbox.post(CancelRequested("the test"))
        await running
        before = await newest_record(store)
        assert before is not None and before.status is JobStatus.CANCELED
        if damaged:
            lose_metadata(before.completed[-1].location)
        restore = {**on_disk(tmp_path), "execution.state-recovery.path": "latest"}
        for _ in range(2):
            uid = "numbers" if damaged else "other numbers"
            again = World(endless_graph(uid, **restore), IdleProvider(), chain=chain)
            await again.run()
            assert isinstance(again.result.exception(), RestoreRefused)
            left = await newest_record(store)
            assert left is not None and left.epoch > before.epoch
            assert (left.status, left.completed) == (before.status, before.completed)
            assert await last_beat(store) == ""

    run(work)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [CancelRequested("the test"), SuspendRequested("the test")])
def test_the_damaged_newest_is_kept_until_a_job_that_fell_back_has_completed_another(
    ends: CancelRequested | SuspendRequested, tmp_path: Path
) -> None:
    """Somebody may put it back by then; and without the option nobody goes on behind its back."""
    settings = {**on_disk(tmp_path), "execution.checkpointing.data-inline-threshold": "0 b"}
    never = {**settings, "execution.checkpointing.interval": "1 h"}
    resumed = {**never, "execution.state-recovery.path": "latest"}
    aside = str(tmp_path / "aside")
    store = MemoryHaStore()

    async def chain(graph: JobGraph) -> HaStore:
        return store

    async def ended(world: World, completed: int = 0) -> TidegateError:
        running = asyncio.ensure_future(world.run())
        await world.until(JobStatus.RUNNING)
        await world.completed(completed)
        world.driver.job.inbox.post(ends)
        await running
        error = world.result.exception()
        assert isinstance(error, JobCanceled | JobSuspended)
        return error

    async def work() -> None:
        await ended(World(endless_graph(**settings), chain=chain), completed=2)
        before = await newest_record(store)
        assert before is not None and len(before.completed) == 2
        older, newest = before.completed
        files = files_in(newest.location)
        assert len(files) > 1, "it has files of state"
        move(f"{newest.location}/_metadata", aside)

        falls_back = World(
            endless_graph(**resumed, **{"tidegate.restore.fall-back": "true"}), chain=chain
        )
        error = await ended(falls_back)
        assert falls_back.driver.job.view().restored == older.checkpoint
        after = await newest_record(store)
        assert after is not None and after.completed == before.completed
        assert f"Checkpoint {older.checkpoint} is kept" in error.remedy
        assert f"Checkpoint {newest.checkpoint} is damaged and kept too" in error.remedy

        refused = World(endless_graph(**resumed), IdleProvider(), chain=chain)
        await refused.run()
        assert isinstance(refused.result.exception(), RestoreRefused)
        move(aside, f"{newest.location}/_metadata")
        assert files_in(newest.location) == files
        mended = World(endless_graph(**resumed), chain=chain)
        await ended(mended)
        assert mended.driver.job.view().restored == newest.checkpoint

    run(work)


def test_a_fault_of_our_own_ends_the_job_at_once_instead_of_hanging_it() -> None:
    def crash(provider: IdleProvider) -> None:
        raise ZeroDivisionError("a mistake in a provider")

    async def work() -> None:
        provider = IdleProvider(crash)
        world = World(graph(), provider)
        await world.run()
        error = world.result.exception()
        assert isinstance(error, UserCodeFailed)
        assert "the driver failed: ZeroDivisionError: a mistake in a provider" in str(error)
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert provider.closed == 1

    run(work)


def test_a_fault_beside_the_inbox_ends_the_job_too() -> None:
    async def wrong() -> None:
        raise KeyError("nobody awaited me")

    async def work() -> None:
        world = World(graph(), IdleProvider(lambda _: world.driver.job.inbox.spawn(wrong())))
        await world.run()
        assert "nobody awaited me" in str(world.result.exception())

    run(work)


def test_a_driver_that_is_ended_from_outside_closes_what_it_opened() -> None:
    async def work() -> None:
        world = World(endless_graph())
        running = asyncio.ensure_future(world.driver.run())
        await world.until(JobStatus.RUNNING)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert isinstance(world.result.exception(), JobCanceled)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not world.network.listeners

    run(work)


def test_a_job_that_cannot_be_led_says_why_to_who_submits_and_who_waits() -> None:
    async def broken(graph: JobGraph) -> HaStore:
        raise StorageFailed("the folder cannot be written")

    async def work() -> None:
        provider = IdleProvider()
        world = World(graph(), provider, chain=broken)
        await world.run()
        assert isinstance(world.driver.accepted.exception(), StorageFailed)
        assert isinstance(world.result.exception(), StorageFailed)
        assert provider.closed == 0  # it was never started

    run(work)


def test_a_pointer_to_no_snapshot_begins_no_job() -> None:
    async def work() -> None:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        nowhere = {"execution.state-recovery.path": "memory:/nowhere"}
        world = World(graph(**nowhere), IdleProvider(), chain=chain)
        await world.run()
        assert isinstance(world.result.exception(), RestoreRefused)
        assert await newest_record(store) is None

    run(work)


@pytest.mark.parametrize("ended", [JobStatus.SUSPENDED, JobStatus.FINISHED])
def test_a_job_that_begins_over_one_that_could_go_on_says_so(ended: JobStatus) -> None:
    async def work() -> list[str]:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        ha = HaWorld(store, SystemClock(), SeededChance(2), asyncio.sleep)
        former = await lead(ha, "numbers", resume=False)
        await former.add(CheckpointId(7), "memory:/former/chk-7")
        await former.end(ended, retained=(CheckpointId(7),))
        await former.close()
        with structlog.testing.capture_logs() as logs:
            await World(graph(), chain=chain).run()
        return [log["newest_checkpoint"] for log in logs if "starts from nothing" in log["event"]]

    told = asyncio.run(work())
    assert told == (["memory:/former/chk-7"] if ended is JobStatus.SUSPENDED else [])


@pytest.mark.parametrize("ended", [JobStatus.CANCELED, JobStatus.SUSPENDED])
def test_a_job_that_begins_anew_names_what_its_earlier_run_has_kept(
    tmp_path: Path, ended: JobStatus
) -> None:
    async def work() -> list[dict[str, object]]:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        ha = HaWorld(store, SystemClock(), SeededChance(2), asyncio.sleep)
        former = await lead(ha, "numbers", resume=False)
        kept = tmp_path / former.job / "chk-7"
        kept.mkdir(parents=True)
        (kept / "_metadata").write_bytes(b"12345")
        await former.add(CheckpointId(7), str(kept))
        await former.end(ended)
        with structlog.testing.capture_logs() as logs:
            settings = {"execution.checkpointing.dir": str(tmp_path)}
            await World(graph(**settings), chain=chain).run()
        return [dict(log) for log in logs if "starts from nothing" in log["event"]]

    [told] = asyncio.run(work())
    assert (told["kept_checkpoints"], told["size_bytes"]) == ([7], 5)
    assert told["removed_by"] == f"tidegate prune {tmp_path}"


def test_a_job_whose_records_are_deleted_goes_on_and_says_so() -> None:
    async def work() -> list[str]:
        store = MemoryHaStore()

        async def chain(graph: JobGraph) -> HaStore:
            return store

        world = World(endless_graph(**{"execution.checkpointing.interval": "20 ms"}), chain=chain)
        with structlog.testing.capture_logs() as logs:
            running = asyncio.create_task(world.run())
            await world.until(JobStatus.RUNNING)
            await store.delete(await store.list("claims/"))
            while True:
                await asyncio.sleep(0.005)
                if running.done() or any(WARNED in log["event"] for log in logs):
                    break
            assert await store.list("claims/"), "they stand again"
            world.driver.job.inbox.post(CancelRequested("over"))
            await running
        return [log["event"] for log in logs]

    told = asyncio.run(work())
    assert sum(WARNED in event for event in told) == 1


def test_who_ends_the_runtimes_job_from_outside_cancels_ours() -> None:
    def from_outside(provider: IdleProvider) -> None:
        assert provider.ended is not None
        provider.ended("somebody stopped the session")

    async def work() -> None:
        world = World(graph(), IdleProvider(from_outside))
        await world.run()
        error = world.result.exception()
        assert isinstance(error, JobCanceled) and "somebody stopped the session" in str(error)

    run(work)


def test_a_slot_that_can_never_come_fails_the_job_with_the_reason() -> None:
    def never(provider: IdleProvider) -> None:
        assert provider.failed is not None
        provider.failed("request-1", SlotLost("no tidegate on the executors"), True)

    async def work() -> None:
        world = World(graph(), IdleProvider(never))
        await world.run()
        assert "no tidegate on the executors" in str(world.result.exception())

    run(work)


def test_slots_that_do_not_come_in_time_fail_the_job() -> None:
    async def work() -> None:
        settings = {"tidegate.slots.start-timeout": "100 ms"}
        world = World(graph(**settings), IdleProvider())
        await world.run()
        assert "0 of 1 slots came within 100 ms" in str(world.result.exception())

    run(work)


def test_a_checkpoint_that_was_asked_for_is_refused_when_the_job_ends() -> None:
    async def work() -> None:
        world = World(graph(), IdleProvider())
        running = asyncio.ensure_future(world.run())
        await asyncio.wait_for(asyncio.wrap_future(world.driver.accepted), LIMIT_S)
        done: Future[CheckpointDone] = Future()
        request = world.driver.job.answers.expect(done)
        world.driver.job.inbox.post(CheckpointRequested(request))
        world.driver.job.inbox.post(CancelRequested())
        await running
        assert isinstance(done.exception(timeout=0), TidegateError)

    run(work)


def test_a_checkpoint_that_was_asked_for_is_taken() -> None:
    async def work() -> None:
        world = World(endless_graph())
        running = asyncio.ensure_future(world.run())
        await world.until(JobStatus.RUNNING)
        done: Future[CheckpointDone] = Future()
        world.driver.job.inbox.post(CheckpointRequested(world.driver.job.answers.expect(done)))
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wrap_future(done)
        assert done.result().checkpoint == 1
        world.driver.job.inbox.post(CancelRequested())
        await running

    run(work)


def test_what_the_driver_cannot_do_for_want_of_descriptors_does_not_end_it() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        world = World(graph(), HungryProvider(network), network=network)
        with structlog.testing.capture_logs() as logs:
            await world.run()
        assert world.result.result(0).get_job_id() == world.driver.job.id
        (told,) = [log for log in logs if log["event"] == "the driver lacks descriptors"]
        assert "ulimit" in told["error"]

    asyncio.run(scenario())


def test_a_shortage_while_the_job_runs_is_a_failure_under_the_restart_strategy() -> None:
    async def scenario() -> None:
        strategy = {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "0 ms",
        }
        world = World(endless_graph(**strategy))
        running = asyncio.create_task(world.run())
        await world.until(JobStatus.RUNNING)

        async def short() -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        world.driver.job.inbox.spawn(short())
        async with asyncio.timeout(LIMIT_S):
            while True:
                await asyncio.sleep(0.005)
                if world.driver.job.view().restarts:
                    break
        await world.until(JobStatus.RUNNING)
        assert "no descriptor left" in world.driver.job.view().failures[0].error
        world.driver.job.inbox.post(CancelRequested())
        await running

    asyncio.run(scenario())
