"""The log of a job as its readers choose from it."""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.errors import UserError

if TYPE_CHECKING:
    from tidegate.model.control import LogRecord

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
PAGE_MAX: Final = 1_000
"""Entries that one answer may have."""

PAGE_BYTES_MAX: Final = 1 << 20


@frozen
class LogFilter:
    """Chooses records of a job's log.

    level: the least one, such as ``warning``. operator: name of a step, or of a task. subtask: its
    index. slot: its id; "" is the driver, None any. text: of the record or its traceback, in any
    case. since_ms: of the wall clock.
    Raises UserError for a level that there is not.
    """

    level: str = "debug"
    operator: str = ""
    subtask: int | None = None
    slot: str | None = None
    text: str = ""
    since_ms: int = 0
    least: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        level = LEVELS.get(self.level.lower())
        if level is None:
            raise UserError(
                f"'{self.level}' is not a log level",
                where="log",
                remedy=f"Use one of: {', '.join(LEVELS)}.",
            )
        object.__setattr__(self, "least", level)

    def accepts(self, record: LogRecord) -> bool:
        """True if a record is chosen."""
        return (
            record.level >= self.least
            and (not self.operator or self.operator in (record.operator, record.task))
            and (self.subtask is None or self.subtask == record.subtask)
            and (self.slot is None or self.slot == record.slot)
            and record.at_ms >= self.since_ms
            and (not self.text or self.text.lower() in f"{record.text}\n{record.trace}".lower())
        )


@frozen
class LogEntry:
    """A record in a job's log. number: its place there; numbers grow."""

    number: int
    record: LogRecord


@frozen
class LogPage:
    """Chosen entries of a log, the oldest first. after: ask with it for those that come later."""

    entries: tuple[LogEntry, ...]
    after: int
