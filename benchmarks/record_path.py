"""What each step of a record costs, by the loops' form: W1 and W2 row by row, in one process.

The steps are the product's own parts on the batches that the step before has made, without the slot
between them. Processor time, least of the rounds; the forms alternate from round to round, since
the same loop takes 1.0 or 1.9 times as long within minutes. A record that crosses from slot to slot
is encoded and decoded; half of the records of two slots do. Guards: compiled, processing takes at
most 0.8 of its time interpreted, a reduce at most 0.6, a check of fields at most 0.4. The next
table is a key exchange as a whole, for records of other kinds: it takes at most 1.05 of what it
takes by rows, whatever the kind. The last one is a file's columns through a filter to those of
another file: rows that Arrow makes, rows made of columns, and columns all the way.

    python benchmarks/record_path.py
"""

import gc
import time
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, cast

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.machine import calibration_ms, python_build
from benchmarks.w1_tidegate import ListedCount, RunningCount
from benchmarks.w2_tidegate import PLACES, Total
from benchmarks.workload import BLOCK, MASK, MULT, PAIR, TRIPLE, Numbered
from flinkformat.key_groups import KeyGroupRange
from tidegate import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
)
from tidegate.api.functions import AggregatingStateDescriptor
from tidegate.api.operator import KeyBy, OutputPlan
from tidegate.api.rows.batches import as_arrow, as_rows, batch_as_arrow
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.api.rows.conversion import Conversion
from tidegate.api.rows.keys import keys_of_rows
from tidegate.api.windows import TimeWindow
from tidegate.clock import SystemClock
from tidegate.loops.forms import Loops, loops
from tidegate.model.chance import SeededChance
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.ids import OperatorId
from tidegate.model.settings import LoopForm, SlotSettings
from tidegate.model.topology import Partitioner
from tidegate.operators.aggregates.reduced_type import typed_reduce
from tidegate.operators.emit import Draws
from tidegate.operators.event_time.stamps import FunctionStamps
from tidegate.operators.map import each
from tidegate.operators.row_loop import RowLoop, user_call
from tidegate.operators.windows.firing import WindowFaults
from tidegate.slot.channels.routes import make_route, spread
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.traced.calls import BatchCall, batch_call
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
        return steps | self._firing() | self._parted()

    def _firing(self) -> Steps:
        """Windows with as many keys as a batch has rows: filled, read, fired and cleared."""
        window = TimeWindow(0, PANE_MS)
        user = self._loops.window_call(
            lambda key, window, totals: [(window.start, key, *totals)],
            True,
            None,
            Total().get_result,
            None,
            None,
            WindowFaults("windows", lambda: TypeError("nothing was gathered")),
        )
        descriptor = AggregatingStateDescriptor("fired", Total(), Types.LONG())
        state = self._backend.keyed_state(descriptor, Types.LONG())
        keys, groups = list(range(ROWS)), [key % GROUPS for key in range(ROWS)]
        pairs = [(key, 0) for key in keys]
        cell, pair, loops = self._cell, self._backend.pair_cell, self._loops

        def fire() -> None:
            for _ in range(BATCHES):
                state.put_rows(pairs, groups, keys)
                held = state.accumulators(pairs, groups)
                results = loops.results_of_window(
                    user, window, (0, PANE_MS), cell, pair, keys, groups, held, None
                )
                list(results)
                state.clear_rows(pairs, groups)

        return {"fill and fire a window": fire}

    def _parted(self) -> Steps:
        lists = self._backend.keyed_state(ListStateDescriptor("list", Types.LONG()))
        maps = self._backend.keyed_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        cell = self._cell

        def add() -> None:
            for batch in self._keyed:
                for value, cell.key, cell.group in zip(
                    batch.values, batch.keys or (), batch.key_groups or (), strict=True
                ):
                    lists.add(value[1])
            for batch in self._keyed:
                for cell.key, cell.group in zip(
                    batch.keys or (), batch.key_groups or (), strict=True
                ):
                    lists.clear()

        def put() -> None:
            for batch in self._keyed:
                for value, cell.key, cell.group in zip(
                    batch.values, batch.keys or (), batch.key_groups or (), strict=True
                ):
                    maps.put(value[0] % 7, (maps.get(value[0] % 7) or 0) + 1)

        return {"list: add, clear": add, "map: get, put": put}

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


class Named(NamedTuple):
    """A record with names."""

    key: int
    value: int


NamedMany = namedtuple("NamedMany", [f"f{at}" for at in range(10)])

RECORDS: dict[str, tuple[Callable[[int], object], Callable[[Any], object]]] = {
    "tuple of 2": (lambda i: (i * MULT & MASK, i), itemgetter(0)),
    "text and number": (lambda i: (f"user-{(i * MULT & MASK) % KEYS}", i), itemgetter(0)),
    "dict of 2": (lambda i: {"key": i * MULT & MASK, "value": i}, itemgetter("key")),
    "dataclass of 2": (lambda i: Numbered(i * MULT & MASK, i), attrgetter("key")),
    "named tuple of 2": (lambda i: Named(i * MULT & MASK, i), itemgetter(0)),
    "named tuple of 10": (lambda i: NamedMany(i * MULT & MASK, *range(i, i + 9)), itemgetter(0)),
    "tuple of 12": (lambda i: (i * MULT & MASK, *range(i, i + 11)), itemgetter(0)),
}
"""Kinds of records, with what makes one and its key."""


class Exchange:
    """Records of one kind from step to step behind a key exchange, half of them over a link."""

    def __init__(self, kind: str, *, columns: bool, few: bool) -> None:
        record, key = RECORDS[kind]
        plan = OutputPlan(0, KeyBy(selector=key), read_as_columns=not few)
        self._channels = Gathered(), Gathered()
        self._route = make_route(
            plan,
            Partitioner.HASH,
            cast("Any", self._channels),
            max_parallelism=GROUPS,
            subtask=0,
            settings=SlotSettings(trace_functions=columns),
            chance=SeededChance(0),
            where="exchange",
        )
        self._rows = [RowBatch([record(at * ROWS + n) for n in range(ROWS)]) for at in range(2)]

    def __call__(self) -> None:
        for rows in self._rows * (BATCHES // 2):
            self._route.batch(rows, 0)
            here, there = (channel.batches.pop() for channel in self._channels)
            came = decode(memoryview(b"".join(encode(there))))
            for batch in (here, came):
                assert isinstance(batch, RowBatch)
                _ = batch.values, batch.keys, batch.key_groups


def exchange() -> Table:
    """Nanoseconds a record of each kind: as rows, as the route chooses, and always as columns."""
    table = Table("exchange", "rows", "as it is", "columns")
    for kind in RECORDS:
        forms = [
            Exchange(kind, columns=columns, few=few)
            for columns, few in ((False, True), (True, True), (True, False))
        ]
        table.add_row(kind, *(f"{cost:.1f}" for cost in least_ns(list(forms))))
    return table


def is_dear(row: Any) -> Any:
    """What a filter of sales asks; it is traced."""
    return row["price"] > 50.0


def files() -> Table:
    """Nanoseconds a row of a file's columns: made, filtered, and as the columns of another file."""
    call = batch_call(is_dear, enabled=True)
    assert call is not None
    table = Table("file", "Arrow's rows", "rows of columns", "columns")
    table.add_row("filter", *filtered(call, nulls=False))
    table.add_row("filter, 1 % nulls in two columns", *filtered(call, nulls=True))
    return table


def filtered(call: BatchCall, *, nulls: bool) -> list[str]:
    """Costs of the ways that rows of a file can take through a filter."""
    some = [not nulls or number % 100 != 7 for number in range(ROWS)]
    plain = {
        "shop": [number % 1_000 if some[number] else None for number in range(ROWS)],
        "price": [float(number * 7 % 100) for number in range(ROWS)],
        "name": [f"shop {number % 997}" if some[number] else None for number in range(ROWS)],
    }
    read = ArrowBatch(pa.record_batch(plain))

    def by_row(rows: list[Any]) -> None:
        kept, _ = each(is_dear, rows, "filter")
        as_arrow(list(compress(rows, kept)))

    def by_columns() -> None:
        rows = as_rows(read)
        assert isinstance(rows, ColumnRows)
        found = call(rows)
        assert found is not None
        batch_as_arrow(rows.take(found[0].nonzero()[0]))

    steps: list[Callable[[], object]] = [
        lambda: by_row(read.batch.to_pylist()),
        lambda: by_row(as_rows(read).values),
        by_columns,
    ]
    costs = least_ns([lambda step=step: [step() for _ in range(BATCHES)] for step in steps])
    return [f"{cost:.1f}" for cost in costs]


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
    Console().print(exchange())
    Console().print(files())
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
