"""Prints where the driver prints what functions have printed in the slots."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.model.control import Printed

WAITING_MAX: Final = 10_000
"""Lines that wait while nobody reads what the driver prints; more are left out."""


class PrintedLines:
    """Prints on the pool, one call at a time, for the loop must not wait for a slow reader.

    start: runs a call on the pool.
    """

    def __init__(self, start: Callable[[Callable[[], None]], object]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bool, str]] = deque()
        self._left_out = 0
        self._at_work = False

    def show(self, printed: Printed) -> None:
        """Have lines printed, in order."""
        with self._lock:
            room = WAITING_MAX - len(self._waiting)
            self._waiting.extend(printed.lines[:room])
            self._left_out += printed.left_out + len(printed.lines[room:])
            begins, self._at_work = not self._at_work, True
        if begins:
            self._start(self._print)

    def _print(self) -> None:
        # Where nobody reads any more the lines are lost, as the slots cannot know.
        with contextlib.suppress(OSError, ValueError):
            while (line := self._next()) is not None:
                to_error, text = line
                stream = sys.stderr if to_error else sys.stdout
                stream.write(f"{text}\n")
                stream.flush()

    def _next(self) -> tuple[bool, str] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._left_out:
                told = f"tidegate: {self._left_out:,} more lines were printed in slots"
                self._left_out = 0
                return True, told
            self._at_work = False
            return None
