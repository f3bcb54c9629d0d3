"""Whoever reads how a job ended reads what became of its checkpoints."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flinkformat.snapshots import CheckpointProperties, RetentionPolicy
from tests.checkpoint.world import BY_HAND, EVERY_SECOND, restored_checkpoint
from tidegate.api.job import JobSummary
from tidegate.checkpoint.completed import CompletedCheckpoints
from tidegate.driver.telling.report import (
    RETENTION,
    fate_of_checkpoints,
    fate_of_refused,
    tell_end,
)
from tidegate.model.control import JobStatus, RowCounts
from tidegate.model.ids import CheckpointId, JobId
from tidegate.model.settings import CheckpointSettings, JobSettings

NEVER, ON_FAILURE, ALWAYS = RetentionPolicy
ON_DISK = replace(EVERY_SECOND, directory="/checkpoints", retained_max=2)


def fate(
    status: JobStatus,
    *own: int,
    retention: RetentionPolicy = ALWAYS,
    settings: CheckpointSettings = ON_DISK,
    found: tuple[int, ...] = (),
) -> str:
    properties = CheckpointProperties.for_checkpoint(retention)
    checkpoints = CompletedCheckpoints(2, [restored_checkpoint(n, properties) for n in found])
    for number in own:
        checkpoints.add(restored_checkpoint(number, properties))
    checkpoints.end(status)
    used = replace(settings, retention=retention)
    return fate_of_checkpoints(status, checkpoints, used, deposed=False)


@pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED])
def test_what_is_kept_is_named_with_what_goes_on_from_it(status: JobStatus) -> None:
    assert fate(status, 16, 17) == (
        "Checkpoints 16, 17 are kept, the newest in /old-17: go on with '--from latest'."
    )
    assert fate(status, found=(7,), retention=NEVER) == (
        "Checkpoint 7 is kept, the newest in /old-7: go on with '--from latest'."
    )


def test_a_newest_that_is_damaged_is_named_with_what_can_be_done() -> None:
    found = [restored_checkpoint(7)]
    damaged = CompletedCheckpoints(2, found, damaged=[CheckpointId(8)])
    helps = (
        "Checkpoint 8 is damaged and kept too: put back what is missing and go on with "
        "'--from latest', or set tidegate.restore.fall-back again."
    )
    told = fate_of_checkpoints(JobStatus.SUSPENDED, damaged, ON_DISK, deposed=False)
    assert told == f"Checkpoint 7 is kept, the newest in /old-7. {helps}"
    told = fate_of_refused(damaged, 7, None)
    assert told == f"Nothing is deleted. Checkpoint 7 is kept. {helps} None of them is whole."
    older = CompletedCheckpoints(2, found, damaged=[CheckpointId(6)])
    told = fate_of_checkpoints(JobStatus.SUSPENDED, older, ON_DISK, deposed=False)
    assert told == "Checkpoint 7 is kept, the newest in /old-7: go on with '--from latest'."


@pytest.mark.parametrize(
    ("status", "retention"),
    [
        (JobStatus.CANCELED, NEVER),
        (JobStatus.FAILED, NEVER),
        (JobStatus.CANCELED, ON_FAILURE),
    ],
)
def test_what_was_deleted_is_named_with_the_option_that_did_it(
    status: JobStatus, retention: RetentionPolicy
) -> None:
    told = fate(status, 17, retention=retention)
    assert told == f"Checkpoint 17 was deleted ({RETENTION}: {retention.value})."


def test_the_checkpoints_of_a_finished_job_are_deleted_whatever_the_option_says() -> None:
    assert fate(JobStatus.FINISHED, 3, 4) == (
        "Checkpoints 3, 4 were deleted (a finished job needs none)."
    )


def test_checkpoints_in_memory_are_not_promised() -> None:
    told = fate(JobStatus.CANCELED, 17, settings=EVERY_SECOND)
    assert "are gone with it" in told and "execution.checkpointing.dir" in told


def test_a_job_without_checkpoints_is_told_so_only_where_it_was_to_take_some() -> None:
    assert fate(JobStatus.CANCELED) == "It had completed no checkpoint yet."
    assert fate(JobStatus.CANCELED, settings=BY_HAND) == ""


def test_a_snapshot_of_somebody_else_is_not_offered_once_it_was_passed() -> None:
    foreign = restored_checkpoint(7, CheckpointProperties.for_unclaimed_snapshot())
    checkpoints = CompletedCheckpoints(2, [foreign])
    checkpoints.add(restored_checkpoint(8, CheckpointProperties.for_checkpoint(NEVER)))
    checkpoints.end(JobStatus.CANCELED)
    settings = replace(ON_DISK, retention=NEVER)
    told = fate_of_checkpoints(JobStatus.CANCELED, checkpoints, settings, deposed=False)
    assert told == f"Checkpoint 8 was deleted ({RETENTION}: NO_EXTERNALIZED_CHECKPOINTS)."


def test_a_driver_that_another_has_deposed_speaks_of_no_checkpoint_as_its_own() -> None:
    told = fate_of_checkpoints(JobStatus.SUSPENDED, CompletedCheckpoints(1), ON_DISK, deposed=True)
    assert told == "Its checkpoints are the other driver's now."


def test_a_process_without_standard_error_still_gets_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    file = tmp_path / "summaries"
    summary = JobSummary("orders", JobStatus.FINISHED, 50, RowCounts(1, 1))
    tell_end(JobId("0" * 32), summary, JobSettings(summary=True, summary_file=str(file)))
    assert '"name": "orders"' in file.read_text()
