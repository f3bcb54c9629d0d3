"""Commits what the sinks of a job in batch have written, once all of its tasks have ended."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from tidegate.operators.sinks.sink import SinkHost, commit
from tidegate.slot.loop.beside import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.api.sink import Committer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import JobId, OperatorId
    from tidegate.operators.sinks.sink_topology import CommitterOperator
    from tidegate.spark.batch.watched_calls import WatchedCalls


def clean_sinks(graph: JobGraph, job: JobId) -> None:
    """Deletes what attempts of a job's tasks have left, none of which runs or is needed any more.

    Raises StorageFailed.
    """
    for vertex in graph.topology.vertices:
        for operator in graph.plan(vertex.id).operators:
            if isinstance(operator, SinkHost):
                operator.clean_up(job)


def commit_all(
    graph: JobGraph, held: Mapping[OperatorId, Sequence[bytes]], calls: WatchedCalls
) -> None:
    """Commits what tasks have left, one sink after another. Raises CommitFailed.

    calls: raise what the job is to end with, if it is to end before its time.
    """
    for vertex in graph.topology.vertices:
        due = [place for place, each in enumerate(vertex.operators) if held.get(each.id)]
        operators = graph.plan(vertex.id).operators if due else ()
        for place in due:
            operator = cast("SinkHost | CommitterOperator", operators[place])
            info = vertex.operators[place]
            if (committer := operator.committer()) is None:
                continue
            retries = graph.settings.slot.commit_retries
            work = partial(_commit, committer, held[info.id], info.name, retries, calls)
            calls.run(work, f"sink '{info.name}' commits")


def _commit(
    committer: Committer,
    committables: Sequence[bytes],
    name: str,
    retries: int,
    calls: WatchedCalls,
) -> None:
    """Commits and closes the committer, also where nobody waits for that any more."""
    threads = DaemonThreads(1)

    async def run(call: Callable[[], object]) -> object:
        calls.check()
        return await threads.run(call)

    try:
        asyncio.run(
            commit(committer, committables, run, retries=retries, name=name, of="all tasks")
        )
    finally:
        threads.close()
        committer.close()
