"""The words of a slot to its driver: messages, errors of subtasks, and what functions print.

Printed text is bounded, and goes in whole lines.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
import threading
import traceback
from io import TextIOBase
from typing import TYPE_CHECKING, Final, TextIO, cast

from tidegate.api.rows.batches import raised
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.model.control import Printed
from tidegate.model.descriptors import shortage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidegate.model.control import ToDriver
    from tidegate.transport.wire import Wire

_SECOND_MS: Final = 1_000


class Printing:
    """Keeps lines until they are taken, no more of them a second than the driver is to have.

    lines_max: of a second; 0 if nothing is to go to the driver. now_ms: a clock that never goes
    back. Any thread may print; one takes.
    """

    def __init__(self, lines_max: int, now_ms: Callable[[], int]) -> None:
        self._lines_max = lines_max
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._lines: list[tuple[bool, str]] = []
        self._left_out = 0
        self._second, self._of_second = -1, 0

    @contextlib.contextmanager
    def standard_streams(self) -> Generator[None]:
        """Standard output and error of this process come here meanwhile, if anything is to."""
        if not self._lines_max:
            yield
            return
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (
            cast("TextIO", _Stream(self, to_error=to_error)) for to_error in (False, True)
        )
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def add(self, line: str, *, to_error: bool) -> None:
        with self._lock:
            second = self._now_ms() // _SECOND_MS
            if second != self._second:
                self._second, self._of_second = second, 0
            self._of_second += 1
            if self._of_second <= self._lines_max:
                self._lines.append((to_error, line))
            else:
                self._left_out += 1

    def take(self) -> tuple[Printed, ...]:
        """Take the lines that have come since the last call: nothing, or one message."""
        if not self._lines and not self._left_out:
            return ()
        with self._lock:
            taken = Printed(tuple(self._lines), self._left_out)
            self._lines, self._left_out = [], 0
        return (taken,)


class _Stream(TextIOBase):
    """A text stream on which each thread has its own unfinished line."""

    def __init__(self, printing: Printing, *, to_error: bool) -> None:
        self._printing = printing
        self._to_error = to_error
        self._begun = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._begun, "line", "") + text).split("\n")
        for line in lines:
            self._printing.add(line, to_error=self._to_error)
        self._begun.line = rest
        return len(text)


class DriverLink:
    """Sends messages to the driver; before it is dialled, and once it is gone, to nobody.

    printing: what functions have printed goes ahead of each message.
    """

    def __init__(self, printing: Printing) -> None:
        self._printing = printing
        self._wire: Wire | None = None

    def dialled(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, message: ToDriver) -> None:
        if self._wire is not None:
            self.send_printed()  # ahead of the subtask's end, behind which nobody listens
            self._wire.send([pickle.dumps(message, protocol=5)])

    def send_printed(self) -> None:
        if self._wire is not None:
            for printed in self._printing.take():
                self._wire.send([pickle.dumps(printed, protocol=5)])

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def as_ours(error: Exception, where: str) -> TidegateError:
    """The error in a form that can travel to the driver, with the place where it happened."""
    if isinstance(error, TidegateError):
        placed = copy.copy(error)  # the same error may be that of several subtasks
        placed.where = f"{error.where}, in {where}" if error.where else where
        return placed
    trace = "".join(traceback.format_exception(error))
    short = shortage(error)  # by the function, or by others of its process: its trace may tell
    remedy = short.remedy if short else ""
    return UserCodeFailed(raised(error), where=where, remedy=remedy, trace=trace)
