"""Calls in flight, and in which order their results may leave.

Both kinds keep event time where it came: no result leaves ahead of a watermark that its record came
behind, and none behind one that it came ahead of.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidegate.model.elements import Watermark, WatermarkStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """Calls and marks from their arrival until they leave."""

    def add(self, call: Call) -> None:
        """A record has come."""
        ...

    def mark(self, mark: TimeMark) -> None:
        """A mark has come; of watermarks that follow each other directly the last one counts."""
        ...

    def done(self, call: Call) -> None:
        """A call has its results."""
        ...

    def head(self) -> Call | TimeMark | None:
        """What may leave next; None where that is not known yet."""
        ...

    def pop(self) -> None:
        """The head leaves."""
        ...

    def calls(self) -> Iterable[Call]:
        """Those that have not left, in the order of their arrival."""
        ...

    @property
    def empty(self) -> bool:
        """Whether everything has left."""
        ...


class OrderedQueue:
    """Everything leaves in the order in which it came."""

    def __init__(self) -> None:
        self._line: deque[Call | TimeMark] = deque()

    def add(self, call: Call) -> None:
        """A record has come."""
        self._line.append(call)

    def mark(self, mark: TimeMark) -> None:
        """A mark has come."""
        line = self._line
        if line and isinstance(mark, Watermark) and isinstance(line[-1], Watermark):
            line[-1] = mark
        else:
            line.append(mark)

    def done(self, call: Call) -> None:
        """A call has its results."""

    def head(self) -> Call | TimeMark | None:
        """The oldest, if it is done."""
        if not self._line:
            return None
        first = self._line[0]
        return None if isinstance(first, Call) and first.results is None else first

    def pop(self) -> None:
        """The head leaves."""
        self._line.popleft()

    def calls(self) -> list[Call]:
        """Those that have not left."""
        return [each for each in self._line if isinstance(each, Call)]

    @property
    def empty(self) -> bool:
        """Whether everything has left."""
        return not self._line


@dataclass(slots=True, eq=False)
class _Stretch:
    """Calls between two marks. under_way: how many are not done. end: the mark behind them."""

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
        """A record has come."""
        newest = self._stretches[-1]
        newest.under_way += 1
        self._of[call] = newest

    def mark(self, mark: TimeMark) -> None:
        """A mark has come."""
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
        """A call has its results."""
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
        """The one that has been done, or come, for longest in the oldest stretch."""
        return self._ready[0] if self._ready else None

    def pop(self) -> None:
        """The head leaves."""
        left = self._ready.popleft()
        if isinstance(left, Call):
            del self._of[left]

    def calls(self) -> list[Call]:
        """Those that have not left."""
        return list(self._of)

    @property
    def empty(self) -> bool:
        """Whether everything has left."""
        return not self._of and not self._ready
