"""Reports of a job beside REST: its summary, its log, what failures leave."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    IntegerType,
    MapType,
    MemoryType,
    TextType,
)
from tidegate.errors import ConfigError
from tidegate.model.settings import LogSettings, ReplaySettings

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()
_COUNT: Final = IntegerType(at_least=0)

SUMMARY: Final = ConfigOption(
    "tidegate.job.summary",
    _BOOLEAN,
    True,
    "Print a summary of rows, checkpoints and restarts on standard error when a job ends.",
)
SUMMARY_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.job.summary-file",
    _TEXT,
    None,
    "File on the driver's machine to which the driver adds a line of JSON when a job ends: its "
    "id, name, status, duration, rows, checkpoints and restarts. Set by `tidegate run --json`.",
)
PRINTED_LINES: Final = ConfigOption(
    "tidegate.print.lines-to-driver",
    _COUNT,
    0,
    "Number of lines a second, of what functions print and log, that each slot sends to the "
    "driver to be printed there and kept in the job's log; the others are counted. With 0, all "
    "lines stay where the slot runs.",
)
LOG_LEVELS: Final[ConfigOption[dict[str, str] | None]] = ConfigOption(
    "tidegate.log.levels",
    MapType(),
    None,
    "Levels of loggers where functions run, such as 'root:info,orders.lookup:debug'. Other loggers "
    "have the levels that the program has given them by the start of the job.",
)
LOG_RECORDS: Final = ConfigOption(
    "tidegate.log.records-to-driver",
    _COUNT,
    200,
    "Number of log records a second that each slot sends to the job's log, which REST, the page "
    "and `tidegate logs` show; the others are counted.",
)
LOG_BYTES: Final = ConfigOption(
    "tidegate.log.bytes-to-driver",
    MemoryType(),
    256 << 10,
    "Size of the log records and lines a second that each slot sends to the driver.",
)
LOG_KEPT: Final = ConfigOption(
    "tidegate.log.kept-size",
    MemoryType(),
    4 << 20,
    "Size of the newest records of slots that the driver keeps in memory.",
)
LOG_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.log.file",
    _TEXT,
    None,
    "File on the driver's machine to which the driver adds all records of the job's log.",
)
LOG_FORMAT: Final = ConfigOption(
    "tidegate.log.format",
    ChoiceType(("text", "json")),
    "text",
    "Form of records in the file: lines for people, or one JSON object a line.",
)
REPLAY_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.replay.dir",
    _TEXT,
    None,
    "Folder on the driver's machine for a bundle of each failure in a function: row, key, state of "
    "the key, last inputs, code and versions, for `tidegate replay`. Rows may be private: nobody "
    "but the job's user may read the files. None are written without it.",
)
REPLAY_SIZE: Final = ConfigOption(
    "tidegate.replay.max-size",
    MemoryType(),
    4 << 20,
    "Greatest size of a bundle; what does not fit, such as the last inputs, is left out.",
)
REPLAY_ROWS: Final = ConfigOption(
    "tidegate.replay.last-inputs",
    _COUNT,
    100,
    "Number of rows that a bundle has of what the step was given last.",
)
EXCEPTION_HISTORY: Final = ConfigOption(
    "web.exception-history-size", _COUNT, 16, "Number of failures that are remembered for each job."
)
OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    SUMMARY,
    SUMMARY_FILE,
    PRINTED_LINES,
    LOG_LEVELS,
    LOG_RECORDS,
    LOG_BYTES,
    LOG_KEPT,
    LOG_FILE,
    LOG_FORMAT,
    REPLAY_DIRECTORY,
    REPLAY_SIZE,
    REPLAY_ROWS,
    EXCEPTION_HISTORY,
)


_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
"""Numbers of ``logging``."""


def log_settings(configuration: ReadableConfig) -> LogSettings:
    file = configuration.get(LOG_FILE)
    levels: dict[str, int] = {}
    for name, level in (configuration.get(LOG_LEVELS) or {}).items():
        if level.lower() not in _LEVELS:
            raise ConfigError(
                f"'{level}' of the logger '{name}' is not a log level",
                where=configuration.where_set(LOG_LEVELS),
                remedy=f"Use one of: {', '.join(_LEVELS)}.",
            )
        levels["" if name == "root" else name] = _LEVELS[level.lower()]
    return LogSettings(
        levels=levels,
        records_max=configuration.get(LOG_RECORDS),
        lines_max=configuration.get(PRINTED_LINES),
        bytes_max=configuration.get(LOG_BYTES),
        kept_bytes=configuration.get(LOG_KEPT),
        file=None if file is None else str(Path(file).absolute()),
        as_json=configuration.get(LOG_FORMAT) == "json",
    )


def replay_settings(configuration: ReadableConfig) -> ReplaySettings | None:
    directory = configuration.get(REPLAY_DIRECTORY)
    if directory is None:
        return None
    return ReplaySettings(
        str(Path(directory).absolute()),
        configuration.get(REPLAY_SIZE),
        configuration.get(REPLAY_ROWS),
    )
