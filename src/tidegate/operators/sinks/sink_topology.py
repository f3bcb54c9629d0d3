"""A sink in parts: writers that hand their committables on as rows, and committers behind them.

Committables leave a writer before the barrier of the checkpoint that they belong to. So the
committer's snapshot of that checkpoint holds them, whatever lies between, and it commits all that
came for a checkpoint at once, when that is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import Operator
from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import CommittableMessage
from tidegate.errors import UserError
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.operators.sinks.hosted_writer import HostedWriter
from tidegate.operators.sinks.sink import (
    AllOf,
    Commits,
    Durability,
    SinkHost,
    SinkWriterContext,
    committables_state,
    prepared_by,
    writer_state,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.sink import Committer
    from tidegate.model.elements import Batch


class SinkWriterOperator(SinkHost):
    """Hosts the writer of a sink; emits each prepared committable as a `CommittableMessage`."""

    @property
    def commits(self) -> bool:
        return True

    def declare(self, context: OperatorContext) -> None:
        self._state = writer_state(context)

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self.declare(context)
        self._durability = Durability()
        self._finished = False
        self._behind = 0
        self._writer = HostedWriter(self._sink, SinkWriterContext(context), self._state.get())

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        waiting = self._writer.write(batch)
        return None if waiting is None else iter((waiting,))

    def finish(self, out: Output) -> Steps | None:
        self._hand_on(out, self._behind + 1, end_of_input=True)
        self._finished = True
        return None if self._context.info.checkpointing else iter((AllOf(self._durability.left()),))

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        self._behind = checkpoint
        if not self._finished:
            self._hand_on(out, checkpoint, end_of_input=False)

    def _hand_on(self, out: Output, checkpoint: int, *, end_of_input: bool) -> None:
        prepared = prepared_by(
            self._writer, self._context, self._durability, end_of_input=end_of_input
        )
        subtask = self._context.info.subtask
        out.emit(RowBatch([CommittableMessage(each, subtask, checkpoint) for each in prepared]))

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        self._state.update(self._writer.snapshot(context.checkpoint))
        waiting = self._durability.left()
        return AllOf(waiting) if waiting else None


class CommitterOperator(Operator):
    """Commits what comes as `CommittableMessage`, and hands it on.

    committer: makes what commits; it may give None if nothing has to be done.
    """

    def __init__(self, committer: Callable[[], Committer | None]) -> None:
        self.committer = committer

    def declare(self, context: OperatorContext) -> None:
        self._state = committables_state(context)

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self.declare(context)
        self._taken: list[CommittableMessage] = []
        self._commits = Commits(context, self.committer(), self._state.get())
        self._commits.recover(lambda: None)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        messages = as_rows(batch).values
        for message in messages:
            if not isinstance(message, CommittableMessage):
                raise UserError(
                    f"A committer is given {message!r:.100}, which is not a CommittableMessage",
                    where=f"operator '{self._context.info.name}'",
                    remedy="Give committables on as they come, or make new ones in "
                    "add_pre_commit_topology.",
                )
            self._taken.append(message)
        out.emit(batch)

    def finish(self, out: Output) -> Steps | None:
        if self._context.info.checkpointing:
            return None
        return iter((self._commit_without_checkpoint(),))

    async def _commit_without_checkpoint(self) -> None:
        self._commits.add(CheckpointId(0), [each.committable for each in self._taken])
        self._taken = []
        await self._commits.commit_all()

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        due = [each.committable for each in self._taken if each.checkpoint <= context.checkpoint]
        # What its writer has cut for a later one may not be durable when this one is complete.
        self._taken = [each for each in self._taken if each.checkpoint > context.checkpoint]
        self._commits.add(context.checkpoint, due)
        self._state.update(self._commits.elements())
        # So that once a checkpoint after the restore is complete, nothing older is needed.
        recovered = self._commits.recovered
        return None if recovered is None else AllOf([recovered])

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._commits.complete(checkpoint)

    def close(self) -> None:
        if (commits := getattr(self, "_commits", None)) is not None:
            commits.close()
