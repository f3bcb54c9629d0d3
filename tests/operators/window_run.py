"""Subtasks of one window operator on real state, fed by key, snapshotted and restored anywhere."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flinkformat.snapshots import SubtaskState
from tests.state.world import MAX_PARALLELISM, Subtask, restored, stored
from tests.worlds.clock import StepClock
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Operator, Pause, Steps
from tidegate.metrics import MetricGroup
from tidegate.model.deployment import Deployment
from tidegate.model.elements import RowBatch, Watermark, WatermarkStatus
from tidegate.model.ids import CheckpointId, VertexId
from tidegate.model.settings import CheckpointSettings, JobSettings, SlotSettings
from tidegate.model.topology import OperatorInfo, Vertex
from tidegate.operators.emit import PIECE_MS
from tidegate.slot.subtask.context import context_of
from tidegate.typeinfo.types import TypeInformation

NAME = "windows"
FIRST = CheckpointId(1)

Row = tuple[object, object, int | None]
"""Key, value, event time."""


class Taken:
    """An ``Output`` with room every other time, for more rows each time."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, int | None]] = []
        self.late: list[tuple[object, int | None]] = []
        self.watermarks: list[int] = []
        self.rows_max = 1
        self.piece_rows = 2**31
        self._room = False

    @property
    def has_room(self) -> bool:
        self._room = not self._room
        return self._room

    def emit(self, batch: RowBatch) -> None:
        assert len(batch) <= self.rows_max
        self.rows_max += 1
        self.rows += zip(batch.values, batch.timestamps_ms, strict=True)

    def emit_side(self, tag: str, batch: RowBatch) -> None:
        assert tag == "late" and batch.values
        self.late += zip(batch.values, batch.timestamps_ms, strict=True)

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        assert isinstance(watermark, Watermark)
        self.watermarks.append(watermark.ms)


class Host:
    """Writes down when an operator is to be woken; nothing else is asked for."""

    takes_input = True

    def __init__(self, clock: StepClock, alarms: list[int]) -> None:
        self.clock = clock
        self.wake_at = alarms.append
        self.run_blocking = self.threads = self.start = self.skipped = _unasked
        self.wake = self.poll_soon = _unasked


def _unasked(*_: object) -> object:
    raise AssertionError("windows ask for state and time alone")


@dataclass
class Hosted:
    """One subtask with its operator open."""

    state: Subtask
    operator: Operator
    out: Taken
    metrics: MetricGroup
    alarms: list[int]

    def drive(self, steps: Steps | None, pauses_max: int | None = None) -> None:
        """To the end, or up to that many pauses."""
        pauses = 0
        for step in steps or ():
            assert step is None or step is Pause.HERE
            pauses += step is Pause.HERE
            if pauses == pauses_max:
                return

    def wake(self, now_ms: int) -> None:
        """What it has asked for after now still comes."""
        self.alarms[:] = [at_ms for at_ms in self.alarms if at_ms > now_ms]
        self.drive(self.operator.on_ready(self.out))


class WindowRun:
    """make: a new operator as the driver ships it. batch_rows: what a batch holds at most.

    as_fed: the form of its input.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        parallelism: int = 1,
        *,
        batch_rows: int = 3,
        key_type: TypeInformation | None = None,
        clock_ms: int = 0,
        as_fed: Callable[[RowBatch], RowBatch] = lambda batch: batch,
    ) -> None:
        self._make = make
        self._as_fed = as_fed
        self._batch_rows = batch_rows
        self._key_type = key_type
        self._settings = JobSettings(
            checkpoints=CheckpointSettings(interval_ms=1), slot=SlotSettings(rows=batch_rows)
        )
        self.clock = StepClock(stands_at_ms=clock_ms)
        self._kept: list[tuple[object, int | None]] = []
        self._deploy([Subtask(i, parallelism, key_type=key_type) for i in range(parallelism)])

    def _deploy(self, subtasks: Sequence[Subtask]) -> None:
        self.subtasks = [self._opened(index, each) for index, each in enumerate(subtasks)]

    def _opened(self, index: int, state: Subtask) -> Hosted:
        info = OperatorInfo(state.backend.scope.operator, NAME, keyed=True)
        parallelism = MAX_PARALLELISM // len(state.key_groups)
        vertex = Vertex(VertexId(bytes(16)), NAME, (info,), parallelism, MAX_PARALLELISM)
        alarms: list[int] = []
        around = Deployment.without_job(vertex, self._settings, index=index)
        host: Any = Host(self.clock, alarms)
        operator = self._make()
        context = context_of(info, around, host, state.backend)
        operator.open(context)
        return Hosted(state, operator, Taken(), context.tasks.metrics, alarms)

    # --- what happens to it ---

    def send(self, rows: Iterable[Row]) -> None:
        """Give rows to the subtasks that have their keys, in order."""
        shares: list[list[Row]] = [[] for _ in self.subtasks]
        for row in rows:
            owner = next(i for i, each in enumerate(self.subtasks) if each.state.owns(row[0]))
            shares[owner].append(row)
        for hosted, share in zip(self.subtasks, shares, strict=True):
            for start in range(0, len(share), self._batch_rows):
                self._give(hosted, share[start : start + self._batch_rows])

    def _give(self, hosted: Hosted, rows: list[Row]) -> None:
        keys = [key for key, _, _ in rows]
        groups = [hosted.state.on(key).cell.group for key in keys]
        stamps = [stamp for _, _, stamp in rows]
        batch = RowBatch(
            [value for _, value, _ in rows], None if None in stamps else stamps, keys, groups
        )
        hosted.drive(hosted.operator.process(self._as_fed(batch), 0, hosted.out))

    def watermark(self, ms: int) -> None:
        for hosted in self.subtasks:
            hosted.drive(hosted.operator.on_watermark(Watermark(ms), hosted.out))
            assert hosted.out.watermarks[-1] == ms

    def watermark_cut(self, ms: int, pauses: int) -> list[SubtaskState]:
        """A snapshot after some pauses in what a watermark fires; then only `restore` may come."""
        self.clock.step_ms = PIECE_MS
        for hosted in self.subtasks:
            hosted.drive(hosted.operator.on_watermark(Watermark(ms), hosted.out), pauses)
        self.clock.step_ms = 0
        return self.snapshot()

    def at(self, wall_ms: int) -> None:
        """The wall clock shows that now; who asked to be woken by then is woken."""
        self.clock.now_ms += max(1, wall_ms - self.clock.stands_at_ms)
        self.clock.stands_at_ms = wall_ms
        for hosted in self.subtasks:
            rounds = 0
            while hosted.alarms and min(hosted.alarms) <= self.clock.now_ms:
                hosted.wake(self.clock.now_ms)
                rounds += 1
                if self.clock.step_ms and rounds == 3:
                    break  # time passes at each look, and never on the wall: it is never early
                assert rounds < 3, "it asks for a turn at once, over and over"

    def snapshot(self, meanwhile: Callable[[], None] | None = None) -> list[SubtaskState]:
        """Meanwhile: what happens while it is written; not in it."""
        pending = []
        for hosted in self.subtasks:
            hosted.operator.snapshot(SnapshotContext(FIRST, 0))
            pending.append(hosted.state.backend.snapshot(FIRST))
        if meanwhile is not None:
            meanwhile()
        return [stored(each) for each in pending]

    def restore(
        self, states: Sequence[SubtaskState], parallelism: int, *, cut: bool = False
    ) -> None:
        """cut: what has been emitted since the last look counts, since the snapshot follows it."""
        self._kept = self.taken() if cut else []
        self._deploy(restored(states, parallelism, key_type=self._key_type))

    # --- what has come of it ---

    def taken(self) -> list[tuple[object, int | None]]:
        """Results since the last call, with their event times; by subtask."""
        found = self._kept + [row for hosted in self.subtasks for row in hosted.out.rows]
        self._kept = []
        for hosted in self.subtasks:
            hosted.out.rows.clear()
        return found

    def late(self) -> list[object]:
        """Late records since the last call."""
        found = [value for hosted in self.subtasks for value, _ in hosted.out.late]
        for hosted in self.subtasks:
            hosted.out.late.clear()
        return found

    def counted(self, name: str) -> float:
        return sum(hosted.metrics.counted(name) for hosted in self.subtasks)

    def held(self) -> dict[str, int]:
        """How many entries each keyed state holds."""
        counts: dict[str, int] = {}
        for hosted in self.subtasks:
            states = hosted.state.backend._keyed._states  # pyright: ignore[reportPrivateUsage]
            for name in states:
                count = len(list(hosted.state.backend.scan(name)))
                counts[name] = counts.get(name, 0) + count
        return {name: count for name, count in counts.items() if count}
