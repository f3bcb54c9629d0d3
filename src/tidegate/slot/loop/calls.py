"""Which subtask's code the slot is in, and how a call of a user's function is broken off.

A signal interrupts what the loop's thread is in, be it a sleep or a loop of its own. Its handler
raises only inside of code that is not ours: a subtask that is cancelled may be left in any state,
but what subtasks share may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.errors import CallInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tidegate.model.ids import ExecutionId

OURS = "tidegate"


@frozen
class Call:
    """A call of a subtask's code. closes: it closes its operators, and is not to be broken off."""

    execution: ExecutionId
    began_ms: int
    closes: bool = False


class Calls:
    """Calls into user code in one slot."""

    def __init__(self) -> None:
        self._current: Call | None = None
        self._cancelled: set[ExecutionId] = set()
        self._tell: Callable[[ExecutionId, bool], None] = _tell_nobody

    def watched_by(self, tell: Callable[[ExecutionId, bool], None]) -> None:
        """Sets the observer of subtasks that end: before and after their operators are closed."""
        self._tell = tell

    @property
    def current(self) -> Call | None:
        return self._current

    def begin(self, execution: ExecutionId, now_ms: int, *, closes: bool = False) -> Call | None:
        """A call of the subtask's code begins; returns the enclosing call."""
        outer, self._current = self._current, Call(execution, now_ms, closes)
        return outer

    def end(self, outer: Call | None) -> None:
        self._current = outer

    def closing(self, execution: ExecutionId) -> None:
        """The subtask is over, and not to be broken off; its operators are closed next."""
        self._current = None
        self._tell(execution, False)

    def closed(self, execution: ExecutionId) -> None:
        self._cancelled.discard(execution)
        self._tell(execution, True)

    def interrupt(self, cancelled: list[ExecutionId], frame: FrameType | None) -> None:
        """Break off the present call if its subtask is cancelled; called by the signal's handler.

        frame: what the signal has interrupted.
        """
        self._cancelled.update(cancelled)
        call = self._current
        if call is None or call.closes:
            return
        if call.execution in self._cancelled and not _is_ours(frame):
            raise CallInterrupted("the job was cancelled while this call was under way")


def _is_ours(frame: FrameType | None) -> bool:
    return frame is None or str(frame.f_globals.get("__name__", "")).partition(".")[0] == OURS


def _tell_nobody(execution: ExecutionId, over: bool) -> None:
    """Does nothing: a slot without a process of its own can't be ended."""
