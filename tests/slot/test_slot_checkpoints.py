"""A slot's part in checkpoints: triggers, acknowledgements, and no file left of what failed."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from tests.checkpoint.world import started
from tests.slot.cluster import JOB, SETTINGS, Cluster, line, run, vertex
from tests.slot.operators import (
    NOTHING,
    ONE_BY_ONE,
    Counting,
    Stateful,
    pair,
)
from tests.worlds.storage import SlowStorage
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.api.operator import KeyBy, Operator, Output, Polled, Steps
from tidegate.checkpoint.channel_state.file_format import chunk, file_header
from tidegate.errors import StorageFailed
from tidegate.model.control import (
    Cancel,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    ExecutionState,
    Release,
    Start,
    TriggerCheckpoint,
)
from tidegate.model.elements import AlignmentType, Batch, CheckpointOptions, RowBatch, SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ChannelId, CheckpointId
from tidegate.model.restore import InFlightData
from tidegate.model.topology import Partitioner
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.state_files import StateFiles
from tidegate.transport.codec import encode


@pytest.mark.feature("F085")
def test_a_trigger_for_an_attempt_that_is_not_there_is_declined_and_fails_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, _ = await cluster.deploy([slot])
        cluster.trigger(slot, source._replace(attempt=type(source.attempt)(9)), 1)
        declined = await cluster.first(CheckpointDeclined)
        assert declined.reason is FailureReason.TASK_CHECKPOINT_FAILURE
        coordinator = started()
        coordinator.advance(0)
        in_progress = coordinator.coordinator.statistics.counts.in_progress
        coordinator.send(replace(declined, execution=coordinator.executions()[0]))
        counts = coordinator.coordinator.statistics.counts
        assert (in_progress, counts.in_progress, counts.failed) == (1, 0, 1)

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


@pytest.mark.feature("F086")
def test_a_trigger_for_a_subtask_that_does_not_run_yet_is_declined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, _ = await cluster.deploy([slot], start=False)
        cluster.trigger(slot, source, 1)
        declined = await cluster.first(CheckpointDeclined)
        assert declined.reason is FailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
        assert declined.execution == source and declined.checkpoint == 1

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


@pytest.mark.feature("F094")
def test_stateful_subtasks_acknowledge_their_operators_and_stateless_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = line(vertex("source"), vertex("sink", operators=3))
    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Stateful("a", []), Recorder("b", []), Stateful("c", [])],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        assert (await cluster.acknowledged(source, 1)).state is None
        state = (await cluster.acknowledged(sink, 1)).state
        assert state is not None
        assert sorted(state) == [b"sink0...........", b"sink2..........."]

    run(lambda: Cluster(topology, operators), work, monkeypatch)


def counting() -> Cluster:
    """Three rows, counted by key."""
    topology = line(vertex("source"), vertex("count"), partitioner=Partitioner.HASH)
    source, count = ScriptedSource("s", [], ["x", "y", "x", *NOTHING]), Counting("c", [])
    operators = {"source": [source], "count": [count]}
    return Cluster(topology, operators, keys={"source": KeyBy(selector=lambda v: v)})


@pytest.mark.feature("F101")
def test_operator_and_keyed_state_are_both_in_the_acknowledgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, count = await cluster.deploy([slot])
        await cluster.settle()
        cluster.trigger(slot, source, 1)
        acknowledged = await cluster.acknowledged(count, 1)
        (state,) = (acknowledged.state or {}).values()
        assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
        assert state.managed_operator is not None
        written = sum(len(data) for data in cluster.files.files.values())
        assert acknowledged.figures.bytes_written == written > 0
        assert set(acknowledged.figures.checksums) == set(cluster.files.files)

    run(counting, work, monkeypatch)


def overtaken(
    options: CheckpointOptions,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[CheckpointAcknowledged], None],
) -> None:
    """Check what a subtask acknowledges that has batches in its input and in its output."""

    class Passing(Counting):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            super().process(batch, port, out)
            out.emit(batch)
            return None

    topology = line(vertex("source"), vertex("count"), vertex("sink"), partitioner=Partitioner.HASH)
    operators = {
        "source": [ScriptedSource("s", [], [*"abcdefgh" * 4, *NOTHING])],
        "count": [Passing("c", [])],
        "sink": [Recorder("k", [])],
    }
    unaligned = replace(
        SETTINGS,
        checkpoints=replace(SETTINGS.checkpoints, unaligned=True, subtasks_a_channel_state_file=1),
        slot=replace(SETTINGS.slot, rows=1, credit=2),
    )

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, count, _ = await cluster.deploy([slot], start=False)
        for execution in (source, count):  # not the sink: what it is sent stays where it is
            cluster.tell(slot, Start(execution))
        await cluster.settle()
        at_ms = cluster.clock.wall_ms()
        cluster.tell(slot, TriggerCheckpoint(source, CheckpointId(1), at_ms, options))
        check(await cluster.acknowledged(count, 1))

    run(
        lambda: Cluster(
            topology,
            operators,
            settings=unaligned,
            keys=dict.fromkeys(("source", "count"), KeyBy(selector=lambda v: v)),
        ),
        work,
        monkeypatch,
    )


@pytest.mark.feature("F100", "F023")
def test_a_snapshot_yields_a_handle_for_each_kind_of_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(acknowledged: CheckpointAcknowledged) -> None:
        (state,) = (acknowledged.state or {}).values()
        assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
        assert isinstance(state.managed_operator, OperatorStreamStateHandle)
        assert state.input_channel and state.result_subpartition
        assert acknowledged.figures.unaligned and acknowledged.figures.persisted_bytes > 0
        folders = {place.rpartition("/")[0] for place in acknowledged.figures.checksums}
        assert len(folders) == 1 and len(acknowledged.figures.checksums) == 3

    overtaken(CheckpointOptions(alignment=AlignmentType.UNALIGNED), monkeypatch, check)


@pytest.mark.feature("F175")
@pytest.mark.parametrize("target", [None, "memory:/mine/one"])
def test_in_flight_data_lie_in_the_folder_of_their_checkpoint_or_in_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch, target: str | None
) -> None:
    folder = target or f"memory:/checkpoints/{JOB}/chk-1"

    def check(acknowledged: CheckpointAcknowledged) -> None:
        (state,) = (acknowledged.state or {}).values()
        for handle in (*state.input_channel, *state.result_subpartition):
            assert isinstance(handle.delegate, RelativeFileStateHandle)
            place = f"{folder}/{handle.delegate.relative_path}"
            assert place in acknowledged.figures.checksums
        assert state.input_channel and state.result_subpartition

    options = CheckpointOptions(alignment=AlignmentType.UNALIGNED, target=target)
    overtaken(options, monkeypatch, check)


class Opened:
    """Files that note what they are asked to read."""

    def __init__(self, files: StateFiles, handles: list[StreamStateHandle]) -> None:
        self._files = files
        self._handles = handles

    def open_handle(self, handle: StreamStateHandle, **more: Any) -> object:
        self._handles.append(handle)
        return self._files.open_handle(handle, **more)

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)


@pytest.mark.feature("F154")
@pytest.mark.parametrize("restored", [False, True])
def test_in_flight_data_are_read_where_a_restore_brings_some_and_nothing_is_otherwise(
    monkeypatch: pytest.MonkeyPatch, restored: bool
) -> None:
    log: list[str] = []
    opened: list[StreamStateHandle] = []
    batch = b"".join(bytes(part) for part in encode(RowBatch(["in flight"])))
    file = ByteStreamStateHandle("in flight", file_header() + chunk(batch))

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        (_, source), (_, sink) = cluster.deployments([slot])
        if restored:
            data = InFlightData(ChannelId(0, 0, 0), file, (len(file_header()),))
            sink = replace(sink, in_flight=(data,), restored=CheckpointId(1))
        for deploy in (source, sink):
            cluster.tell(slot, deploy)
            await cluster.changed_to(deploy.execution, ExecutionState.INITIALIZING)
        for deploy in (source, sink):
            cluster.tell(slot, Start(deploy.execution))
            await cluster.changed_to(deploy.execution, ExecutionState.RUNNING)
        await cluster.settle()
        cluster.trigger(slot, source.execution, 2)
        await cluster.acknowledged(sink.execution, 2)

    def noting(storage: CheckpointStorage) -> CheckpointStorage:
        storage.files = cast("StateFiles", Opened(storage.files, opened))
        return storage

    def made() -> Cluster:
        return Cluster(ONE_BY_ONE, pair(log), wrap=noting)

    run(made, work, monkeypatch)
    assert opened == ([file] if restored else [])
    assert ("sink: rows ['in flight']" in log) is restored


@pytest.mark.feature("F022")
def test_all_files_of_a_savepoint_lie_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, count = await cluster.deploy([slot])
        await cluster.settle()
        options = CheckpointOptions(SnapshotKind.SAVEPOINT, target="memory:/mine/savepoint-1")
        at_ms = cluster.clock.wall_ms()
        cluster.tell(slot, TriggerCheckpoint(source, CheckpointId(1), at_ms, options))
        (state,) = ((await cluster.acknowledged(count, 1)).state or {}).values()
        files = [*cluster.files.files]
        assert len(files) == 2 and all(
            name.startswith("memory:/mine/savepoint-1/") for name in files
        )
        for handle in (state.managed_keyed, state.managed_operator):
            assert handle is not None and isinstance(handle.delegate, RelativeFileStateHandle)
        cluster.trigger(slot, source, 2)
        await cluster.acknowledged(count, 2)
        own = [name for name in cluster.files.files if name not in files]
        assert len(own) == 2 and all(f"{JOB}/chk-2/" in name for name in own)

    run(counting, work, monkeypatch)


@pytest.mark.feature("F093", "F112")
def test_the_barrier_is_ahead_of_the_writing_and_the_acknowledgement_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    topology = line(vertex("source", operators=2), vertex("sink"))
    operators: dict[str, list[Operator]] = {
        "source": [ScriptedSource("s", log, list(NOTHING)), Stateful("stateful", log)],
        "sink": [Recorder("sink", log)],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.gate.clear()
        cluster.trigger(slot, source, 1)
        await cluster.settle()
        assert "sink: snapshot 1" in log  # downstream has had the barrier
        assert cluster.of(CheckpointAcknowledged) == []
        cluster.gate.set()
        acknowledged = await cluster.acknowledged(source, 1)
        (state,) = (acknowledged.state or {}).values()
        assert state.managed_operator is not None
        (data,) = cluster.files.files.values()
        assert len(data) == state.managed_operator.state_size
        await cluster.acknowledged(sink, 1)

    run(lambda: Cluster(topology, operators), work, monkeypatch)


@pytest.mark.feature("F110")
def test_slow_storage_is_time_of_the_asynchronous_part(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Stateful("a", [])],
    }
    clusters: list[Cluster] = []

    def make() -> Cluster:
        slow = lambda storage: SlowStorage(storage, lambda: clusters[0].clock.advance(200))  # noqa: E731
        clusters.append(Cluster(ONE_BY_ONE, operators, wrap=slow))
        return clusters[0]

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        figures = (await cluster.acknowledged(sink, 1)).figures
        assert figures.async_ms >= 200 and figures.sync_ms <= 10

    run(make, work, monkeypatch)


@pytest.mark.feature("F111")
def test_state_is_written_on_another_thread_than_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def note() -> None:
        threads.append(threading.current_thread().name)

    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Stateful("a", [])],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        await cluster.acknowledged(sink, 1)
        assert threads and threading.current_thread().name not in threads

    run(
        lambda: Cluster(ONE_BY_ONE, operators, wrap=lambda s: SlowStorage(s, note), threads=True),
        work,
        monkeypatch,
    )


def test_storage_that_fails_declines_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def second_fails() -> None:
        made.append(1)
        if len(made) == 2:
            raise StorageFailed("the disk is full")

    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Stateful("a", []), Stateful("b", [])],
    }
    topology = line(vertex("source"), vertex("sink", operators=2))

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        declined = await cluster.first(CheckpointDeclined)
        assert declined.reason is FailureReason.CHECKPOINT_ASYNC_EXCEPTION
        assert "the disk is full" in declined.message and declined.execution == sink
        assert cluster.files.files == {} and cluster.state(sink) is ExecutionState.RUNNING

    run(
        lambda: Cluster(topology, operators, wrap=lambda s: SlowStorage(s, second_fails)),
        work,
        monkeypatch,
    )


def test_a_value_that_cannot_be_encoded_declines_and_the_slot_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unwritable(Counting):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch) and batch.keys and batch.key_groups
            self.context.state.cell.key = batch.keys[0]
            self.context.state.cell.group = batch.key_groups[0]
            self.counts.update(threading.Lock())
            return None

    topology = line(vertex("source"), vertex("count"), partitioner=Partitioner.HASH)
    operators = {
        "source": [ScriptedSource("s", [], ["x", *NOTHING])],
        "count": [Unwritable("a", [])],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, count = await cluster.deploy([slot])
        await cluster.settle()
        cluster.trigger(slot, source, 1)
        declined = await cluster.first(CheckpointDeclined)
        assert declined.execution == count and "lock" in declined.message
        assert not cluster.running[slot].done()

    run(
        lambda: Cluster(topology, operators, keys={"source": KeyBy(selector=lambda v: v)}),
        work,
        monkeypatch,
    )


@pytest.mark.parametrize("how", ["abort", "cancel", "release"])
def test_what_was_written_for_a_checkpoint_that_is_given_up_is_deleted(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(10)

    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Stateful("a", [])],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
        if how == "abort":
            cluster.tell(slot, CheckpointAborted(sink, CheckpointId(1)))
        elif how == "cancel":
            cluster.tell(slot, Cancel(sink))
        else:
            cluster.tell(slot, Release("over"))
        await cluster.settle()
        go_on.set()
        await cluster.pool_is_idle()
        await cluster.nothing_is_beside(slot)
        assert cluster.files.files == {}
        assert [ack for ack in cluster.of(CheckpointAcknowledged) if ack.execution == sink] == []
        assert cluster.of(CheckpointDeclined) == []

    run(
        lambda: Cluster(ONE_BY_ONE, operators, wrap=lambda s: SlowStorage(s, hold), threads=True),
        work,
        monkeypatch,
    )


def test_a_subtask_that_ends_while_it_is_written_is_acknowledged_as_it_was_when_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    source = ScriptedSource("s", log, [Polled.NOTHING])

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        first, _ = await cluster.deploy([slot])
        cluster.gate.clear()
        cluster.trigger(slot, first, 1)
        await cluster.settle()
        cluster.slots[slot]._with(first, lambda subtask: subtask.wake())
        await cluster.settle()
        assert "s: finish" in log
        cluster.gate.set()
        assert (await cluster.acknowledged(first, 1)).finished_operators is False

    run(
        lambda: Cluster(ONE_BY_ONE, {"source": [source], "sink": [Recorder("b", [])]}),
        work,
        monkeypatch,
    )


def test_a_subtask_that_could_not_be_loaded_keeps_no_checkpoint_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Subtasks of a slot share files of what their barriers overtake, and wait for each other."""
    operators = {
        "source": [ScriptedSource("s", [], [*"abc", *NOTHING])],
        "sink": [Recorder("k", [])],
    }
    unaligned = replace(SETTINGS, checkpoints=replace(SETTINGS.checkpoints, unaligned=True))

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, broken = cluster.deployments([slot])[-1]
        cluster.tell(slot, replace(broken, operators=b"nobody's"))
        await cluster.changed_to(broken.execution, ExecutionState.FAILED)
        source, sink = await cluster.deploy([slot])
        options = CheckpointOptions(alignment=AlignmentType.UNALIGNED)
        at_ms = cluster.clock.wall_ms()
        cluster.tell(slot, TriggerCheckpoint(source, CheckpointId(1), at_ms, options))
        assert (await cluster.acknowledged(sink, 1)).checkpoint == 1

    run(
        lambda: Cluster(line(vertex("source"), vertex("sink")), operators, settings=unaligned),
        work,
        monkeypatch,
    )
