"""What a program is warned about when it is submitted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.config.settings import configuration_warnings

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.graph.stream_graph import StreamGraph


def warn(graph: StreamGraph, configuration: Configuration, *, checkpointing: bool) -> None:
    """Log settings without effect, and operators whose state may not be found again."""
    texts = configuration_warnings(configuration)
    missing = graph.missing_uids() if checkpointing else {}
    if not texts and not missing:
        return
    # Loading structlog costs more than all else that a first program loads.
    import structlog

    # Standard output belongs to the program, unless it has said where logs go.
    configured = structlog.is_configured()
    log = structlog.get_logger() if configured else structlog.wrap_logger(_to_stderr())
    for text in texts:
        log.warning("a setting has no effect", setting=text)
    if missing:
        log.warning(
            "operators with state have no uid; after a change of the program "
            "their state may not be found: call uid() on each",
            proposed_uids=missing,
        )


def _to_stderr() -> object:
    import structlog

    return structlog.PrintLogger(sys.stderr)
