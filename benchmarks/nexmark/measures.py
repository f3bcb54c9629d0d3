"""Where time is taken in a job of ours: each subtask leaves a file with what it measured.

Time runs from when the first source has passed its share of the warm-up until the last sink has
seen the end of its input.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.api.sink import Prepared
from tidegate.model.elements import RowBatch


class SourceMeasure:
    """Counts a reader's events. path: None measures nothing."""

    def __init__(self, path: Path | None, warm: int) -> None:
        self._path, self._warm = path, warm
        self._passed = self._counted_from = self._warm_at_ns = self._warm_processor_ns = 0

    def passed(self, events: int) -> None:
        """More events are on their way."""
        self._passed += events
        if not self._warm_at_ns and self._passed >= self._warm:
            self._counted_from = self._passed
            self._warm_at_ns, self._warm_processor_ns = time.monotonic_ns(), time.process_time_ns()

    def close(self) -> None:
        if self._path is None:
            return
        measured = {
            "counted": self._passed - self._counted_from,
            "warm_at_ns": self._warm_at_ns,
            "warm_processor_ns": self._warm_processor_ns,
            "pid": os.getpid(),
        }
        self._path.write_text(json.dumps(measured))


@dataclass(frozen=True)
class EndSink:
    """Counts results and discards them."""

    stats: str

    def writer(self, context, restored: Sequence[bytes]) -> "EndWriter":
        return EndWriter(Path(self.stats) / f"sink-{context.subtask}.json")

    def committer(self) -> None:
        """Nothing is kept, so nothing is committed."""


class EndWriter:
    """One subtask's share of the sink."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outputs = self._last_at_ns = self._last_processor_ns = 0

    def write(self, batch) -> None:
        self._outputs += len(batch)
        if isinstance(batch, RowBatch):
            # Rows may be made when they are looked at.
            _ = batch.values

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        """Takes the time at the end of the input."""
        if end_of_input:
            self._last_at_ns, self._last_processor_ns = time.monotonic_ns(), time.process_time_ns()
        return Prepared()

    def snapshot(self, checkpoint) -> Sequence[bytes]:
        """No state: the job is not restored."""
        return []

    def close(self) -> None:
        measured = {
            "outputs": self._outputs,
            "last_at_ns": self._last_at_ns,
            "last_processor_ns": self._last_processor_ns,
            "pid": os.getpid(),
        }
        self._path.write_text(json.dumps(measured))
