"""Where a process logs: the one place where a logger is made; all else is given it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


LEVEL_VARIABLE: Final = "TIDEGATE_LOG_LEVEL"
"""Environment variable with the least level that is logged: debug, info, warning or error."""

LEVELS: Final = ("debug", "info", "warning", "error")


def process_log() -> FilteringBoundLogger:
    """The logger of this process: what the program has configured, else standard error.

    Standard output belongs to the program and to its print sinks. Unless told otherwise by
    ``TIDEGATE_LOG_LEVEL`` only what somebody should act on is logged.
    """
    # Loading structlog costs more than all else that a first program imports.
    import structlog

    if structlog.is_configured():
        return structlog.get_logger()
    level = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    if level not in LEVELS:
        raise ConfigError(
            f"{level!r} is no log level",
            where=f"the environment variable {LEVEL_VARIABLE}",
            remedy=f"Use one of: {', '.join(LEVELS)}.",
        )
    wrapper = structlog.make_filtering_bound_logger(level)
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), wrapper_class=wrapper)
