"""Pairs of two keyed streams whose event times lie close to each other.

Each side keeps its records by event time, as long as a record of the other side may still come
that they are paired with. A timer for each key and event time then removes them. Source of the
rules: Flink, IntervalJoinOperator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from tidegate.api.operator import Pause
from tidegate.api.state import MapStateDescriptor
from tidegate.errors import UserError
from tidegate.loops.forms import loops_with
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, RowBatch
from tidegate.operators.emit import ahead_of, emit_rows, is_due
from tidegate.operators.function import FunctionOperator
from tidegate.operators.keys import SharedKeys, keys_of
from tidegate.operators.row_loop import owner, user_call
from tidegate.operators.windows.firing import LateRecords
from tidegate.typeinfo.types import BYTE, LONG, PICKLED, ListTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import MapState
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

_BUFFERS: Final = ("left-buffer", "right-buffer")
_TIMERS: Final = "interval-join"


@frozen
class IntervalPlan:
    """Plan of an interval join.

    lower_ms, upper_ms: how far a right record may lie after a left one to be paired with it, both
    included. types: of the two streams' records. late_tags: ids of the side outputs
    of late records of each stream; None drops them.
    """

    lower_ms: int
    upper_ms: int
    types: tuple[TypeInformation, TypeInformation] = (PICKLED, PICKLED)
    late_tags: tuple[str | None, str | None] = (None, None)


class JoinContext:
    """The ``Context`` of a join function; one for each operator, set for each pair."""

    __slots__ = ("left_ms", "right_ms")

    def __init__(self) -> None:
        self.left_ms = self.right_ms = MIN_TIMESTAMP_MS

    def get_left_timestamp(self) -> int:
        return self.left_ms

    def get_right_timestamp(self) -> int:
        return self.right_ms

    @property
    def timestamp_ms(self) -> int:
        return max(self.left_ms, self.right_ms)

    def get_timestamp(self) -> int:
        return self.timestamp_ms


class IntervalJoinOperator(FunctionOperator):
    """Calls a join function for each pair; port 0 is the left stream."""

    def __init__(
        self, function: object, plan: IntervalPlan, key_type: TypeInformation | None = None
    ) -> None:
        super().__init__(function, "process_element")
        self._plan = plan
        self.key_type = key_type

    def open(self, context: OperatorContext) -> None:
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._cell = context.state.cell
        self._keys = SharedKeys(context.info.name)
        self._pair = JoinContext()
        self._timers = context.state.timers(_TIMERS, BYTE, context.time.wake_at_wall).event
        self._clean_rows = 2 * context.info.settings.rows
        plan = self._plan
        self._sides = (
            _Side(context, plan, 0, plan.lower_ms, plan.upper_ms),
            _Side(context, plan, 1, -plan.upper_ms, -plan.lower_ms),
        )
        super().open(context)
        self._own = owner(self._own, context)
        self._user = user_call(self._call, self._own, self._loops, operator=self._name)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = self._in_time(self._keys.checked(batch, port), port, out)
        return emit_rows(self._joined(rows, port), self._draws, out, timed=self._pair)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._watermark_ms = watermark.ms
        if is_due(self._timers, watermark.ms):
            return ahead_of(watermark, self._clean_up(watermark.ms), out)
        out.emit_watermark(watermark)
        return None

    def _in_time(self, rows: RowBatch, port: int, out: Output) -> RowBatch:
        stamps, watermark_ms = rows.timestamps_ms, self._watermark_ms
        if stamps is None or MIN_TIMESTAMP_MS in stamps:
            raise UserError(
                "Records have no event time, which an interval join needs",
                where=f"operator '{self._name}', {('left', 'right')[port]} input",
                remedy="Give the source a WatermarkStrategy with a timestamp assigner, or call "
                "assign_timestamps_and_watermarks before key_by.",
            )
        late = [index for index, stamp in enumerate(stamps) if stamp < watermark_ms]
        if not late:
            return rows
        values = [rows.values[index] for index in late]
        self._sides[port].late.take(values, [stamps[index] for index in late], out)
        keys, groups = keys_of(rows)
        kept = [index for index, stamp in enumerate(stamps) if stamp >= watermark_ms]
        return RowBatch(
            [rows.values[index] for index in kept],
            [stamps[index] for index in kept],
            [keys[index] for index in kept],
            [groups[index] for index in kept],
        )

    def _joined(self, rows: RowBatch, port: int) -> Iterator[object]:
        ours, theirs = self._sides[port], self._sides[1 - port]
        keys, groups = keys_of(rows)
        register, wait_ms = self._timers.register, ours.wait_ms

        def wait_for(ms: int) -> None:
            register(min(ms + wait_ms, MAX_WATERMARK_MS), port)

        return self._loops.results_of_pairs(
            self._user,
            self._pair,
            self._cell,
            port == 1,
            ours.records,
            theirs.records,
            wait_for,
            rows.values,
            keys,
            groups,
            rows.timestamps_ms,
        )

    def _clean_up(self, until_ms: int) -> Steps:
        due = self._timers.due(until_ms)
        for count, (ms, port) in enumerate(due, start=1):
            self._sides[cast("int", port)].remove_needed_until(ms)
            if count % self._clean_rows == 0:
                yield Pause.HERE


class _Side:
    """Records of one stream. lower_ms, upper_ms: bounds of their partners' event time."""

    def __init__(
        self, context: OperatorContext, plan: IntervalPlan, port: int, lower_ms: int, upper_ms: int
    ) -> None:
        # From then on records can't be joined, after their event time.
        self.wait_ms = max(0, upper_ms)
        records = ListTypeInfo(plan.types[port])
        descriptor = MapStateDescriptor(_BUFFERS[port], LONG, records)
        self._kept = cast("MapState[int, list[Any]]", context.state.keyed_state(descriptor))
        self.records = loops_with(context.state.cell).join_side(self._kept, lower_ms, upper_ms)
        self.late = LateRecords(context, plan.late_tags[port])

    def remove_needed_until(self, ms: int) -> None:
        """Removes the current key's records that aren't needed after that watermark."""
        self._kept.remove(ms - self.wait_ms)
