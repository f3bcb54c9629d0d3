"""An operator in several subtasks over real state: fed by key, snapshotted, restored at will."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from tests.operators.world import Collected, FakeContext, World
from tests.state.world import MAX_PARALLELISM, Subtask, restored, snapshot
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Operator, Pause, Steps
from tidegate.api.rows.column_rows import as_columns
from tidegate.api.state import StateDescriptor
from tidegate.loops.forms import loaded_loops
from tidegate.metrics import MetricRegistry
from tidegate.model.elements import Batch, RowBatch, Watermark
from tidegate.model.ids import CheckpointId
from tidegate.typeinfo.key_hash import KeyHasher


def in_columns(batch: RowBatch) -> RowBatch:
    """As an exchange gives them; rows of which it can't make columns as they are."""
    made = as_columns(RowBatch(batch.values, batch.timestamps_ms), loaded_loops())
    if made is None or batch.keys is None:
        return batch
    kind = np.object_ if type(batch.keys[0]) is str else np.int64
    return made.keyed(np.array(batch.keys, kind), np.array(batch.key_groups, np.int16))


Row = tuple[object, object, int]
"""Key, value, event time."""


class BackedContext(FakeContext):
    """An ``OperatorContext`` whose state is that of a backend."""

    def __init__(self, world: World, subtask: Subtask, index: int, parallelism: int) -> None:
        super().__init__(world, subtask=index, parallelism=parallelism)
        self.state = subtask.backend
        self.metrics = MetricRegistry(lambda: 0).group()


class Emitted(Collected):
    """Side outputs come as ``(tag, value)``."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        values = [(tag, value) for value in batch.values]
        self.batches.append(RowBatch(values, batch.timestamps_ms))


class BackedJob:
    """The subtasks of one operator. make: a new, unopened one. as_fed: the form of its input."""

    def __init__(
        self,
        world: World,
        make: Callable[[], Operator],
        parallelism: int = 1,
        subtasks: Sequence[Subtask] | None = None,
        as_fed: Callable[[RowBatch], RowBatch] = lambda batch: batch,
    ) -> None:
        self._world, self._make, self._as_fed = world, make, as_fed
        self._hasher = KeyHasher(None, MAX_PARALLELISM)
        self.subtasks = subtasks or [Subtask(n, parallelism) for n in range(parallelism)]
        self.outs = [Emitted() for _ in self.subtasks]
        self.operators = [make() for _ in self.subtasks]
        for index, (operator, subtask) in enumerate(
            zip(self.operators, self.subtasks, strict=True)
        ):
            context = BackedContext(world, subtask, index, len(self.subtasks))
            world.on_loop(lambda operator=operator, context=context: operator.open(context))

    def feed(self, port: int, *rows: Row) -> list[tuple[object, int]]:
        """Rows to the subtasks of their keys, each a batch; what comes out, with its time."""
        if not rows:
            return []
        groups = [int(group) for group in self._hasher.key_groups([row[0] for row in rows])]
        parts: defaultdict[int, list[tuple[Row, int]]] = defaultdict(list)
        for row, group in zip(rows, groups, strict=True):
            owner = next(i for i, each in enumerate(self.subtasks) if group in each.key_groups)
            parts[owner].append((row, group))
        for owner, part in parts.items():
            keys, values, stamps = zip(*(row for row, _ in part), strict=True)
            batch = RowBatch(list(values), list(stamps), list(keys), [group for _, group in part])
            process = self.operators[owner].process
            self._drive(process(self._as_fed(batch), port, self.outs[owner]))
        return self._taken()

    def tell(self, port: int, *values: object) -> list[tuple[object, int]]:
        """A batch without keys to every subtask."""
        for operator, out in zip(self.operators, self.outs, strict=True):
            self._drive(operator.process(RowBatch(list(values), [0] * len(values)), port, out))
        return self._taken()

    def watermark(self, ms: int) -> list[tuple[object, int]]:
        """Event time has come that far."""
        for operator, out in zip(self.operators, self.outs, strict=True):
            self._drive(operator.on_watermark(Watermark(ms), out))
            assert out.watermarks[-1] == Watermark(ms)
        return self._taken()

    def restored(self, parallelism: int) -> "BackedJob":
        """Another job that goes on from a snapshot of this one."""
        for operator in self.operators:
            operator.snapshot(SnapshotContext(CheckpointId(1), 0))
        states = [snapshot(subtask) for subtask in self.subtasks]
        subtasks = restored(states, parallelism)
        return BackedJob(self._world, self._make, subtasks=subtasks, as_fed=self._as_fed)

    def held(self, descriptor: StateDescriptor) -> dict[object, object]:
        """All entries of a keyed state."""
        found: dict[object, object] = {}
        for subtask in self.subtasks:
            found |= subtask.dump(descriptor.name)
        return found

    def _taken(self) -> list[tuple[object, int]]:
        taken = [pair for out in self.outs for pair in zip(out.values, out.stamps, strict=True)]
        for out in self.outs:
            out.batches.clear()
        return taken

    def _drive(self, steps: Steps | None) -> None:
        for step in steps or ():
            assert step in (None, Pause.HERE), "nothing of this waits"
