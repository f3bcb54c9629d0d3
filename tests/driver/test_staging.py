"""What sources read is written before slots are asked for, once, and gone at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.driver.world import LIMIT_S, IdleProvider, World, run
from tests.e2e.frames import Endless, Numbers
from tidegate import StreamExecutionEnvironment
from tidegate.config.configuration import Configuration
from tidegate.connectors.frames.frame_source import FrameSource
from tidegate.errors import JobCanceled, SlotLost, StorageFailed
from tidegate.jobmaster.events import CancelRequested
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tidegate.graph.job_graph import JobGraph


def graph(staged: Numbers, **settings: str) -> JobGraph:
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.from_source(FrameSource(staged), None, "frame").print()
    return env.get_job_graph("a frame")


def test_it_is_written_before_slots_are_asked_for(tmp_path: Path) -> None:
    order: list[str] = []

    def asked(provider: IdleProvider) -> None:
        order.append("slots")
        assert provider.failed is not None
        provider.failed("request-1", SlotLost("there are none"), True)

    async def work() -> None:
        staged = Numbers(10, root=tmp_path, before=lambda: order.append("written"))
        world = World(graph(staged), IdleProvider(asked))
        await world.run()
        assert "there are none" in str(world.result.exception())

    run(work)
    assert order == ["written", "slots"]
    assert not any(tmp_path.iterdir()), "a failed job leaves nothing"


def test_its_rows_are_read_and_its_files_deleted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        world = World(graph(Numbers(10, root=tmp_path)))
        await world.run()
        world.result.result(timeout=0)

    run(work)
    assert not any(tmp_path.iterdir())
    printed = capfd.readouterr().out.splitlines()
    assert sorted(printed) == [f"{{'n': {n}}}" for n in range(10)]


def test_beside_checkpoints_only_its_own_files_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    settings = {
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.interval": "50 ms",
    }

    staged = Numbers(10)

    async def work() -> None:
        await World(graph(staged, **settings)).run()

    run(work)
    job, folder, epoch, _ = staged.written[0].relative_to(tmp_path).parts
    assert (folder, epoch) == ("staged", "1")
    assert not (tmp_path / job / "staged").exists()
    assert (tmp_path / "else").is_dir() and (tmp_path / job).is_dir()


def test_a_write_that_fails_fails_the_job_without_slots_or_restarts(tmp_path: Path) -> None:
    def broken() -> None:
        raise StorageFailed("the query is wrong")

    async def work() -> None:
        settings = {"restart-strategy.type": "fixed-delay"}
        asked: list[IdleProvider] = []
        world = World(
            graph(Numbers(1, root=tmp_path, before=broken), **settings), IdleProvider(asked.append)
        )
        await world.run()
        assert "the query is wrong" in str(world.result.exception())
        assert world.driver.job.view().status is JobStatus.FAILED
        assert not asked

    run(work)


def test_a_job_that_is_cancelled_meanwhile_ends_the_write(tmp_path: Path) -> None:
    async def work() -> None:
        staged = Endless(tmp_path)
        asked: list[IdleProvider] = []
        world = World(graph(staged), IdleProvider(asked.append))
        running = asyncio.ensure_future(world.run())
        assert await asyncio.to_thread(staged.began.wait, LIMIT_S)
        world.driver.job.inbox.post(CancelRequested())
        await running
        assert isinstance(world.result.exception(), JobCanceled)
        assert world.driver.job.view().status is JobStatus.CANCELED
        assert staged.cancelled.is_set() and not asked

    run(work)
