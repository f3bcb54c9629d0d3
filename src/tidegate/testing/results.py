"""Results of a step that is run by hand: rows, side outputs and watermarks."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from flinkformat.frozen import frozen
from tidegate.api.rows.batches import as_rows
from tidegate.model.elements import Watermark
from tidegate.slot.channels.output import Room
from tidegate.slot.subtask.chain import ChainOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.api.rows.conversion import Convert
    from tidegate.model.elements import Batch, WatermarkStatus
    from tidegate.testing.clock import ManualClock

Rows = list[tuple[Any, int | None]]


class Results:
    """All that the subtasks of a step have emitted."""

    def __init__(self) -> None:
        self.main: Rows = []
        self.sides: dict[str, Rows] = {}
        self.watermarks: list[int] = []

    def accept(self, batch: Batch) -> None:
        self.main += _rows(batch)


@frozen
class _SideResults:
    """Collects a side output of all subtasks."""

    results: Results
    tag: str

    def accept(self, batch: Batch) -> None:
        self.results.sides.setdefault(self.tag, []).extend(_rows(batch))


class KeptOutput(ChainOutput):
    """Where a subtask emits to: the results of its step."""

    def __init__(
        self, results: Results, clock: ManualClock, convert: Mapping[str | None, Convert]
    ) -> None:
        super().__init__(Room(), clock, share=True, convert=convert)
        self._results = results
        self.takers(None).append(results)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if not self.takers(tag):
            self.takers(tag).append(_SideResults(self._results, tag))
        super().emit_side(tag, batch)

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        if isinstance(watermark, Watermark):
            self._results.watermarks.append(watermark.ms)


def _rows(batch: Batch) -> list[tuple[Any, int | None]]:
    rows = as_rows(batch)
    return list(zip(rows.values, rows.timestamps_ms or repeat(None), strict=False))
