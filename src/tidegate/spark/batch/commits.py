"""Commits what the sinks of a job in batch have written, once all of its tasks have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from tidegate.operators.sinks.sink import SinkHost, commit
from tidegate.slot.loop.beside import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import JobId, OperatorId
    from tidegate.operators.sinks.sink_topology import CommitterOperator

_LOOK_S: Final = 0.5


def clean_sinks(graph: JobGraph, job: JobId) -> None:
    """Deletes what attempts of a job's tasks have left, none of which runs or is needed any more.

    Raises StorageFailed.
    """
    for vertex in graph.topology.vertices:
        for operator in graph.plan(vertex.id).operators:
            if isinstance(operator, SinkHost):
                operator.clean_up(job)


def commit_all(
    graph: JobGraph,
    held: Mapping[OperatorId, Sequence[bytes]],
    ended_by: Callable[[], TidegateError | None],
) -> None:
    """Commits what tasks have left, one sink after another. Raises CommitFailed.

    ended_by: an error if the job is to end before its time, which is then raised.
    """
    for vertex in graph.topology.vertices:
        due = [place for place, each in enumerate(vertex.operators) if held.get(each.id)]
        operators = graph.plan(vertex.id).operators if due else ()
        for place in due:
            operator = cast("SinkHost | CommitterOperator", operators[place])
            info = vertex.operators[place]
            if (committer := operator.committer()) is None:
                continue
            threads = DaemonThreads(1)
            work = commit(
                committer,
                held[info.id],
                threads.run,
                retries=graph.settings.slot.commit_retries,
                name=info.name,
                of="all tasks",
            )
            try:
                asyncio.run(_watched(work, ended_by))
            finally:
                threads.close()
                committer.close()


async def _watched(
    work: Coroutine[object, object, None], ended_by: Callable[[], TidegateError | None]
) -> None:
    """Waits for a commit; a call that does not return keeps neither the job nor the process."""
    task = asyncio.create_task(work)
    while not (await asyncio.wait((task,), timeout=_LOOK_S))[0]:
        if (error := ended_by()) is not None:
            task.cancel()
            raise error
    await task
