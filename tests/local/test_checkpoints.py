"""Checkpoints from outside: when they are taken, what they say, what befalls them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.faulty_store import faulty_files
from tests.e2e.jobs import running_counts, same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_files, ledger_rows
from tests.e2e.probes import Probe
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    completed,
    until,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
    wait_running,
)
from tidegate import StreamExecutionEnvironment, Types
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.jobmaster.view import VertexView
from tidegate.model.control import ExecutionState, JobStatus

pytestmark = pytest.mark.slow

END_S = 100
HISTORY = {"web.checkpoints.history": 1_000}
INITIALIZING, CREATED, RUNNING = JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.RUNNING


@pytest.fixture
def faulty(jobs: Jobs) -> Iterator[dict[str, object]]:
    """Settings for a folder that the latches ``slow``, ``held`` and ``broken`` rule."""
    with faulty_files():
        yield {
            "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
            "execution.checkpointing.data-inline-threshold": "0 b",
        }


@pytest.mark.feature("F002", "F004", "F018", "F021", "F038", "F081")
def test_a_job_of_one_call_takes_checkpoints_into_its_folder(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 500, **RETAIN, **{"execution.checkpointing.num-retained": 10})
    running_counts(env, None, 200).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    folder = jobs.checkpoints / client.get_job_id()
    assert sorted(path.name for path in folder.iterdir()) == ["shared", "taskowned"]
    seen = wait_completed(client, 3)
    third = completed(seen)[2]
    running_ms = seen.timestamps_ms[JobStatus.RUNNING]
    # None begins while another is under way: on a busy machine each makes the next one late.
    under_way_ms = sum(checkpoint.duration_ms for checkpoint in completed(seen)[:3])
    assert third.trigger_ms - running_ms < 3_000 + under_way_ms
    assert [checkpoint.checkpoint for checkpoint in completed(seen)][:3] == [1, 2, 3]
    assert (folder / "chk-3" / "_metadata").is_file()
    stamps = [seen.timestamps_ms[status] for status in (INITIALIZING, CREATED, RUNNING)]
    assert stamps == sorted(stamps)
    assert seen.job == client.get_job_id() and len(seen.job) == 32


@pytest.mark.feature("F061")
def test_without_an_interval_only_those_asked_for_are_taken(jobs: Jobs) -> None:
    settings = {"execution.checkpointing.dir": str(jobs.checkpoints)}
    env = jobs.env(1, **settings, **RETAIN)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    wait_running(client)
    assert view(client).checkpoints.counts.total == 0
    done = [client.trigger_checkpoint().result(timeout=END_S) for _ in range(2)]
    counts = view(client).checkpoints.counts
    assert counts.total == counts.completed == 2
    for each in done:
        found = view(client).checkpoints.find(each.checkpoint)
        assert found is not None and found.status is CheckpointStatus.COMPLETED
        assert found.pointer == each.pointer
    assert (Path(done[-1].pointer) / "_metadata").is_file()


@pytest.mark.feature("F009", "F055", "F083")
def test_subtasks_pass_through_their_states_before_the_first_checkpoint(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 100)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out")).set_parallelism(1)
    client = jobs.start(env, "counts")
    seen = wait_completed(client, 1)
    assert [vertex.parallelism for vertex in seen.vertices] == [2, 2, 1]
    order = ("SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
    for vertex in seen.vertices:
        assert len(vertex.subtasks) == vertex.parallelism
        for subtask in vertex.subtasks:
            stamps = [subtask.timestamps_ms[ExecutionState(state)] for state in order]
            assert stamps == sorted(stamps)
            assert stamps[-1] <= seen.checkpoints.history[-1].trigger_ms


@pytest.mark.feature("F098", "F115", "F133", "F218")
def test_each_subtask_to_the_sink_says_what_its_share_was(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 200)
    numbers = running_counts(env, None, 2_000)
    probed = numbers.map(Probe(Journal(jobs.folder / "journal"), "slow", snapshot_s=0.03))
    probed.name("slow").disable_chaining().sink_to(LedgerSink(jobs.folder / "out")).name(
        "ledger"
    ).disable_chaining()
    client = jobs.start(env, "counts")
    seen = wait_completed(client, 2)
    checkpoint = completed(seen)[1]
    assert checkpoint.subtasks == checkpoint.acknowledged == 8
    shares = [subtask for vertex in checkpoint.vertices for subtask in vertex.acknowledged]
    assert len(shares) == 8
    assert sum(share.state_size for share in shares) == checkpoint.state_size > 0
    by_name = {vertex.name: checkpoint.vertex(vertex.id) for vertex in seen.vertices}
    slow, sink = by_name["slow"], by_name["Sink: ledger"]
    assert slow is not None and all(share.sync_ms >= 30 for share in slow.acknowledged)
    assert sink is not None and len(sink.acknowledged) == 2


@pytest.mark.feature("F110")
def test_slow_storage_is_the_asynchronous_part(jobs: Jobs, faulty: dict[str, object]) -> None:
    (jobs.folder / "slow").write_text("200")
    client = jobs.start(counted(jobs, faulty), "counts")
    checkpoint = completed(wait_completed(client, 1))[0]
    shares = [subtask for vertex in checkpoint.vertices for subtask in vertex.acknowledged]
    assert shares
    for share in shares:
        assert share.sync_ms < 200 <= share.async_ms


def counted(
    jobs: Jobs, settings: dict[str, object], interval_ms: int = 50
) -> StreamExecutionEnvironment:
    """Counts without end in the test's process."""
    env = jobs.checkpointed(1, interval_ms, **settings)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    return env


@pytest.mark.feature("F066", "F138", "F211")
def test_nothing_is_visible_before_the_checkpoint_is_complete(
    jobs: Jobs, faulty: dict[str, object]
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    client = jobs.start(counted(jobs, faulty), "counts")
    seen = wait_for(client, lambda seen: seen.checkpoints.counts.in_progress, "a checkpoint")
    pending = seen.checkpoints.history[0]
    assert pending.status is CheckpointStatus.IN_PROGRESS
    assert (pending.acknowledged, pending.subtasks, pending.latest_ack_ms) == (0, 2, -1)
    assert not list(jobs.checkpoints.glob("*/chk-*/_metadata"))
    assert not ledger_files(jobs.folder / "out")
    held.release()
    wait_for(client, lambda _: ledger_files(jobs.folder / "out"), "committed rows")
    assert list(jobs.checkpoints.glob("*/chk-*/_metadata"))
    assert view(client).checkpoints.counts.completed >= 1


@pytest.mark.feature("F114", "F233")
def test_acknowledgements_are_counted_as_they_come(jobs: Jobs) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    probe = Probe(Journal(jobs.folder / "journal"), "held", held=held, held_in=1)
    env = jobs.checkpointed(2, 100)
    running_counts(env, None, 500).map(probe).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    seen = wait_for(
        client,
        lambda seen: seen.checkpoints.history and seen.checkpoints.history[-1].acknowledged >= 2,
        "the acknowledgements of one slot",
    )
    first = seen.checkpoints.history[-1]
    assert first.status is CheckpointStatus.IN_PROGRESS and first.acknowledged < first.subtasks
    held.release()
    done = wait_completed(client, 1).checkpoints.find(first.checkpoint)
    assert done is not None and done.acknowledged == done.subtasks == 4


@pytest.mark.feature("F043")
def test_as_many_checkpoints_may_fail_as_are_tolerated(
    jobs: Jobs, faulty: dict[str, object]
) -> None:
    broken = Latch(jobs.folder / "broken")
    tolerable = {"execution.checkpointing.tolerable-failed-checkpoints": 2}
    client = jobs.start(counted(jobs, {**faulty, **tolerable, **HISTORY}, 200), "counts")
    wait_completed(client, 1)
    broken.set()
    wait_for(client, lambda seen: seen.checkpoints.counts.failed, "a failure")
    broken.release()
    seen = wait_completed(client, view(client).checkpoints.counts.completed + 1)
    assert seen.restarts == 0
    broken.set()
    seen = wait_for(client, lambda seen: seen.restarts, "a restart")
    statuses = {one.checkpoint: one for one in reversed(seen.checkpoints.history)}
    last_good = completed(seen)[-1].checkpoint
    failed = [one for number, one in statuses.items() if number > last_good and one.failed_ms > 0]
    assert len(failed) >= 3
    assert failed[1].failed_ms < seen.failures[-1].wall_ms
    assert "Exceeded checkpoint tolerable failure threshold" in seen.failures[-1].error
    broken.release()
    wait_recovered(client, seen.restarts)


@pytest.mark.feature("F116")
def test_a_snapshot_that_cannot_be_written_is_declined_with_its_reason(
    jobs: Jobs, faulty: dict[str, object]
) -> None:
    tolerable = {"execution.checkpointing.tolerable-failed-checkpoints": 1_000}
    (jobs.folder / "broken").touch()
    client = jobs.start(counted(jobs, {**faulty, **tolerable}), "counts")
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "a failed checkpoint")
    failed = seen.checkpoints.latest_failed
    assert failed is not None and failed.status is CheckpointStatus.FAILED
    assert "the disk is told to be broken" in (failed.failure or "")
    assert seen.restarts == 0


@pytest.mark.feature("F116")
def test_a_function_that_raises_in_its_snapshot_fails_the_checkpoint_and_the_task(
    jobs: Jobs,
) -> None:
    failing = Latch(jobs.folder / "failing")
    failing.set()
    probe = Probe(Journal(jobs.folder / "journal"), "failing", failing=failing)
    env = jobs.checkpointed(2, 100)
    running_counts(env, None, 500).map(probe).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    seen = wait_for(client, lambda seen: seen.restarts, "a restart")
    failed = seen.checkpoints.latest_failed
    assert failed is not None and failed.failure
    assert "this snapshot was told to fail" in seen.failures[0].error
    failing.release()
    wait_completed(client, 1)


@pytest.mark.feature("F034", "F146")
def test_a_checkpoint_that_takes_too_long_expires_and_functions_are_told(jobs: Jobs) -> None:
    journal, held = Journal(jobs.folder / "journal"), Latch(jobs.folder / "held")
    held.set()
    settings = {
        "execution.checkpointing.timeout": "300 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": 100,
    }
    env = jobs.checkpointed(2, 100, **settings)
    numbers = running_counts(env, None, 500).map(Probe(journal, "held", held=held, held_in=1))
    numbers.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "an expired checkpoint")
    expired = seen.checkpoints.latest_failed
    assert expired is not None and expired.status is CheckpointStatus.FAILED
    assert "expired" in (expired.failure or "")
    held.release()
    wait_completed(client, 1)
    until(lambda: len(journal.notes("aborted", checkpoint=expired.checkpoint)) == 2, "both told")
    assert view(client).restarts == 0


@pytest.mark.feature("F102", "F103", "F142", "F143", "F147")
def test_functions_are_told_of_each_checkpoint_once_in_order(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 50, **HISTORY)
    numbers = env.generate(same, 1_000, 1_000, Types.LONG()).uid("numbers")
    chained = numbers.map(Probe(journal, "head")).map(Probe(journal, "tail"))
    chained.map(lambda number: {"number": number}).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "probes")
    finished(client)
    done = {checkpoint.checkpoint: checkpoint for checkpoint in completed(view(client))}
    assert len(done) >= 3
    for name in ("head", "tail"):
        for subtask in (0, 1):
            taken = journal.notes("snapshot", name=name, subtask=subtask)
            ids = [note["checkpoint"] for note in taken]
            in_its_life = {number for number in done if number <= max(ids)}
            assert len(ids) == len(set(ids)) and in_its_life <= set(ids)
            for note in taken:
                if note["checkpoint"] in done:
                    assert note["timestamp_ms"] == done[note["checkpoint"]].trigger_ms
            told = [n["checkpoint"] for n in journal.notes("complete", name=name, subtask=subtask)]
            assert told == sorted(set(told)) and set(told) <= set(done)
            assert len(told) >= len(in_its_life) - 1, "one may be lost only at the very end"
    for subtask in (0, 1):
        order = [n["name"] for n in journal.notes("complete", subtask=subtask)]
        assert order == ["tail", "head"] * (len(order) // 2)
    assert all(note["own_thread"] for note in journal.notes())


@pytest.mark.feature("F090")
def test_a_snapshot_is_one_cut_through_the_whole_job(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 50)
    numbers = env.generate(same, None, 10_000, Types.LONG()).uid("numbers")
    before = numbers.map(Probe(journal, "before"))
    after = before.key_by(same, key_type=Types.LONG()).map(lambda n: n).rebalance()
    after.map(Probe(journal, "after")).map(lambda number: {"number": number}).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "cut")
    wait_completed(client, 8)
    client.cancel().result(timeout=END_S)
    cuts = {note["checkpoint"] for note in journal.notes("complete")}
    assert len(cuts) >= 5
    for checkpoint in cuts:
        taken = journal.notes("snapshot", checkpoint=checkpoint)
        rows = {
            name: sum(note["rows"] for note in taken if note["name"] == name)
            for name in ("before", "after")
        }
        assert rows["before"] == rows["after"]
    assert max(note["rows"] for note in journal.notes("snapshot")) > 0


@pytest.mark.feature("F227")
def test_the_last_rows_of_a_bounded_job_are_committed_when_it_has_finished(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 400)
    running_counts(env, 500, None).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 500)
    assert view(client).checkpoints.counts.completed >= 1


@pytest.mark.feature("F228")
def test_checkpoints_go_on_when_one_of_two_sources_has_finished(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 50)
    short = env.generate(same, 100, None, Types.LONG()).uid("short")
    long = env.generate(same, None, 500, Types.LONG()).uid("long")
    long.union(short).key_by(same).map(lambda n: {"number": n}).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "two sources")

    seen = wait_for(client, lambda seen: any(map(is_over, seen.vertices)), "one source finished")
    assert view(client).status is RUNNING
    wait_completed(client, seen.checkpoints.counts.completed + 3)


def is_over(vertex: VertexView) -> bool:
    return all(subtask.state is ExecutionState.FINISHED for subtask in vertex.subtasks)


@pytest.mark.feature("F017")
def test_without_a_folder_checkpoints_stay_in_the_drivers_memory(jobs: Jobs) -> None:
    env = jobs.env(2, **{"execution.checkpointing.interval": 50})
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "in memory")
    done = completed(wait_completed(client, 2))[0]
    assert done.state_size > 0 and not jobs.checkpoints.exists()
    assert view(client).settings.checkpoints.storage == "jobmanager"


@pytest.mark.feature("F224")
def test_slow_deletion_of_old_checkpoints_holds_new_ones_back(
    jobs: Jobs, faulty: dict[str, object]
) -> None:
    kept = Latch(jobs.folder / "kept")
    kept.set()
    env = jobs.checkpointed(1, 20, **faulty, **{"execution.checkpointing.num-retained": 1})
    running_counts(env, None, 500).print()
    client = jobs.start(env, "slow deletion")
    wait_completed(client, 3)
    # Two wait to be deleted, one more than may be under way; 25 more would be due meanwhile.
    time.sleep(0.5)
    counts = view(client).checkpoints.counts
    assert (counts.total, counts.completed, counts.failed) == (3, 3, 0)
    assert len(list(jobs.checkpoints.glob("*/chk-*"))) == 3
    kept.release()
    wait_completed(client, 6)
    client.cancel().result(timeout=END_S)
