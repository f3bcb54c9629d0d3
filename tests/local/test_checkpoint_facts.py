"""What is known of a job's checkpoints while it runs, and what a restart brings back."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkformat import metadata
from flinkformat.description import describe
from flinkformat.handles import ByteStreamStateHandle, RelativeFileStateHandle
from tests.e2e.faulty_store import faulty_files
from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Probe
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import completed, until, view, wait_completed, wait_for, wait_running
from tidegate import StreamExecutionEnvironment
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.model.settings import CheckpointingMode

pytestmark = pytest.mark.slow


@pytest.fixture
def faulty(jobs: Jobs) -> Iterator[dict[str, object]]:
    """Settings for a folder whose files of state wait while ``held`` is set."""
    with faulty_files():
        yield {
            "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
            "execution.checkpointing.data-inline-threshold": "0 b",
        }


@pytest.mark.feature("F016", "F045")
@pytest.mark.parametrize("mode", CheckpointingMode)
def test_the_settings_in_force_name_backend_storage_and_mode(
    jobs: Jobs, mode: CheckpointingMode
) -> None:
    chosen = {"execution.checkpointing.mode": mode.value, "state.backend.type": "hashmap"}
    client = jobs.start(endless(jobs, jobs.checkpointed(1, 200, **chosen)), "counts")
    settings = wait_running(client).settings.checkpoints
    assert (settings.state_backend, settings.storage) == ("hashmap", "filesystem")
    assert settings.mode is mode
    unfiled = {"execution.checkpointing.interval": 200}
    client = jobs.start(endless(jobs, jobs.env(1, **unfiled)), "unfiled")
    assert wait_running(client).settings.checkpoints.storage == "jobmanager"


def endless(jobs: Jobs, env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    """A job that counts until it is cancelled."""
    running_counts(env, None, 100).sink_to(LedgerSink(jobs.folder / "out"))
    return env


@pytest.mark.feature("F013")
def test_a_restart_brings_the_counts_of_the_hashmap_backend_back(jobs: Jobs) -> None:
    failing = Latch(jobs.folder / "failing")
    env = jobs.checkpointed(2, 100, **{"state.backend.type": "hashmap"})
    probe = Probe(Journal(jobs.folder / "journal"), "failing", failing=failing)
    running_counts(env, 3_000, 1_000).map(probe).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    wait_completed(client, 2)
    failing.set()
    wait_for(client, lambda seen: seen.restarts, "a restart")
    failing.release()
    assert wait_running(client).restored is not None
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 3_000)


@pytest.mark.feature("F112", "F140")
def test_a_checkpoint_is_acknowledged_and_written_once_its_files_are_closed(
    jobs: Jobs, faulty: dict[str, object]
) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    env = jobs.checkpointed(1, 50, **faulty)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    seen = wait_for(client, lambda seen: seen.checkpoints.counts.in_progress, "a checkpoint")
    pending = seen.checkpoints.history[0]
    assert (pending.status, pending.acknowledged) == (CheckpointStatus.IN_PROGRESS, 0)
    assert not list(jobs.checkpoints.glob("*/chk-*/_metadata"))
    held.release()
    done = completed(wait_completed(client, 1))[0]
    assert done.pointer is not None
    folder = Path(done.pointer.removeprefix("faulty://"))
    decoded = metadata.decode((folder / "_metadata").read_bytes(), lambda: "unused")
    sizes = {
        handle.relative_path: handle.state_size
        for operator in decoded.operators
        for state in operator.subtasks.values()
        for handle in streams(state)
    }
    assert sizes
    assert {name: (folder / name).stat().st_size for name in sizes} == sizes
    assert json.dumps(describe(decoded, directory=str(folder)))


def streams(state: object) -> Iterator[RelativeFileStateHandle]:
    """The files of one subtask's state."""
    for field in ("managed_keyed", "managed_operator"):
        handle = getattr(state, field)
        if handle is not None and not isinstance(handle.delegate, ByteStreamStateHandle):
            assert isinstance(handle.delegate, RelativeFileStateHandle)
            yield handle.delegate


@pytest.mark.feature("F215")
def test_a_checkpoint_goes_through_its_six_steps_in_order(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 100)
    upstream = running_counts(env, None, 500).map(Probe(journal, "before")).name("before")
    aligned = upstream.rebalance().map(Probe(journal, "behind")).name("behind")
    aligned.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "steps")
    seen = wait_completed(client, 2)
    checkpoint = completed(seen)[1]
    number = checkpoint.checkpoint
    until(lambda: len(journal.notes("complete", checkpoint=number)) == 4, "all are told")
    notes = [note for note in journal.notes() if note.get("checkpoint") == number]
    acks = {
        vertex.name: [share.ack_ms for share in found.acknowledged]
        for vertex in seen.vertices
        if (found := checkpoint.vertex(vertex.id)) is not None
    }
    source = next(times for name, times in acks.items() if name.startswith("Source"))
    # 1 the trigger, 2 the barrier at the sources, 3 their acknowledgements
    assert checkpoint.trigger_ms <= min(source)
    # 4 behind a shuffle a snapshot waits for the barriers of all that feed it: it has seen every
    # row from before them, and none from behind
    snapshots, told = notes[:4], notes[4:]
    rows = {
        name: sum(note["rows"] for note in snapshots if note["name"] == name)
        for name in ("before", "behind")
    }
    assert rows["before"] == rows["behind"] > 0
    # 5 all acknowledgements are collected, 6 then everybody is told
    assert checkpoint.acknowledged == checkpoint.subtasks
    assert checkpoint.latest_ack_ms == max(max(times) for times in acks.values())
    assert [note["event"] for note in snapshots] == ["snapshot"] * 4
    assert [note["event"] for note in told] == ["complete"] * 4
    assert view(client).checkpoints.counts.failed == 0
