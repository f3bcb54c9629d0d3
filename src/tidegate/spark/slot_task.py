"""A slot inside a Spark task: what ``mapInArrow`` runs in the Python worker."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import pyarrow as pa

    from tidegate.model.control import SlotInvitation

OUTCOME_SCHEMA = "outcome string"
REPLACED = "replaced"
"""Outcome of a task that Spark has run again: it hosts no slot."""

UNREACHABLE = "unreachable: "
"""Begin of the outcome of a task whose node cannot dial the driver; how it failed follows."""

MISPLACED = "misplaced: "
"""Begin of the outcome of a task whose node has no address or port as the settings ask for.

What, where and remedy of its ConfigError follow, as JSON.
"""

REQUEST_PROPERTY = "tidegate.slot.request"
"""Local property of a slot's Spark job: the provider's name for the slot.

It is no part of the function, so that Spark plans a job's slots once. Spark Connect, which plans
each query anew, has no such properties, and there the invitation names the slot.
"""


@frozen
class SlotTask:
    """Input of the task. invitation: of one slot, or of all that Spark jobs name apart.

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
    request = context.getLocalProperty(REQUEST_PROPERTY) or task.invitation.request
    from tidegate.errors import ConfigError, DriverUnreachable
    from tidegate.slot.process.serve import serve

    try:
        with imports_from(task.path):
            return serve(replace(task.invitation, request=request))
    except DriverUnreachable as error:
        # As an outcome it arrives whole; of an exception, Spark's traceback is what arrives.
        return f"{UNREACHABLE}{error.what}"
    except ConfigError as error:
        return MISPLACED + json.dumps((error.what, error.where, error.remedy))


@contextmanager
def imports_from(path: tuple[str, ...]) -> Generator[None]:
    """Lets a worker import what the driver can, within the block. path: the driver's."""
    before = list(sys.path)
    sys.path += [entry for entry in path if entry not in before]
    try:
        yield
    finally:
        sys.path[:] = before
