"""What each step of a record costs, by the loops' form: W1 and W2 row by row, in one process.

The steps are the product's own parts on the batches that the step before has made, without the slot
between them. Processor time, least of the rounds; the forms alternate from round to round, since
the same loop takes 1.0 or 1.9 times as long within minutes. A record that crosses from slot to slot
is encoded and decoded; half of the records of two slots do. Guards: compiled, processing takes at
most 0.8 of its time interpreted, a reduce at most 0.6, a check of fields at most 0.4.

    python benchmarks/record_path.py
"""

import gc
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.machine import calibration_ms, python_build
from benchmarks.w1_tidegate import ListedCount, RunningCount
from benchmarks.w2_tidegate import PLACES, Total
from benchmarks.workload import BLOCK, MASK, MULT, PAIR, TRIPLE
from flinkformat.key_groups import KeyGroupRange
from tidegate import ReducingStateDescriptor, Types
from tidegate.api.functions import AggregatingStateDescriptor
from tidegate.api.operator import KeyBy
from tidegate.api.rows.conversion import Conversion
from tidegate.api.rows.keys import keys_of_rows
from tidegate.clock import SystemClock
from tidegate.loops.forms import Loops, loops
from tidegate.model.elements import RowBatch
from tidegate.model.ids import OperatorId
from tidegate.model.settings import LoopForm
from tidegate.operators.aggregates.reduced_type import typed_reduce
from tidegate.operators.emit import Draws
from tidegate.operators.event_time.stamps import FunctionStamps
from tidegate.operators.map import each
from tidegate.operators.row_loop import RowLoop, user_call
from tidegate.slot.channels.routes import spread
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.transport.codec import decode, encode
from tidegate.typeinfo.key_hash import KeyHasher, subtasks_of

ROWS, BATCHES, ROUNDS = 2_048, 40, 9
KEYS, GROUPS = 10_000, 128
PANE_MS = 10_000

Steps = dict[str, Callable[[], object]]


class Gathered:
    """Takes what an operator or a route gives on, as an output and as a channel."""

    rows_max = 4 * ROWS

    def __init__(self) -> None:
        self.batches: list[RowBatch] = []

    def emit(self, batch: RowBatch) -> None:
        """A batch of an operator."""
        self.batches.append(batch)

    def rows(self, batch: RowBatch, now_ms: int) -> None:
        """A part of a batch for one channel."""
        self.batches.append(batch)


class RuntimeContext:
    """What a function asks for its state when it is opened."""

    def __init__(self, backend: OperatorBackend) -> None:
        self.get_state = backend.keyed_state


class Path:
    """The parts that a record passes, with loops of one form."""

    def __init__(self, form: Loops) -> None:
        self._loops = form
        self._cell = form.key_cell()
        groups = KeyGroupRange(0, GROUPS - 1)
        scope = StateScope(OperatorId(bytes(16)), groups, GROUPS, SystemClock(), self._cell)
        self._backend = OperatorBackend(scope)

    def w1(self) -> Steps:
        """Each step of W1, in the order of a record."""
        steps = self._exchange(
            [list(range(at * ROWS, (at + 1) * ROWS)) for at in range(BATCHES)],
            lambda i: ((i * MULT & MASK) % KEYS, i),
            None,
        )
        for name, function in (("generator", RunningCount()), ("list", ListedCount())):
            function.open(RuntimeContext(self._backend))
            steps[f"process, {name}"] = self._process(function.process_element)
        steps["reduce"] = self._reduce
        steps["check of 3"] = partial(self._check, Conversion(TRIPLE, "step", self._loops))
        self._results = [RowBatch([(key, 1, i) for key, i in b.values]) for b in self._keyed]
        return steps

    def w2(self) -> Steps:
        """Each step of W2 up to a window's content."""
        numbers = [list(range(at * ROWS, (at + 1) * ROWS)) for at in range(BATCHES)]
        stamps = FunctionStamps(lambda record, _: record[1], "step", None)
        steps = self._exchange(numbers, shuffled, stamps.stamped)
        total = Total()
        descriptor = AggregatingStateDescriptor("contents", total, Types.LONG())
        state = self._backend.keyed_state(descriptor, Types.LONG())

        def accumulate() -> None:
            for batch in self._keyed:
                starts = [ms - ms % PANE_MS for ms in batch.timestamps_ms or ()]
                pairs = zip(batch.keys or (), starts, strict=True)
                state.add_rows(pairs, batch.key_groups or [], iter(batch.values))

        steps["panes, accumulate"] = accumulate
        return steps

    def _exchange(
        self,
        numbers: list[list[int]],
        record: Callable[[int], tuple[int, int]],
        stamped: Callable[[RowBatch], RowBatch] | None,
    ) -> Steps:
        conversion = Conversion(PAIR, "step", self._loops)
        key = KeyBy(selector=lambda pair: pair[0], key_type=Types.LONG())
        hasher = KeyHasher(Types.LONG(), GROUPS)
        channels = [Gathered(), Gathered()]
        rows = [RowBatch(each(record, batch, "step")[0]) for batch in numbers]
        if stamped is not None:
            rows = [stamped(batch) for batch in rows]
        keys = [keys_of_rows(batch.values, key, "step") for batch in rows]
        groups = [hasher.keyed(each)[1] for each in keys]
        keyed = [
            RowBatch(batch.values, batch.timestamps_ms, of_keys, of_groups.tolist())
            for batch, of_keys, of_groups in zip(rows, keys, groups, strict=True)
        ]
        sent = [encode(batch) for batch in keyed]
        self._keyed = [decode(memoryview(b"".join(parts))) for parts in sent]

        def source() -> None:
            for batch in numbers:
                list(range(batch[0], batch[-1] + 1))

        def part() -> None:
            for batch, of_groups in zip(keyed, groups, strict=True):
                spread(batch, subtasks_of(of_groups, 2, GROUPS), channels, 0)
            for channel in channels:
                channel.batches.clear()

        steps: Steps = {
            "source": source,
            "map": lambda: [each(record, batch, "step") for batch in numbers],
            "check of 2": lambda: [conversion.batch(batch) for batch in rows],
        }
        if stamped is not None:
            steps["timestamps"] = lambda: [stamped(batch) for batch in rows]
        return steps | {
            "keys": lambda: [keys_of_rows(batch.values, key, "step") for batch in rows],
            "hash, group": lambda: [hasher.keyed(each)[1].tolist() for each in keys],
            "part by channel": part,
            "encode": lambda: [encode(batch) for batch in keyed],
            "decode": lambda: [decode(memoryview(b"".join(parts))) for parts in sent],
        }

    def _process(self, call: Callable[..., object]) -> Callable[[], None]:
        user = user_call(call, None, self._loops, operator="step")
        draws = Draws(2 * ROWS, lambda: 0, self._loops)
        loop = RowLoop(user, object(), self._cell, draws, is_keyed=True)

        def run() -> None:
            out = Gathered()
            for batch in self._keyed:
                for _ in loop.process(batch, out) or ():
                    pass

        return run

    def _reduce(self) -> None:
        reduce = typed_reduce(lambda old, new: (old[0], old[1] + new[1]), PAIR, "step", self._loops)
        state = self._backend.keyed_state(ReducingStateDescriptor("reduced", reduce, PAIR))
        for batch in self._keyed:
            results: list[object] = []
            state.add_rows(batch.keys, batch.key_groups, batch.values, results.append)

    def _check(self, conversion: Conversion) -> None:
        for batch in self._results:
            conversion.batch(batch)


def shuffled(number: int) -> tuple[int, int]:
    """The record of W2 at a place, of a thousand keys."""
    within = number % BLOCK
    record = number - within + PLACES[within]
    return (record * MULT & MASK) % 1_000, record


def main() -> None:
    """Prints nanoseconds a record."""
    forms = [loops(form) for form in (LoopForm.INTERPRETED, LoopForm.COMPILED)]
    gc.disable()
    began_ms = calibration_ms()
    for workload in ("w1", "w2"):
        paths: list[Steps] = [getattr(Path(form), workload)() for form in forms]
        table = Table(workload, *(form.form.value for form in forms), "ratio")
        for name in paths[0]:
            costs = least_ns([path[name] for path in paths])
            table.add_row(name, *(f"{cost:.1f}" for cost in costs), f"{costs[0] / costs[1]:.2f}")
        Console().print(table)
    print(f"{python_build()}; calibration {began_ms:.0f} and {calibration_ms():.0f} ms")


def least_ns(works: list[Callable[[], object]]) -> list[float]:
    """Least processor nanoseconds a record of each, taken in turn."""
    taken: list[list[int]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for times, work in zip(taken, works, strict=True):
            began = time.process_time_ns()
            work()
            times.append(time.process_time_ns() - began)
    return [min(times) / (ROWS * BATCHES) for times in taken]


if __name__ == "__main__":
    main()
