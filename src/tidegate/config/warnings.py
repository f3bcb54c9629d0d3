"""Warnings for programs: each has a name, by which a program can silence it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import ListType

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class Warn(Enum):
    """Names of the warnings; docs/guides/warnings.md explains the cause and remedy of each."""

    UNKNOWN_OPTION = "unknown-option"
    OPTION_WITHOUT_EFFECT = "option-without-effect"
    MISSING_UID = "missing-uid"
    RUNTIME_IGNORED = "runtime-ignored"
    NO_CHECKPOINTS = "no-checkpoints"
    NOTHING_TO_READ = "nothing-to-read"
    MISSING_COLUMNS = "missing-columns"
    NOT_EXECUTED = "not-executed"
    NO_SINK = "no-sink"
    JOB_CUT_OFF = "job-cut-off"
    EVENT_TIME_STANDS = "event-time-stands-still"
    UNREAD_SIDE_OUTPUT = "unread-side-output"
    TIMES_BEFORE_1980 = "times-before-1980"
    TOO_MANY_METRICS = "too-many-metrics"
    GAUGE_FAILED = "gauge-failed"


_NAMES: Final = tuple(each.value for each in Warn)


@frozen
class _WarningsType:
    name: str = "list"

    @property
    def expects(self) -> str:
        return f"a list of {', '.join(_NAMES)}"

    def parse(self, given: object) -> tuple[str, ...]:
        names = ListType().parse(given)
        for name in names:
            if name not in _NAMES:
                raise ValueError(f"not a list of warnings: none is called {name!r}")
        return names

    def render(self, value: object) -> str:
        return ListType().render(value)


SILENCED: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "tidegate.warnings.silenced",
    _WarningsType(),
    (),
    "Names of warnings that are not logged; docs/guides/warnings.md lists them all.",
)
OPTIONS: Final = (SILENCED,)


class Warnings:
    """Logs warnings with their names, except silenced ones."""

    def __init__(self, log: FilteringBoundLogger, silenced: tuple[str, ...]) -> None:
        self._log = log
        self._silenced = frozenset(silenced)

    def is_silenced(self, about: Warn) -> bool:
        return about.value in self._silenced

    def warn(self, about: Warn, text: str, **facts: object) -> None:
        """Logs a warning. text: cause and remedy, always the same; facts: of this occurrence."""
        if not self.is_silenced(about):
            self._log.warning(text, **facts, warning=about.value)


def process_warnings(configuration: ReadableConfig) -> Warnings:
    from tidegate.config.log import process_log

    return Warnings(process_log(), configuration.get(SILENCED))
