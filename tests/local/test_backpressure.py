"""Checkpoints of a job whose last step is slow."""

from collections import Counter
from pathlib import Path

import pytest

from flinkformat import metadata
from flinkformat.handles import InputStateHandle, OutputStateHandle, RelativeFileStateHandle
from flinkformat.snapshots import FINISHED
from tests.e2e.backpressure import (
    ALIGNMENT_TIMEOUT,
    TOTAL,
    UNALIGNED,
    check_killed_under_backpressure,
    check_rescaled_under_backpressure,
    start_slow,
    wait_persisted,
)
from tests.e2e.jobs import same
from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    kill_slot,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
    wait_running,
)
from tidegate import (
    CheckpointedFunction,
    MapFunction,
    OperatorStateDescriptor,
    RuntimeContext,
    SnapshotContext,
    Types,
)
from tidegate.errors import CheckpointAborted
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState

pytestmark = pytest.mark.slow


@pytest.mark.feature("F237", "F160", "F152", "F153")
def test_kills_under_backpressure_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs)


@pytest.mark.feature("F238")
def test_kills_after_alignment_has_timed_out_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs, **{ALIGNMENT_TIMEOUT: "100 ms"})


@pytest.mark.feature("F241")
def test_an_unaligned_checkpoint_goes_on_at_other_parallelisms(jobs: Jobs) -> None:
    check_rescaled_under_backpressure(jobs, (2, 3, 1))


@pytest.mark.feature("F248")
@pytest.mark.parametrize("during", [True, False])
def test_checkpoints_while_restored_data_are_read(jobs: Jobs, during: bool) -> None:
    """Off, no checkpoint is taken before all is read; on, restored data are saved again."""
    setting = {"execution.checkpointing.during-recovery.enabled": during}
    client, latch = start_slow(jobs, 2, **setting)
    saved = wait_persisted(client)
    kill_slot(client, 0)
    seen = wait_for(client, lambda seen: seen.restarts == 1, "the restart")
    if during:
        before = wait_running(client).checkpoints.counts.completed
        wait_completed(client, before + 2)
        newest = view(client).checkpoints.latest_completed
        assert (
            newest is not None and newest.persisted_bytes and newest.checkpoint > saved.checkpoint
        )
    else:
        seen = wait_for(client, some_initializing_and_started, "the readers are still reading")
        completed = seen.checkpoints.counts.completed
        with pytest.raises(CheckpointAborted, match="required tasks") as caught:
            client.trigger_checkpoint().result(timeout=100)
        assert caught.value.reason == "NOT_ALL_REQUIRED_TASKS_RUNNING"
        assert view(client).checkpoints.counts.completed == completed
    latch.release()
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


def some_initializing_and_started(seen: JobView) -> bool:
    """The sources run, and a subtask behind them does not yet."""
    states = [[subtask.state for subtask in vertex.subtasks] for vertex in seen.vertices]
    return set(states[0]) == {ExecutionState.RUNNING} and any(
        ExecutionState.INITIALIZING in each for each in states[1:]
    )


@pytest.mark.feature("F240")
def test_what_is_broadcast_is_the_same_everywhere_after_a_restore(jobs: Jobs) -> None:
    """On that edge barriers never overtake, though the checkpoints are unaligned."""
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 100, **UNALIGNED)
    numbers = env.generate(same, 3_000, 500, Types.LONG()).uid("numbers").broadcast()
    copies = numbers.map(Copy(journal)).uid("copies")
    copies.map(lambda n: {"number": n}).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    client = jobs.start(env, "broadcast")
    for restart in (1, 2):
        wait_completed(client, restart)
        kill_slot(client, restart)
        wait_recovered(client, restart)
    finished(client)
    ends = {note["subtask"]: note["numbers"] for note in journal.notes("end")}
    assert ends == {0: sorted(range(3_000)), 1: sorted(range(3_000))}
    rows = Counter(row["number"] for row in ledger_rows(jobs.folder / "out"))
    assert set(rows.values()) == {2} and len(rows) == 3_000


class Copy(MapFunction[int, int], CheckpointedFunction):
    """Keeps all numbers in operator state, and notes them when it has the last one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._state = runtime_context.get_operator_list_state(OperatorStateDescriptor("numbers"))
        self._numbers = list(self._state.get())

    def map(self, value: int) -> int:
        self._numbers.append(value)
        if len(self._numbers) == 3_000:
            self._journal.note("end", subtask=self._subtask, numbers=sorted(self._numbers))
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._state.update(self._numbers)


@pytest.mark.feature("F160", "F175", "F238")
def test_in_flight_data_show_in_the_figures_and_lie_beside_the_state(jobs: Jobs) -> None:
    client, _ = start_slow(jobs, 2)
    wait_persisted(client)
    client.cancel().result(timeout=100)
    found = view(client).checkpoints.latest_completed
    assert found is not None and found.pointer is not None
    shares = [share for vertex in found.vertices for share in vertex.acknowledged]
    assert sum(share.persisted_bytes for share in shares) == found.persisted_bytes > 0
    assert all(share.unaligned for share in shares)
    handles = in_flight_of(found.pointer)
    assert sum(handle.state_size for handle in handles) == found.persisted_bytes
    files = {handle.delegate for handle in handles}
    assert len(files) <= 2, "the subtasks of a slot share a file"
    for file in files:
        assert isinstance(file, RelativeFileStateHandle)
        assert (Path(found.pointer) / file.relative_path).stat().st_size == file.state_size


def in_flight_of(pointer: str) -> list[InputStateHandle | OutputStateHandle]:
    """The handles of all in-flight data of a checkpoint."""
    read = metadata.decode((Path(pointer) / "_metadata").read_bytes(), lambda: "x")
    return [
        handle
        for operator in read.operators
        for subtask in operator.subtasks.values()
        if subtask is not FINISHED
        for handle in (*subtask.input_channel, *subtask.result_subpartition)
    ]


@pytest.mark.feature("F243")
def test_each_subtask_has_a_file_of_its_own_where_that_is_asked_for(jobs: Jobs) -> None:
    setting = {"execution.checkpointing.unaligned.max-subtasks-per-channel-state-file": 1}
    client, _ = start_slow(jobs, 2, **setting)
    wait_persisted(client, 3)
    client.cancel().result(timeout=100)
    found = view(client).checkpoints.latest_completed
    assert found is not None and found.pointer is not None
    shares = [share for vertex in found.vertices for share in vertex.acknowledged]
    having = sum(1 for share in shares if share.persisted_bytes)
    assert len({handle.delegate for handle in in_flight_of(found.pointer)}) == having >= 2
