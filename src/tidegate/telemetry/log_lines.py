"""Records of a job's log as lines for people, and as JSON for programs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidegate.model.control import LogRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


def as_text(record: LogRecord) -> str:
    """A record for people: a line, and the traceback below it."""
    place = record.operator or record.task
    if place and record.subtask is not None:
        place = f"{place} ({record.subtask + 1})"
    whose = "" if not record.slot else f" slot={record.slot}"
    where = f" [{place}]" if place else ""
    line = f"{_time(record)} {level_name(record)} {record.logger}{where}: {record.text}{whose}"
    return f"{line}\n{record.trace}" if record.trace else line


def as_json(record: LogRecord) -> dict[str, object]:
    """A record for programs."""
    return {
        "time": datetime.fromtimestamp(record.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "timestamp": record.at_ms,
        "level": level_name(record),
        "logger": record.logger,
        "message": record.text,
        "exception": record.trace or None,
        "operator": record.operator or None,
        "task": record.task or None,
        "subtask": record.subtask,
        "attempt": record.attempt,
        "slot": record.slot or None,
    }


def record_of(told: Mapping[str, Any]) -> LogRecord:
    """The record that `as_json` has told."""
    return LogRecord(
        told["timestamp"],
        _level_of(told["level"]),
        told["logger"],
        told["message"],
        told["exception"] or "",
        told["operator"] or "",
        told["task"] or "",
        told["subtask"],
        told["attempt"],
        told["slot"] or "",
    )


def _level_of(name: str) -> int:
    known = logging.getLevelNamesMapping().get(name)
    return int(name.removeprefix("Level ")) if known is None else known


def level_name(record: LogRecord) -> str:
    """The level, such as ``WARNING``; a level of the program's own has its number."""
    return logging.getLevelName(record.level)


def _time(record: LogRecord) -> str:
    at = datetime.fromtimestamp(record.at_ms / 1000, UTC).isoformat(" ", "milliseconds")
    return at.replace("+00:00", "Z")
