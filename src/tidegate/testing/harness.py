"""One step of a program, run by hand: records, watermarks and the clock are what a test says.

The step is what the engine runs: the operator with real state, rows routed as between subtasks,
snapshots in their bytes, restored at any parallelism. Nothing goes on by itself: each call returns
once all has been done that can be done without time passing.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import OutputPlan, VertexPlan
from tidegate.api.rows.batches import as_rows
from tidegate.api.rows.conversion import Conversion, output_conversions
from tidegate.checkpoint.restore.redistribution import redistribute_keyed, redistribute_operator
from tidegate.config.configuration import Configuration
from tidegate.config.log import process_log
from tidegate.config.settings import job_settings
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.errors import GraphError
from tidegate.graph.stream_graph import build_stream_graph
from tidegate.graph.transformations import NodeKind
from tidegate.model.chance import SeededChance
from tidegate.model.deployment import Deployment
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    ArrowBatch,
    EndOfData,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.ids import ChannelId, CheckpointId, OperatorId, VertexId
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.topology import OperatorInfo, Vertex
from tidegate.slot.channel_state import ChannelStateStorage
from tidegate.slot.channels.output import ChannelOutput, Room
from tidegate.slot.channels.routes import make_route
from tidegate.slot.subtask.builder import StatesInMemory
from tidegate.slot.subtask.builder import build as build_subtask
from tidegate.storage.places import inline_place
from tidegate.storage.reading import InlineReader
from tidegate.testing.arguments import Column, forward_ms, stamps, whole_ms
from tidegate.testing.clock import ManualClock, ManualLoop
from tidegate.testing.results import KeptOutput, Results
from tidegate.typeinfo.types import is_any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    import pyarrow as pa

    from flinkformat.snapshots import SubtaskState
    from tidegate.api.operator import Operator, Threads
    from tidegate.api.output_tag import OutputTag
    from tidegate.datastream.stream import DataStream
    from tidegate.errors import TidegateError
    from tidegate.graph.stream_graph import StreamEdge, StreamNode
    from tidegate.model.control import CheckpointDeclined, ExecutionState
    from tidegate.model.elements import Batch, Element, Mark, OperatorEvent
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Partitioner
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.routes import Route
    from tidegate.slot.subtask.chain import ChainedOperator
    from tidegate.slot.subtask.context import Waiting
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot

_OPERATOR: Final = OperatorId(bytes(16))
_TURNS_MAX: Final = 1_000_000
_NAMES: Final = count()


@frozen
class HarnessSnapshot:
    """A checkpoint of a step: what each of its subtasks had, as bytes."""

    checkpoint: int
    states: tuple[SubtaskState, ...]


class OperatorHarness:
    """Runs one step of a program by hand.

    build: makes the step, from as many streams as inputs. parallelism, max_parallelism: of the
    step, unless it sets its own. restore: begin with what was in a snapshot, of any parallelism.
    start_ms: of the wall clock, milliseconds since 1970. configuration: options of the job.
    Raises GraphError unless it makes just one step; what the functions raise in ``open``.

    >>> with OperatorHarness(lambda s: s.key_by(str).process(Count())) as harness:
    ...     harness.process("a", timestamp=5)
    ...     assert harness.take() == [("a", 1)]
    """

    def __init__(
        self,
        build: Callable[..., DataStream[Any]],
        *,
        inputs: int = 1,
        parallelism: int = 1,
        max_parallelism: int = 128,
        restore: HarnessSnapshot | None = None,
        start_ms: int = 0,
        configuration: Configuration | None = None,
    ) -> None:
        self.clock = ManualClock(start_ms)
        self._results = Results()
        settings = job_settings(configuration or Configuration())
        # As in a job that takes checkpoints, so that a final one follows the end.
        checkpoints = replace(
            settings.checkpoints,
            interval_ms=settings.checkpoints.interval_ms or 1,
            unaligned=False,
        )
        slot = replace(settings.slot, debloat=None)
        self._settings = replace(settings, checkpoints=checkpoints, slot=slot)
        self._sources, self._node, self._edges = the_step(
            build, inputs, parallelism, max_parallelism
        )
        self._checkpoint = 0 if restore is None else restore.checkpoint
        self._loop = ManualLoop(self.clock)
        self._subtasks: list[StepSubtask] = []
        try:
            self._open(restore)
            self._routes = [self._route(number, edge) for number, edge in enumerate(self._edges)]
            for subtask in self._subtasks:  # each asks its senders for rows at once
                self._loop.on(subtask.begin)
        except BaseException:
            self.close()
            raise
        self._settle()

    # --- what happens to it ---

    def process(self, value: object, timestamp: int | None = None, *, source: int = 0) -> None:
        """Sends a record. timestamp: its event time, ms. source: number of its stream, from 0."""
        self.process_all([value], None if timestamp is None else [timestamp], source=source)

    def process_all(
        self, values: Sequence[object], timestamps: Sequence[int] | None = None, *, source: int = 0
    ) -> None:
        """Sends records as one batch; timestamps has an event time for each."""
        self._arrives(RowBatch(list(values), stamps(timestamps, len(values))), source)

    def process_batch(
        self,
        batch: pa.RecordBatch,
        timestamps: Sequence[int] | Column | None = None,
        *,
        source: int = 0,
    ) -> None:
        """Sends an Arrow batch. timestamps: may be one of its columns, ms or times."""
        import numpy as np

        times = stamps(timestamps, batch.num_rows)
        self._arrives(
            ArrowBatch(batch, None if times is None else np.asarray(times, np.int64)), source
        )

    def watermark(self, timestamp: int, *, source: int | None = None) -> None:
        """Advances event time to this watermark, on one stream or on all."""
        self._marked(Watermark(whole_ms(timestamp, "The watermark")), source)

    def idle(self, *, source: int | None = None) -> None:
        """Marks a stream, or all, as idle, so that they no longer hold event time back."""
        self._marked(WatermarkStatus(idle=True), source)

    def active(self, *, source: int | None = None) -> None:
        """Marks a stream, or all, as active again."""
        self._marked(WatermarkStatus(idle=False), source)

    def advance_time(self, ms: int) -> None:
        """Advances the wall clock by milliseconds; timers that come due fire in order."""
        end_ms = self.clock.monotonic_ms() + forward_ms(ms)
        while (next_ms := self._loop.next_timer_ms()) is not None and next_ms <= end_ms:
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
            self._settle()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self._settle()

    def end(self) -> None:
        """Ends the input: event time ends, and the step emits the rest."""
        self.watermark(MAX_WATERMARK_MS)
        for subtask in self._subtasks:
            subtask.end()
        self._settle()

    # --- what came of it ---

    @property
    def output(self) -> list[tuple[Any, int | None]]:
        """All results so far, with their event times; None for results without one."""
        return self._results.main

    @property
    def watermarks(self) -> list[int]:
        """Watermarks that the subtasks have emitted so far, in milliseconds."""
        return self._results.watermarks

    def take(self) -> list[Any]:
        """Results since the last call, without their times."""
        taken = [value for value, _ in self._results.main]
        self._results.main.clear()
        return taken

    def take_side_output(self, output_tag: OutputTag[Any]) -> list[Any]:
        """Results for a side output since the last call, converted to the type of its tag.

        Raises UserCodeFailed for a result that is not of that type.
        """
        values = [value for value, _ in self._results.sides.pop(output_tag.tag_id, [])]
        declared = output_tag.type_info
        if declared is None or is_any(declared):
            return values
        return as_rows(Conversion(declared, self._node.name).batch(RowBatch(values))).values

    # --- checkpoints ---

    def snapshot(self) -> HarnessSnapshot:
        """Takes a checkpoint; ``complete`` completes it.

        Raises GraphError if the step waits for something in the middle of its work.
        """
        self._check_open()
        self._checkpoint += 1
        number = CheckpointId(self._checkpoint)
        states = [self._loop.run_until_complete(each.snapshot(number)) for each in self._subtasks]
        return HarnessSnapshot(number, tuple(states))

    def complete(self, snapshot: HarnessSnapshot) -> None:
        """Tells the functions that a checkpoint is complete."""
        number = CheckpointId(snapshot.checkpoint)
        for subtask in self._subtasks:
            self._loop.on(partial(subtask.operator.on_complete, number))
        self._settle()

    def abort(self, snapshot: HarnessSnapshot) -> None:
        """Tells the functions that a checkpoint was aborted."""
        number = CheckpointId(snapshot.checkpoint)
        for subtask in self._subtasks:
            self._loop.on(partial(subtask.operator.on_aborted, number))
        self._settle()

    def close(self) -> None:
        """Closes the functions, once; without ``end`` before it, as after a failure."""
        subtasks, self._subtasks = self._subtasks, []
        with ExitStack() as all_of_it:
            all_of_it.callback(self._loop.end)
            for subtask in subtasks:
                all_of_it.callback(
                    lambda each: self._loop.run_until_complete(each.close()), subtask
                )

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- within ---

    def _open(self, restore: HarnessSnapshot | None) -> None:
        node = self._node
        states: list[RestoredOperatorState] = [RestoredOperatorState()] * node.parallelism
        if restore is not None:
            keyed = redistribute_keyed(
                [state.managed_keyed for state in restore.states],
                node.parallelism,
                node.max_parallelism,
            )
            lists = redistribute_operator(
                [state.managed_operator for state in restore.states], node.parallelism
            )
            states = [
                RestoredOperatorState(managed_keyed=keyed[i], managed_operator=tuple(lists[i]))
                for i in range(node.parallelism)
            ]
        shipped = ship.dumps(node.operator, name=node.name)
        restored = None if restore is None else CheckpointId(restore.checkpoint)
        for index, state in enumerate(states):
            operator = cast("Operator", ship.loads(shipped, name=node.name))
            subtask = StepSubtask(
                _vertex(node),
                [(edge.partitioner, edge.port) for edge in self._edges],
                operator,
                index,
                self._settings,
                self._loop,
                self._results,
                restored,
            )
            self._subtasks.append(subtask)
            self._loop.on(partial(subtask.open, state))

    def _route(self, number: int, edge: StreamEdge) -> Route:
        room, outputs = Room(), list[ChannelOutput]()
        for index, subtask in enumerate(self._subtasks):
            channel, slot = ChannelId(number, 0, index), self._settings.slot
            reading = _Reading(subtask.gate, subtask.gate.inputs[number])
            output = ChannelOutput(channel, slot, reading, room)
            output.resize(max(slot.rows, slot.arrow_rows))
            outputs.append(output)
            subtask.outputs.append(output)
        return make_route(
            OutputPlan(number, edge.key, edge.partition, self._node.operator.reads_columns),
            edge.partitioner,
            outputs,
            max_parallelism=self._node.max_parallelism,
            subtask=0,
            settings=self._settings.slot,
            chance=SeededChance(0),
            where=f"the edge to '{self._node.name}'",
        )

    def _arrives(self, batch: Batch, source: int) -> None:
        for number in self._edges_of(source):
            self._routes[number].batch(batch, 0)
            for subtask in self._subtasks:
                subtask.outputs[number].flush()
        self._settle()

    def _marked(self, mark: Watermark | WatermarkStatus, source: int | None) -> None:
        for number in self._edges_of(source):
            for subtask in self._subtasks:
                subtask.marked(number, mark)
        self._settle()

    def _edges_of(self, source: int | None) -> list[int]:
        if source is not None and not 0 <= source < len(self._sources):
            raise GraphError(
                f"The step has no input {source}",
                where=f"operator '{self._node.name}'",
                remedy=f"Its streams are counted from 0 to {len(self._sources) - 1}.",
            )
        wanted = self._sources if source is None else self._sources[source : source + 1]
        return [number for number, edge in enumerate(self._edges) if edge.source in wanted]

    def _check_open(self) -> None:
        if self._loop.is_closed():
            raise GraphError(
                "The harness is closed",
                where=f"operator '{self._node.name}'",
                remedy="Call it within its 'with', before close().",
            )

    def _settle(self) -> None:
        self._check_open()
        for _ in range(_TURNS_MAX):
            self._loop.run_ready()
            if not self._loop.on(self._advance):
                return
        raise AssertionError(f"the step '{self._node.name}' never comes to rest")

    def _advance(self) -> bool:
        return any([subtask.advance() for subtask in self._subtasks])


@frozen
class _Reading:
    """The reading end of a channel that leads to a subtask."""

    gate: Gate
    channel: InputChannel

    def send(self, element: Element) -> int:
        self.gate.put(self.channel, element)
        return 0


@frozen
class _Writing:
    """The writing end of a channel that leads to a subtask, which sends batches as they come."""

    outputs: Sequence[ChannelOutput]
    number: int

    def grant(self) -> None:
        self.outputs[self.number].granted(1)

    def resize(self, rows: int) -> None:
        pass


class StepSubtask:
    """One subtask of one step and its host. outputs: channels that lead to it."""

    def __init__(
        self,
        vertex: Vertex,
        inputs: Sequence[tuple[Partitioner, int]],
        operator: Operator,
        index: int,
        settings: JobSettings,
        loop: ManualLoop,
        results: Results,
        restored: CheckpointId | None,
    ) -> None:
        self.operator = operator
        self.outputs: list[ChannelOutput] = []
        self.busy = 0
        self.chance = SeededChance(0)
        self.log = process_log()
        self._loop = loop
        deployment = Deployment.without_job(
            vertex, settings, index=index, restored=restored, inputs=inputs
        )
        storage = ChannelStateStorage(lambda: None, _never, lambda: 0, _never)
        self.channel_state = storage.writer(deployment.execution, 1)
        plan = VertexPlan((operator,))
        self._subtask = build_subtask(plan, deployment, self, StatesInMemory())
        self._chained = self._subtask.chain.head
        self._chained.out = KeptOutput(
            results, loop.clock, output_conversions(operator, vertex.name)
        )

    @property
    def gate(self) -> Gate:
        return self._subtask.input.gate

    def open(self, state: RestoredOperatorState) -> None:
        self._chained.backend.restore(state, InlineReader("a snapshot of the harness"))
        self._subtask.chain.open()

    @property
    def chained(self) -> ChainedOperator:
        return self._chained

    def begin(self) -> None:
        self._subtask.start()

    def marked(self, number: int, mark: Mark) -> None:
        self.gate.put(self.gate.inputs[number], mark)

    def end(self) -> None:
        for channel in self.gate.inputs:
            self.gate.put(channel, EndOfData())

    def advance(self) -> bool:
        work = self._subtask.next_work()
        if work is None:
            return False
        self._subtask.turn(work)
        return True

    async def close(self) -> None:
        left = self.operator.close()
        if left is not None:
            await left

    async def snapshot(self, checkpoint: CheckpointId) -> SubtaskState:
        chained = self._chained
        if not self._chained.can_be_cut:
            raise GraphError(
                f"'{chained.context.info.name}' waits in the middle of its work, where an engine "
                "would not take a checkpoint yet",
                where="OperatorHarness.snapshot",
                remedy="Let the time pass that it waits for, with advance_time.",
            )
        self.operator.before_barrier(checkpoint, self._chained.out)
        durable = self.operator.snapshot(SnapshotContext(checkpoint, self.clock.wall_ms()))
        pending = chained.backend.snapshot(checkpoint)
        if durable is not None:
            await durable
        pending.finish()
        return pending.upload(inline_place(_NAMES))

    # --- the host ---

    @property
    def clock(self) -> ManualClock:
        return self._loop.clock

    @property
    def takes_input(self) -> bool:
        return self.operator.takes_input

    def ready(self) -> None:
        pass

    def wake(self) -> None:
        self._subtask.wake()

    def poll_soon(self) -> None:
        self._subtask.poll_soon()

    def wake_at(self, at_ms: int) -> None:
        self._loop.wake_at(at_ms, self.wake)

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._loop.wake_at(at_ms, act)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._loop.start(coroutine)

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None:
        async def wait() -> None:
            await awaited
            waiting.awaited_done()

        self._loop.start(wait())

    def to_producer(self, channel: ChannelId) -> _Writing:
        return _Writing(self.outputs, channel.edge)

    def to_consumer(self, channel: ChannelId) -> NoReturn:
        raise AssertionError("nothing leaves a step by channels")

    def changed(self, state: ExecutionState, error: TidegateError | None) -> None:
        pass

    def failing(self, error: Exception) -> None:
        pass

    def decline(self, declined: CheckpointDeclined) -> None:
        pass

    def cut(self, snapshot: SubtaskSnapshot) -> None:
        pass

    def stop_snapshot(self, checkpoint: CheckpointId) -> None:
        pass

    def is_writing(self, checkpoint: CheckpointId) -> bool:
        return False

    async def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> object:
        return call()

    def threads(self, limit: int) -> _InTheTestsThread:
        return _InTheTestsThread()

    def skipped(self, rows: int) -> None:
        pass

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None:
        name = self._chained.context.info.name
        raise GraphError(
            f"'{name}' talks to its coordinator, which a harness has not",
            where="OperatorHarness",
            remedy="Test sources and collecting sinks in a program that runs with local().",
        )


class _InTheTestsThread:
    """Runs calls of plain functions at once, so that nothing happens by itself."""

    def run(self, call: Callable[[], object]) -> asyncio.Future[object]:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)
        return done

    def close(self) -> None: ...


def _vertex(node: StreamNode) -> Vertex:
    info = OperatorInfo(_OPERATOR, node.name, keyed=node.keyed)
    return Vertex(VertexId(_OPERATOR), node.name, (info,), node.parallelism, node.max_parallelism)


def _never(work: object) -> NoReturn:
    raise AssertionError("a harness keeps no in-flight data")


def the_step(
    build: Callable[..., DataStream[Any]], inputs: int, parallelism: int, max_parallelism: int
) -> tuple[list[int], StreamNode, list[StreamEdge]]:
    """Ids of the streams, the one operator that a program makes of them, its inputs by port."""
    env = StreamExecutionEnvironment.local(parallelism)
    sources = [env.from_collection(list[object]()) for _ in range(inputs)]
    try:
        signature(build).bind(*sources)
    except ValueError:  # a builtin, which says nothing
        pass
    except TypeError as error:
        raise GraphError(
            f"The step does not take {inputs} stream{'' if inputs == 1 else 's'}: {error}",
            where="OperatorHarness",
            remedy="Say how many streams it takes, such as inputs=2.",
        ) from None
    made = build(*sources)
    step, *given = (
        stream._step("OperatorHarness")  # pyright: ignore[reportPrivateUsage]  # no seam for users
        for stream in (made, *sources)
    )
    graph = build_stream_graph([step], max_parallelism)
    steps = [node for node in graph.nodes if node.kind is not NodeKind.SOURCE]
    if len(steps) != 1:
        raise GraphError(
            f"A harness runs one step, and these are {len(steps)}: "
            f"{', '.join(node.name for node in steps)}",
            where="OperatorHarness",
            remedy="Run each in a harness of its own, or the program with local().",
        )
    return [each.id for each in given], steps[0], list(graph.edges)
