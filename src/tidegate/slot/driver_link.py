"""The words of a slot to its driver: messages, errors, and the log, with what functions print.

Any thread may log or print; the loop takes what has come. What waits is bounded by count and size,
within each second and in all, and what goes beyond is counted. The step that was at work is found
when a record is made, by the frames of its thread, so that steps that do not log pay nothing.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import pickle
import sys
import threading
import traceback
from io import TextIOBase
from typing import TYPE_CHECKING, Final, TextIO, cast

from tidegate.api.rows.batches import raised
from tidegate.config.log import HEARD_LEVELS, in_words, logging_as, overheard
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.model.control import STDERR, STDOUT, Logged, LogRecord
from tidegate.model.descriptors import shortage
from tidegate.slot.subtask import chain
from tidegate.slot.subtask.chain import Chain, ChainedOperator
from tidegate.slot.subtask.context import WORKS_FOR

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import FrameType

    from structlog.typing import FilteringBoundLogger

    from tidegate.api.operator import SubtaskInfo
    from tidegate.clock import Clock
    from tidegate.model.control import ProgramLogs, ToDriver
    from tidegate.model.ids import SlotId
    from tidegate.model.settings import LogSettings
    from tidegate.transport.wire import Wire

TEXT_MAX: Final = 16 << 10
"""Characters of a record or line; the rest is left out."""

WAITING_S: Final = 5
"""Seconds of a full allowance that may wait while the loop is in a long call."""

OWN_LOGGER: Final = "tidegate"


class _Allowance:
    """Records of one kind that a second has room for, and how many went beyond."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max = count_max
        self._bytes_max = bytes_max
        self._second = -1
        self._count = self._bytes = 0
        self._waiting = self._waiting_bytes = 0
        self._left_out = 0

    def takes(self, size: int, now_ms: int) -> bool:
        second = now_ms // 1_000
        if second != self._second:
            self._second, self._count, self._bytes = second, 0, 0
        fits = (
            self._count < self.count_max
            and self._bytes + size <= self._bytes_max
            and self._waiting < WAITING_S * self.count_max
            and self._waiting_bytes + size <= WAITING_S * self._bytes_max
        )
        if fits:
            self._count += 1
            self._bytes += size
            self._waiting += 1
            self._waiting_bytes += size
        else:
            self._left_out += 1
        return fits

    @property
    def left_out(self) -> int:
        return self._left_out

    def taken(self) -> None:
        self._waiting = self._waiting_bytes = self._left_out = 0


class SlotLog:
    """Keeps what is logged and printed until it is taken for the driver."""

    def __init__(self, slot: SlotId, settings: LogSettings, clock: Clock) -> None:
        self._slot = slot
        self._settings = settings
        self._clock = clock
        # A handler may log, and a signal's handler may print, while the thread has the lock.
        self._lock = threading.RLock()
        self._entries: list[LogRecord] = []
        self._records = _Allowance(settings.records_max, settings.bytes_max)
        self._lines = _Allowance(settings.lines_max, settings.bytes_max)

    @contextlib.contextmanager
    def gathering(self, logs: ProgramLogs | None) -> Generator[None]:
        """Gathers all that this process logs and prints meanwhile. logs: how the program logs."""
        with (
            self._standard_streams(),
            logging_as(logs, self._stream_of_handlers, self._settings.levels),
            _told_all_records(self._handler() if self._settings.records_max else None),
        ):
            yield

    @contextlib.contextmanager
    def _standard_streams(self) -> Generator[None]:
        if not self._settings.lines_max:
            yield
            return
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._stream(STDOUT), self._stream(STDERR)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def _stream(self, name: str, *, repeats: bool = False) -> TextIO:
        return cast("TextIO", _Stream(self, name, repeats=repeats))

    def _stream_of_handlers(self, to_stdout: bool) -> TextIO:
        """A stream whose lines are records too, which are told as such."""
        if self._settings.lines_max:
            repeats = self._settings.records_max > 0
            return self._stream(STDOUT if to_stdout else STDERR, repeats=repeats)
        return sys.stdout if to_stdout else sys.stderr

    def _handler(self) -> logging.Handler:
        last = logging.StreamHandler(self._stream_of_handlers(False))
        last.setLevel(logging.WARNING)
        return _Handler(self, last)

    def of(self, log: FilteringBoundLogger) -> FilteringBoundLogger:
        """A logger that writes to another one, and whose events come here too."""
        return overheard(log, self._own) if self._settings.records_max else log

    def _own(self, level: str, event: str, facts: Mapping[str, object]) -> None:
        facts = {name: fact for name, fact in facts.items() if name != "slot"}
        self.add(HEARD_LEVELS[level], OWN_LOGGER, in_words(event, facts))

    def add(
        self,
        level: int,
        logger: str,
        text: str,
        *,
        trace: str = "",
        stream: str = "",
        repeats: bool = False,
    ) -> None:
        """Keep a record, or a line of a stream, if there is room for it."""
        text, trace = _cut(text), _cut(trace)
        allowance = self._lines if stream else self._records
        with self._lock:
            if not allowance.takes(len(text) + len(trace), self._clock.monotonic_ms()):
                return
        doer = at_work(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        record = LogRecord(
            self._clock.wall_ms(),
            level,
            logger,
            text,
            trace,
            "" if doer is None else doer.name,
            "" if doer is None else doer.task,
            None if doer is None else doer.subtask,
            None if doer is None else doer.attempt,
            self._slot,
            stream,
            repeats,
        )
        with self._lock:
            self._entries.append(record)

    def take(self) -> tuple[Logged, ...]:
        """Take what has come since the last call: nothing, or one message."""
        if not self._entries and not self._records.left_out and not self._lines.left_out:
            return ()
        with self._lock:
            entries, self._entries = tuple(self._entries), []
            left_out = self._records.left_out, self._lines.left_out
            self._records.taken()
            self._lines.taken()
        return (Logged(self._slot, entries, *left_out),)


def _cut(text: str) -> str:
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… {len(text) - TEXT_MAX:,} more characters"


def at_work(frame: FrameType | None) -> SubtaskInfo | None:
    """The step that works in a frame or one around it; None outside of steps."""
    while frame is not None:
        if (found := operator_of(frame)) is not None:
            return found.context.info
        frame = frame.f_back
    return WORKS_FOR.get()


def operator_of(frame: FrameType) -> ChainedOperator | None:
    """The operator that a frame of a chain calls."""
    if frame.f_code.co_filename != chain.__file__:
        return None
    names = frame.f_locals
    found = names.get("each") if isinstance(names.get("self"), Chain) else names.get("self")
    return found if isinstance(found, ChainedOperator) else None


@contextlib.contextmanager
def _told_all_records(handler: logging.Handler | None) -> Generator[None]:
    """Records of all loggers reach this handler meanwhile, which is not one of the root's.

    It stands above the root: so a function's ``basicConfig`` still finds a root without handlers,
    and one that replaces these leaves it.
    """
    if handler is None:
        yield
        return
    root = logging.getLogger()
    above = logging.Logger("above the root")
    above.addHandler(handler)
    former, root.parent = root.parent, above
    try:
        yield
    finally:
        root.parent = former


class _Handler(logging.Handler):
    """Tells a log all records. last: where records go that no handler of the program's gets."""

    def __init__(self, log: SlotLog, last: logging.Handler) -> None:
        super().__init__()
        self._log = log
        self._last = last

    def emit(self, record: logging.LogRecord) -> None:
        try:
            trace = record.exc_text or ""
            if record.exc_info and record.exc_info[1] is not None and not trace:
                trace = "".join(traceback.format_exception(record.exc_info[1]))
            self._log.add(record.levelno, record.name, record.getMessage(), trace=trace.rstrip())
        except Exception:
            self.handleError(record)
        # As `logging.lastResort`, which is not asked since there is a handler: this one.
        if record.levelno >= self._last.level and not _has_handlers(record.name):
            self._last.handle(record)


def _has_handlers(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(None if name == "root" else name)
    root = logging.getLogger()
    while logger is not None:
        if logger.handlers:
            return True
        logger = logger.parent if logger is not root and logger.propagate else None
    return False


class _Stream(TextIOBase):
    """A text stream on which each thread has its own unfinished line."""

    def __init__(self, log: SlotLog, name: str, *, repeats: bool) -> None:
        self._log = log
        self._name = name
        self._repeats = repeats
        self._begun = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._begun, "line", "") + text).split("\n")
        self._begun.line = rest
        for line in lines:
            self._log.add(logging.INFO, self._name, line, stream=self._name, repeats=self._repeats)
        return len(text)


class DriverLink:
    """Sends messages to the driver; before it is dialled, and once it is gone, to nobody.

    log: what was logged and printed goes ahead of each message.
    """

    def __init__(self, log: SlotLog) -> None:
        self._log = log
        self._wire: Wire | None = None

    def dialled(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, message: ToDriver) -> None:
        if self._wire is not None:
            self.send_logged()  # ahead of the subtask's end, behind which nobody listens
            self._wire.send([pickle.dumps(message, protocol=5)])

    def send_logged(self) -> None:
        if self._wire is not None:
            for logged in self._log.take():
                self._wire.send([pickle.dumps(logged, protocol=5)])

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def as_ours(error: Exception, where: str) -> TidegateError:
    """The error in a form that can travel to the driver, with the place where it happened."""
    if isinstance(error, TidegateError):
        placed = copy.copy(error)  # the same error may be that of several subtasks
        placed.where = f"{error.where}, in {where}" if error.where else where
        if isinstance(placed, UserCodeFailed):
            placed.call = None  # rows stay here
        return placed
    trace = "".join(traceback.format_exception(error))
    short = shortage(error)  # by the function, or by others of its process: its trace may tell
    remedy = short.remedy if short else ""
    return UserCodeFailed(raised(error), where=where, remedy=remedy, trace=trace)
