"""What a program is warned about when it is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.config.log import process_log
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
    log = process_log()
    for text in texts:
        log.warning("a setting has no effect", setting=text)
    if missing:
        log.warning(
            "operators with state have no uid; after a change of the program "
            "their state may not be found: call uid() on each",
            proposed_uids=missing,
        )
