"""Many small states in few files, and all of them back again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkformat.handles import (
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from flinkformat.metadata import decode
from flinkformat.snapshots import FINISHED, CheckpointMetadata
from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Probe
from tests.e2e.restores import RESTORE_PATH, SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, wait_completed, wait_recovered
from tidegate import JobClient
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

pytestmark = pytest.mark.slow

OPERATORS = 48
"""At two subtasks, with keyed counts and a sink behind a source: about a hundred states."""

TOTAL = 20_000
MERGED = {"execution.checkpointing.file-merging.enabled": True}


def start_many(
    jobs: Jobs, parallelism: int, journal: Journal, *, rate: float | None, **settings: object
) -> JobClient:
    """Running counts through many operators, each with a little state of its own."""
    files = {
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.num-retained": 1,
    }
    env = jobs.checkpointed(parallelism, 300, **RETAIN, **files, **settings)
    chain = running_counts(env, TOTAL, rate)
    for number in range(OPERATORS):
        chain = chain.map(Probe(journal, f"p{number}")).uid(f"p{number}")
    chain.sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, f"many at {parallelism}")


def files_of(checkpoint: CheckpointStatistics) -> list[Path]:
    """The files of state that a checkpoint has left."""
    assert checkpoint.pointer is not None
    return [file for file in Path(checkpoint.pointer).iterdir() if file.name != "_metadata"]


def metadata_of(checkpoint: CheckpointStatistics) -> CheckpointMetadata:
    assert checkpoint.pointer is not None
    names = iter(range(1_000_000))
    data = (Path(checkpoint.pointer) / "_metadata").read_bytes()
    return decode(data, lambda: str(next(names)))


def states_of(metadata: CheckpointMetadata) -> Iterator[StreamStateHandle]:
    for operator in metadata.operators:
        for state in operator.subtasks.values():
            if state is FINISHED:
                continue
            for handle in (state.managed_keyed, state.managed_operator):
                if handle is not None:
                    assert isinstance(handle, KeyGroupsStateHandle | OperatorStreamStateHandle)
                    yield handle.delegate


@pytest.mark.feature("F244")
def test_a_hundred_small_states_are_in_few_files_and_come_back_exactly(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "apart")
    apart = stopped_with_checkpoint(start_many(jobs, 2, journal, rate=SLOWLY))
    assert len(list(states_of(metadata_of(apart)))) == len(files_of(apart)) >= 100

    # The next goes on from that, with merging: each way reads what the other has written.
    journal = Journal(jobs.folder / "merged")
    pointer = {RESTORE_PATH: apart.pointer}
    client = start_many(jobs, 2, journal, rate=SLOWLY, **MERGED, **pointer)
    wait_completed(client, 2)
    kill_slot(client, 1)
    seen = wait_recovered(client, 1)
    until(lambda: len(journal.notes("open", attempt=1)) == 2 * OPERATORS, "all are open again")
    for note in journal.notes("open", attempt=1):
        at_barrier = journal.notes(
            "snapshot", name=note["name"], subtask=note["subtask"], checkpoint=seen.restored
        )
        assert [each["rows"] for each in at_barrier] == note["restored"] != []

    merged = stopped_with_checkpoint(client, 4)
    states = list(states_of(metadata_of(merged)))
    assert len(states) >= 100
    assert all(isinstance(state, SegmentFileStateHandle) for state in states)
    assert len(files_of(merged)) * 4 <= len(files_of(apart))
    assert {str(file) for file in files_of(merged)} == {state.physical_id for state in states}
    check_nothing_else_is_left(merged)

    again = Journal(jobs.folder / "again")
    client = start_many(jobs, 3, again, rate=None, **MERGED, **{RESTORE_PATH: merged.pointer})
    finished(client)
    for number in range(OPERATORS):
        held = journal.notes("snapshot", name=f"p{number}", checkpoint=merged.checkpoint)
        opened = again.notes("open", name=f"p{number}")
        restored = [rows for note in opened for rows in note["restored"]]
        assert sorted(restored) == sorted(note["rows"] for note in held)
        assert len(opened) == 3
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


def check_nothing_else_is_left(newest: CheckpointStatistics) -> None:
    """The files of subsumed checkpoints, and of those that were given up, are gone."""
    assert newest.pointer is not None
    job = Path(newest.pointer).parent

    def left() -> set[Path]:
        return {file.parent for file in job.rglob("*") if file.is_file()}

    until(lambda: left() == {Path(newest.pointer or "")}, "only the newest checkpoint is left")
