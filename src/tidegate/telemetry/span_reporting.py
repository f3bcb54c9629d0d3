"""Reports the spans of a running job: a thread beside the driver for each reporter."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from tidegate.telemetry.reporting import end_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    import structlog

    from tidegate.clock import Clock
    from tidegate.model.metrics import Span
    from tidegate.telemetry.reporters.spans import SpanReporter

WAITING_MAX: Final = 1_000
"""Spans that wait for a receiver; older ones are dropped."""


class SpanReporting:
    """Gives spans to all reporters of a job, in order.

    What a reporter raises is logged once in a row. The end of the job drops what still waits for a
    receiver that has not answered.
    """

    def __init__(
        self,
        reporters: Sequence[SpanReporter],
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._clock = clock
        self._all = [_SpanThread(each, log) for each in reporters]

    def add(self, span: Span) -> None:
        """Has a span reported. Does not block."""
        for each in self._all:
            each.add(span)

    def close(self) -> None:
        """Reports what waits, and ends. Blocking."""
        for each in self._all:
            each.is_over()
        end_all(self._all, self._clock)


class _SpanThread:
    """A reporter with its thread, which begins with the first span."""

    def __init__(self, reporter: SpanReporter, log: structlog.typing.FilteringBoundLogger) -> None:
        self.failed = False
        self._reporter = reporter
        self._log = log
        self._changed = threading.Condition()
        self._waiting: deque[Span] = deque(maxlen=WAITING_MAX)
        self._over = False
        self._thread: threading.Thread | None = None

    def add(self, span: Span) -> None:
        with self._changed:
            self._waiting.append(span)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._live, name="tidegate-spans", daemon=True
                )
                self._thread.start()

    def is_over(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()

    def end(self, wait_s: float) -> None:
        if self._thread is not None:
            self._thread.join(wait_s)
        with contextlib.suppress(Exception):  # nobody could do anything about it
            self._reporter.close()

    def _live(self) -> None:
        while (span := self._next()) is not None:
            try:
                self._reporter.report(span)
            except Exception as error:
                if not self.failed:
                    self._log.warning(
                        "a span could not be reported; the next one is tried all the same",
                        error=repr(error),
                    )
                self.failed = True
            else:
                self.failed = False

    def _next(self) -> Span | None:
        """The next span as it comes; None once the job is over, and no more are to be reported."""
        with self._changed:
            while not self._waiting and not self._over:
                self._changed.wait()
            if not self._waiting or (self._over and self.failed):
                return None
            return self._waiting.popleft()
