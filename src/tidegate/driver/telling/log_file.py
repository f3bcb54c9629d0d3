"""The file of a job's log: every record, as text or as JSON."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.config.log import HEARD_LEVELS
from tidegate.driver.pool import WaitingLines
from tidegate.model.control import LogRecord
from tidegate.telemetry.log_lines import as_json, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger

    from tidegate.clock import Clock


class LogFile:
    """Adds records to a file, on the pool.

    While the file cannot be written, or takes its time, records wait up to a number; those beyond
    are counted, and the file says how many. log: is told where writing fails, once in a row. start:
    runs a call on the pool.
    """

    def __init__(
        self,
        path: str,
        start: Callable[[Callable[[], None]], object],
        clock: Clock,
        log: FilteringBoundLogger,
        *,
        as_json: bool,
    ) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._as_json = as_json
        self._waiting = WaitingLines(start, self._write)
        self._writing = threading.Lock()
        self._unwritten = ""
        self._dropped = 0
        self._is_told = False

    def add(self, record: LogRecord) -> None:
        self._waiting.add([record])

    def _write(self, records: Iterator[LogRecord]) -> None:
        with self._writing:
            try:
                self._append(records)
            except OSError as error:
                if not self._is_told:
                    self._log.warning(
                        "the job's log cannot be written; it is tried again with each record",
                        where=self._path,
                        error=str(error),
                    )
                self._is_told = True
            else:
                self._is_told = False

    def _append(self, records: Iterator[LogRecord]) -> None:
        # Line by line, so that it is known which records the file has when it fails.
        with Path(self._path).open("a", 1, encoding="utf-8", errors="replace") as file:
            if self._unwritten:
                file.write(f"\n{self._unwritten}")  # behind what there may be of it
                self._unwritten = ""
            for record in records:
                self._unwritten = self._line(record)
                file.write(self._unwritten)
                self._unwritten = ""
            self._dropped += self._waiting.take_left_out()
            if self._dropped:
                file.write(self._line(self._note()))
                self._dropped = 0

    def _note(self) -> LogRecord:
        text = f"{self._dropped:,} records dropped: they came faster than this file took them"
        return LogRecord(self._clock.wall_ms(), HEARD_LEVELS["warning"], "tidegate", text)

    def _line(self, record: LogRecord) -> str:
        return f"{json.dumps(as_json(record)) if self._as_json else as_text(record)}\n"
