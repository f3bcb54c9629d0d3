"""A checkpoint that cannot be read is refused before anything runs, and never quietly replaced."""

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from tests.e2e.files import committed_rows
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.journal import Journal
from tests.e2e.runtimes import END_S, RETAIN, Jobs, failure_of, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, view
from tidegate import JobClient, JobStatus, JobSuspended, RestoreRefused
from tidegate.connectors import FileSink
from tidegate.errors import FormatError

pytestmark = pytest.mark.slow

ROWS = 1_500
SLOWLY = 300.0


def start(jobs: Jobs, rate: float | None = None, **settings: object) -> JobClient:
    """Running counts with three kept checkpoints, all state in files."""
    env = jobs.checkpointed(
        1,
        3_600_000 if rate else 50,
        **RETAIN,
        **{
            "execution.checkpointing.num-retained": 3,
            "execution.checkpointing.data-inline-threshold": "0 b",
        },
        **settings,
    )
    sink = FileSink.parquet(str(jobs.folder / "out"), COUNT_SCHEMA)
    journal = Journal(jobs.folder / "journal")
    noted = running_counts(env, ROWS, rate).map(lambda row: (journal.note("row"), row)[1])
    noted.uid("noted").sink_to(sink).uid("files")
    return jobs.start(env, "counts")


def three_checkpoints(jobs: Jobs) -> list[Path]:
    """What a job has left, oldest first; its sink has committed something on each."""
    client, out = start(jobs, SLOWLY), jobs.folder / "out"
    journal = Journal(jobs.folder / "journal")
    left: list[Path] = []
    for _ in range(3):
        before = len(committed_rows(out))
        until(lambda before=before: len(journal.notes("row")) > before, "rows are written")
        left.append(Path(client.trigger_checkpoint().result(timeout=END_S).pointer))
        until(lambda before=before: len(committed_rows(out)) > before, "they are committed")
    client.cancel().result(timeout=END_S)
    return left


def lose_metadata(checkpoint: Path) -> None:
    (checkpoint / "_metadata").unlink()


def break_metadata(checkpoint: Path) -> None:
    file = checkpoint / "_metadata"
    file.write_bytes(file.read_bytes()[:-40])


def lose_state(checkpoint: Path) -> None:
    next(file for file in checkpoint.iterdir() if file.name != "_metadata").unlink()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lose_metadata, "Cannot find meta data file"),
    (break_metadata, "the bytes end"),
    (lose_state, "lacks 1 of its files of state"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGES)
def test_a_damaged_newest_checkpoint_is_not_replaced_by_an_older_one(
    jobs: Jobs, damage: Callable[[Path], None], text: str
) -> None:
    checkpoints = three_checkpoints(jobs)
    before = committed_rows(jobs.folder / "out")
    damage(checkpoints[-1])
    for _ in range(2):
        with pytest.raises(RestoreRefused, match="newest checkpoint, 3, cannot be read") as told:
            start(jobs, **{"execution.state-recovery.path": "latest"})
        assert text in told.value.what
        assert str(checkpoints[-1]) in told.value.where
        assert f"start it from {checkpoints[1]}" in told.value.remedy
        assert "would write it again" in told.value.remedy
    assert committed_rows(jobs.folder / "out") == before
    assert all(folder.exists() for folder in checkpoints), "nothing is deleted"


def test_what_the_refusal_says_can_be_done(jobs: Jobs) -> None:
    """The job starts from the older checkpoint where it is named, at the price that was told."""
    checkpoints = three_checkpoints(jobs)
    before = committed_rows(jobs.folder / "out")
    lose_metadata(checkpoints[-1])
    named = {"execution.state-recovery.path": str(checkpoints[1])}
    finished(start(jobs, **named))
    rows = committed_rows(jobs.folder / "out")
    twice = len(rows) - ROWS
    assert 0 < twice < len(before)
    assert {row["number"] for row in rows} == set(range(ROWS))


@pytest.mark.parametrize(("damage", "text"), DAMAGES)
def test_a_damaged_older_checkpoint_is_given_up_with_a_warning(
    jobs: Jobs, damage: Callable[[Path], None], text: str
) -> None:
    checkpoints = three_checkpoints(jobs)
    damage(checkpoints[0])
    with structlog.testing.capture_logs() as logs:
        client = start(jobs, **{"execution.state-recovery.path": "latest"})
        finished(client)
    [warning] = [log for log in logs if "an older checkpoint is damaged" in log["event"]]
    assert (warning["log_level"], warning["checkpoint"]) == ("warning", 1)
    assert warning["path"] == str(checkpoints[0])
    assert text in warning["error"]
    check_each_counted_once(committed_rows(jobs.folder / "out"), ROWS)


def test_a_snapshot_that_was_named_and_is_cut_short_is_refused_with_its_file(jobs: Jobs) -> None:
    checkpoints = three_checkpoints(jobs)
    break_metadata(checkpoints[1])
    with pytest.raises(FormatError, match="the bytes end") as told:
        start(jobs, **{"execution.state-recovery.path": str(checkpoints[1])})
    assert told.value.where.startswith(f"{checkpoints[1]}/_metadata")
    assert "name another" in told.value.remedy


def test_a_snapshot_that_was_named_and_lacks_files_is_refused(jobs: Jobs) -> None:
    checkpoints = three_checkpoints(jobs)
    lose_state(checkpoints[1])
    with pytest.raises(RestoreRefused, match="Checkpoint 2 lacks 1 of its files") as told:
        start(jobs, **{"execution.state-recovery.path": str(checkpoints[1])})
    assert told.value.where == str(checkpoints[1])
    assert "Put the files back" in told.value.remedy


def flip_a_bit(checkpoint: Path) -> None:
    """In the largest file of state: only who reads it all can tell."""
    states = [file for file in checkpoint.iterdir() if file.name != "_metadata"]
    largest = max(states, key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)


def test_a_flipped_bit_in_a_state_file_suspends_the_job_and_deletes_nothing(jobs: Jobs) -> None:
    checkpoints = three_checkpoints(jobs)
    flip_a_bit(checkpoints[-1])
    for _ in range(2):
        client = start(jobs, **{"execution.state-recovery.path": "latest"})
        error = failure_of(client)
        assert isinstance(error, JobSuspended) and error.refused == 3
        assert f"start from it with '--from {checkpoints[1]}'" in error.remedy
        assert (view(client).status, view(client).restarts) == (JobStatus.SUSPENDED, 0)
        assert all((folder / "_metadata").exists() for folder in checkpoints)


@pytest.mark.parametrize("damage", [flip_a_bit, lose_metadata])
def test_a_damaged_newest_checkpoint_is_left_for_an_older_one_where_that_was_asked_for(
    jobs: Jobs, damage: Callable[[Path], None]
) -> None:
    checkpoints = three_checkpoints(jobs)
    before = committed_rows(jobs.folder / "out")
    damage(checkpoints[-1])
    latest = {"execution.state-recovery.path": "latest", "tidegate.restore.fall-back": True}
    with structlog.testing.capture_logs() as logs:
        finished(start(jobs, **latest))
    [warning] = [log for log in logs if "falls back to an older one" in log["event"]]
    assert (warning["damaged"], warning["checkpoint"]) == (3, 2)
    rows = committed_rows(jobs.folder / "out")
    assert 0 < len(rows) - ROWS < len(before)
    assert {row["number"] for row in rows} == set(range(ROWS))


def test_with_nothing_whole_to_go_back_to_the_newest_is_still_there_to_be_mended(
    jobs: Jobs,
) -> None:
    checkpoints = three_checkpoints(jobs)
    for checkpoint in checkpoints:
        flip_a_bit(checkpoint)
    latest = {"execution.state-recovery.path": "latest", "tidegate.restore.fall-back": True}
    error = failure_of(start(jobs, **latest))
    assert isinstance(error, JobSuspended) and error.refused == 1
    assert "Checkpoints 1, 2, 3 are kept. None of them is whole." in error.remedy
    flip_a_bit(checkpoints[-1])  # which mends it
    with structlog.testing.capture_logs() as logs:
        finished(start(jobs, **{"execution.state-recovery.path": "latest"}))
    assert not [log for log in logs if "starts from nothing" in log["event"]]
    rows = committed_rows(jobs.folder / "out")
    assert sorted(row["number"] for row in rows) == list(range(ROWS))
