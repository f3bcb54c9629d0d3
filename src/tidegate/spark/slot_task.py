"""A slot inside a Spark task: what ``mapInArrow`` runs in the Python worker."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import pyarrow as pa

    from tidegate.model.control import SlotInvitation

OUTCOME_SCHEMA = "outcome string"
REPLACED = "replaced"
"""Outcome of a task that Spark has run again: it hosts no slot."""

REQUEST_PROPERTY = "tidegate.slot.request"
"""Local property of a slot's Spark job: the provider's name for the slot.

It is no part of the function, so that Spark plans a job's slots once.
"""


@dataclass(frozen=True, slots=True)
class SlotTask:
    """Input of the task: an invitation that names no request yet.

    path: the driver's import path on the same machine, else ().
    """

    invitation: SlotInvitation
    path: tuple[str, ...]


def slot_function(
    task: SlotTask,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; it returns one row when the job is over: the reason."""

    def serve_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The input is one row without meaning. Reading it first would cost 40 ms: its end is a
        # packet of its own, which TCP holds back until the packet before is acknowledged.
        outcome = _serve(task)
        for _ in batches:
            pass
        import pyarrow

        # Not from_pydict(), which loads pandas to look at the list.
        column = pyarrow.repeat(pyarrow.scalar(outcome, pyarrow.string()), 1)
        yield pyarrow.RecordBatch.from_arrays([column], names=["outcome"])

    return serve_slot


def _serve(task: SlotTask) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a slot's function runs in a task of Spark"
    if context.attemptNumber() > 0:
        # The job master has asked for another slot already; a second one would hold a core.
        return REPLACED
    request = context.getLocalProperty(REQUEST_PROPERTY)
    assert request is not None, "each slot's Spark job has a request"
    from tidegate.slot.process.serve import serve

    with imports_from(task.path):
        return serve(replace(task.invitation, request=request))


@contextmanager
def imports_from(path: tuple[str, ...]) -> Generator[None]:
    """Lets a worker import what the driver can, within the block. path: the driver's."""
    before = list(sys.path)
    sys.path += [entry for entry in path if entry not in before]
    try:
        yield
    finally:
        sys.path[:] = before
