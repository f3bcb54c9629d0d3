"""The log of one job: what its driver and its slots have logged, and what functions have printed.

The newest records are kept in memory, the driver's own apart from those of slots, so that a
function that logs much does not push out why the job has failed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from heapq import merge
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tidegate.config.log import HEARD_LEVELS, in_words, overheard, print_line, written_later
from tidegate.driver.pool import PrintedLines, WaitingLines
from tidegate.model.control import LogRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from structlog.typing import FilteringBoundLogger

    from tidegate.clock import Clock
    from tidegate.driver.telling.log_file import LogFile
    from tidegate.model.control import Logged
    from tidegate.model.logs import LogFilter, LogPage
    from tidegate.model.settings import LogSettings

OWN_BYTES: Final = 1 << 20
"""Of the driver's own records that are kept."""

OWN_LOGGER: Final = "tidegate"
_WARNING: Final = HEARD_LEVELS["warning"]


class _Kept:
    """The newest records, up to a size."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.entries: deque[tuple[int, LogRecord]] = deque()
        self._bytes = 0

    def add(self, number: int, record: LogRecord) -> None:
        self.entries.append((number, record))
        self._bytes += _size(record)
        while self._bytes > self.bytes_max and len(self.entries) > 1:
            self._bytes -= _size(self.entries.popleft()[1])


def _size(record: LogRecord) -> int:
    return len(record.text) + len(record.trace) + 200  # what the rest of a record takes


class JobLog:
    """Keeps the log of a job; any thread may add or read.

    log: what the driver's own events go to as well.
    """

    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        self._clock = clock
        self._plain = log
        self._lock = threading.Lock()
        self._number = 0
        self._own = _Kept(OWN_BYTES)
        self._of_slots = _Kept(OWN_BYTES)
        self._printed: PrintedLines | None = None
        self._file: LogFile | None = None
        self._lines: WaitingLines[Callable[[], object]] | None = None
        self.log: Final = overheard(written_later(log, self._later), self.add)

    def begin(self, settings: LogSettings, start: Callable[[Callable[[], None]], object]) -> None:
        """The job begins. start: runs a call on the driver's pool."""
        self._of_slots.bytes_max = settings.kept_bytes
        self._printed = PrintedLines(start)
        self._lines = WaitingLines(start, self._write_lines)
        if settings.file is not None:
            from tidegate.driver.telling.log_file import LogFile  # few jobs write one

            self._file = LogFile(
                settings.file, start, self._clock, self._plain, as_json=settings.as_json
            )

    def end(self) -> None:
        """The pool is about to end: further lines of the driver are written at once."""
        self._lines = None

    def _later(self, write: Callable[[], object]) -> None:
        if (lines := self._lines) is None:
            write()
        else:
            lines.add([write])

    def _write_lines(self, writes: Iterator[Callable[[], object]]) -> None:
        for write in writes:
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                write()
        if self._lines is not None and (left_out := self._lines.take_left_out()):
            print_line(sys.stderr, f"tidegate: {left_out:,} more lines were logged")

    def add(self, method: str, event: str, facts: Mapping[str, object]) -> None:
        """An event of the driver. method: of a logger, such as ``warning``."""
        text = in_words(event, facts)
        self._keep(LogRecord(self._clock.wall_ms(), HEARD_LEVELS[method], OWN_LOGGER, text))

    def heard(self, logged: Logged) -> None:
        """A slot tells what was logged and printed there."""
        for record in logged.records:
            if not record.repeats:
                self._keep(record)
        for count, what, option in (
            (logged.records_left_out, "records", "tidegate.log.records-to-driver"),
            (logged.lines_left_out, "lines", "tidegate.print.lines-to-driver"),
        ):
            if count:
                text = (
                    f"{count:,} {what} dropped: more than {option} or tidegate.log.bytes-to-driver"
                )
                at_ms = self._clock.wall_ms()
                self._keep(LogRecord(at_ms, _WARNING, OWN_LOGGER, text, slot=logged.slot))
        lines = [record for record in logged.records if record.stream]
        if self._printed is not None and (lines or logged.lines_left_out):
            self._printed.show(lines, logged.lines_left_out)

    def _keep(self, record: LogRecord) -> None:
        with self._lock:
            self._number += 1
            (self._of_slots if record.slot else self._own).add(self._number, record)
            if self._file is not None:  # where they are in their order too
                self._file.add(record)

    def read(self, wanted: LogFilter, *, after: int | None = None, limit: int = 1_000) -> LogPage:
        """Chosen entries: the newest ones, or those that come after a number.

        limit: of entries, at most `PAGE_MAX`.
        """
        from tidegate.model.logs import PAGE_MAX, LogEntry, LogPage  # few jobs are asked for it

        with self._lock:
            kept = [_newest_first(each.entries, after) for each in (self._own, self._of_slots)]
            newest = self._number
        entries = list(merge(*kept, reverse=True))
        if after is not None:
            entries.reverse()
        chosen = (entry for entry in entries if wanted.accepts(entry[1]))
        page, is_whole = _within(chosen, min(limit, PAGE_MAX))
        if after is None:
            page.reverse()
        reached = newest if after is None or is_whole else page[-1][0]
        return LogPage(tuple(LogEntry(*entry) for entry in page), reached)


_Entries = list[tuple[int, LogRecord]]


def _newest_first(entries: deque[tuple[int, LogRecord]], after: int | None) -> _Entries:
    if after is None:
        return list(reversed(entries))
    return list(takewhile(lambda entry: entry[0] > after, reversed(entries)))


def _within(entries: Iterable[tuple[int, LogRecord]], limit: int) -> tuple[_Entries, bool]:
    """The first entries, as many as an answer may have, and whether these are all."""
    from tidegate.model.logs import PAGE_BYTES_MAX

    page: _Entries = []
    size = 0
    for each in entries:
        size += _size(each[1])
        if page and (len(page) >= limit or size > PAGE_BYTES_MAX):
            return page, False
        page.append(each)
    return page, True
