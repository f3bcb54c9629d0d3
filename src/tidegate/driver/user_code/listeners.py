"""Tells the job's status listeners each change, in order, on the driver's pool."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.api.job import JobExecutionStatusEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    import structlog

    from tidegate.api.job import JobStatusChangedListener
    from tidegate.jobmaster.commands import StatusChanged
    from tidegate.model.ids import JobId

CALL_TIMEOUT_S: Final = 10.0
"""How long one call of a listener is waited for; then it is told nothing more."""


class StatusListeners:
    """The listeners of one job. job: its id and name. spawn: runs something beside the inbox."""

    def __init__(
        self,
        listeners: Sequence[JobStatusChangedListener],
        job: tuple[JobId, str],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        spawn: Callable[[Coroutine[object, object, None]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._job = job
        self._queues = [_Queue(each, run_blocking, log) for each in listeners]
        self._spawn = spawn

    def tell(self, change: StatusChanged) -> None:
        """Tell all of them, each at its own pace."""
        event = JobExecutionStatusEvent(
            *self._job, change.former, change.status, change.wall_ms, change.error
        )
        for queue in self._queues:
            if queue.put(event):
                self._spawn(queue.drain())


class _Queue:
    """Events still to be told to one listener; bounded by the limit of a call."""

    def __init__(
        self,
        listener: JobStatusChangedListener,
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._listener = listener
        self._run_blocking = run_blocking
        self._log = log
        self._events: deque[JobExecutionStatusEvent] = deque()
        self._draining = False
        self._given_up = False

    def put(self, event: JobExecutionStatusEvent) -> bool:
        """Adds an event; True if the queue has to be drained for it."""
        if self._given_up:
            return False
        self._events.append(event)
        begin, self._draining = not self._draining, True
        return begin

    async def drain(self) -> None:
        while self._events:
            await self._call(self._events.popleft())
        self._draining = False

    async def _call(self, event: JobExecutionStatusEvent) -> None:
        told = type(self._listener).__qualname__
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._run_blocking(partial(self._listener.on_event, event))
        except TimeoutError:
            self._given_up = True
            self._events.clear()
            self._log.warning(
                "a job status listener does not return, and is told nothing more",
                listener=told,
                status=event.new_status.value,
                limit_s=CALL_TIMEOUT_S,
            )
        except Exception as error:
            self._log.warning(
                "a job status listener failed",
                listener=told,
                status=event.new_status.value,
                error=f"{type(error).__name__}: {error}",
            )
