"""What commands ask of running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidegate.cli import jobs
from tidegate.cli.jobs import JobFolder, JobState, KnownJob, state_of
from tidegate.driver.client.door import DoorSign
from tidegate.ha.chain import JobRecord
from tidegate.model.ids import CheckpointId, Epoch, JobId

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("mine", "{here}/mine"),
        ("/data/mine", "/data/mine"),
        ("s3://bucket/mine", "s3://bucket/mine"),
        (" ", " "),
        (None, None),
    ],
)
def test_a_relative_target_is_taken_from_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, asked: str | None
) -> None:
    record = JobRecord(JobId("j" * 32), Epoch(1), "t", (), CheckpointId(1))
    known = KnownJob("counts", record, DoorSign("here", 1, "/nowhere"))
    seen: list[Any] = []
    monkeypatch.setattr(JobFolder, "job", lambda self, name: known)
    monkeypatch.setattr(jobs, "ask_at", lambda sign, name, request, **_: seen.append(request))
    monkeypatch.chdir(tmp_path)
    JobFolder(str(tmp_path)).ask("counts", {"do": "savepoint", "directory": target})
    expected = None if asked is None else asked.format(here=tmp_path)
    assert seen == [{"do": "savepoint", "directory": expected}]


def test_of_a_driver_that_tells_no_figures_the_status_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[object] = ["RUNNING", {"status": "RESTARTING", "restarts": 2, "mood": "good"}]
    monkeypatch.setattr(jobs, "ask_at", lambda sign, name, request: answers.pop(0))
    record = JobRecord(JobId("j" * 32), Epoch(1), "t", (), CheckpointId(1))
    known = KnownJob("counts", record, DoorSign("here", 1, "/nowhere"))
    assert state_of(known) == JobState("RUNNING")
    assert state_of(known) == JobState("RESTARTING", restarts=2)
