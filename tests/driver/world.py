"""A driver on its own loop, with a network and storage in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from tidegate import StreamExecutionEnvironment
from tidegate.clock import SystemClock
from tidegate.config.configuration import Configuration
from tidegate.driver.driver import Driver
from tidegate.driver.world import DriverWorld
from tidegate.ha.chain import MemoryHaStore
from tidegate.minicluster.in_process import LoopProvider
from tidegate.model.chance import SeededChance
from tidegate.model.control import ExecutionState, JobStatus, SlotInvitation
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.transport.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from tidegate.api.job import JobExecutionResult
    from tidegate.errors import (
        TidegateError,
    )
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.chain import HaStore


LIMIT_S = 100.0


def graph(map_: Callable[[int], int] = lambda n: n + 1, **settings: str) -> JobGraph:
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.from_sequence(1, 100).map(map_).print()
    return env.get_job_graph("numbers")


class IdleProvider:
    """Supplies no slots, and does what a test tells it to."""

    def __init__(self, on_request: Callable[[IdleProvider], None] = lambda _: None) -> None:
        self.failed: Callable[[str, TidegateError, bool], None] | None = None
        self.ended: Callable[[str], None] | None = None
        self.closed = 0
        self.released = 0
        self._on_request = on_request

    async def hint(self) -> str:
        return ""

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        self.failed, self.ended = failed, ended

    def request(self, count: int) -> None:
        self._on_request(self)

    def release(self) -> None:
        self.released += 1

    async def close(self) -> None:
        self.closed += 1


class World:
    """A driver over a network in memory. seed: the same makes the same ids of jobs."""

    def __init__(
        self,
        graph: JobGraph,
        provider: IdleProvider | LoopProvider | None = None,
        *,
        chain: Callable[[JobGraph], Awaitable[HaStore]] | None = None,
        network: MemoryNetwork | None = None,
        seed: int = 1,
    ) -> None:
        self.network = network or MemoryNetwork()
        self.provider = provider or LoopProvider(self.network)
        self.driver = Driver(
            graph,
            DriverWorld(
                network=self.network,
                clock=SystemClock(),
                chance=SeededChance(seed),
                run_blocking=self._run_blocking,
                call_user=self._run_blocking,
                chain=chain or self._chain,
                storage=lambda graph, job: CheckpointStorage(job, graph.settings.checkpoints),
                log=structlog.get_logger(),
                secret=b"",
                heard=lambda logged: None,
            ),
            self.provider,
        )

    async def _run_blocking(self, call: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def _chain(self, graph: JobGraph) -> MemoryHaStore:
        return MemoryHaStore()

    async def run(self) -> None:
        before = asyncio.all_tasks()
        async with asyncio.timeout(LIMIT_S):
            await self.driver.run()
        others = asyncio.all_tasks() - before
        assert not others, f"tasks are left: {others}"
        assert not self.network.listeners, "a listener is left"

    @property
    def result(self) -> Future[JobExecutionResult]:
        return self.driver.result

    async def until(self, status: JobStatus) -> None:
        """Wait for the job to be in a status with all its subtasks running."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                await asyncio.sleep(0.005)
                if not self.driver.accepted.done():
                    continue
                view = self.driver.job.view()
                states = {s.state for v in view.vertices for s in v.subtasks}
                if view.status is status and states == {ExecutionState.RUNNING}:
                    return

    async def completed(self, count: int) -> None:
        """Wait until so many checkpoints are completed."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                await asyncio.sleep(0.005)
                if self.driver.job.view().checkpoints.counts.completed >= count:
                    return


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with structlog.testing.capture_logs():
            await work()

    asyncio.run(main())
