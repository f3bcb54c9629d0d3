"""Calls in flight, and in which order their results may leave.

Both kinds keep event time where it came: no result leaves ahead of a watermark that its record came
behind, and none behind one that it came ahead of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidegate.errors import as_error
from tidegate.model.elements import Watermark, WatermarkStatus
from tidegate.operators.async_calls.cancellation import cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tidegate.api.operator import OperatorTasks

TimeMark = Watermark | WatermarkStatus


@dataclass(slots=True, eq=False)
class Call:
    """The call for one record. results: None until it is done.

    goes_on: its time is over, but it has not returned. has_left: its results have.
    """

    value: object
    timestamp_ms: int | None
    results: list[object] | None = None
    goes_on: bool = False
    has_left: bool = False


class CallQueue(Protocol):
    """Queue of calls and marks, from their arrival until they leave."""

    def add(self, call: Call) -> None: ...

    def mark(self, mark: TimeMark) -> None:
        """Adds a mark; of consecutive watermarks only the last one counts."""
        ...

    def done(self, call: Call) -> None: ...

    def head(self) -> Call | TimeMark | None:
        """Next entry that may leave; None if it is not known yet."""
        ...

    def pop(self) -> None: ...

    def calls(self) -> Iterable[Call]:
        """Calls that have not left, in order of arrival."""
        ...

    @property
    def empty(self) -> bool:
        """True if everything has left."""
        ...


class OrderedQueue:
    """Entries leave in the order in which they came."""

    def __init__(self) -> None:
        self._line: deque[Call | TimeMark] = deque()

    def add(self, call: Call) -> None:
        self._line.append(call)

    def mark(self, mark: TimeMark) -> None:
        line = self._line
        if line and isinstance(mark, Watermark) and isinstance(line[-1], Watermark):
            line[-1] = mark
        else:
            line.append(mark)

    def done(self, call: Call) -> None: ...

    def head(self) -> Call | TimeMark | None:
        if not self._line:
            return None
        first = self._line[0]
        return None if isinstance(first, Call) and first.results is None else first

    def pop(self) -> None:
        self._line.popleft()

    def calls(self) -> list[Call]:
        return [each for each in self._line if isinstance(each, Call)]

    @property
    def empty(self) -> bool:
        return not self._line


@dataclass(slots=True, eq=False)
class _Stretch:
    """Calls between two marks. under_way: number of unfinished ones. end: the mark after them."""

    under_way: int = 0
    done: list[Call] = field(default_factory=list[Call])
    end: TimeMark | None = None


class UnorderedQueue:
    """Between two marks calls leave in the order in which they are done.

    The oldest stretch stands in ``_ready`` as far as it is done.
    """

    def __init__(self) -> None:
        self._stretches: deque[_Stretch] = deque((_Stretch(),))
        self._of: dict[Call, _Stretch] = {}
        self._ready: deque[Call | TimeMark] = deque()

    def add(self, call: Call) -> None:
        newest = self._stretches[-1]
        newest.under_way += 1
        self._of[call] = newest

    def mark(self, mark: TimeMark) -> None:
        newest = self._stretches[-1]
        if len(self._stretches) > 1 and not newest.under_way and not newest.done:
            before = self._stretches[-2]
            if isinstance(mark, Watermark) and isinstance(before.end, Watermark):
                before.end = mark
                return
        newest.end = mark
        self._stretches.append(_Stretch())
        self._release()

    def done(self, call: Call) -> None:
        stretch = self._of[call]
        stretch.under_way -= 1
        stretch.done.append(call)
        self._release()

    def _release(self) -> None:
        while True:
            oldest = self._stretches[0]
            self._ready.extend(oldest.done)
            oldest.done.clear()
            if oldest.under_way or oldest.end is None:
                return
            self._ready.append(oldest.end)
            self._stretches.popleft()

    def head(self) -> Call | TimeMark | None:
        return self._ready[0] if self._ready else None

    def pop(self) -> None:
        left = self._ready.popleft()
        if isinstance(left, Call):
            del self._of[left]

    def calls(self) -> list[Call]:
        return list(self._of)

    @property
    def empty(self) -> bool:
        return not self._of and not self._ready


class Seats:
    """A seat for each call under way; the records of other calls wait.

    A call that goes on after its timeout keeps its seat until it returns, though nobody waits for
    it. capacity: number of seats. freed: called as such a call gives its seat back.
    """

    def __init__(self, capacity: int, freed: Callable[[], None]) -> None:
        self._capacity = capacity
        self._freed = freed
        self._waiting: deque[Call] = deque()
        self._taken = self._going_on = 0
        self._is_open = self._is_over = False

    @property
    def going_on(self) -> int:
        """Number of calls that go on after their timeout."""
        return self._going_on

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def takes_more(self) -> bool:
        """True if the input need not be held back."""
        return self._taken + len(self._waiting) <= self._capacity

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        """The operator is over: nobody is told of free seats any more."""
        self._is_over = True

    def wait(self, call: Call) -> None:
        self._waiting.append(call)

    def take(self) -> Call | None:
        """Give a seat to the call that has waited longest; None without a seat or a call."""
        if not (self._is_open and self._waiting and self._taken < self._capacity):
            return None
        self._taken += 1
        return self._waiting.popleft()

    def leave(self, call: Call) -> None:
        call.has_left = True
        if not call.goes_on:
            self._taken -= 1

    def keep(self, call: Call, running: asyncio.Future[object] | None) -> None:
        """The time of a call is over. running: what may go on of it."""
        if running is None or running.done():
            return
        call.goes_on = True
        self._going_on += 1

        def returned(_: object) -> None:
            call.goes_on = False
            self._going_on -= 1
            if call.has_left and not self._is_over:
                self._taken -= 1
                self._freed()

        running.add_done_callback(returned)


class LoopTasks:
    """Coroutines on the slot's loop that the end of the subtask cancels, and does not wait for.

    beside: runs a coroutine whose failure is the subtask's.
    """

    def __init__(self, beside: OperatorTasks) -> None:
        self._beside = beside
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    def begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._beside.named(asyncio.get_running_loop().create_task, self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())

    async def _guard(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except BaseException as raised:
            if isinstance(raised, GeneratorExit) or cancelled():
                raise
            if not self._is_over:
                self._beside.start(_failing(as_error(raised)))

    def leave(self) -> None:
        """The operator is over: a failure is nobody's any more."""
        self._is_over = True

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _failing(error: Exception) -> None:
    raise error
