"""Where a process logs: the one place where a logger is made; all else is given it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def process_log() -> FilteringBoundLogger:
    """The logger of this process: what the program has configured, else standard error.

    Standard output belongs to the program and to its print sinks.
    """
    # Loading structlog costs more than all else that a first program imports.
    import structlog

    if structlog.is_configured():
        return structlog.get_logger()
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
