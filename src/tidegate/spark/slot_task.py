"""A slot inside a Spark task: what ``mapInArrow`` runs in the Python worker."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tidegate.model.control import SlotInvitation

OUTCOME_SCHEMA = "outcome string"
REPLACED = "replaced"
"""Outcome of a task that Spark has run again: it hosts no slot."""


@dataclass(frozen=True, slots=True)
class SlotTask:
    """Input of the task. path: the driver's import path on the same machine, else ()."""

    invitation: SlotInvitation
    path: tuple[str, ...]


def slot_function(
    task: SlotTask,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; it returns one row when the job is over: the reason."""

    def serve_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for _ in batches:
            pass
        yield pyarrow.RecordBatch.from_pydict({"outcome": [_serve(task)]})

    return serve_slot


def _serve(task: SlotTask) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        # The job master has asked for another slot already; a second one would hold a core.
        return REPLACED
    from tidegate.slot.process.serve import serve

    before = list(sys.path)
    sys.path += [entry for entry in task.path if entry not in before]
    try:
        return serve(task.invitation)
    finally:
        sys.path[:] = before
