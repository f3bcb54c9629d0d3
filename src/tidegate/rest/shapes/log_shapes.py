"""The log of a job as answers: as it comes, and as a job that is over has left it.

Source: dashboard §3.7.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import UserError
from tidegate.model.logs import PAGE_MAX, LogEntry, LogFilter, LogPage
from tidegate.rest.refusals import BadRequest, unresolved
from tidegate.telemetry.log_lines import as_json, as_text, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEFT_BYTES: Final = 1 << 20
"""Size of the newest records, as JSON, that a job leaves in its archive."""

_LEFT_MAX: Final = LEFT_BYTES // 200
"""More records than these do not fit: what `as_json` makes of one has 200 bytes and more."""

_DIGITS_MAX: Final = 18


def asked_for(read: Callable[..., LogPage], query: Mapping[str, str]) -> LogPage:
    """The page of a log that a request asks for. read: as `JobClient.log`. Raises BadRequest."""
    try:
        wanted = LogFilter(
            query.get("level") or "debug",
            query.get("operator", ""),
            _number(query, "subtask"),
            query.get("slot"),
            query.get("text", ""),
            _number(query, "since") or 0,
        )
    except UserError as error:
        raise BadRequest(str(error)) from error
    limit = _number(query, "limit")
    return read(wanted, after=_number(query, "after"), limit=PAGE_MAX if limit is None else limit)


def is_text(query: Mapping[str, str]) -> bool:
    """True if a log is asked for as lines, not as JSON."""
    return query.get("format", "json") == "text"


def page(told: LogPage) -> dict[str, object]:
    return {"records": [as_json(each.record) for each in told.entries], "after": told.after}


def lines(told: LogPage) -> str:
    return "".join(f"{as_text(each.record)}\n" for each in told.entries)


def _number(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name, "")
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX):
        raise unresolved("query", name, value)
    return int(value)


def to_leave(read: Callable[..., LogPage], *, over: bool) -> dict[str, object]:
    """The newest records for an archive. over: all that fit; else those of one page, at no cost."""
    found = read()
    if over:
        found = read(after=max(0, found.after - _LEFT_MAX))
    kept: deque[tuple[int, dict[str, object]]] = deque()
    size = 0
    while found.entries:
        for entry in found.entries:
            record = as_json(entry.record)
            kept.append((len(json.dumps(record)), record))
            size += kept[-1][0]
            while size > LEFT_BYTES:
                size -= kept.popleft()[0]
        if not over:
            break
        found = read(after=found.after)
    return {"records": [record for _, record in kept], "after": found.after}


class LeftLog:
    """The log that a job has left in its archive. told: as `to_leave` has made it."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        records = told["records"]
        first = told["after"] - len(records) + 1
        self._entries = [
            LogEntry(number, record_of(each)) for number, each in enumerate(records, first)
        ]

    def read(
        self, wanted: LogFilter, *, after: int | None = None, limit: int = PAGE_MAX
    ) -> LogPage:
        """Chosen entries: the newest ones, or those that come after a number."""
        most = min(limit, PAGE_MAX)
        chosen = [
            each
            for each in self._entries
            if wanted.accepts(each.record) and (after is None or each.number > after)
        ]
        newest = self._entries[-1].number if self._entries else 0
        if after is None:
            return LogPage(tuple(chosen[-most:] if most else ()), newest)
        page = chosen[:most]
        return LogPage(tuple(page), page[-1].number if len(page) < len(chosen) and page else newest)
