"""A running job gets another parallelism under its living driver: nothing lost, nothing doubled."""

from collections import Counter
from contextlib import suppress

import pytest

from tests.e2e.files import write_numbers
from tests.e2e.jobs import RunningCount, running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Probe
from tests.e2e.regions import strands
from tests.e2e.runtimes import (
    RETAIN,
    WITHOUT_CHECKPOINTS,
    Jobs,
    failure_of,
    finish_by_checkpoints,
    finished,
)
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    kill_slot,
    pids,
    runs,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
    wait_running,
)
from tidegate import JobClient, JobFailed, RescaleRefused, RuntimeContext
from tidegate.connectors import FileSource
from tidegate.errors import CheckpointAborted
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState

pytestmark = pytest.mark.slow

RESCALE_S = 60.0
RATE = 1_000
NEVER_BY_ITSELF = 3_600_000
"""An interval of checkpoints in which only those come that are asked for."""


class HeldOpen(RunningCount):
    """The running count; its subtasks do not open while the latch is set."""

    def __init__(self, held: Latch) -> None:
        self._held = held

    def open(self, runtime_context: RuntimeContext) -> None:
        self._held.wait()
        super().open(runtime_context)


def rescale(client: JobClient, parallelism: int) -> JobView:
    client.rescale(parallelism).result(RESCALE_S)
    return wait_running(client)


def shape(seen: JobView) -> set[tuple[int, int]]:
    """Parallelism and number of subtasks of the vertices."""
    return {(vertex.parallelism, len(vertex.subtasks)) for vertex in seen.vertices}


@pytest.mark.feature("F280")
@pytest.mark.parametrize("unaligned", [False, True])
def test_a_job_grows_and_shrinks_under_load(jobs: Jobs, unaligned: bool) -> None:
    total, out = 25_000, jobs.folder / "out"
    setting = {"execution.checkpointing.unaligned.enabled": unaligned}
    env = jobs.checkpointed(2, 200, **setting)
    running_counts(env, total, RATE).sink_to(LedgerSink(out))
    client = jobs.start(env, "rescaled")
    before = wait_completed(client, 1)
    for rescales, parallelism in enumerate((3, 1), start=1):
        seen = rescale(client, parallelism)
        assert shape(seen) == {(parallelism, parallelism)}
        assert (seen.rescales, seen.restarts, seen.failures) == (rescales, 0, ())
        assert len(seen.slots) == seen.slots_wanted == parallelism
        assert seen.restored is not None and seen.restored > (before.restored or 0)
        before = wait_completed(client, seen.checkpoints.counts.completed + 1)
    finished(client)
    rows = ledger_rows(out)
    check_each_counted_once(rows, total)
    assert {row["attempt"] for row in rows} == {0, 1, 2}


@pytest.mark.feature("F280")
def test_a_job_rescales_once_a_checkpoint_has_completed_and_from_that_one(jobs: Jobs) -> None:
    total, out = 6_000, jobs.folder / "out"
    env = jobs.checkpointed(2, NEVER_BY_ITSELF)
    running_counts(env, total, RATE).sink_to(LedgerSink(out))
    client = jobs.start(env, "waiting")
    wait_running(client)
    done = client.rescale(3)
    seen = wait_for(client, lambda seen: len(seen.slots) == 3, "the third slot")
    assert runs(seen) and shape(seen) == {(2, 2)} and not done.done()
    taken = client.trigger_checkpoint().result(RESCALE_S)
    done.result(RESCALE_S)
    seen = wait_running(client)
    assert (shape(seen), seen.restored) == ({(3, 3)}, taken.checkpoint)
    finish_by_checkpoints(client)
    check_each_counted_once(ledger_rows(out), total)


@pytest.mark.feature("F280")
def test_a_slot_killed_while_a_rescale_waits_does_not_undo_it(jobs: Jobs) -> None:
    total, out = 6_000, jobs.folder / "out"
    env = jobs.checkpointed(2, NEVER_BY_ITSELF)
    running_counts(env, total, RATE).sink_to(LedgerSink(out))
    client = jobs.start(env, "killed in the wait")
    wait_running(client)
    client.trigger_checkpoint().result(RESCALE_S)
    done = client.rescale(3)
    seen = wait_for(client, lambda seen: len(seen.slots) == 3, "the third slot")
    first = seen.vertices[0].subtasks[0].slot
    pid = next(slot.pid for slot in seen.slots if slot.id == first)
    kill_slot(client, sorted(pids(seen)).index(pid))
    wait_recovered(client, 1)
    wait_for(client, lambda seen: len(seen.slots) == 3, "the third slot again")
    # The first checkpoint behind a restart may come before this one, and with it the rescale.
    with suppress(CheckpointAborted):
        client.trigger_checkpoint().result(RESCALE_S)
    done.result(RESCALE_S)
    seen = wait_running(client)
    assert (shape(seen), seen.rescales) == ({(3, 3)}, 1) and seen.restarts >= 1
    finish_by_checkpoints(client)
    check_each_counted_once(ledger_rows(out), total)


@pytest.mark.feature("F280")
def test_a_slot_killed_while_a_rescale_is_deployed_leads_to_the_new_parallelism(
    jobs: Jobs,
) -> None:
    total, out, held = 6_000, jobs.folder / "out", Latch(jobs.folder / "held")
    env = jobs.checkpointed(2, 200)
    running_counts(env, total, RATE, HeldOpen(held)).sink_to(LedgerSink(out))
    client = jobs.start(env, "killed in the deployment")
    wait_completed(client, 1)
    held.set()
    done = client.rescale(3)

    def opening(seen: JobView) -> bool:
        states = {subtask.state for v in seen.vertices for subtask in v.subtasks}
        return seen.rescales == 1 and ExecutionState.INITIALIZING in states

    wait_for(client, opening, "the new subtasks are opened")
    kill_slot(client, 0)
    held.release()
    done.result(RESCALE_S)
    seen = wait_running(client)
    assert (shape(seen), seen.rescales) == ({(3, 3)}, 1) and seen.restarts >= 1
    finished(client)
    check_each_counted_once(ledger_rows(out), total)


def test_checkpoints_that_fail_do_not_keep_a_job_from_growing(jobs: Jobs) -> None:
    total, out, failing = 6_000, jobs.folder / "out", Latch(jobs.folder / "failing")
    tolerant = {"execution.checkpointing.tolerable-failed-checkpoints": 1_000}
    env = jobs.checkpointed(2, 150, **tolerant)
    counts = running_counts(env, total, RATE)
    probe = Probe(Journal(jobs.folder / "journal"), "failing", failing=failing)
    counts.map(probe).sink_to(LedgerSink(out))
    client = jobs.start(env, "failing checkpoints")
    wait_completed(client, 1)
    failing.set()
    completed = view(client).checkpoints.counts.completed
    wait_for(client, lambda seen: seen.checkpoints.counts.failed >= 1, "a failed checkpoint")
    done = client.rescale(3)
    done.result(RESCALE_S)
    seen = view(client)
    assert shape(seen) == {(3, 3)} and seen.checkpoints.counts.completed <= completed + 1
    failing.release()
    finished(client)
    check_each_counted_once(ledger_rows(out), total)


def test_splits_are_dealt_out_anew_and_each_is_read_once(jobs: Jobs) -> None:
    folder, out, files, rows_each = jobs.folder / "in", jobs.folder / "out", 200, 20
    write_numbers(folder, files=files, rows_each=rows_each)
    env = jobs.checkpointed(2, 200)
    strands(env, FileSource.parquet(str(folder)).rate(RATE)).sink_to(LedgerSink(out))
    client = jobs.start(env, "strands")
    wait_completed(client, 1)
    assert shape(rescale(client, 3)) == {(3, 3)}
    finished(client)
    rows = ledger_rows(out)
    assert Counter(row["number"] for row in rows) == Counter(range(files * rows_each))
    assert {row["subtask"] for row in rows} == {0, 1, 2}


def test_a_step_with_a_parallelism_of_its_own_keeps_it(jobs: Jobs) -> None:
    total, out = 4_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 200)
    counts = running_counts(env, total, RATE)
    counts.sink_to(LedgerSink(out)).disable_chaining().set_parallelism(2)
    client = jobs.start(env, "own")
    wait_completed(client, 1)
    seen = rescale(client, 3)
    assert [vertex.parallelism for vertex in seen.vertices] == [3, 3, 2]
    finished(client)
    check_each_counted_once(ledger_rows(out), total)


def test_what_cannot_be_is_refused_and_the_job_runs_on(jobs: Jobs) -> None:
    total, out = 3_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 200)
    env.set_max_parallelism(4)
    running_counts(env, total, RATE).sink_to(LedgerSink(out))
    client = jobs.start(env, "refused")
    before = wait_completed(client, 1)
    for wrong in (0, -3, 5):
        with pytest.raises(RescaleRefused, match=f"from 1 to 4, not {wrong}"):
            client.rescale(wrong).result(RESCALE_S)
    with pytest.raises(RescaleRefused, match="not a whole number"):
        client.rescale("3").result(RESCALE_S)  # type: ignore[arg-type]
    client.rescale(2).result(RESCALE_S)
    finished(client)
    seen = view(client)
    assert (seen.rescales, seen.restarts) == (0, 0) and before.slots_wanted == 2
    check_each_counted_once(ledger_rows(out), total)
    with pytest.raises(JobFailed, match="has ended"):
        client.rescale(3).result(RESCALE_S)


def test_a_job_without_checkpoints_is_not_rescaled(jobs: Jobs) -> None:
    env = jobs.env(2, **WITHOUT_CHECKPOINTS)
    running_counts(env, None, RATE).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "no checkpoints")
    before = wait_running(client)
    with pytest.raises(RescaleRefused, match="no completed checkpoint"):
        client.rescale(3).result(RESCALE_S)
    seen = view(client)
    assert runs(seen) and shape(seen) == {(2, 2)} and pids(seen) == pids(before)


def test_another_driver_goes_on_at_the_parallelism_of_its_own_submission(jobs: Jobs) -> None:
    total, out = 4_000, jobs.folder / "out"
    for resumed in (False, True):
        path = {"execution.state-recovery.path": "latest"} if resumed else {}
        env = jobs.checkpointed(2, 200, **RETAIN, **path)
        running_counts(env, total, RATE).sink_to(LedgerSink(out))
        client = jobs.start(env, "resumed")
        seen = wait_completed(client, 1)
        assert shape(seen) == {(2, 2)}
        if not resumed:
            seen = rescale(client, 3)
            wait_completed(client, seen.checkpoints.counts.completed + 1)
            client.cancel().result(RESCALE_S)
            failure_of(client)
    finished(client)
    check_each_counted_once(ledger_rows(out), total)
