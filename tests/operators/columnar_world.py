"""A keyed operator on Arrow batches over real state, as one or several subtasks."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from tests.metrics.reading import number
from tests.operators.world import Collected
from tests.state.world import MAX_PARALLELISM, Subtask, restored, snapshot
from tidegate import Collect, Count, CountDistinct, First, Last, Max, Mean, Min, Sum
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Operator
from tidegate.metrics import MetricRegistry
from tidegate.model.elements import ArrowBatch, Batch, Watermark
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.typeinfo.key_hash import KeyHasher

ALL = (
    Count(),
    Count("x"),
    Sum("x"),
    Min("x"),
    Max("x"),
    Mean("x"),
    First("x"),
    Last("x"),
    Collect("x"),
    CountDistinct("x"),
)
"""Each aggregate of a column."""


class Sides(Collected):
    """An ``Output`` that keeps what goes to the sides too."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: dict[str, list[dict[str, object]]] = {}

    def emit_side(self, tag: str, batch: Batch) -> None:
        assert isinstance(batch, ArrowBatch) and batch.key_groups is None
        self.sides.setdefault(tag, []).extend(batch.batch.to_pylist())


class ColumnarSubtask:
    """An open operator on the state of one subtask."""

    def __init__(
        self, operator: Operator, subtask: Subtask, index: int, parallelism: int, rows: int
    ) -> None:
        self.operator, self.subtask, self.out = operator, subtask, Sides()
        self.metrics = MetricRegistry(lambda: 0)
        backend = subtask.backend
        info = SimpleNamespace(
            name="totals",
            subtask=index,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            settings=SlotSettings(arrow_rows=rows),
        )
        tasks = SimpleNamespace(metrics=self.metrics.group())
        context = SimpleNamespace(info=info, state=backend, tasks=tasks)
        operator.open(context)

    def watermark(self, ms: int) -> None:
        steps = self.operator.on_watermark(Watermark(ms), self.out)
        for _ in steps or ():
            pass


class ColumnarStep:
    """An operator in several subtasks, keyed by a column; restored with another number of them."""

    def __init__(
        self,
        make: Callable[[], Operator],
        column: str = "k",
        *,
        parallelism: int = 1,
        rows: int = 1000,
        subtasks: Sequence[Subtask] | None = None,
    ) -> None:
        self._make, self._column, self._rows = make, column, rows
        self._hasher = KeyHasher(None, MAX_PARALLELISM)
        states = subtasks or [Subtask(index, parallelism) for index in range(parallelism)]
        self.subtasks = [
            ColumnarSubtask(make(), state, index, len(states), rows)
            for index, state in enumerate(states)
        ]

    def process(self, batch: pa.RecordBatch, stamps: Sequence[int] | None = None) -> None:
        """Deal the rows out to their keys' subtasks."""
        key_groups = self._hasher.key_groups_of_column(batch.column(self._column))
        times = None if stamps is None else np.asarray(stamps, np.int64)
        for each in self.subtasks:
            own = each.subtask.key_groups
            rows = np.flatnonzero((key_groups >= own.first) & (key_groups <= own.last))
            if len(rows):
                part = ArrowBatch(
                    batch.take(pa.array(rows)),
                    None if times is None else times[rows],
                    self._column,
                    key_groups[rows],
                )
                each.operator.process(part, 0, each.out)

    def watermark(self, ms: int) -> None:
        for each in self.subtasks:
            each.watermark(ms)

    def restored(self, parallelism: int) -> "ColumnarStep":
        """The same from a snapshot of all subtasks, as many as said; outputs begin anew."""
        states = []
        for each in self.subtasks:
            each.operator.snapshot(SnapshotContext(CheckpointId(1), 0))
            states.append(snapshot(each.subtask))
        subtasks = restored(states, parallelism)
        return ColumnarStep(self._make, self._column, rows=self._rows, subtasks=subtasks)

    @property
    def rows(self) -> list[dict[str, object]]:
        """What came out, subtask by subtask."""
        return [row for each in self.subtasks for row in each.out.values]

    def metric(self, name: str) -> float:
        return sum(number(each.metrics, name) for each in self.subtasks)
