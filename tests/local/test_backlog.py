"""A source that catches up says so, and checkpoints are taken at another interval meanwhile."""

from pathlib import Path

import pytest

from tests.e2e.journal import Latch
from tests.e2e.runtimes import Jobs
from tests.e2e.staged import StagedReader
from tests.e2e.watch import kill_slot, view, wait_completed, wait_for
from tidegate import EnumeratorContext, ReaderContext
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.jobmaster.view import JobView


class CatchingUp:
    """A source without an end, whose records are old as long as the file is there."""

    bounded = False
    produced_type = None

    def __init__(self, old: Path) -> None:
        self._old = Latch(old)

    def enumerator(
        self, context: EnumeratorContext[int], restored: bytes | None
    ) -> SplitListEnumerator[int]:
        self._look(context)
        return SplitListEnumerator(context, [0], restored)

    def _look(self, context: EnumeratorContext[int]) -> None:
        context.set_is_processing_backlog(self._old.is_set)
        context.call_later(10, lambda: self._look(context))

    def reader(self, context: ReaderContext) -> "EndlessReader":
        return EndlessReader(["row"], context, 0)


class EndlessReader(StagedReader):
    """One row, and then nothing for ever."""

    @property
    def finished(self) -> bool:
        return False


@pytest.mark.slow
@pytest.mark.feature("F222")
def test_no_checkpoint_is_taken_while_a_source_catches_up(jobs: Jobs) -> None:
    old = Latch(jobs.folder / "old")
    old.set()
    env = jobs.checkpointed(1, 20, **{"execution.checkpointing.interval-during-backlog": 0})
    env.from_source(CatchingUp(old.path), None, "input").uid("input").print()
    client = jobs.start(env, "catching up")
    figures = wait_for(client, lambda seen: rows_written(seen) == 1, "the row has been printed")
    assert figures.checkpoints.counts.total == 0
    # Each look is one of the driver's; a trigger would have come with one of them.
    for _ in range(20):
        assert client.get_job_status().result(60) and view(client).checkpoints.counts.total == 0
    old.release()
    wait_completed(client, 2)
    old.set()
    kill_slot(client, 0)
    wait_for(client, lambda seen: seen.restarts == 1 and rows_written(seen) >= 1, "it runs again")
    old.release()
    before = view(client).checkpoints.counts.completed
    wait_completed(client, before + 2)


def rows_written(seen: JobView) -> int:
    return seen.counts.written
