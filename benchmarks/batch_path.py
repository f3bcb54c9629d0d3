"""What a row of an Arrow batch costs, step by step, in one process: W1 and W2 by batches.

Guards nothing by itself: it says where the time goes that `w1`, `w2` and `many-keys` guard. Sketch:
a pass over a column of a batch takes 0.3 to 1 ns a row, a radix sort 4, a look-up in memory 10 to
20; with ten million keys the index, and each column of state to read and to write, are such
look-ups.

Processor time; the least of many batches counts. State is that of one of two subtasks, and holds
half of the keys.

    python -m benchmarks.batch_path
"""

import gc
from collections.abc import Callable, Iterator
from time import thread_time_ns
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.workload import keyed
from flinkformat.key_groups import KeyGroupRange
from tidegate import Count, Sum, Time, TumblingEventTimeWindows
from tidegate.api.operator import KeyBy, Operator, OutputPlan
from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.metrics import MetricRegistry
from tidegate.model.chance import SeededChance
from tidegate.model.elements import ArrowBatch, Watermark
from tidegate.model.ids import OperatorId
from tidegate.model.settings import SlotSettings
from tidegate.model.topology import Partitioner
from tidegate.operators.aggregates.running import RunningOperator
from tidegate.operators.windows.window_batches import WindowAggregateBatchesOperator
from tidegate.slot.channels.routes import make_route
from tidegate.slot.process.serve import keep_pages
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.transport.codec import Decoder, Encoder

GROUPS = 128
ROWS = 65_536
BATCHES = 30
KEYS = (10_000, 1_000_000, 10_000_000)
W2_KEYS = 1_000
FRAME = bytes(23)
"""What stands before an element where it is received."""


def main(console: Console) -> None:
    """Print all figures."""
    gc.disable()  # as a slot does while rows run
    keep_pages()
    figures: dict[str, float] = {}
    for keys in KEYS:
        figures |= {f"W1, {keys:,} keys: {step}": ns for step, ns in w1(keys).items()}
        gc.collect()
    figures |= {f"W2, {W2_KEYS:,} keys: {step}": ns for step, ns in w2().items()}
    table = Table("step", "ns a row", title="A row of an Arrow batch")
    for name, ns in figures.items():
        table.add_row(name, f"{ns:.2f}")
    console.print(table)


def w1(keys: int) -> dict[str, float]:
    """Steps of W1 with declared aggregates."""
    # So many rows that each key has come.
    numbers = batches_of(np.arange(-(-4 * keys // ROWS) * ROWS))
    halves = Halves("key")
    running = Opened(RunningOperator([Count(), Sum("value")], "key"))
    for batch in numbers:
        halves.exchange(ArrowBatch(keyed(batch, keys)))
        running.process(halves.taken[0])
    chance = np.random.default_rng(1)
    fresh = batches_of(chance.permutation(BATCHES * ROWS))
    made = [ArrowBatch(keyed(batch, keys)) for batch in fresh]
    figures = {"map, the program's own": least_ns(lambda batch: keyed(batch, keys), fresh)}
    figures["exchange"] = least_ns(halves.exchange, made)
    own: list[ArrowBatch] = []
    for batch in made:
        halves.exchange(batch)
        own.append(halves.taken[0])
    figures |= wire(own)
    figures["aggregates"] = least_ns(running.process, own)
    # Of two subtasks one receives half of its rows over the wire.
    crossing = (figures["encode, a row that crosses"] + figures["decode, a row that crosses"]) / 2
    figures["all"] = (
        figures["map, the program's own"] + figures["exchange"] + crossing + figures["aggregates"]
    )
    return figures


def w2() -> dict[str, float]:
    """Steps of W2: numbers are event times, shuffled within a second."""
    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    opened = Opened(WindowAggregateBatchesOperator(windows, [Sum("value")], "key"))
    halves = Halves("key")
    places = (np.arange(1000) * 617 + 331) % 1000
    own: list[ArrowBatch] = []
    made: list[ArrowBatch] = []
    for batch in batches_of(np.arange(BATCHES * ROWS // 1000 * 1000)):
        within = batch % 1000
        values = batch - within + places.take(within)
        made.append(ArrowBatch(keyed(values, W2_KEYS), values))
        halves.exchange(made[-1])
        own.append(halves.taken[0])
    figures = {"exchange": least_ns(halves.exchange, made)}
    figures |= wire(own)
    figures["windows, adding"] = least_ns(opened.process, own)
    fired = timed(lambda: opened.watermark(BATCHES * ROWS + 20_000))
    figures["windows, firing"] = fired / sum(map(len, own))
    return figures


def wire(batches: list[ArrowBatch]) -> dict[str, float]:
    encoder, decoder = Encoder(), Decoder()
    frames: list[memoryview] = []

    def encode(batch: ArrowBatch) -> None:
        encoder.encode(batch, None)

    figures = {"encode, a row that crosses": least_ns(encode, batches)}
    again = Encoder()
    frames = [memoryview(FRAME + b"".join(again.encode(each, None)))[23:] for each in batches]
    pairs = list(zip(frames, batches, strict=True))
    decoder.decode(frames[0])
    took = [(timed(lambda f=frame: decoder.decode(f)), len(batch)) for frame, batch in pairs]
    figures["decode, a row that crosses"] = min(ns / rows for ns, rows in took)
    return figures


def batches_of(values: np.ndarray) -> list[np.ndarray]:
    return [values[at : at + ROWS] for at in range(0, len(values), ROWS)]


def least_ns(step: Callable, batches: list) -> float:
    """Nanoseconds a row in the quickest of the batches."""
    took: list[float] = []
    for batch in batches:
        began = thread_time_ns()
        step(batch)
        took.append((thread_time_ns() - began) / len(batch))
    return min(took)


def timed(work: Callable[[], object]) -> int:
    began = thread_time_ns()
    work()
    return thread_time_ns() - began


class Halves:
    """The key exchange to two subtasks. taken: what each got of the last batch."""

    def __init__(self, column: str) -> None:
        self.taken: list[ArrowBatch] = [ArrowBatch(pa.record_batch({}))] * 2
        self._route = make_route(
            OutputPlan(0, KeyBy(column=column)),
            Partitioner.HASH,
            [SimpleNamespace(arrow=lambda batch, at=at: self._take(at, batch)) for at in (0, 1)],
            max_parallelism=GROUPS,
            subtask=0,
            settings=SlotSettings(),
            chance=SeededChance(0),
            where="key_by",
        )

    def _take(self, at: int, batch: ArrowBatch) -> None:
        self.taken[at] = batch

    def exchange(self, batch: ArrowBatch) -> None:
        self._route.batch(batch, 0)


class Opened:
    """An operator in the first of two subtasks, whose output goes nowhere."""

    has_room = True

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        own = KeyGroupRange.of(0, 2, GROUPS)
        scope = StateScope(OperatorId(bytes(16)), own, GROUPS, SystemClock(), KeyCell())
        info = SimpleNamespace(
            name="step",
            subtask=0,
            parallelism=2,
            max_parallelism=GROUPS,
            settings=SlotSettings(),
        )
        tasks = SimpleNamespace(metrics=MetricRegistry(lambda: 0).group())
        operator.open(SimpleNamespace(info=info, state=OperatorBackend(scope), tasks=tasks))

    def process(self, batch: ArrowBatch) -> None:
        self._drawn(self._operator.process(batch, 0, self))

    def watermark(self, ms: int) -> None:
        self._drawn(self._operator.on_watermark(Watermark(ms), self))

    @staticmethod
    def _drawn(steps: Iterator[object] | None) -> None:
        for _ in steps or ():
            pass

    def emit(self, batch: ArrowBatch) -> None: ...

    def emit_watermark(self, watermark: Watermark) -> None: ...


if __name__ == "__main__":
    main(Console(width=110))
