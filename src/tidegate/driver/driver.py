"""The driver of one job: three phases, one after the other, in each of which nothing is missing."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tidegate.api.job import JobExecutionResult
from tidegate.driver.running import RunningJob
from tidegate.driver.start import started
from tidegate.errors import JobCanceled, TidegateError, UserCodeFailed
from tidegate.model.descriptors import shortage

if TYPE_CHECKING:
    from tidegate.driver.world import DriverWorld
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.runtime import SlotProvider


class Driver:
    """Runs one job to its end; `run` is its life.

    accepted: the job, once it is led and what it starts from is read. result: how it has ended.
    """

    def __init__(self, graph: JobGraph, world: DriverWorld, provider: SlotProvider) -> None:
        self.accepted: Future[RunningJob] = Future()
        self.result: Future[JobExecutionResult] = Future()
        self._graph = graph
        self._world = world
        self._provider = provider

    async def run(self) -> None:
        """Runs the job to its end; how it ended is in ``result``. Never raises."""
        began_ms = self._world.clock.monotonic_ms()
        try:
            error = await self._live()
        except TidegateError as failure:
            error = failure
        except asyncio.CancelledError:
            error = JobCanceled("the driver was ended from outside")
        except Exception as failure:
            what = f"the driver failed: {type(failure).__name__}: {failure}"
            error = shortage(failure) or UserCodeFailed(what)
            error.__cause__ = failure
        self._finish(error, self._world.clock.monotonic_ms() - began_ms)

    async def _live(self) -> TidegateError | None:
        async with started(self._graph, self._world) as start:
            job = RunningJob(self._world, self._provider, start)
            if start.leadership.status.is_terminal:
                job.is_over_already()
                self.accepted.set_result(job)
                return await job.conclude_again()
            async with job.open():
                self.accepted.set_result(job)
                job.begin()
                return await job.conclude()

    def _finish(self, error: TidegateError | None, runtime_ms: int) -> None:
        if not self.accepted.done():
            assert error is not None, "a job that was not accepted says why"
            self.accepted.set_exception(error)
        else:
            self.job.close(error, runtime_ms)
        if error is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(JobExecutionResult(self.job.id, runtime_ms, self.job.summary))

    @property
    def job(self) -> RunningJob:
        return self.accepted.result(timeout=0)
