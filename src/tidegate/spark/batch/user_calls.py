"""The user's callbacks in the driver of a batch, as a stream's: hooks, enrichers, listeners."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidegate.config.log import process_log
from tidegate.driver.user_code.callbacks import (
    CALL_TIMEOUT_S,
    FailureEnrichers,
    MasterHooks,
    StatusListeners,
)
from tidegate.errors import UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from flinkformat.snapshots import MasterState
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.jobmaster.commands import StatusChanged
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import JobId
    from tidegate.spark.batch.driver_loop import DriverLoop
    from tidegate.spark.batch.start import BatchStart


class UserCalls:
    """Calls them on the driver's threads, each within its time. Any thread may ask for a call."""

    def __init__(self, graph: JobGraph, job: JobId, loop: DriverLoop) -> None:
        self._graph = graph
        self._loop = loop
        self._telling: set[asyncio.Task[None]] = set()
        log, about, blocking = process_log().bind(job=graph.name), (job, graph.name), loop.blocking
        self._hooks = MasterHooks(graph.hooks, blocking, log)
        self._enrichers = FailureEnrichers(graph.enrichers, about, blocking, log)
        self._listeners = StatusListeners(graph.listeners, about, blocking, self._spawn, log)

    def tell(self, change: StatusChanged) -> None:
        """Tell the listeners, beside whatever else happens."""
        self._loop.soon(partial(self._listeners.tell, change))

    def labels(self, error: TidegateError) -> dict[str, str]:
        return self._loop.done(self._enrichers.labels(error, error.where, None))

    def restore_hooks(self, start: BatchStart) -> None:
        """The batch begins. Raises what a hook has raised."""
        allow = self._graph.settings.restore.allow_non_restored
        self._loop.done(self._hooks.restore(start.checkpoint, start.hooks, allow_unmatched=allow))

    def trigger_hooks(self, barrier: Barrier) -> tuple[MasterState, ...]:
        """The states of the hooks for the snapshot at the end. Raises what one has raised."""

        limit_s = self._graph.settings.checkpoints.timeout_ms / 1000

        async def trigger() -> tuple[MasterState, ...]:
            try:
                async with asyncio.timeout(limit_s):
                    return await self._hooks.trigger(barrier.checkpoint, barrier.triggered_ms)
            except TimeoutError as error:
                raise UserCodeFailed(
                    f"the master hooks had no state within {limit_s:g} s",
                    where="the savepoint at the end of the batch",
                    remedy="Find out what their trigger_checkpoint waits for.",
                ) from error

        return self._loop.done(trigger())

    def close(self) -> None:
        """Close the hooks, and end once the listeners have been told or had their time."""
        self._loop.done(self._ended())

    async def _ended(self) -> None:
        await self._hooks.close()
        if self._telling:
            await asyncio.wait(self._telling, timeout=CALL_TIMEOUT_S)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.spawn(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
