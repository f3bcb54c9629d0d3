"""Listeners are told each change of the job's status, in order, whatever they do."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
import structlog

from tidegate import ConfigError, JobExecutionStatusEvent, StreamExecutionEnvironment
from tidegate.api.job import JobStatusChangedListener
from tidegate.driver.user_code import callbacks
from tidegate.driver.user_code.callbacks import StatusListeners
from tidegate.jobmaster.commands import StatusChanged
from tidegate.model.control import JobStatus
from tidegate.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

CHANGES = [
    StatusChanged(JobStatus.INITIALIZING, JobStatus.CREATED, 5),
    StatusChanged(JobStatus.CREATED, JobStatus.RUNNING, 5),
    StatusChanged(JobStatus.RUNNING, JobStatus.FINISHED, 9),
]
TOLD = [
    JobExecutionStatusEvent(JobId("j"), "flights", c.former, c.status, c.wall_ms) for c in CHANGES
]


class Noting(JobStatusChangedListener):
    """Notes what it is told, and may do something more."""

    def __init__(self, more: Callable[[], object] = lambda: None) -> None:
        self.events: list[JobExecutionStatusEvent] = []
        self._more = more

    def on_event(self, event: JobExecutionStatusEvent) -> None:
        self.events.append(event)
        self._more()


def told(
    each: Sequence[JobStatusChangedListener], afterwards: Callable[[], object] = lambda: None
) -> list[str]:
    """Tell all changes at once, to the end; the result is what was logged, by event."""
    work: list[Coroutine[object, object, None]] = []

    async def run_blocking(call: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def act() -> None:
        log = structlog.get_logger()
        job = (JobId("j"), "flights")
        told = StatusListeners(each, job, run_blocking, work.append, log)
        for change in CHANGES:
            told.tell(change)
        assert len(work) == len(each), "one call of a listener at a time"
        await asyncio.gather(*work)
        afterwards()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(act())
    return [log["event"] for log in logs]


def test_each_change_is_told_in_order_to_all() -> None:
    first, second = Noting(), Noting()
    assert told([first, second]) == []
    assert first.events == second.events == TOLD


def test_one_that_raises_is_told_the_rest_all_the_same() -> None:
    failing, other = Noting(lambda: 1 / 0), Noting()
    assert told([failing, other]) == ["a job status listener failed"] * len(CHANGES)
    assert failing.events == other.events == TOLD


def test_one_that_does_not_return_is_told_nothing_more_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callbacks, "CALL_TIMEOUT_S", 0.05)
    end = threading.Event()
    hanging, other = Noting(lambda: end.wait(20)), Noting()
    logs = told([hanging, other], end.set)
    assert logs == ["a job status listener does not return, and is told nothing more"]
    assert hanging.events == TOLD[:1] and other.events == TOLD


def test_what_is_no_listener_is_refused() -> None:
    env = StreamExecutionEnvironment.local()
    with pytest.raises(ConfigError, match="not a job status listener") as refused:
        env.register_job_listener(print)  # type: ignore[arg-type]
    assert refused.value.where == "register_job_listener"
