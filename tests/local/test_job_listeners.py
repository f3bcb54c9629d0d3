"""Whoever listens to a job is told all that becomes of it."""

from itertools import pairwise

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import BreakingOnce
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.watch import view, wait_completed, wait_recovered
from tidegate import JobCanceled, JobExecutionStatusEvent, JobStatus, JobStatusChangedListener

pytestmark = pytest.mark.slow


class Pager(JobStatusChangedListener):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.events: list[JobExecutionStatusEvent] = []

    def on_event(self, event: JobExecutionStatusEvent) -> None:
        self.events.append(event)


def check_chain(events: list[JobExecutionStatusEvent], *statuses: JobStatus) -> None:
    """Each change is there, once, where the one before has ended, and not before it."""
    chain = [JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.RUNNING, *statuses]
    assert [(e.old_status, e.new_status) for e in events] == list(pairwise(chain))
    times = [event.timestamp_ms for event in events]
    assert times == sorted(times)


@pytest.mark.feature("F271")
def test_a_listener_is_told_each_change_in_order_with_its_time(jobs: Jobs) -> None:
    broken, pager = Latch(jobs.folder / "broken"), Pager()
    env = jobs.checkpointed(1, 50)
    env.register_job_listener(pager)
    counts = running_counts(env, None, 500).map(BreakingOnce(broken))
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "listened to")
    wait_completed(client, 1)
    broken.set()
    wait_recovered(client, 1)
    client.cancel().result(100)
    assert isinstance(failure_of(client), JobCanceled)
    restarted = (JobStatus.RESTARTING, JobStatus.RUNNING)
    check_chain(pager.events, *restarted, JobStatus.CANCELLING, JobStatus.CANCELED)
    assert {(e.job_id, e.job_name) for e in pager.events} == {(client.get_job_id(), "listened to")}
    assert "told to fail once" in str(pager.events[2].error)
    # Each status was last entered when the listener was told so.
    last = {event.new_status: event.timestamp_ms for event in pager.events}
    entered = dict(view(client).timestamps_ms)
    del entered[JobStatus.INITIALIZING]
    assert last == entered


def test_the_last_change_is_told_before_the_result_is_given_out(jobs: Jobs) -> None:
    pager = Pager()
    env = jobs.env(1)
    env.register_job_listener(pager)
    running_counts(env, 10, None).sink_to(LedgerSink(jobs.folder / "out"))
    finished(jobs.start(env, "ten"))
    check_chain(pager.events, JobStatus.FINISHED)
