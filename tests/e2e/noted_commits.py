"""A source with offsets and a two-phase-commit sink that note each step of a checkpoint.

The source is as one over Kafka is: its position is part of the checkpoint, and once that is
complete it is committed to the outside, for others to see. Slots import this module by its name.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerCommitter, LedgerSink, LedgerWriter
from tests.e2e.noted_source import Noted, NotedEnumerator, NotedSource
from tidegate import EnumeratorContext, Prepared, ReaderContext, WriterContext
from tidegate.connectors.generator import NumberSplit
from tidegate.model.ids import CheckpointId


class OffsetSource(NotedSource):
    """Numbers at a rate; readers commit their offsets."""

    def enumerator(
        self, context: EnumeratorContext[NumberSplit], restored: bytes | None
    ) -> NotedEnumerator:
        self._journal.note("constructed")
        return super().enumerator(context, restored)

    def reader(self, context: ReaderContext) -> Any:
        inner = super(NotedSource, self).reader(context)
        return OffsetReader(inner, self._journal, context.subtask)


class OffsetReader(Noted):
    """Notes its offsets when a snapshot is taken, and commits those when it is complete."""

    def __init__(self, inner: Any, journal: Journal, subtask: int) -> None:
        super().__init__(inner, journal)
        self._subtask = subtask
        self._taken: list[list[int]] = []

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[NumberSplit]:
        splits = self._inner.snapshot(checkpoint)
        self._taken.append([split.next for split in splits])
        emitted = sum(len(range(s.next % s.step, s.next, s.step)) for s in splits)
        self._note("source", subtask=self._subtask, offsets=self._taken[-1], emitted=emitted)
        return splits

    def on_complete(self, checkpoint: CheckpointId) -> None:
        offsets = self._taken.pop(0)
        self._note("offsets", subtask=self._subtask, checkpoint=checkpoint, offsets=offsets)
        self._inner.on_complete(checkpoint)


class NotedLedger(LedgerSink):
    """The ledger, whose both phases are noted. checkpoints: folder that completed ones are in."""

    def __init__(self, folder: Path, journal: Journal, checkpoints: Path) -> None:
        super().__init__(folder)
        self._journal = journal
        self._checkpoints = checkpoints

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "NotedWriter":
        name = f"{context.job}-{context.attempt_name}"
        return NotedWriter(name, self._journal, context.subtask)

    def committer(self) -> "NotedCommitter":
        return NotedCommitter(self._folder, self._journal, self._checkpoints)


class NotedWriter(LedgerWriter):
    """The first phase: what was written can be committed from now on."""

    def __init__(self, name: str, journal: Journal, subtask: int) -> None:
        super().__init__(name)
        self._journal = journal
        self._subtask = subtask

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        prepared = super().prepare_commit(end_of_input=end_of_input)
        self._journal.note("prepared", subtask=self._subtask, files=files_of(prepared.committables))
        return prepared


class NotedCommitter(LedgerCommitter):
    """The second phase; notes which checkpoints were durable when it came."""

    def __init__(self, folder: Path, journal: Journal, checkpoints: Path) -> None:
        super().__init__(folder, None)
        self._journal = journal
        self._checkpoints = checkpoints

    def commit(self, committables: Sequence[bytes]) -> None:
        durable = [path.parent.name for path in self._checkpoints.glob("*/chk-*/_metadata")]
        super().commit(committables)
        self._journal.note("committed", files=files_of(committables), durable=durable)


def files_of(committables: Sequence[bytes]) -> list[str]:
    """The files that committables will become."""
    return [json.loads(committable)["name"] for committable in committables]
