"""What commands ask of running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.rest.left import put_sign
from tests.rest.world import JOB
from tidegate.cli import jobs
from tidegate.cli.jobs import JobFolder, JobState, KnownJob, state_of
from tidegate.cli.main import commands
from tidegate.driver.client.door import DoorSign
from tidegate.errors import DriverSilent, FormatError, UserError
from tidegate.ha.chain import JobRecord, claim_path, encode, place_path
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch, JobId
from tidegate.storage import paths
from tidegate.storage.stores import Stores

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
    monkeypatch.setattr(jobs, "ask_at", lambda sign, name, request, **_: answers.pop(0))
    record = JobRecord(JobId("j" * 32), Epoch(1), "t", (), CheckpointId(1))
    known = KnownJob("counts", record, DoorSign("here", 1, "/nowhere"))
    assert state_of(known) == JobState("RUNNING")
    assert state_of(known) == JobState("RESTARTING", restarts=2)


def test_a_driver_that_says_nothing_is_told_as_such_and_its_job_may_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, within_s: float) -> object:
        raise DriverSilent(f"not answered for {within_s:g} s")

    monkeypatch.setattr(jobs, "ask_at", silent)
    put_sign(tmp_path, "")
    folder = JobFolder(str(tmp_path))
    assert state_of(folder.job("orders")) == JobState("not answering")
    assert folder.lives("orders")


def test_a_job_whose_records_are_elsewhere_is_known_by_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its records are in ZooKeeper."""
    put_sign(tmp_path, "http://localhost:8081")
    folder = JobFolder(str(tmp_path))
    [job] = folder.jobs()
    assert (job.name, job.id, job.status) == ("orders", JOB, JobStatus.RUNNING)
    assert job.newest_checkpoint is None
    monkeypatch.setattr(jobs, "ask_at", lambda sign, name, request, **_: sign.rest)
    for name in ("orders", JOB):
        assert folder.ask(name, {"do": "cancel"}) == "http://localhost:8081"


def test_the_records_of_a_former_job_do_not_hide_one_that_keeps_its_own_elsewhere(
    tmp_path: Path,
) -> None:
    chain = Stores().open(str(tmp_path / paths.chain_folder("orders")))
    ended = JobRecord(JobId("f" * 32), Epoch(1), "t", (), CheckpointId(1), JobStatus.FINISHED)
    chain.create(claim_path(1), b"t")
    chain.create(place_path(1, 1), encode(ended))
    folder = JobFolder(str(tmp_path))
    assert folder.job("orders").status is JobStatus.FINISHED
    put_sign(tmp_path, "http://localhost:8081")
    assert (folder.job("orders").status, folder.job("orders").id) == (JobStatus.RUNNING, JOB)


def test_damage_of_one_job_is_in_the_way_of_that_job_alone(tmp_path: Path) -> None:
    put_sign(tmp_path, "", name="other", job="f" * 32)
    chain = Stores().open(str(tmp_path / paths.chain_folder("damaged")))
    chain.create(claim_path(1), b"t")
    chain.create(place_path(1, 1), b"garbled")
    (tmp_path / paths.door_file("unsigned", Epoch(1))).parent.mkdir(parents=True)
    (tmp_path / paths.door_file("unsigned", Epoch(1))).write_bytes(b"\xff")
    folder = JobFolder(str(tmp_path))
    assert folder.job("other").id == "f" * 32
    for name in ("damaged", "unsigned"):
        for call in (folder.job, folder.running, folder.lives):
            with pytest.raises(FormatError) as told:
                call(name)
            assert str(tmp_path / ".jobs" / name) in told.value.where
    listed = CliRunner().invoke(commands, ["list", "-d", str(tmp_path)])
    rows = [line.split()[0] for line in listed.stdout.splitlines()]
    assert rows[-3:] == ["damaged", "other", "unsigned"]
    assert listed.exit_code == 1 and listed.stderr.count("error: ") == 2


def test_a_driver_is_asked_whose_newest_record_is_damaged(tmp_path: Path) -> None:
    put_sign(tmp_path, "")
    chain = Stores().open(str(tmp_path / paths.chain_folder("orders")))
    chain.create(claim_path(1), b"t")
    chain.create(place_path(1, 1), b"garbled")
    assert JobFolder(str(tmp_path)).running("orders").sign.job == JOB


@pytest.mark.parametrize("told", [True, False], ids=["", "by a version before 0.2"])
def test_a_job_with_a_very_long_name_is_found_by_it(tmp_path: Path, told: bool) -> None:
    name = "Обработка заказов по регионам за день и сутки"
    chain = Stores().open(str(tmp_path / paths.chain_folder(name)))
    record = JobRecord(JOB, Epoch(1), "t", (), CheckpointId(1), name=name if told else "")
    chain.create(claim_path(1), b"t")
    chain.create(place_path(1, 1), encode(record))
    put_sign(tmp_path, "", name=name)
    put_sign(tmp_path, "", name="Обработка", job="f" * 32)
    folder = JobFolder(str(tmp_path))
    found = folder.running(name)
    assert found.sign.job == folder.job(name).id == JOB
    assert folder.job(found.name).id == JOB
    assert found.name == name if told else found.name.startswith("Обработка заказов по регионам")


def test_a_folder_without_jobs_says_where_records_may_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no job 'orders'") as refused:
        JobFolder(str(tmp_path)).job("orders")
    assert "ZooKeeper" in refused.value.remedy
