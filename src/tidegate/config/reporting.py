"""Reports of a job beside REST: the options, and the file of its spans."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import BooleanType, IntegerType, ListType, TextType
from tidegate.errors import ConfigError

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
    "driver to be printed; the others are counted. With 0, all lines stay where the slot runs.",
)
EXCEPTION_HISTORY: Final = ConfigOption(
    "web.exception-history-size", _COUNT, 16, "Number of failures that are remembered for each job."
)
TRACE_REPORTERS: Final[ConfigOption[tuple[str, ...] | None]] = ConfigOption(
    "traces.reporters",
    ListType(),
    None,
    "Reporters of spans, one for each checkpoint and each start of the subtasks: 'file', or none.",
)
TRACE_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.traces.file",
    _TEXT,
    None,
    "File on the driver's machine to which the reporter 'file' appends each span, a line of JSON.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    SUMMARY,
    SUMMARY_FILE,
    PRINTED_LINES,
    EXCEPTION_HISTORY,
    TRACE_REPORTERS,
    TRACE_FILE,
)


def trace_file(configuration: ReadableConfig) -> str | None:
    reporters = configuration.get(TRACE_REPORTERS) or ()
    unknown = [name for name in reporters if name != "file"]
    if unknown:
        raise ConfigError(
            f"There is no trace reporter '{unknown[0]}'",
            where=configuration.where_set(TRACE_REPORTERS),
            remedy=f"Set {TRACE_REPORTERS.key} to 'file'.",
        )
    path = configuration.get(TRACE_FILE)
    if not reporters:
        return None
    if path is None:
        raise ConfigError(
            "Spans are set to be written to a file, but no path is set",
            where=configuration.where_set(TRACE_REPORTERS),
            remedy=f"Set {TRACE_FILE.key}.",
        )
    return str(Path(path).absolute())
