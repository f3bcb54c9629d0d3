"""What becomes of the jobs of a process that is told to end, or that ends."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tests.datastream.fakes import Client
from tidegate.config.configuration import Configuration
from tidegate.datastream.process import interrupts
from tidegate.datastream.process.interrupts import OUTPUT_CLOSED, TERMINATED, RunningJobs
from tidegate.errors import JobCanceled, JobSuspended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidegate.api.job import JobExecutionResult

CHECKPOINTED = {"execution.checkpointing.interval": "1 s"}


class Endless(Client):
    """A job that ends only when it is suspended; stubborn: not even then."""

    def __init__(self, *, stubborn: bool = False) -> None:
        super().__init__([])
        self.ended: Future[JobExecutionResult] = Future()
        self.stubborn = stubborn
        self.when_suspended: Callable[[], object] = lambda: None

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.ended

    def suspend(self, reason: str = "") -> Future[None]:
        done = super().suspend(reason)
        self.when_suspended()
        if not self.stubborn:
            self.ended.set_exception(JobSuspended(f"the job was suspended: {reason}"))
        return done


@pytest.fixture
def sigterm() -> Iterator[None]:
    """SIGTERM does what it does in a process that has not asked for it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What the process does at its end, of which there is none here."""
    hooks: list[Callable[[], None]] = []
    monkeypatch.setattr("threading._register_atexit", hooks.append)
    return lambda: hooks[0]()


@pytest.fixture
def jobs(sigterm: None, at_exit: Callable[[], None]) -> RunningJobs:
    return RunningJobs()


def begun(jobs: RunningJobs, client: Endless, settings: dict[str, str] | None = None) -> Endless:
    jobs.add(client, Configuration.from_dict(settings or {}))
    return client


def test_sigterm_suspends_the_job_that_is_waited_for(
    jobs: RunningJobs, capsys: pytest.CaptureFixture[str]
) -> None:
    client = begun(jobs, Endless(), CHECKPOINTED)
    client.when_suspended = lambda: signal.raise_signal(signal.SIGTERM)  # it is in a hurry
    with pytest.raises(SystemExit) as ended:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit as told:
            jobs.suspend_for(told)
            raise
    assert (ended.value.code, client.suspended, jobs.clients) == (TERMINATED, "SIGTERM", [])
    told = capsys.readouterr().err
    assert "SIGTERM: job" in told and "suspended behind a last checkpoint" in told


def test_sigterm_ends_a_process_without_jobs_as_any_other(
    jobs: RunningJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begun(jobs, Endless())
    client.suspend()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    sent: list[tuple[int, int]] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", lambda *to: sent.append(to))
        signal.raise_signal(signal.SIGTERM)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_jobs_of_a_process_that_forked_this_one_are_not_its_own(
    sigterm: None, at_exit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", os.getppid)
        jobs = RunningJobs()
        theirs = begun(jobs, Endless())
    at_exit()
    assert not theirs.suspended
    mine = begun(jobs, Endless())
    assert jobs.clients == [mine]
    at_exit()
    assert (theirs.suspended, mine.suspended) == ("", "its program has ended")


def test_a_program_that_ends_cuts_its_jobs_off_and_is_warned(
    jobs: RunningJobs, at_exit: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    batch = {**CHECKPOINTED, "execution.runtime-mode": "BATCH"}
    one, two = begun(jobs, Endless(), batch), begun(jobs, Endless(), CHECKPOINTED)
    with capture_logs() as logged:
        at_exit()
    assert one.suspended == two.suspended == "its program has ended"
    assert [each["log_level"] for each in logged] == ["warning", "warning"]
    assert all("ends with this process" in each["event"] for each in logged)
    told = capsys.readouterr().err
    assert "is being cancelled, for it takes no checkpoints" in told
    assert told.count("the job was suspended: its program has ended") == 2
    at_exit()
    assert capsys.readouterr().err == "", "nothing runs any more"


def test_a_program_that_was_told_to_end_is_not_warned_at_its_end(
    jobs: RunningJobs, at_exit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begun(jobs, Endless())
    with capture_logs() as logged:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "last_value", KeyboardInterrupt(), raising=False)
            at_exit()
        terminated = begun(jobs, Endless())
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        at_exit()
    assert (client.suspended, terminated.suspended) == ("Ctrl-C", "SIGTERM")
    assert logged == []


def test_a_job_that_does_not_end_is_told_and_not_waited_for_longer(
    jobs: RunningJobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "CANCEL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(interrupts, "LOOK_S", 0.01)
    short = {"tidegate.interrupt.checkpoint-timeout": "10 ms"}
    client = begun(jobs, Endless(stubborn=True), short)
    jobs.suspend_for(KeyboardInterrupt(), client)
    assert client.suspended == "Ctrl-C"
    assert "was suspended and has not ended within 0.05 s" in capsys.readouterr().err


def test_a_second_ctrl_c_waits_for_nobody(jobs: RunningJobs) -> None:
    def hurry() -> None:
        raise KeyboardInterrupt

    client = begun(jobs, Endless())
    client.when_suspended = hurry
    with pytest.raises(KeyboardInterrupt):
        jobs.suspend_for(KeyboardInterrupt())
    assert jobs.clients == []


def test_a_job_whose_output_nobody_reads_ends_the_program_as_a_pipe_does(
    jobs: RunningJobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = begun(jobs, Endless())
    error = JobCanceled("nobody reads", output_closed=True)
    client.ended.set_exception(error)
    with (tmp_path / "out").open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as ended:
            jobs.result_of(client)
        output.write("what is left in the buffer")
    assert ended.value.code == OUTPUT_CLOSED
    assert (tmp_path / "out").read_text() == ""


def test_a_job_that_was_cancelled_tells_so(jobs: RunningJobs) -> None:
    client = begun(jobs, Endless())
    client.ended.set_exception(JobCanceled("somebody has cancelled it"))
    with pytest.raises(JobCanceled, match="somebody"):
        jobs.result_of(client)
