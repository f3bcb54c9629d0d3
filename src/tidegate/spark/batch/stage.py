"""A subtask in a task of Spark: its input is the shuffle's, and what it emits goes into the next.

The subtask is the one that slots host, with its operators, its state and its turns. It comes alone:
nobody sends it barriers, no link leads anywhere, and nothing is left of it when the task ends but
the rows that it gave to Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tidegate.api.functions import SnapshotContext
from tidegate.clock import SystemClock
from tidegate.errors import WorldError, as_error
from tidegate.model.chance import SeededChance
from tidegate.model.control import CheckpointAcknowledged, ExecutionState
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    MIN_TIMESTAMP_MS,
    EndOfData,
    Watermark,
)
from tidegate.model.ids import CheckpointId
from tidegate.model.topology import Partitioner
from tidegate.operators.sinks.sink import SinkHost, committables_state
from tidegate.operators.sinks.sink_topology import CommitterOperator
from tidegate.slot.driver_link import as_ours
from tidegate.slot.loop.beside import DaemonThreads, guarded
from tidegate.slot.subtask.builder import build, load
from tidegate.slot.subtask.chain import log_failed_close
from tidegate.slot.subtask.hosted import restore
from tidegate.spark.batch.channels import AT_ONCE_ROWS, GATHERED_ROWS, ToSubtask, Unbounded
from tidegate.spark.batch.frame_rows import FrameRows, reading
from tidegate.spark.batch.resources import TaskResources, no_channel_state
from tidegate.spark.batch.shuffle import (
    BATCH_BYTES,
    Committables,
    Said,
    ShuffleReader,
    ShuffleWriter,
    Told,
    hear,
)
from tidegate.spark.batch.stage_plan import Stage, deployment_of
from tidegate.spark.batch.telling import LastWords, SparkTask, telling
from tidegate.spark.slot_task import imports_from
from tidegate.storage.reading import StateReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence

    import pyarrow as pa
    import structlog

    from tidegate.api.operator import Threads, VertexPlan
    from tidegate.errors import TidegateError
    from tidegate.model.control import CheckpointDeclined, SubtaskFigures
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import Barrier, Mark, OperatorEvent
    from tidegate.model.ids import ChannelId, OperatorId, SubtaskId
    from tidegate.model.metrics import Metrics
    from tidegate.slot.subtask.chain import ChainedOperator
    from tidegate.slot.subtask.context import Waiting
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot
    from tidegate.slot.subtask.subtask import Subtask
    from tidegate.spark.batch.telling import Telling

_ENCODE_MS: Final = 50.0
_HELD_UP_S: Final = 0.001
_BEAT_S: Final = 0.005
"""Longer than the interval of watermarks in a batch that ends with a snapshot."""

_TURNS_AT_ONCE: Final = 64
_WAKE_S: Final = 1.0


def stage_function(
    stage: Stage,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: rows of a shuffle to rows of the next."""

    def run_stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "a stage's function runs in a task of Spark"
        with imports_from(stage.path):
            if stage.frame is None:
                first = next(batches)
                # Spark may run several stages as one, so its partition's number tells nothing.
                index = first.column(0)[0].as_py() % stage.parallelism
                batches = chain((first,), batches)
            else:
                index = stage.frame.subtask(task.partitionId())
            number = task.attemptNumber()
            last = number + 1 >= stage.tries
            place = SparkTask(task.taskAttemptId(), task.stageId(), number > 0, last)
            yield from run_task(stage, index, place, batches)

    return run_stage


def run_task(
    stage: Stage, index: int, place: SparkTask, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of the next shuffle from those of the last; the driver is told meanwhile."""
    deployment = deployment_of(stage, index, place.attempt)
    began = place.began(deployment.execution)
    with telling(stage.invitation, began, deployment.task_name, SystemClock()) as told:
        yield from StageTask(stage, deployment, told, place).run(batches)


class StageHost:
    """The `Host` of a subtask in a task of Spark.

    writer: takes what it emits. words: what its operators say. failure: of the subtask. share: of a
    snapshot, once it is written. subtask: once it is built.
    """

    subtask: Subtask

    def __init__(
        self, stage: Stage, deployment: Deployment, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self.deployment = deployment
        self._in_any_order = stage.in_any_order
        execution, attempt = deployment.execution, deployment.execution.attempt
        self.clock = SystemClock()
        self.chance = SeededChance(attempt)
        self.log = log
        self.channel_state = no_channel_state(execution, self.chance.bits64)
        edges = stage.topology.edges
        ahead = {e for e in stage.outputs if edges[e].partitioner is Partitioner.BROADCAST}
        self.writer = ShuffleWriter(stage.position, execution.subtask.index, ahead)
        self.words: list[Committables | Told] = []
        self.failure: TidegateError | None = None
        self.share: CheckpointAcknowledged | None = None
        self.moved = asyncio.Event()
        self.channels: list[ToSubtask] = []
        self._tasks: set[asyncio.Task[None]] = set()
        job = stage.kept_for or stage.job
        self.resources = TaskResources(self.deployment, job, self.chance.bits64)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.resources.loop

    def build(self, plan: VertexPlan) -> None:
        """Make the subtask. Raises what stands in its way, such as code that cannot be loaded."""
        self.subtask = build(plan, self.deployment, self, self.resources)

    async def moves(self) -> None:
        """Wait until something is ready; a look now and then costs nothing beside that."""
        self.moved.clear()
        try:
            await asyncio.wait_for(self.moved.wait(), _WAKE_S)
        except TimeoutError:
            self.subtask.wake()

    async def outcome(self, work: Coroutine[object, object, None]) -> None:
        """Wait for work that may never end once the subtask has failed. Raises its failure."""
        task = self.loop.create_task(work)
        try:
            while not task.done():
                self.check()
                await asyncio.wait((task,), timeout=_WAKE_S)
            await task
        finally:
            task.cancel()

    async def quiet(self) -> None:
        """Wait until nothing runs beside the subtask. Raises its failure."""
        while self._tasks:
            self.check()
            await asyncio.wait(self._tasks, timeout=_WAKE_S)
        self.check()

    def check(self) -> None:
        """Raises the failure of the subtask."""
        if self.failure is not None:
            raise self.failure

    async def close(self, *, is_whole: bool) -> None:
        """Close the operators. Raises what they raise where the task is whole, and logs it else."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        failures: list[Exception] = []
        await self.resources.close(self.subtask.chain, self.log, failures.append)
        for error in failures[1:] if is_whole else failures:
            log_failed_close(self.log, error)
        if is_whole and failures:
            raise failures[0]

    # --- Host ---

    @property
    def takes_input(self) -> bool:
        return self.subtask.chain.takes_input

    @property
    def busy(self) -> int:
        return len(self._tasks)

    def ready(self) -> None:
        self.moved.set()

    def wake(self) -> None:
        self.subtask.wake()
        self.moved.set()

    def poll_soon(self) -> None:
        self.subtask.poll_soon()
        self.moved.set()

    def wake_at(self, at_ms: int) -> None:
        self.call_at(at_ms, self.wake)

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        delay_s = max(0, at_ms - self.clock.monotonic_ms()) / 1000
        self.loop.call_later(delay_s, act)

    def skipped(self, rows: int) -> None:
        self.subtask.input.rows_skipped += rows

    def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> Awaitable[object]:
        return self.resources.calls.run(call, on=on)

    def threads(self, limit: int) -> DaemonThreads:
        return DaemonThreads(limit)

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None:
        self.words.append(Told(operator, event))

    def to_producer(self, channel: ChannelId) -> Unbounded:
        return Unbounded()

    def to_consumer(self, channel: ChannelId) -> ToSubtask:
        edge = self.deployment.deploy.topology.edges[channel.edge]
        readers = self.deployment.deploy.topology.vertex(edge.target).parallelism
        ordered = edge.partitioner is Partitioner.HASH
        made = ToSubtask(
            self.writer,
            channel,
            ordered=ordered,
            arrow_ordered=ordered and channel.edge not in self._in_any_order,
            rows_max=max(self.deployment.settings.slot.rows, GATHERED_ROWS // readers),
        )
        self.channels.append(made)
        return made

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(guarded(coroutine, self.subtask.fail))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.moved.set()

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None:
        async def wait() -> None:
            await awaited
            waiting.awaited_done()

        self.start(wait())

    def changed(self, state: ExecutionState, error: TidegateError | None) -> None:
        self.failure = error

    def failing(self, error: Exception) -> None:
        """No replay bundle is made of a task: it can be run again as it is."""

    def decline(self, declined: CheckpointDeclined) -> None:
        raise AssertionError("nobody triggers checkpoints")

    def cut(self, snapshot: SubtaskSnapshot) -> None:
        self.start(self._write(snapshot))

    async def _write(self, snapshot: SubtaskSnapshot) -> None:
        place = self.resources.storage.place(
            snapshot.barrier, self.deployment.execution, self.chance.bits64
        )
        ready = asyncio.ensure_future(snapshot.ready(place, self.run_blocking, self.moved.set))
        while not ready.done() and not snapshot.encode(_ENCODE_MS):
            await asyncio.wait((ready,), timeout=_HELD_UP_S if snapshot.is_held_up else 0)
        await ready
        await snapshot.durable()
        states = await snapshot.write(place, self.run_blocking)
        self.share = CheckpointAcknowledged(
            self.deployment.execution,
            snapshot.checkpoint,
            states or None,
            snapshot.figures(self.clock.precise_s(), place),
        )

    def stop_snapshot(self, checkpoint: CheckpointId) -> None: ...

    def is_writing(self, checkpoint: CheckpointId) -> bool:
        return False


class StageTask:
    """One subtask of a stage, from its first row to its last.

    telling: to the driver. place: which of its tries Spark runs, and where.
    """

    def __init__(
        self, stage: Stage, deployment: Deployment, telling: Telling, place: SparkTask
    ) -> None:
        self._place = place
        self._stage = stage
        self._index = deployment.execution.subtask.index
        self._telling = telling
        self._host = StageHost(stage, deployment, telling.log)
        self._writer = self._host.writer
        self._heard: dict[SubtaskId, Said] = {}
        self._watermarks: dict[int, int] = {}
        self._figures: SubtaskFigures | None = None
        self._rows = None if stage.frame is None else FrameRows(stage.frame.schema)
        self._metrics: Metrics = {}

    @property
    def _subtask(self) -> Subtask:
        return self._host.subtask

    @property
    def _number(self) -> CheckpointId:
        """Number of the snapshot after which its sinks commit.

        All up to the restored one is due to them at once.
        """
        if self._stage.barrier is not None:
            return self._stage.barrier.checkpoint
        return CheckpointId((self._stage.restored or 0) + 1)

    # --- the task ---

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the next shuffle. What goes wrong in the subtask is said in them as a word.

        Raises a WorldError, for Spark to run the task again, where it does.
        """
        host, is_whole = self._host, False
        try:
            yield from self._run(_from_spark(batches))
            is_whole = True
        except _FailedBefore:
            pass
        except _InputBroke as error:
            # No failure of the job's: Spark runs the task again, or has ended it.
            raise error.__cause__ or error from None
        except (Exception, SystemExit) as raised:
            host.failure = as_ours(as_error(raised), host.deployment.task_name)
            if isinstance(host.failure, WorldError) and not self._place.last:
                text = "a task has failed for a reason outside of it; Spark runs it again"
                self._telling.log.warning(text, error=str(host.failure))
                self._telling.ends(LastWords(ExecutionState.FAILED))
                raise host.failure from raised
        self._telling.ends(self._last_words(is_whole=is_whole))
        if not is_whole:
            for _ in batches:  # Spark gives the rest whether or not anybody reads it
                pass
        told = (host.words, self._figures, host.failure, host.share, self._place.again)
        own = Said(host.deployment.execution, *told)
        self._writer.said([*self._heard.values(), own], self._readers, to_all=not is_whole)
        if self._stage.outputs and self._index == 0:
            self._writer.end(self._readers)
        yield from self._writer.take()

    def _last_words(self, *, is_whole: bool) -> LastWords:
        if is_whole:
            return LastWords(ExecutionState.FINISHED, None, self._figures, self._metrics)
        failure = self._host.failure
        return LastWords(ExecutionState.FAILED if failure else ExecutionState.CANCELED, failure)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with contextlib.closing(self._host.loop):
            self._host.build(self._plan())
            self._telling.begins(self._subtask)
            yield from self._from_first_to_last(batches)

    def _plan(self) -> VertexPlan:
        """The code of the vertex as it runs here. Raises UserCodeFailed if it cannot be loaded."""
        plan = load(self._host.deployment)
        if self._rows is not None:
            plan = reading(plan, self._rows)
        of_edge = self._stage.combiners.get
        outputs = tuple(replace(each, combiner=of_edge(each.edge)) for each in plan.outputs)
        return replace(plan, outputs=outputs)

    def _from_first_to_last(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subtask, is_whole = self._subtask, False
        try:
            self._on_loop(self._begin())
            if self._rows is not None:
                yield from self._feed(self._rows, batches)
            elif subtask.input.is_source:
                for _ in batches:
                    pass
            else:
                for batch in batches:
                    yield from self._read(batch)
                if len(self._reader.ended) != len(self._stage.senders):
                    raise _InputBroke("Spark has not given the task all of its rows")
            if self._stage.only_commits:
                self._on_loop(self._host.quiet())
            else:
                barrier = self._stage.barrier
                yield from self._end() if barrier is None else self._stop(barrier)
                self._on_loop(self._leave())
            self._figures, self._metrics = self._subtask.figures, self._subtask.metrics.read()
            yield from self._writer.take()
            is_whole = True
        finally:
            self._on_loop(self._host.close(is_whole=is_whole))

    def _on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._host.loop.run_until_complete(coroutine)

    async def _begin(self) -> None:
        subtask = self._subtask
        subtask.ending.goes_on = self._stage.barrier is not None
        for output in subtask.outputs.channels:
            output.resize(AT_ONCE_ROWS)
            output.granted(sys.maxsize)
        files, checksums = self._host.resources.storage.files, subtask.deployment.deploy.checksums
        restore(subtask, StateReader(files, checksums))
        self._host.resources.restored(subtask.deployment.deploy.restored)
        subtask.chain.open()
        subtask.start()
        if self._stage.event_time_ms is not None:
            self._mark(Watermark(self._stage.event_time_ms))
        if not self._stage.only_commits:
            for operator, event in self._stage.events.get(self._index, ()):
                subtask.event(operator, event)

    def _feed(self, rows: FrameRows, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain = self._subtask.chain
        for batch in batches:
            rows.give(batch)
            self._host.wake()
            yield from self._go_on(lambda: rows.is_empty and chain.idle)
        rows.end()
        self._host.wake()

    def _read(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        gate = self._subtask.input.gate
        for came in self._reader.read(rows):
            hear(self._heard, came.said)
            for edge, ms in came.watermarks.items():
                self._watermarks[edge] = min(ms, self._watermarks.get(edge, ms))
            if any(said.failure for said in came.said):
                raise _FailedBefore
            if came.batch is None:
                continue
            gate.put(self._inputs[came.edge], came.batch)
            if came.time_ms is not None and self._stage.barrier is not None:
                self._advance(came.time_ms)
            yield from self._go_on(lambda: not gate.readable and self._subtask.chain.idle)

    @cached_property
    def _reader(self) -> ShuffleReader:
        return ShuffleReader()

    @cached_property
    def _inputs(self) -> Mapping[int, Any]:
        return {channel.id.edge: channel for channel in self._subtask.input.gate.inputs}

    def _mark(self, mark: Mark) -> None:
        for channel in self._inputs.values():
            self._subtask.input.gate.put(channel, mark)

    def _advance(self, time_ms: int | None) -> None:
        """Event time goes with the records, up to where their senders have brought it."""
        for edge, channel in self._inputs.items():
            last_ms = self._watermarks.get(edge, MIN_TIMESTAMP_MS)
            ms = last_ms if time_ms is None else min(last_ms, time_ms - 1)
            if ms > MIN_TIMESTAMP_MS:
                self._subtask.input.gate.put(channel, Watermark(ms))

    def _go_on(self, done: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        """Work until that is the case; gives what has been gathered meanwhile."""
        while not self._on_loop(self._work(done)):
            yield from self._writer.take()
        if self._writer.waiting_bytes >= BATCH_BYTES:
            yield from self._writer.take()

    async def _work(self, done: Callable[[], bool]) -> bool:
        """True once it is done; false where rows have to be given on before."""
        subtask, writer = self._subtask, self._writer
        while True:
            for _ in range(_TURNS_AT_ONCE):
                work = subtask.next_work()
                if work is None:
                    break
                subtask.turn(work)
                if writer.waiting_bytes >= BATCH_BYTES:
                    return False
            await asyncio.sleep(0)
            self._host.check()
            if subtask.next_work() is not None:
                continue
            if done():
                return True
            await self._host.moves()

    # --- its end ---

    def _end(self) -> Iterator[pa.RecordBatch]:
        """Event time ends, the operators finish, and are cut for what the driver commits."""
        subtask = self._subtask
        if not subtask.input.is_source:
            self._mark(Watermark(MAX_WATERMARK_MS))
            self._mark(EndOfData())
        yield from self._go_on(lambda: subtask.ending.operators_finished)
        self._on_loop(self._host.outcome(self._cut()))

    async def _cut(self) -> None:
        context = SnapshotContext(self._number, self._host.clock.wall_ms())
        for each in reversed(self._subtask.chain.operators):
            durable = each.operator.snapshot(context)
            if durable is not None:
                await durable

    def _stop(self, barrier: Barrier) -> Iterator[pa.RecordBatch]:
        """Event time ends where its input ends, and the operators go into the snapshot."""
        subtask, host, chain = self._subtask, self._host, self._subtask.chain

        def rests() -> bool:
            # Calls under way would be begun anew by whoever goes on, and output hang on the clock.
            return chain.idle and chain.drained

        if subtask.input.is_source:
            yield from self._go_on(lambda: subtask.ending.has_come and rests())
        else:
            self._advance(None)
            gate = subtask.input.gate
            yield from self._go_on(lambda: not gate.readable and rests())
        self._on_loop(self._last_beat())
        yield from self._go_on(rests)
        # Of a checkpoint too: what came behind it would be in no snapshot.
        subtask.ending.when.stop = barrier.checkpoint
        if subtask.input.is_source:
            subtask.trigger(barrier)
        else:
            self._mark(barrier)
        yield from self._go_on(lambda: host.share is not None)

    async def _last_beat(self) -> None:
        """Have what makes watermarks at intervals make the last one."""
        await asyncio.sleep(_BEAT_S)
        self._subtask.wake()

    async def _leave(self) -> None:
        """Sinks complete what need not be committed; the driver does the rest once all have ended.

        Functions and sources hear of no complete checkpoint: there is none while tasks run.
        """
        self._subtask.outputs.release_combined(self._host.clock.monotonic_ms())
        self._subtask.outputs.flush()
        for each in reversed(self._subtask.chain.operators):
            if isinstance(each.operator, SinkHost | CommitterOperator):
                self._complete(each)
        await self._host.quiet()
        self._subtask.outputs.flush()
        for channel in self._host.channels:
            channel.flush()

    def _complete(self, each: ChainedOperator) -> None:
        """Complete the output of a sink, or leave what it would commit to the driver."""
        held = tuple(data for _, data in committables_state(each.context).get())
        if held:
            self._host.words.append(Committables(each.context.info.operator, held))
        else:
            each.operator.on_complete(self._number)

    @property
    def _readers(self) -> Sequence[int]:
        """Subtasks behind this one: all that records may go to, or one for what is said."""
        topology = self._stage.topology
        counts = [
            topology.vertex(topology.edges[e].target).parallelism for e in self._stage.outputs
        ]
        return range(max(counts, default=1))


def _from_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        raise _InputBroke("Spark has broken off the input of the task") from error


class _InputBroke(Exception):
    """Spark has stopped giving rows, as it does to tasks that it ends: what has come is not all."""


class _FailedBefore(Exception):
    """A task before this one has failed: what comes of it is not all."""
