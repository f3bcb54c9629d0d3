"""The driver's inbox: events for the job master, one after the other, and the work beside them.

Everything runs on one loop. Whatever blocks goes to a pool and comes back as an event; whatever
fails comes back as an event too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.checkpoint.coordinator.events import Woke
from tidegate.errors import JobCanceled, StorageFailed, TidegateError
from tidegate.jobmaster.events import DriverHindered
from tidegate.jobmaster.slots import LATE_WAKE_MS
from tidegate.model.descriptors import as_ours, shortage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from concurrent.futures import Future

    import structlog

    from tidegate.clock import Clock
    from tidegate.jobmaster.commands import JobCommand, JobOver
    from tidegate.jobmaster.events import JobEvent
    from tidegate.jobmaster.machine import JobMaster

T = TypeVar("T")

HEAR_FIRST_MS: Final = 1_000
"""How long the driver listens after it stood still, before it judges who is late."""

TOLD_MS: Final = 5_000
"""A standstill that is longer is told."""

_WATCH = "tidegate-watch"


class Inbox:
    """Feeds one machine, wakes it when it asks for that, and hands its commands on.

    perform: gets the commands that an event has led to, in order. ended: how the job has ended,
    once it has; crash: the fault of our own that ended it. ``over`` is set by either of them.
    """

    def __init__(
        self,
        machine: JobMaster,
        clock: Clock,
        perform: Callable[[Sequence[JobCommand]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.machine = machine
        self.clock = clock
        self.ended: JobOver | None = None
        self.crash: Exception | None = None
        self.over = asyncio.Event()
        self.settled = asyncio.Event()
        self._perform = perform
        self._log = log
        self._alarm = Alarm(clock, lambda: self.post(Woke()), log)
        self._events: deque[JobEvent] = deque()
        self._handling = False
        self._stopped = False
        self._work: set[asyncio.Task[None]] = set()

    def post(self, event: JobEvent) -> None:
        """Has an event handled at once, or after the one that is being handled."""
        # Performing a command may post an event: the machine handles one at a time.
        self._events.append(event)
        if self._handling or self._stopped:
            return
        self._handling = True
        try:
            while self._events:
                now_ms = self.clock.monotonic_ms()
                self._perform(self.machine.handle(self._events.popleft(), now_ms))
                if self.machine.settled:
                    self.settled.set()
        except Exception as error:
            self._crashed(error)
        finally:
            self._handling = False
        done = self._stopped or (self.over.is_set() and self.settled.is_set())
        self._alarm.set(None if done else self.machine.wake_at_ms)

    def answer(
        self,
        work: Callable[[], Awaitable[T]],
        done: Callable[[T], JobEvent],
        failed: Callable[[TidegateError], JobEvent],
    ) -> None:
        """Does some work beside the inbox and posts just one event when it has ended."""

        async def answer() -> None:
            try:
                result = await work()
            except Exception as error:
                self.post(failed(as_ours(error, StorageFailed)))
            else:
                self.post(done(result))

        self.spawn(answer())

    def spawn(self, work: Coroutine[object, object, None], *, name: str | None = None) -> None:
        """Runs something beside the inbox; what it raises is a fault of our own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._work_ended)

    def watch(self, work: Coroutine[object, object, None]) -> None:
        """Runs something that looks on for as long as the job lives; nobody waits for its end."""
        self.spawn(work, name=_WATCH)

    def hindered(self, error: Exception) -> None:
        """Something could not be done. Raises what is no shortage, but a fault of our own."""
        if (short := shortage(error)) is None:
            raise error
        self._log.warning("the driver lacks descriptors", error=str(short), exc_info=error)
        self.post(DriverHindered(short))

    def end(self, ended: JobOver) -> None:
        self.ended = ended
        self.over.set()

    def stop(self) -> None:
        self._stopped = True
        self._events.clear()

    async def settle(self) -> None:
        """Waits until the machine awaits nothing more, and all work but the watching has ended."""
        await self.settled.wait()
        while pending := [task for task in self._work if task.get_name() != _WATCH]:
            await asyncio.wait(pending)

    async def close(self) -> None:
        self._alarm.cancel()
        work = list(self._work)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            try:
                self.hindered(error)
            except Exception as fault:
                self._crashed(fault)

    def _crashed(self, error: Exception) -> None:
        """The job ends at once, for nothing can be trusted any more."""
        self.stop()
        self.crash = self.crash or error
        self.over.set()
        self.settled.set()


class Alarm:
    """Rings once, at the time that was set last, and not before the driver has heard.

    A call in C that holds the interpreter, a stopped process or a machine with too much to do may
    keep the driver from everything for longer than any of its timeouts. What slots have said
    meanwhile waits in sockets, and the loop would look at its timers first: leases, checkpoints and
    slots would count as lost although the answers are here.
    """

    def __init__(
        self, clock: Clock, ring: Callable[[], None], log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._clock = clock
        self._ring = ring
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._not_before_ms = 0

    def set(self, at_ms: int | None) -> None:
        """Ring at that time; None for never."""
        now_ms = self._clock.monotonic_ms()
        self._notice_standstill(now_ms)
        self.cancel()
        if at_ms is not None:
            self._due_ms = max(at_ms, now_ms, self._not_before_ms)
            delay_s = (self._due_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        if self._notice_standstill(self._clock.monotonic_ms()):
            self.set(self._not_before_ms)
        else:
            self._timer = None
            self._ring()

    def _notice_standstill(self, now_ms: int) -> bool:
        late_ms = now_ms - self._due_ms
        if self._timer is None or late_ms <= LATE_WAKE_MS:
            return False
        self.cancel()
        self._not_before_ms = now_ms + HEAR_FIRST_MS
        if late_ms > TOLD_MS:
            self._log.warning(
                "the driver stood still: its process was stopped, a call in C held its "
                "interpreter, or the machine is overloaded. Slots of other machines end, and are "
                "replaced, when they do not hear from it for heartbeat.timeout",
                for_ms=late_ms,
            )
        return True


class Answers:
    """Checkpoints and rescales that somebody waits for, by the numbers of their requests."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, Future[Any]] = {}

    def expect(self, done: Future[Any]) -> int:
        """A number for the request whose answer belongs to this future."""
        request = next(self._numbers)
        self._waiting[request] = done
        return request

    def give(self, request: int, answer: object) -> None:
        """Answers a request, a TidegateError as a failure; whoever asked may wait no more."""
        done = self._waiting.pop(request, None)
        if done is None or done.done():
            return
        if isinstance(answer, TidegateError):
            done.set_exception(answer)
        else:
            done.set_result(answer)

    def end(self, error: TidegateError | None) -> None:
        """The job has ended: what it has not answered it never will."""
        for request in list(self._waiting):
            self.give(request, error or JobCanceled("the job has ended"))
