"""A batch is led as a stream is: its records say who runs it, how it ended and what it left."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from tidegate.clock import SystemClock
from tidegate.driver.telling.report import tell_of_former
from tidegate.driver.thread import record_chain
from tidegate.errors import LeadershipLost, OutcomeUnknown
from tidegate.ha.leadership import HaWorld, lead
from tidegate.ha.patience import PatientStore
from tidegate.model.chance import SeededChance
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.leadership import Leadership
    from tidegate.model.control import JobStatus
    from tidegate.model.ids import CheckpointId
    from tidegate.spark.batch.driver_loop import DriverLoop


class Lead:
    """Leads a new job of that name until it is ended. Blocking.

    Raises ConfigError where somebody leads one, StorageFailed and OutcomeUnknown.
    """

    def __init__(
        self, graph: JobGraph, loop: DriverLoop, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._loop = loop
        self._log = log
        self._leadership = loop.done(self._begun(graph))
        self.job: Final = self._leadership.job
        self.epoch: Final = self._leadership.epoch

    async def _begun(self, graph: JobGraph) -> Leadership:
        settings, blocking, clock = graph.settings, self._loop.blocking, SystemClock()
        chain = await record_chain(graph, Stores(), blocking, self._loop.stack)
        world = HaWorld(
            store=PatientStore(chain, self._log),
            clock=clock,
            chance=SeededChance(secrets.randbits(64)),
            pause=lambda duration_ms: asyncio.sleep(duration_ms / 1000),
            beat_ms=settings.leader_beat_ms,
            lease_ms=settings.leader_lease_ms,
        )
        leadership = await lead(world, graph.name, resume=False)
        self._loop.stack.push_async_callback(leadership.close)
        if (former := leadership.previous) is not None:
            before = CheckpointStorage(former.job, settings.checkpoints)
            named = settings.restore.path
            self._loop.spawn(tell_of_former(former, before, named, blocking, self._log))
        return leadership

    def watch(self, stop: Callable[[TidegateError], None]) -> None:
        """Stop the job once another driver leads it."""

        async def watch() -> None:
            await self._leadership.lost()
            stop(LeadershipLost("Another driver leads the job", where=f"epoch {self.epoch}"))

        self._loop.soon(lambda: self._loop.spawn(watch()))

    def saved(self, number: CheckpointId, path: str) -> None:
        """A snapshot is complete, and the next run goes on from it. Raises LeadershipLost."""
        self._loop.done(self._leadership.add(number, path))

    def confirm(self) -> None:
        """Raises LeadershipLost if another driver leads the job by now."""
        self._loop.done(self._leadership.confirm())

    def end(self, status: JobStatus) -> None:
        """Say how the job has ended; then another may run."""
        try:
            self._loop.done(self._ended(status))
        except (LeadershipLost, OutcomeUnknown) as error:
            self._log.warning("the job's records do not say how it ended", error=str(error))

    async def _ended(self, status: JobStatus) -> None:
        if not self._leadership.is_lost:
            await self._leadership.end(status)
            await self._leadership.conclude()
