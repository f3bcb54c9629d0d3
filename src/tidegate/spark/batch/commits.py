"""Commits what the sinks of a job in batch have written, once all of its tasks have ended."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from tidegate.config.log import process_log
from tidegate.errors import TidegateError, as_error
from tidegate.operators.sinks.sink import SinkHost, commit
from tidegate.slot.driver_link import as_ours
from tidegate.slot.loop.beside import DaemonThreads
from tidegate.slot.subtask.chain import log_failed_close

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidegate.api.sink import Committer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import JobId, OperatorId
    from tidegate.operators.sinks.sink_topology import CommitterOperator
    from tidegate.spark.batch.watched_calls import WatchedCalls


def clean_sinks(graph: JobGraph, jobs: Collection[JobId]) -> None:
    """Deletes what attempts of the tasks of jobs have left, none of which runs or is needed.

    Raises StorageFailed.
    """
    if not jobs:
        return
    for vertex in graph.topology.vertices:
        for operator in graph.plan(vertex.id).operators:
            if isinstance(operator, SinkHost):
                operator.clean_up(jobs)


def commit_all(
    graph: JobGraph, held: Mapping[OperatorId, Sequence[bytes]], calls: WatchedCalls
) -> None:
    """Commits what tasks have left, one sink after another.

    calls: raise what the job is to end with, if it is to end before its time. Raises CommitFailed,
    and UserCodeFailed where a committer raises something else; each names its operator.
    """
    for vertex in graph.topology.vertices:
        due = [place for place, each in enumerate(vertex.operators) if held.get(each.id)]
        operators = graph.plan(vertex.id).operators if due else ()
        for place in due:
            operator = cast("SinkHost | CommitterOperator", operators[place])
            info = vertex.operators[place]
            retries = graph.settings.slot.commit_retries
            work = partial(_commit, operator, held[info.id], info.name, retries, calls)
            calls.run(work)


def _commit(
    operator: SinkHost | CommitterOperator,
    committables: Sequence[bytes],
    name: str,
    retries: int,
    calls: WatchedCalls,
) -> None:
    """Commits and closes the committer, also where nobody waits for that any more."""
    threads, committer = DaemonThreads(1), None

    async def run(call: Callable[[], object]) -> object:
        calls.check()
        return await threads.run(call)

    try:
        if (committer := operator.committer()) is not None:
            asyncio.run(
                commit(committer, committables, run, retries=retries, name=name, of="all tasks")
            )
    except BaseException as raised:  # code of the user's may leave its program
        error = as_error(raised)
        if isinstance(error, TidegateError) and error.where:
            raise
        raise as_ours(error, f"operator '{name}'") from raised
    finally:
        threads.close()
        if committer is not None:
            _close(committer, name)


def _close(committer: Committer, name: str) -> None:
    try:
        committer.close()
    except BaseException as raised:  # no failure of the job, whose output is there
        log_failed_close(process_log().bind(sink=name), as_error(raised))
