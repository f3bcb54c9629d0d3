"""Commits what the sinks of a job in batch have written, once all of its tasks have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tidegate.operators.sinks.sink import commit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import OperatorId
    from tidegate.operators.sinks.sink import SinkHost
    from tidegate.operators.sinks.sink_topology import CommitterOperator


def commit_all(graph: JobGraph, held: Mapping[OperatorId, Sequence[bytes]]) -> None:
    """Commits what tasks have left, one sink after another. Raises CommitFailed."""
    for vertex in graph.topology.vertices:
        due = [place for place, each in enumerate(vertex.operators) if held.get(each.id)]
        operators = graph.plan(vertex.id).operators if due else ()
        for place in due:
            operator = cast("SinkHost | CommitterOperator", operators[place])
            info = vertex.operators[place]
            if (committer := operator.committer()) is None:
                continue
            try:
                asyncio.run(
                    commit(
                        committer,
                        held[info.id],
                        asyncio.to_thread,
                        retries=graph.settings.slot.commit_retries,
                        name=info.name,
                        of="all tasks",
                    )
                )
            finally:
                committer.close()
