"""A program that is only looked at: it comes to its first job, which is shown and not started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.stream_graph import StreamGraph

PLAN_VARIABLE: Final = "TIDEGATE_PLAN"
"""Set where programs are only looked at, by ``tidegate plan`` and ``tidegate config show``."""


class Planned(BaseException):
    """The program has come to its first job. No program is to catch it as a failure.

    stream_graph: the job as written. graph: as it would run. configuration: as it would hold.
    """

    def __init__(
        self, stream_graph: StreamGraph, graph: JobGraph, configuration: Configuration
    ) -> None:
        super().__init__()
        self.stream_graph = stream_graph
        self.graph = graph
        self.configuration = configuration


def is_wanted() -> bool:
    """True if this process looks at programs instead of running them."""
    return PLAN_VARIABLE in os.environ
