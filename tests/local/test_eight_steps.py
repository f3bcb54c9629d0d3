"""A checkpoint from the construction of its coordinator to the commit of what it holds."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest

from tests.e2e.jobs import KEYS
from tests.e2e.journal import Journal
from tests.e2e.ledger import ledger_rows
from tests.e2e.noted_commits import NotedLedger, OffsetSource
from tests.e2e.probes import Probe
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import completed, until, view, wait_completed
from tidegate import Types
from tidegate.model.control import JobStatus

pytestmark = pytest.mark.slow

KEPT = {"execution.checkpointing.num-retained": 100, "web.checkpoints.history": 1_000}


@dataclass(frozen=True)
class Timeline:
    """The notes, each with its place in the order of all."""

    notes: list[dict[str, Any]]

    def places(self, event: str, **fields: object) -> list[int]:
        return [
            place
            for place, note in enumerate(self.notes)
            if note["event"] == event and all(note.get(name) == fields[name] for name in fields)
        ]

    def nth(self, event: str, number: int, parallelism: int) -> list[int]:
        """Of each subtask its n-th, which is its part in the n-th checkpoint."""
        return [self.places(event, subtask=subtask)[number] for subtask in range(parallelism)]


@pytest.mark.feature("F216")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_eight_steps_of_a_checkpoint_come_in_their_order(jobs: Jobs, parallelism: int) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(parallelism, 200, **KEPT)
    numbers = env.from_source(OffsetSource(journal, None, 1_000), source_name="offsets")
    keyed = numbers.key_by(lambda n: n % KEYS, key_type=Types.LONG()).reduce(max)
    keyed.map(Probe(journal, "aligned")).map(lambda n: {"number": n}).sink_to(
        NotedLedger(jobs.folder / "out", journal, jobs.checkpoints)
    )
    client = jobs.start(env, "eight steps")

    def third_is_committed() -> bool:
        prepared = [note["files"] for note in journal.notes("prepared")][: 3 * parallelism]
        files = {file for note in journal.notes("committed") for file in note["files"]}
        told = len(journal.notes("offsets", checkpoint=3)) == parallelism
        return (
            told and len(prepared) == 3 * parallelism and files >= {*chain.from_iterable(prepared)}
        )

    wait_completed(client, 3)
    until(third_is_committed, "three checkpoints are committed")
    seen, time = view(client), Timeline(journal.notes())
    first_three = completed(seen)[:3]
    assert [checkpoint.checkpoint for checkpoint in first_three] == [1, 2, 3]
    assert seen.timestamps_ms[JobStatus.RUNNING] <= first_three[0].trigger_ms
    for number, checkpoint in enumerate(first_three):
        key = {"checkpoint": checkpoint.checkpoint}
        # 1 construction, 2 the trigger with the enumerator's state, 3 the sources' barriers and
        # offsets (a barrier goes ahead), 4 these aligned: every row from before them and none from
        # behind, 5 the sink's first phase, and then the snapshots
        constructed, triggered = time.places("constructed"), time.places("trigger", **key)
        sources = time.nth("source", number, parallelism)
        prepared = time.nth("prepared", number, parallelism)
        aligned = {"name": "aligned", **key}
        snapshots = [
            place
            for subtask in range(parallelism)
            for place in time.places("snapshot", subtask=subtask, **aligned)
        ]
        assert [len(constructed), len(triggered), len(snapshots)] == [1, 1, parallelism]
        assert constructed < triggered < [min(sources + prepared + snapshots)]
        assert sum(time.notes[place]["rows"] for place in snapshots) == sum(
            time.notes[place]["emitted"] for place in sources
        )
        assert all(first < then for first, then in zip(prepared, snapshots, strict=True))
        # 6 all have acknowledged, 7 the checkpoint is durable and told, 8 what it holds is
        # committed: the sources' offsets, and the sink's second phase
        assert checkpoint.acknowledged == checkpoint.subtasks
        assert checkpoint.trigger_ms <= checkpoint.latest_ack_ms
        told, offsets = time.places("completed", **key), time.places("offsets", **key)
        assert [len(told), len(offsets)] == [1, parallelism]
        files = {file for place in prepared for file in time.notes[place]["files"]}
        committed = [p for p in time.places("committed") if files & {*time.notes[p]["files"]}]
        assert max(sources + prepared + snapshots) < min(told + offsets + committed)
        for place in committed:
            assert f"chk-{checkpoint.checkpoint}" in time.notes[place]["durable"]
        for subtask in range(parallelism):
            (given,) = time.places("offsets", subtask=subtask, **key)
            assert time.notes[given]["offsets"] == time.notes[sources[subtask]]["offsets"]
    assert ledger_rows(jobs.folder / "out")
