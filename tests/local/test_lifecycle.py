"""The life of a job: cancelled, restarted by its strategy, failed for good."""

import time
from itertools import pairwise

import pytest
import structlog

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import Breaking, Probe, Unpicklable
from tests.e2e.runtimes import END_S, Jobs, failure_of
from tests.e2e.watch import view, wait_completed, wait_for, wait_running
from tidegate import JobCanceled, JobClient, JobFailed
from tidegate.model.control import ExecutionState, JobStatus

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_cancelled_job_ends_with_its_functions_closed(jobs: Jobs, parallelism: int) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(parallelism, 100)
    running_counts(env, None, 1_000).map(Probe(journal, "probe")).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "cancelled")
    wait_running(client)
    client.cancel().result(timeout=100)
    assert isinstance(failure_of(client), JobCanceled)
    assert client.get_job_status().result(timeout=100) is JobStatus.CANCELED
    states = {subtask.state for vertex in view(client).vertices for subtask in vertex.subtasks}
    assert states == {ExecutionState.CANCELED}
    assert len(journal.notes("close")) == parallelism
    client.cancel().result(timeout=100)


SLACK_MS = 1_000
"""What deploying, and failing at the first row, may take."""

STRATEGIES = {
    "disable": ({}, 0),
    "fixed-delay": ({"attempts": 2, "delay": "10 ms"}, 2),
    "failure-rate": (
        {"max-failures-per-interval": 1, "failure-rate-interval": "1 h", "delay": "10 ms"},
        1,
    ),
    "exponential-delay": ({"initial-backoff": "10 ms", "attempts-before-reset-backoff": 3}, 3),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_job_that_fails_again_and_again_is_given_up_by_its_strategy(
    jobs: Jobs, strategy: str
) -> None:
    options, restarts = STRATEGIES[strategy]
    settings = {f"restart-strategy.{strategy}.{name}": value for name, value in options.items()}
    env = jobs.checkpointed(1, 100, **{"restart-strategy.type": strategy, **settings})
    broken = Latch(jobs.folder / "broken")
    broken.set()
    running_counts(env, None, 1_000).map(Breaking(broken)).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "failing")
    error = failure_of(client)
    assert isinstance(error, JobFailed) and "It was not restarted" in error.what
    assert view(client).restarts == restarts
    assert len(view(client).failures) == restarts + 1


def test_the_same_row_again_and_again_ends_a_job_that_no_strategy_was_set_for(jobs: Jobs) -> None:
    """Its checkpoint stays, so that it goes on once the function is mended."""
    broken = Latch(jobs.folder / "broken")
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(jobs.checkpoints),
    }

    def start(**more: object) -> JobClient:
        env = jobs.env(1, **settings, **more)
        numbers = running_counts(env, None, 1_000).map(lambda row: row["number"])
        numbers.map(Breaking(broken)).print()
        return jobs.start(env, "failing")

    with structlog.testing.capture_logs() as logs:
        client = start()
        wait_running(client)
        taken = client.trigger_checkpoint().result(timeout=END_S)
        broken.set()
        error = failure_of(client)
    assert isinstance(error, JobFailed) and "failed 3 times" in error.what
    assert f"kept, the newest in {taken.pointer}" in error.remedy
    told = [log["error"] for log in logs if log["event"] == "job restarts"]
    assert told[-1].startswith("the same again (2): ") and "Traceback" not in told[-1]
    broken.release()
    again = start(**{"execution.state-recovery.path": "latest"})
    wait_running(again)
    assert view(again).restored == taken.checkpoint


@pytest.mark.feature("F273")
def test_without_checkpoints_a_failure_ends_the_job(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    broken.set()
    env = jobs.env(1)
    running_counts(env, None, 1_000).map(Breaking(broken)).print()
    client = jobs.start(env, "failing")
    assert isinstance(failure_of(client), JobFailed)
    assert view(client).restarts == 0
    assert client.cancel().result(timeout=100) is None, "it has ended already"


@pytest.mark.feature("F273")
def test_with_checkpoints_a_job_is_restarted_after_growing_waits(jobs: Jobs) -> None:
    """Nothing else being set: 1 s, 1.5 s and 2.25 s, give or take a tenth."""
    broken = Latch(jobs.folder / "broken")
    broken.set()
    env = jobs.env(1, **{"execution.checkpointing.interval": 100})
    running_counts(env, None, 1_000).map(Breaking(broken)).print()
    began_ms = time.time() * 1_000
    client = jobs.start(env, "failing")
    seen = wait_for(client, lambda seen: len(seen.failures) == 4, "four failures")
    times = sorted(failure.wall_ms for failure in seen.failures)
    slack_ms = SLACK_MS + times[0] - began_ms  # what the first start takes on this machine, now
    for wait_ms, (began, ended) in zip((1_000, 1_500, 2_250), pairwise(times), strict=True):
        assert 0.9 * wait_ms <= ended - began < 1.1 * wait_ms + slack_ms


def test_no_checkpoint_is_triggered_while_the_job_restarts(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    delay = {"restart-strategy.fixed-delay.delay": "800 ms", "web.checkpoints.history": 1_000}
    env = jobs.checkpointed(1, 50, **delay)
    running_counts(env, None, 1_000).map(Breaking(broken)).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "restarting")
    wait_completed(client, 2)
    broken.set()
    wait_for(client, lambda seen: seen.status is JobStatus.RESTARTING, "the restart")
    broken.release()
    seen = wait_for(client, lambda seen: seen.status is JobStatus.RUNNING, "the job is back")
    failed_ms = seen.failures[0].wall_ms
    back_ms = seen.timestamps_ms[JobStatus.RUNNING]
    assert back_ms - failed_ms >= 750
    seen = wait_completed(client, seen.checkpoints.counts.completed + 1)
    triggers = [checkpoint.trigger_ms for checkpoint in seen.checkpoints.history]
    assert not [ms for ms in triggers if failed_ms < ms < back_ms]


def test_state_that_cannot_become_bytes_fails_the_checkpoint_not_the_slot(jobs: Jobs) -> None:
    unpicklable = Latch(jobs.folder / "unpicklable")
    unpicklable.set()
    tolerable = {"execution.checkpointing.tolerable-failed-checkpoints": 1_000}
    env = jobs.checkpointed(2, 100, **tolerable)
    running_counts(env, None, 1_000, Unpicklable(unpicklable)).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "locks in state")
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "a failed checkpoint")
    failed = seen.checkpoints.latest_failed
    assert failed is not None and "anything" in (failed.failure or ""), "it names the state"
    unpicklable.release()
    wait_completed(client, 1)
    assert view(client).restarts == 0


@pytest.mark.feature("F017")
def test_state_too_large_for_the_drivers_memory_is_refused_in_words(jobs: Jobs) -> None:
    env = jobs.env(1, **{"execution.checkpointing.interval": 100})
    large = env.generate(lambda number: (number, "x" * 100_000), None, 1_000)
    large.key_by(lambda pair: pair[0]).reduce(lambda a, b: b).print()
    client = jobs.start(env, "large")
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "a failed checkpoint")
    failed = seen.checkpoints.latest_failed
    assert failed is not None and "5242880" in (failed.failure or "").replace(",", "").replace(
        "_", ""
    )
