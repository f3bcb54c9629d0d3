"""One operator or a whole source without a slot: virtual time, blocking calls made when asked."""

import asyncio
import copy
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from flinkformat.key_groups import KeyGroupRange
from tidegate.api.functions import ReducingStateDescriptor, SnapshotContext
from tidegate.api.operator import (
    Operator,
    Pause,
    Polled,
    SourceOperator,
    Steps,
    SubtaskInfo,
)
from tidegate.api.results import ResultBuffer
from tidegate.api.state import (
    ColumnStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    StateDescriptor,
)
from tidegate.clock import SystemClock
from tidegate.errors import TidegateError
from tidegate.loops.cells import KeyCell
from tidegate.loops.forms import loops
from tidegate.metrics import MetricRegistry
from tidegate.model.elements import (
    ArrowBatch,
    Batch,
    OperatorEvent,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.ids import CheckpointId, JobId, OperatorId
from tidegate.model.settings import SlotSettings
from tidegate.slot.loop.beside import DaemonThreads
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope

T = TypeVar("T")

TURNS_MAX = 100_000
JOB = JobId("0123456789abcdef" * 2)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(JumpingSelector(self))

    def time(self) -> float:
        return self.now_s


class JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left to happen, and somebody still waits"
        if timeout > 0:
            self._loop.now_s += timeout
        return super().select(0)


class World:
    """Time, blocking calls and coroutines of everything in one test."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.started: list[asyncio.Task[None]] = []
        self.at_end = ExitStack()
        self._calls: deque[tuple[Callable[[], object], asyncio.Future[object]]] = deque()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def monotonic_ms(self) -> int:
        return round(self.loop.now_s * 1000)

    def pass_time(self, ms: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))

    def run_blocking(self, call: Callable[[], object], *, on: object = None) -> Awaitable[object]:
        """Have a call made in turn with all others, on whatever threads it was to be."""
        future: asyncio.Future[object] = self.loop.create_future()
        self._calls.append((call, future))
        return future

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self.started.append(self.loop.create_task(coroutine))

    def on_loop(self, call: Callable[[], object]) -> object:
        """The result of a call made where a loop runs."""

        async def made() -> object:
            return call()

        return self.loop.run_until_complete(made())

    def settle(self) -> None:
        """Make blocking calls and run coroutines until nothing is under way; raises failures."""
        self.loop.run_until_complete(self._settle())

    async def _settle(self) -> None:
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.raise_failures()
            if self._calls:
                self.make_next_call()
            elif self.started:
                await asyncio.sleep(0.001)
            else:
                return
        raise AssertionError("something never ends")

    def raise_failures(self) -> None:
        for task in [task for task in self.started if task.done()]:
            self.started.remove(task)
            task.result()

    def make_next_call(self) -> None:
        call, future = self._calls.popleft()
        try:
            result = call()
        except Exception as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)

    def forget(self) -> None:
        """Whoever waited for blocking calls is dead."""
        self._calls.clear()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.started.clear()

    def wait_for(self, awaited: Awaitable[object]) -> object:
        async def until_done() -> object:
            future = asyncio.ensure_future(awaited)
            for _ in range(TURNS_MAX):
                if future.done():
                    return future.result()
                self.raise_failures()
                if self._calls:
                    self.make_next_call()
                await asyncio.sleep(0.001)
            raise AssertionError("it is never done")

        return self.loop.run_until_complete(until_done())

    def close(self) -> None:
        self.at_end.close()
        self.loop.run_until_complete(self._cancel_all())
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Snapshot:
    """What an operator's subtasks put into one checkpoint, by subtask."""

    lists: list[dict[str, list[object]]] = field(default_factory=list)
    keyed: list[dict[str, dict[object, object]]] = field(default_factory=list)

    def redistributed(self, parallelism: int) -> "list[dict[str, list[object]]]":
        """Split list state over as many subtasks."""
        if len(self.lists) == parallelism:
            return copy.deepcopy(self.lists)
        dealt: list[dict[str, list[object]]] = [{} for _ in range(parallelism)]
        turn = 0
        for lists in self.lists:
            for name, elements in lists.items():
                for element in elements:
                    dealt[turn % parallelism].setdefault(name, []).append(element)
                    turn += 1
        return dealt


class ListStateOfDict:
    def __init__(self, lists: dict[str, list[object]], name: str) -> None:
        self._lists = lists
        self._name = name

    def get(self) -> list[object]:
        return list(self._lists.get(self._name, []))

    def add(self, value: object) -> None:
        self._lists.setdefault(self._name, []).append(value)

    def update(self, values: Sequence[object]) -> None:
        self._lists[self._name] = list(values)

    def clear(self) -> None:
        self._lists[self._name] = []


class ValueStateOfDict:
    def __init__(self, values: dict[object, object], cell: KeyCell) -> None:
        self._values = values
        self._cell = cell

    def value(self) -> object:
        return self._values.get((type(self._cell.key), self._cell.key))

    def update(self, value: object) -> None:
        self._values[type(self._cell.key), self._cell.key] = value

    def clear(self) -> None:
        self._values.pop((type(self._cell.key), self._cell.key), None)


class ReducingStateOfDict(ValueStateOfDict):
    """Reduces into a dict; rows of a batch one by one."""

    def __init__(
        self, values: dict[object, object], cell: KeyCell, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(values, cell)
        self._reduce = descriptor.reduce_function

    def get(self) -> object:
        return self.value()

    def add(self, value: object) -> None:
        old = self.value()
        self.update(value if old is None else self._reduce(old, value))

    def add_rows(
        self,
        keys: Sequence[object],
        key_groups: Sequence[int],
        values: Iterable[object],
        emit: Callable[[object], None],
    ) -> None:
        for self._cell.key, self._cell.group, value in zip(keys, key_groups, values, strict=True):
            self.add(value)
            emit(self.get())

    def read_ahead(self, keys: Sequence[object], key_groups: Sequence[int]) -> None: ...

    def put_rows(
        self, keys: Sequence[object], key_groups: Sequence[int], values: Iterable[object]
    ) -> None:
        for self._cell.key, self._cell.group, value in zip(keys, key_groups, values, strict=True):
            self.update(value)


class ColumnsOfDict:
    """Keyed columns over a dict of key to row."""

    def __init__(self) -> None:
        self._rows: dict[object, int] = {}
        self.columns: dict[str, np.ndarray] = {}

    def index(self, keys: pa.Array, key_groups: np.ndarray) -> np.ndarray:
        assert len(keys) == len(key_groups)
        found = [self._rows.setdefault(key, len(self._rows)) for key in keys.to_pylist()]
        return np.array(found, np.int64)

    def __len__(self) -> int:
        return len(self._rows)


class ColumnOfArray:
    def __init__(self, keyed: ColumnsOfDict, descriptor: ColumnStateDescriptor) -> None:
        self._keyed = keyed
        self._descriptor = descriptor

    def _column(self) -> np.ndarray:
        name, kind = self._descriptor.name, self._descriptor.type.to_pandas_dtype()
        column = self._keyed.columns.get(name, np.empty(0, kind))
        grown = np.full(len(self._keyed), self._descriptor.default or 0, kind)
        grown[: len(column)] = column
        self._keyed.columns[name] = grown
        return grown

    def get(self, index: np.ndarray) -> np.ndarray:
        return self._column()[index]

    def put(self, index: np.ndarray, values: np.ndarray) -> None:
        self._column()[index] = values


class FakeStates:
    """The state of an operator under test, in dicts; its timers are those of a backend."""

    def __init__(self, lists: dict[str, list[object]], keyed: dict[str, dict[object, object]]):
        self._lists, self._keyed = lists, keyed
        self._columns = ColumnsOfDict()
        self.cell = loops().key_cell()
        groups = KeyGroupRange(0, 127)
        backend = OperatorBackend(
            StateScope(OperatorId(bytes(16)), groups, 128, SystemClock(), self.cell)
        )
        self.timers = backend.timers

    def keyed_state(self, descriptor: StateDescriptor) -> "ValueStateOfDict":
        values = self._keyed.setdefault(descriptor.name, {})
        if isinstance(descriptor, ReducingStateDescriptor):
            return ReducingStateOfDict(values, self.cell, descriptor)
        return ValueStateOfDict(values, self.cell)

    def keyed_columns(self, key_type: object) -> "ColumnsOfDict":
        return self._columns

    def column_state(self, descriptor: ColumnStateDescriptor) -> "ColumnOfArray":
        return ColumnOfArray(self._columns, descriptor)

    def operator_state(self, descriptor: OperatorStateDescriptor) -> "ListStateOfDict":
        assert descriptor.mode is RedistributionMode.SPLIT_DISTRIBUTE
        return ListStateOfDict(self._lists, descriptor.name)


class FakeContext:
    """The ``OperatorContext`` of an operator under test; its clock and its tasks too."""

    def __init__(
        self,
        world: World,
        *,
        name: str = "step",
        subtask: int = 0,
        parallelism: int = 1,
        attempt: int = 0,
        settings: SlotSettings | None = None,
        checkpointing: bool = True,
        restored: CheckpointId | None = None,
        lists: dict[str, list[object]] | None = None,
        keyed: dict[str, dict[object, object]] | None = None,
        send: Callable[[OperatorEvent], None] | None = None,
    ) -> None:
        self._world = world
        self.info = SubtaskInfo(
            operator=OperatorId(bytes(16)),
            name=name,
            keyed=True,
            job=JOB,
            task=name,
            numbered_task=f"{name} ({subtask + 1}/{parallelism})",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=128,
            epoch=1,
            attempt=attempt,
            restored=restored,
            checkpointing=checkpointing,
            settings=settings or SlotSettings(),
            parameters={"tone": "low"},
        )
        self.time = self.tasks = self
        self.lists = lists or {}
        self.keyed = keyed or {}
        self.state = FakeStates(self.lists, self.keyed)
        self.sent: list[OperatorEvent] = []
        self.to_coordinator = send or self.sent.append
        self.registry = MetricRegistry(world.monotonic_ms)
        self.metrics = self.registry.group()
        self.threads = DaemonThreads
        self.run_blocking = world.run_blocking
        self.start = world.start
        self.monotonic_ms = world.monotonic_ms
        self.rows_skipped = 0
        self.remarks: list[object] = []
        self.held = False
        self.alarms: list[int] = []
        self.woken = False
        self.wake_ms: int | None = None

    def named(self, call: Callable[..., T], *args: object) -> T:
        return call(*args)

    def wake_at_wall(self, wall_ms: int) -> None:
        self.alarms.append(wall_ms)

    def processing_time(self) -> int:
        return 1_700_000_000_000 + self._world.monotonic_ms()

    def wake(self) -> None:
        self.woken = True

    poll_soon = wake

    def wake_at(self, monotonic_ms: int) -> None:
        self.wake_ms = monotonic_ms

    def takes_input(self) -> bool:
        return not self.held

    def skipped(self, rows: int) -> None:
        self.rows_skipped += rows


class Collected:
    """An ``Output`` that keeps what comes."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.watermarks: list[Watermark | WatermarkStatus] = []
        self.all: list[Batch | Watermark | WatermarkStatus] = []
        self.has_room = True
        self.rows_max = self.piece_rows = 2**31

    def emit(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.all.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        raise AssertionError(f"nothing goes to {tag}")

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        self.watermarks.append(watermark)
        self.all.append(watermark)

    @property
    def values(self) -> list[object]:
        return [value for batch in self.batches for value in values_of(batch)]

    @property
    def stamps(self) -> list[int]:
        stamped = [batch for batch in self.batches if batch.timestamps_ms is not None]
        return [int(stamp) for batch in stamped for stamp in batch.timestamps_ms]


def values_of(batch: Batch) -> list[object]:
    return batch.values if isinstance(batch, RowBatch) else batch.batch.to_pylist()


class Hosted:
    """An open operator, driven as a slot would."""

    def __init__(self, operator: Operator, world: World, **options: object) -> None:
        self.operator = operator
        self.world = world
        self.context = FakeContext(world, **options)
        self.out = Collected()
        world.on_loop(lambda: operator.open(self.context))

    def process(self, batch: Batch) -> None:
        self.drive(self.world.on_loop(lambda: self.operator.process(batch, 0, self.out)))

    def rows(self, *values: object) -> None:
        self.process(RowBatch(list(values)))

    def drive(self, steps: Steps | None) -> None:
        while steps is not None:
            step = self.world.on_loop(lambda: next(steps, self))
            if step is self:
                return
            if step is not None and step is not Pause.HERE:
                self.world.wait_for(step)

    def finish(self) -> None:
        self.drive(self.world.on_loop(lambda: self.operator.finish(self.out)))

    def close(self) -> None:
        """Close the operator, and await what it leaves to be awaited."""
        left = self.world.on_loop(self.operator.close)
        if left is not None:
            self.world.wait_for(left)

    def cut(self, checkpoint: int) -> "CutState":
        """The synchronous part of a snapshot."""
        number = CheckpointId(checkpoint)

        def quick() -> Awaitable[None] | None:
            self.operator.before_barrier(number, self.out)
            return self.operator.snapshot(SnapshotContext(number, 0))

        durable = self.world.on_loop(quick)
        lists = copy.deepcopy(self.context.lists)
        return CutState(lists, copy.deepcopy(self.context.keyed), durable)

    def snapshot(self, checkpoint: int) -> Snapshot:
        """A snapshot to the end of its asynchronous part."""
        cut = self.cut(checkpoint)
        if cut.durable is not None:
            self.world.wait_for(cut.durable)
        return Snapshot([cut.lists], [cut.keyed])

    def complete(self, checkpoint: int) -> None:
        self.world.on_loop(lambda: self.operator.on_complete(CheckpointId(checkpoint)))
        self.world.settle()

    def poll(self) -> Polled:
        operator = self.operator
        assert isinstance(operator, SourceOperator)
        polled = self.world.on_loop(lambda: operator.poll(self.out))
        assert isinstance(polled, Polled)
        return polled


@dataclass
class CutState:
    lists: dict[str, list[object]]
    keyed: dict[str, dict[object, object]]
    durable: Awaitable[None] | None


class FakeCoordinatorContext:
    """The ``CoordinatorContext`` of a coordinator under test."""

    def __init__(self, world: World, parallelism: int) -> None:
        self._world = world
        self.parallelism = parallelism
        self.staged: str | None = None
        self.goes_on = False
        self.sent: deque[tuple[int, OperatorEvent]] = deque()
        self.failure: TidegateError | None = None
        self.buffers: dict[str, ResultBuffer] = {}
        self.common: dict[str, object] = {}
        self.backlogs: list[bool] = []

    def report_backlog(self, backlog: bool) -> None:
        self.backlogs.append(backlog)

    def shared(self, name: str, make: Callable[[], T]) -> T:
        return cast("T", self.common.setdefault(name, make()))

    def send(self, subtask: int, event: OperatorEvent) -> None:
        self.sent.append((subtask, event))

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        async def made() -> None:
            try:
                result = await self._world.run_blocking(call)
            except TidegateError as error:
                self.fail(error)
                return
            then(result)

        self._world.start(made())

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_ms / 1000, call)

    def fail(self, error: TidegateError) -> None:
        self.failure = self.failure or error

    def results(self, name: str) -> ResultBuffer:
        return self.buffers.setdefault(name, ResultBuffer())


def arrow(columns: dict[str, list[object]], **marks: object) -> ArrowBatch:
    return ArrowBatch(pa.RecordBatch.from_pydict(columns), **marks)
