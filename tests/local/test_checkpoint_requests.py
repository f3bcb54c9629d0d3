"""What a user asks of checkpoints, and what the job's view answers."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import monotonic

import pytest

from flinkformat.description import describe
from flinkformat.snapshots import FULL_CHECKPOINT
from tests.e2e.faulty_store import faulty_files
from tests.e2e.jobs import running_counts, same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.leftovers import decoded, referenced
from tests.e2e.noted_source import NotedSource
from tests.e2e.probes import Probe
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, view, wait_completed, wait_for, wait_running
from tidegate import GraphError, StreamExecutionEnvironment, Types
from tidegate.checkpoint.coordinator.statistics import CheckpointKind, CheckpointStatus
from tidegate.model.elements import SnapshotKind

pytestmark = pytest.mark.slow

END_S = 100
UNALIGNED = {"execution.checkpointing.unaligned.enabled": True}


@pytest.fixture
def held_files(jobs: Jobs) -> Iterator[dict[str, object]]:
    """Settings for a folder whose files of state wait while ``held`` is set."""
    with faulty_files():
        yield {
            "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
            "execution.checkpointing.data-inline-threshold": "0 b",
        }


def counted(jobs: Jobs, env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    return env


@pytest.mark.feature("F006")
def test_unaligned_checkpoints_with_a_custom_partitioner_need_force(jobs: Jobs) -> None:
    def program(**settings: object) -> StreamExecutionEnvironment:
        env = jobs.checkpointed(1, 1_000, **UNALIGNED, **settings)
        numbers = env.generate(same, 10, None, Types.LONG()).uid("numbers")
        dealt = numbers.partition_custom(lambda key, targets: key % targets, same)
        dealt.map(lambda n: {"number": n}).sink_to(LedgerSink(jobs.folder / "out"))
        return env

    with pytest.raises(GraphError, match="custom partitioners") as caught:
        jobs.start(program(), "dealt")
    assert "execution.checkpointing.unaligned.forced" in str(caught.value)
    finished(jobs.start(program(**{"execution.checkpointing.unaligned.forced": True}), "forced"))


@pytest.mark.feature("F046")
@pytest.mark.parametrize(("mode", "shown"), [("EXACTLY_ONCE", True), ("AT_LEAST_ONCE", False)])
def test_the_settings_show_whether_checkpoints_are_unaligned(
    jobs: Jobs, mode: str, shown: bool
) -> None:
    chosen = {"execution.checkpointing.mode": mode}
    client = jobs.start(counted(jobs, jobs.checkpointed(1, 200, **UNALIGNED, **chosen)), mode)
    assert wait_running(client).settings.checkpoints.unaligned is shown


@pytest.mark.feature("F012")
@pytest.mark.slow
def test_a_job_without_an_interval_triggers_nothing_by_itself(jobs: Jobs) -> None:
    env = counted(jobs, jobs.env(1, **{"execution.checkpointing.dir": str(jobs.checkpoints)}))
    client = jobs.start(env, "by hand")
    wait_running(client)
    wait_for(
        client, lambda seen: seen.vertices[-1].subtasks[0].figures.rows_in > 500, "rows of a second"
    )
    assert view(client).checkpoints.counts.total == 0
    assert client.trigger_checkpoint().result(timeout=END_S).checkpoint == 1


@pytest.mark.feature("F074")
def test_a_checkpoint_that_was_asked_for_goes_on_beside_a_driver_that_answers(
    jobs: Jobs, held_files: dict[str, object]
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    client = jobs.start(counted(jobs, jobs.env(1, **held_files)), "asked")
    wait_running(client)
    asked = client.trigger_checkpoint()
    wait_for(client, lambda seen: seen.checkpoints.counts.in_progress, "it is under way")
    answered_s: list[float] = []
    for _ in range(100):
        began = monotonic()
        seen = view(client)
        answered_s.append(monotonic() - began)
        assert seen.checkpoints.history[0].status is CheckpointStatus.IN_PROGRESS
        assert not asked.done()
    assert median(answered_s) < 1
    held.release()
    done = asked.result(timeout=END_S)
    found = view(client).checkpoints.find(done.checkpoint)
    assert found is not None and found.status is CheckpointStatus.COMPLETED
    assert found.pointer == done.pointer != ""


@pytest.mark.feature("F036")
def test_the_state_of_a_sources_enumerator_is_in_the_checkpoint(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(1, 100, **RETAIN)
    numbers = env.from_source(NotedSource(journal, None, 500), source_name="noted").uid("noted")
    numbers.map(lambda n: {"number": n}).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    client = jobs.start(env, "coordinated")
    wait_completed(client, 1)
    done = client.trigger_checkpoint().result(timeout=END_S)
    (given,) = journal.notes("trigger", checkpoint=done.checkpoint)
    shown = describe(decoded(Path(done.pointer) / "_metadata"), directory=done.pointer)
    operators = shown["operatorStates"]
    assert isinstance(operators, list)
    states = {operator["uid"]: operator["coordinatorState"] for operator in operators}
    assert states["noted"]["data"] == given["data"] != ""
    assert states["ledger"] is None


@pytest.mark.feature("F221")
def test_a_full_checkpoint_names_no_file_of_an_older_one(jobs: Jobs) -> None:
    settings = {"execution.checkpointing.data-inline-threshold": "0 b", **RETAIN}
    env = jobs.env(1, **{"execution.checkpointing.dir": str(jobs.checkpoints), **settings})
    client = jobs.start(counted(jobs, env), "full")
    wait_running(client)
    configured, full = (
        client.trigger_checkpoint(full=full).result(timeout=END_S) for full in (False, True)
    )
    seen = view(client).checkpoints
    kinds = [found.kind for one in (configured, full) if (found := seen.find(one.checkpoint))]
    assert kinds == [SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT]
    found = seen.find(full.checkpoint)
    assert found is not None and found.type is CheckpointKind.CHECKPOINT
    file = Path(full.pointer) / "_metadata"
    properties = decoded(file).properties
    assert properties is not None and properties.snapshot_type == FULL_CHECKPOINT
    files = referenced(file)
    assert files and all(path.parent == Path(full.pointer) for path in files)


@pytest.mark.feature("F223")
@pytest.mark.slow
def test_sources_wait_for_the_first_checkpoint_of_each_attempt(
    jobs: Jobs, held_files: dict[str, object]
) -> None:
    journal = Journal(jobs.folder / "journal")
    held, failing = Latch(jobs.folder / "held"), Latch(jobs.folder / "failing")
    held.set()
    pause = {"pipeline.sources.pause-until-first-checkpoint": True}
    env = jobs.checkpointed(1, 100, **held_files, **pause)
    probe = Probe(journal, "first", failing=failing)
    running_counts(env, 2_000, 2_000).map(probe).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "paused")
    seen = wait_for(client, lambda seen: seen.checkpoints.counts.in_progress, "a checkpoint")
    assert seen.checkpoints.counts.completed == 0
    until(lambda: journal.notes("snapshot"), "its barrier has passed")
    assert view(client).vertices[-1].subtasks[0].figures.rows_in == 0
    held.release()
    wait_for(client, lambda seen: seen.vertices[-1].subtasks[0].figures.rows_in, "rows")
    failing.set()
    wait_for(client, lambda seen: seen.restarts, "a restart")
    failing.release()
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 2_000)
    opened = journal.notes("open")
    assert len(opened) >= 2
    notes = journal.notes()
    for note in opened:
        behind = notes[notes.index(note) :]
        first = next(n for n in behind if n["event"] in ("snapshot", "close"))
        assert first["event"] == "close" or first["rows"] == sum(note["restored"])
