"""A sink of parallel writers with one committer for all. Slots import this module by its name."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import kill_slot, wait_completed, wait_recovered
from tidegate import (
    CommittableMessage,
    DataStream,
    Prepared,
    StandardSinkTopologies,
    WithPostCommitTopology,
    WithPreCommitTopology,
    WriterContext,
)
from tidegate.api.rows.batches import as_rows
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId


class NumberWriter:
    """Prepares a committable for each checkpoint, with the numbers that came, if any did."""

    def __init__(self, context: WriterContext) -> None:
        self._name = (context.subtask, context.attempt_name)
        self._prepared = 0
        self._numbers: list[int] = []

    def write(self, batch: Batch) -> None:
        self._numbers += [row["number"] for row in as_rows(batch).values]  # type: ignore[index]

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        self._prepared += 1
        committable = json.dumps([*self._name, self._prepared, self._numbers]).encode()
        self._numbers = []
        return Prepared((committable,))

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        pass


@dataclass
class NotingCommitter:
    """Notes each call with all that it is given."""

    journal: Journal
    event: str

    def commit(self, committables: Sequence[bytes]) -> None:
        self.journal.note(self.event, given=[json.loads(each) for each in committables])

    def close(self) -> None:
        pass


@dataclass
class GlobalSink(WithPostCommitTopology):
    """Writers without a committer of their own, and one for all."""

    journal: Journal

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> NumberWriter:
        return NumberWriter(context)

    def committer(self) -> None:
        return None

    def add_post_commit_topology(self, committables: DataStream[CommittableMessage]) -> None:
        journal = self.journal
        StandardSinkTopologies.add_global_committer(
            committables, lambda: NotingCommitter(journal, "global")
        )


@dataclass
class GatheredSink(WithPreCommitTopology):
    """Writers whose committables go through one subtask to one committer."""

    journal: Journal

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> NumberWriter:
        return NumberWriter(context)

    def committer(self) -> NotingCommitter:
        return NotingCommitter(self.journal, "gathered")

    def add_pre_commit_topology(
        self, committables: DataStream[CommittableMessage]
    ) -> DataStream[CommittableMessage]:
        return committables.global_().map(same_message).set_parallelism(1)


def same_message(message: CommittableMessage) -> CommittableMessage:
    return message


Call = list[tuple[int, str, int, list[int]]]
"""What a committer is given at once: subtask, attempt, number and content of each committable."""


def check_one_committer_for_all(
    jobs: Jobs, parallelism: int, *, overtaking: bool = False, **settings: object
) -> None:
    """A slot is killed: each checkpoint is committed by one call, with what all writers had.

    overtaking: barriers may overtake committables between steps of the sink's own.
    """
    total, journal = 6_000, Journal(jobs.folder / "journal")
    env = jobs.checkpointed(parallelism, 100, **settings)
    counts = running_counts(env, total, 3_000)
    counts.sink_to(GlobalSink(journal)).uid("global")
    counts.sink_to(GatheredSink(journal)).uid("gathered")
    client = jobs.start(env, "one committer")
    wait_completed(client, 3)
    if parallelism > 1:
        kill_slot(client, 1)
        wait_recovered(client, 1)
    finished(client)
    for event in ("global", "gathered"):
        calls = [note["given"] for note in journal.notes(event)]
        check_calls(calls, total)
        if event == "global" or not overtaking:
            check_from_all(calls, parallelism)


def check_calls(calls: Sequence[Call], total: int) -> None:
    assert len(calls) >= 5
    distinct = {json.dumps(sorted(call)): call for call in calls}
    assert len(calls) - len(distinct) <= 2, "those of which the restored checkpoint did not know"
    numbers = Counter(n for call in distinct.values() for _, _, _, found in call for n in found)
    assert numbers == Counter(range(total))


def check_from_all(calls: Sequence[Call], parallelism: int) -> None:
    """What checkpoints left behind that were given up comes with the next one, of all writers."""
    for call in calls:
        parts = Counter(subtask for subtask, _, _, _ in call)
        assert set(parts) == set(range(parallelism)) and len(set(parts.values())) == 1, call
