"""What a user sees of a checkpoint that failed: in the history, in the log, in the job's error."""

import re
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.e2e.faulty_store import faulty_files
from tests.e2e.jobs import running_counts, same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Probe, Unpicklable
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.watch import until, view, wait_completed, wait_for, wait_running
from tidegate import (
    CheckpointedFunction,
    JobClient,
    MapFunction,
    OperatorStateDescriptor,
    RedistributionMode,
    RuntimeContext,
    SnapshotContext,
    StreamExecutionEnvironment,
    Types,
)
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, CheckpointStatus
from tidegate.errors import CheckpointAborted, JobFailed
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.failure_reason import FailureReason

pytestmark = pytest.mark.slow

END_S = 100
TOLERANT = {"execution.checkpointing.tolerable-failed-checkpoints": 1_000}
Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def log() -> Iterator[Lines]:
    """What the driver logs."""
    with structlog.testing.capture_logs() as lines:
        yield lines


def counted(jobs: Jobs, env: StreamExecutionEnvironment) -> JobClient:
    """A job that counts without end."""
    running_counts(env, None, 1_000).uid("counts").name("counts").sink_to(
        LedgerSink(jobs.folder / "out")
    )
    return jobs.start(env, "counts")


def by_hand(jobs: Jobs, **settings: object) -> StreamExecutionEnvironment:
    """An environment in which checkpoints are taken when the test asks for them."""
    folder = {"execution.checkpointing.dir": str(jobs.checkpoints)}
    return jobs.env(1, **{**folder, **TOLERANT, **settings})


@pytest.fixture
def held_files(jobs: Jobs) -> Iterator[dict[str, object]]:
    """Settings for a folder whose files of state wait while latches say so."""
    with faulty_files():
        yield {
            "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
            "execution.checkpointing.data-inline-threshold": "0 b",
        }


def refusal(client: JobClient) -> CheckpointAborted:
    """The answer to a request for a checkpoint that fails."""
    error = client.trigger_checkpoint().exception(timeout=END_S)
    assert isinstance(error, CheckpointAborted)
    return error


def warned(log: Lines, reason: FailureReason) -> MutableMapping[str, Any]:
    """The first line of the log about a checkpoint that failed for that."""
    lines = [line for line in log if line.get("reason") == reason.name]
    assert lines, log
    assert lines[0]["event"] == "checkpoint failed" and lines[0]["remedy"] == reason.remedy
    assert lines[0]["log_level"] == ("warning" if reason.counts else "info")
    return lines[0]


def latest_failed(client: JobClient) -> CheckpointStatistics:
    """The newest failed checkpoint, once there is one."""
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "a failed checkpoint")
    failed = seen.checkpoints.latest_failed
    assert failed is not None and failed.status is CheckpointStatus.FAILED
    return failed


def missing(seen: JobView) -> set[tuple[str, int]]:
    """Whose share the newest failed checkpoint has not: names of steps, with the subtask."""
    failed = seen.checkpoints.latest_failed
    return {
        (vertex.name, index)
        for vertex in seen.vertices
        if failed is not None and (share := failed.vertex(vertex.id)) is not None
        for index, subtask in enumerate(share.subtasks)
        if subtask is None
    }


@pytest.mark.feature("F219")
def test_an_expired_checkpoint_says_so_and_its_figures_say_who_is_missing(
    jobs: Jobs, log: Lines
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    probe = Probe(Journal(jobs.folder / "journal"), "held", held=held, held_in=1)
    env = jobs.checkpointed(2, 100, **TOLERANT, **{"execution.checkpointing.timeout": "300 ms"})
    running_counts(env, None, 500).map(probe).name("held").disable_chaining().sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "expiring")
    # On a busy machine others come too late as well, which is not of interest here.
    alone = wait_for(client, lambda seen: {index for _, index in missing(seen)} == {1}, "it alone")
    held.release()
    failed = alone.checkpoints.latest_failed
    assert failed is not None and ("held", 1) in missing(alone)
    assert failed.reason is FailureReason.CHECKPOINT_EXPIRED
    assert failed.failure == "Checkpoint expired before completing."
    warned(log, FailureReason.CHECKPOINT_EXPIRED)
    lines = [(line.get("checkpoint"), line.get("message")) for line in log]
    assert (failed.checkpoint, failed.failure) in lines
    wait_completed(client, 1)


@pytest.mark.feature("F219")
def test_a_declined_checkpoint_names_the_subtask_and_its_cause(jobs: Jobs, log: Lines) -> None:
    unpicklable = Latch(jobs.folder / "unpicklable")
    unpicklable.set()
    env = jobs.checkpointed(2, 100, **TOLERANT)
    running_counts(env, None, 1_000, Unpicklable(unpicklable)).name("counts").sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "locks in state")
    failed = latest_failed(client)
    unpicklable.release()
    assert failed.reason is FailureReason.CHECKPOINT_ASYNC_EXCEPTION
    assert failed.failed_at.startswith("counts") and failed.failed_at[-5:] in ("(1/2)", "(2/2)")
    assert str(failed.failure).startswith("Asynchronous task checkpoint failed.\n")
    assert "anything" in str(failed.failure), "it names the state"
    line = warned(log, FailureReason.CHECKPOINT_ASYNC_EXCEPTION)
    assert line["where"][:-6] == failed.failed_at[:-6] and "anything" in line["message"]


@pytest.mark.feature("F219")
def test_the_job_that_ends_for_a_checkpoint_says_why_and_what_to_do(jobs: Jobs) -> None:
    unpicklable = Latch(jobs.folder / "unpicklable")
    unpicklable.set()
    env = jobs.checkpointed(1, 100, **{"restart-strategy.type": "none"})
    running_counts(env, None, 1_000, Unpicklable(unpicklable)).name("counts").sink_to(
        LedgerSink(jobs.folder / "out")
    )
    error = failure_of(jobs.start(env, "locks in state"))
    assert isinstance(error, JobFailed)
    text = str(error)
    reason = FailureReason.CHECKPOINT_ASYNC_EXCEPTION
    assert "Exceeded checkpoint tolerable failure threshold" in text
    assert f"{reason.name}: {reason.message}" in text and "anything" in text
    assert re.search(r"where: checkpoint \d+, counts", text)
    assert f"what to do: {reason.remedy}" in text


@pytest.mark.feature("F219")
def test_a_subtask_that_fails_takes_its_checkpoint_with_it_and_says_why(jobs: Jobs) -> None:
    failing = Latch(jobs.folder / "failing")
    failing.set()
    probe = Probe(Journal(jobs.folder / "journal"), "failing", failing=failing)
    env = jobs.checkpointed(1, 100)
    running_counts(env, None, 500).map(probe).name("failing").disable_chaining().sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "failing")
    failed = latest_failed(client)
    failing.release()
    assert failed.reason is FailureReason.TASK_FAILURE
    assert failed.failed_at == "failing (1/1)"
    assert "this snapshot was told to fail" in str(failed.failure)


@pytest.mark.feature("F219")
def test_a_folder_that_cannot_be_made_is_an_io_exception(jobs: Jobs, log: Lines) -> None:
    client = counted(jobs, by_hand(jobs))
    wait_running(client)
    first = client.trigger_checkpoint().result(timeout=END_S)
    taken = Path(first.pointer).parent / f"chk-{first.checkpoint + 1}"
    taken.mkdir()
    (taken / "_metadata").write_bytes(b"somebody else's")
    error = refusal(client)
    assert error.reason == "IO_EXCEPTION"
    assert "holds a checkpoint already" in error.what and str(taken) in error.what
    assert error.remedy == FailureReason.IO_EXCEPTION.remedy
    assert latest_failed(client).reason is FailureReason.IO_EXCEPTION
    assert "holds a checkpoint already" in warned(log, FailureReason.IO_EXCEPTION)["message"]
    assert client.trigger_checkpoint().result(timeout=END_S).checkpoint == first.checkpoint + 2


@pytest.mark.feature("F219")
def test_metadata_that_cannot_be_written_is_a_failure_to_finalize(
    jobs: Jobs, held_files: dict[str, object], log: Lines
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    client = counted(jobs, by_hand(jobs, **held_files))
    wait_running(client)
    asked = client.trigger_checkpoint()
    until(lambda: list(jobs.checkpoints.glob("*/chk-1")), "the folder of the checkpoint")
    (folder,) = jobs.checkpoints.glob("*/chk-1")
    (folder / "_metadata").write_bytes(b"somebody else's")
    held.release()
    error = asked.exception(timeout=END_S)
    assert isinstance(error, CheckpointAborted)
    assert error.reason == "FINALIZE_CHECKPOINT_FAILURE" and "_metadata" in error.what
    assert latest_failed(client).reason is FailureReason.FINALIZE_CHECKPOINT_FAILURE
    warned(log, FailureReason.FINALIZE_CHECKPOINT_FAILURE)


@pytest.mark.feature("F219")
def test_an_older_checkpoint_is_subsumed_by_a_newer_one(
    jobs: Jobs, held_files: dict[str, object], log: Lines
) -> None:
    held = Latch(jobs.folder / "held-chk-1")
    held.set()
    overlap = {"execution.checkpointing.max-concurrent-checkpoints": 2}
    client = counted(jobs, by_hand(jobs, **held_files, **overlap))
    wait_running(client)
    first = client.trigger_checkpoint()
    until(lambda: list(jobs.checkpoints.glob("*/chk-1")), "the first is under way")
    second = client.trigger_checkpoint().result(timeout=END_S)
    error = first.exception(timeout=END_S)
    held.release()
    assert second.checkpoint == 2
    assert isinstance(error, CheckpointAborted) and error.reason == "CHECKPOINT_SUBSUMED"
    failed = latest_failed(client)
    assert (failed.checkpoint, failed.reason) == (1, FailureReason.CHECKPOINT_SUBSUMED)
    warned(log, FailureReason.CHECKPOINT_SUBSUMED)
    assert view(client).restarts == 0


@pytest.mark.feature("F219")
def test_without_all_subtasks_a_checkpoint_is_refused_by_the_name_of_one(
    jobs: Jobs, log: Lines
) -> None:
    env = by_hand(jobs, **{"execution.checkpointing.checkpoints-after-tasks-finish": False})
    short = env.generate(same, 1, None, Types.LONG()).uid("short").name("short")
    long = env.generate(same, None, 100, Types.LONG()).uid("long")
    short.rebalance().union(long.rebalance()).map(lambda n: {"number": n}).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "one over")
    wait_for(
        client,
        lambda seen: any(
            subtask.state is ExecutionState.FINISHED
            for vertex in seen.vertices
            for subtask in vertex.subtasks
        ),
        "the short source has finished",
    )
    error = refusal(client)
    assert error.reason == "NOT_ALL_REQUIRED_TASKS_RUNNING"
    assert "short (1/1) has finished already" in error.what
    assert "checkpoints-after-tasks-finish" in error.remedy
    counts = view(client).checkpoints.counts
    assert (counts.total, counts.failed) == (1, 1) and not view(client).checkpoints.history
    warned(log, FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING)


@pytest.mark.feature("F219")
def test_a_checkpoint_that_comes_too_soon_is_put_off_not_failed(jobs: Jobs, log: Lines) -> None:
    pause = {"execution.checkpointing.min-pause": "400 ms"}
    client = counted(jobs, jobs.checkpointed(1, 400, **pause))
    # One asked for out of turn: the next periodic one comes too soon after it.
    wait_completed(client, 1)
    client.trigger_checkpoint().result(timeout=END_S)
    reason = FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    until(lambda: [line for line in log if line.get("reason") == reason.name], "it is put off")
    line = next(line for line in log if line.get("reason") == reason.name)
    assert line["log_level"] == "debug" and line["remedy"] == reason.remedy
    wait_completed(client, 4)
    assert view(client).checkpoints.counts.failed == 0


@pytest.mark.feature("F219")
def test_of_too_many_requests_those_that_find_no_room_are_refused(
    jobs: Jobs, held_files: dict[str, object]
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    client = counted(jobs, by_hand(jobs, **held_files))
    wait_running(client)
    under_way = client.trigger_checkpoint()
    until(lambda: view(client).checkpoints.counts.in_progress, "one is under way")
    waiting = [client.trigger_checkpoint() for _ in range(1_000)]
    error = refusal(client)
    assert error.reason == "TOO_MANY_CHECKPOINT_REQUESTS"
    assert error.remedy == FailureReason.TOO_MANY_CHECKPOINT_REQUESTS.remedy
    assert not any(request.done() for request in (under_way, *waiting))
    held.release()
    assert under_way.result(timeout=END_S).checkpoint == 1
    client.cancel().result(timeout=END_S)
    left = {type(request.exception(timeout=END_S)) for request in waiting}
    assert left <= {CheckpointAborted, type(None)} and CheckpointAborted in left


@pytest.mark.feature("F219", "F229")
def test_checkpoints_fail_while_one_subtask_with_union_state_has_finished_and_the_job_goes_on(
    jobs: Jobs,
) -> None:
    slow = Latch(jobs.folder / "slow")
    slow.set()
    env = jobs.checkpointed(2, 50, **TOLERANT)
    numbers = env.generate(same, 40_000, None, Types.LONG()).uid("numbers")
    numbers.map(SlowOdd(slow)).uid("positions").map(lambda n: {"number": n}).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "union")
    # The one that has no more rows waits for its last checkpoint, which comes with the other's.
    wait_for(client, lambda seen: seen.checkpoints.counts.failed > 2, "checkpoints fail")
    failed = latest_failed(client)
    assert failed.reason is FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
    assert "task is closing" in str(failed.failure) and "1 of its 2 subtasks" in str(failed.failure)
    assert view(client).status is JobStatus.RUNNING
    slow.release()
    finished(client)
    assert view(client).restarts == 0
    rows = ledger_rows(jobs.folder / "out")
    assert sorted(row["number"] for row in rows) == list(range(40_000))


@dataclass
class SlowOdd(MapFunction[int, int], CheckpointedFunction):
    """Passes numbers on, odd ones slowly while the latch is set; its union state is the last."""

    slow: Latch

    def open(self, runtime_context: RuntimeContext) -> None:
        union = OperatorStateDescriptor("last", Types.LONG(), RedistributionMode.UNION)
        self._last = runtime_context.get_operator_list_state(union)
        self._number = 0

    def map(self, value: int) -> int:
        self._number = value
        if value % 2 and self.slow.is_set:
            time.sleep(0.01)
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._last.update([self._number])
