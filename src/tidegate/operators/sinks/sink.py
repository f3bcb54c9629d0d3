"""Sinks: a writer in the slot, and the commit protocol.

Output written before a barrier is a set of committables in that checkpoint. It is committed when
the checkpoint is complete, and after a restore from it: never before it is certain that the job
restores from it or from a later one, and at least once after. They stay in operator state until
their commit is confirmed, so a crash at any point commits them again; commits are idempotent.

Checkpoints are committed in their order. One that was given up leaves its committables to the next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tidegate.api.operator import Operator
from tidegate.api.sink import CoordinatedSink, CoordinatedWriter, NotifiedWriter, Prepared
from tidegate.api.state import OperatorListState, OperatorStateDescriptor
from tidegate.model.ids import CheckpointId
from tidegate.operators.sinks.commits import AllOf, Commits, all_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.sink import Committer, Sink, SinkWriter
    from tidegate.model.elements import Batch, OperatorEvent

COMMITTABLES_STATE = "SinkCommittables"
WRITER_STATE = "SinkWriterState"


class SinkHost(Operator):
    """Hosts the writer of a sink.

    It has an attribute ``coordinator`` (``api.coordinator.Coordinated``) exactly where the sink
    has one.
    """

    writes = True

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        if isinstance(sink, CoordinatedSink):
            self.coordinator = sink.coordinator

    def check(self) -> None:
        check = getattr(self._sink, "check", None)
        if check is not None:
            check()

    @property
    def commits(self) -> bool:
        """True if output becomes visible only with a completed checkpoint."""
        committer = self._sink.committer()
        if committer is None:
            return False
        committer.close()
        return True

    def on_complete(self, checkpoint: CheckpointId) -> None:
        if isinstance(writer := self._made(), NotifiedWriter):
            writer.on_complete(checkpoint)

    def on_event(self, event: OperatorEvent) -> None:
        if isinstance(writer := self._made(), CoordinatedWriter):
            writer.on_event(event)

    def close(self) -> None:
        if (writer := self._made()) is not None:
            writer.close()

    def _made(self) -> SinkWriter | None:
        """The writer; None before `open` made it."""
        return getattr(self, "_writer", None)


class SinkOperator(SinkHost):
    """Hosts the writer and the committer of a sink."""

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._committer = self._sink.committer()
        self.declare(context)
        self._writer: SinkWriter | None = None
        self._finished = False
        self._prepared: list[Prepared] = []
        self._commits = Commits(context, self._committer, self._committables_state.get())
        self._recovered: asyncio.Future[None] | None = None
        if not self._commits.due:
            self._make_writer()
        else:
            self._recovered = asyncio.get_running_loop().create_future()
            context.tasks.start(self._recover(self._recovered))

    def declare(self, context: OperatorContext) -> None:
        committables = OperatorStateDescriptor(COMMITTABLES_STATE)
        writers = OperatorStateDescriptor(WRITER_STATE)
        self._committables_state = cast(
            "OperatorListState[tuple[int, bytes]]", context.state.operator_state(committables)
        )
        self._writer_state = cast("OperatorListState[bytes]", context.state.operator_state(writers))

    async def _recover(self, recovered: asyncio.Future[None]) -> None:
        await self._commits.commit_due()
        self._make_writer()
        recovered.set_result(None)

    def _make_writer(self) -> None:
        self._recovered = None
        restored = self._writer_state.get()
        self._writer = self._sink.writer(SinkWriterContext(self._context), restored)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        if self._writer is None:
            return self._write_later(batch)
        waiting = self._writer.write(batch)
        return None if waiting is None else iter((waiting,))

    def _write_later(self, batch: Batch) -> Steps:
        yield self._recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        yield self._writer.write(batch)

    def finish(self, out: Output) -> Steps:
        """Prepares the last output; without checkpoints, commits it too."""
        if self._recovered is not None:
            yield self._recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        self._prepare(end_of_input=True)
        self._finished = True
        if not self._context.info.checkpointing:
            yield self._commit_without_checkpoint()

    async def _commit_without_checkpoint(self) -> None:
        await all_of(self._cut(CheckpointId(0)))
        self._commits.complete_all()
        await self._commits.commit_due()

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        if self._writer is not None and not self._finished:
            self._prepare(end_of_input=False)

    def _prepare(self, *, end_of_input: bool) -> None:
        assert self._writer is not None, "asked for with a writer only"
        self._prepared.append(prepared_by(self._writer, self._context, end_of_input=end_of_input))

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        waiting = self._cut(context.checkpoint)
        if self._recovered is not None:
            # So that once a checkpoint after the restore is complete, nothing older is needed.
            waiting.append(self._recovered)
        self._committables_state.update(self._commits.elements())
        if self._writer is not None:
            self._writer_state.update(self._writer.snapshot(context.checkpoint))
        return AllOf(waiting) if waiting else None

    def _cut(self, checkpoint: CheckpointId) -> list[Awaitable[object]]:
        """Assigns prepared output to a checkpoint; returns the work that makes it durable."""
        for prepared in self._prepared:
            self._commits.add(checkpoint, prepared)
        self._prepared = []
        return self._commits.not_durable()

    def on_complete(self, checkpoint: CheckpointId) -> None:
        super().on_complete(checkpoint)
        self._commits.complete(checkpoint)

    def close(self) -> None:
        super().close()
        if getattr(self, "_committer", None) is not None:
            cast("Committer", self._committer).close()


def prepared_by(writer: SinkWriter, context: OperatorContext, *, end_of_input: bool) -> Prepared:
    """Output that a writer prepares, and its durability under way."""
    prepared = writer.prepare_commit(end_of_input=end_of_input)
    if prepared.durable is None:
        return prepared
    durable = asyncio.ensure_future(prepared.durable)
    # What cannot be made durable is lost to this attempt: that is more than a checkpoint's failure,
    # so it is the subtask's.
    context.tasks.start(all_of([durable]))
    return Prepared(prepared.committables, durable)


class SinkWriterContext:
    """The ``WriterContext`` over an operator's."""

    def __init__(self, context: OperatorContext) -> None:
        self.subtask = context.info.subtask
        self.parallelism = context.info.parallelism
        self.job = context.info.job
        self.operator = context.info.name
        self.attempt_name = context.info.attempt_name
        self.restored_checkpoint = context.info.restored
        self.checkpointing = context.info.checkpointing
        self.processing_time = context.time.processing_time
        self.to_coordinator = context.tasks.to_coordinator
        self.start = context.tasks.start
        self._context = context

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._context.tasks.run_blocking(call)
