"""A source that notes what is asked of both its halves. Slots import this module by its name."""

import threading
import time
from collections.abc import Sequence
from typing import Any

from tests.e2e.journal import Journal
from tidegate import EnumeratorContext, ReaderContext
from tidegate.connectors import DataGeneratorSource
from tidegate.connectors.generator import NumberSplit
from tidegate.model.ids import CheckpointId


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class NotedSource(DataGeneratorSource):
    """Numbers at a rate; every snapshot and every completion is noted."""

    def __init__(self, journal: Journal, count: int | None, rate: float | None) -> None:
        super().__init__(int, count, rate)
        self._journal = journal

    def enumerator(
        self, context: EnumeratorContext[NumberSplit], restored: bytes | None
    ) -> "NotedEnumerator":
        return NotedEnumerator(super().enumerator(context, restored), self._journal)

    def reader(self, context: ReaderContext) -> "NotedReader":
        return NotedReader(super().reader(context), self._journal, context.subtask)


class Noted:
    """Passes on everything that it does not note."""

    def __init__(self, inner: Any, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self, event: str, **fields: object) -> None:
        thread = threading.current_thread().name
        self._journal.note(event, ms=now_ms(), thread=thread, **fields)


class NotedEnumerator(Noted):
    """The half on the driver."""

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        data = self._inner.snapshot(checkpoint)
        self._note("trigger", checkpoint=checkpoint, data=data.hex())
        return data

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._note("completed", checkpoint=checkpoint)
        self._inner.on_complete(checkpoint)


class NotedReader(Noted):
    """The half in a slot."""

    def __init__(self, inner: Any, journal: Journal, subtask: int) -> None:
        super().__init__(inner, journal)
        self._subtask = subtask

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[NumberSplit]:
        self._note("source", subtask=self._subtask)
        return self._inner.snapshot(checkpoint)
