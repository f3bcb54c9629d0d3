"""Sinks: a writer in the slot, and the commit protocol.

What was written before a barrier is a set of committables in that checkpoint. It is committed when
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
from tidegate.errors import CommitFailed, WorldError
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from tidegate.api.operator import OperatorContext, Output, SnapshotContext, Steps
    from tidegate.api.sink import Committer, Sink, SinkWriter
    from tidegate.model.elements import Batch, OperatorEvent

COMMITTABLES_STATE = "SinkCommittables"
WRITER_STATE = "SinkWriterState"
_BACKOFF_FIRST_S = 0.01
_BACKOFF_MAX_S = 1.0


class SinkOperator(Operator):
    """Hosts the writer and the committer of a sink.

    It has an attribute ``coordinator`` (``api.coordinator.Coordinated``) exactly where the sink
    has one.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        if isinstance(sink, CoordinatedSink):
            self.coordinator = sink.coordinator

    def check(self) -> None:
        """Let the sink look at what it needs."""
        check = getattr(self._sink, "check", None)
        if check is not None:
            check()

    def open(self, context: OperatorContext) -> None:
        """Commit what the restored checkpoint holds, then make the writer."""
        self._context = context
        self._committer = self._sink.committer()
        committables = OperatorStateDescriptor(COMMITTABLES_STATE)
        writers = OperatorStateDescriptor(WRITER_STATE)
        self._committables_state = cast(
            "OperatorListState[tuple[int, bytes]]", context.operator_state(committables)
        )
        self._writer_state = cast("OperatorListState[bytes]", context.operator_state(writers))
        self._writer: SinkWriter | None = None
        self._finished = False
        self._prepared: list[Prepared] = []
        self._pending = PendingCommits(self._committables_state.get(), context.restored_checkpoint)
        self._recovered: asyncio.Future[None] | None = None
        if self._pending.next_due() is None:
            self._make_writer()
        else:
            self._recovered = asyncio.get_running_loop().create_future()
            context.start(self._recover(self._recovered))

    async def _recover(self, recovered: asyncio.Future[None]) -> None:
        await self._commit_due()
        self._make_writer()
        recovered.set_result(None)

    def _make_writer(self) -> None:
        self._recovered = None
        restored = self._writer_state.get()
        self._writer = self._sink.writer(_WriterContext(self._context), restored)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Write a batch."""
        if self._writer is None:
            return self._write_later(batch)
        waiting = self._writer.write(batch)
        return None if waiting is None else iter((waiting,))

    def _write_later(self, batch: Batch) -> Steps:
        yield self._recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        yield self._writer.write(batch)

    def finish(self, out: Output) -> Steps:
        """Prepare the last of the output; without checkpoints, commit it too."""
        if self._recovered is not None:
            yield self._recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        self._prepare(end_of_input=True)
        self._finished = True
        if not self._context.checkpointing:
            yield self._commit_without_checkpoint()

    async def _commit_without_checkpoint(self) -> None:
        await _all_of(self._cut(CheckpointId(0)))
        self._pending.complete_all()
        await self._commit_due()

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        """Cut the output."""
        if self._writer is not None and not self._finished:
            self._prepare(end_of_input=False)

    def _prepare(self, *, end_of_input: bool) -> None:
        assert self._writer is not None, "asked for with a writer only"
        prepared = self._writer.prepare_commit(end_of_input=end_of_input)
        if prepared.durable is not None:
            durable = asyncio.ensure_future(prepared.durable)
            # What cannot be made durable is lost to this attempt: that is more than a checkpoint's
            # failure, so it is the subtask's.
            self._context.start(_all_of([durable]))
            prepared = Prepared(prepared.committables, durable)
        self._prepared.append(prepared)

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        """Put into state what is not known to be committed, and the writer's own."""
        waiting = self._cut(context.checkpoint)
        if self._recovered is not None:
            # So that once a checkpoint after the restore is complete, nothing older is needed.
            waiting.append(self._recovered)
        self._committables_state.update(self._pending.elements())
        if self._writer is not None:
            self._writer_state.update(self._writer.snapshot(context.checkpoint))
        return _AllDurable(waiting) if waiting else None

    def _cut(self, checkpoint: CheckpointId) -> list[Awaitable[object]]:
        """What was prepared until now belongs to the checkpoint; what has to be durable for it."""
        for prepared in self._prepared:
            self._pending.add(checkpoint, prepared)
        self._prepared = []
        return self._pending.not_durable()

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """Commit what the checkpoint holds, and those before it."""
        if isinstance(self._writer, NotifiedWriter):
            self._writer.on_complete(checkpoint)
        self._pending.complete(checkpoint)
        if self._pending.next_due() is not None and not self._pending.committing:
            self._context.start(self._commit_due())

    def on_event(self, event: OperatorEvent) -> None:
        """An event from the sink's coordinator."""
        if isinstance(self._writer, CoordinatedWriter):
            self._writer.on_event(event)

    def close(self) -> None:
        """Close writer and committer."""
        if getattr(self, "_writer", None) is not None:
            cast("SinkWriter", self._writer).close()
        if getattr(self, "_committer", None) is not None:
            cast("Committer", self._committer).close()

    async def _commit_due(self) -> None:
        """Commit what is due, oldest checkpoint first; one at a time."""
        if self._pending.committing:
            return  # two completions came before the first of these ran; that one does both
        self._pending.committing = True
        try:
            while (checkpoint := self._pending.next_due()) is not None:
                await self._commit(checkpoint, self._pending.committables(checkpoint))
                self._pending.confirm(checkpoint)
        finally:
            self._pending.committing = False

    async def _commit(self, checkpoint: CheckpointId, committables: Sequence[bytes]) -> None:
        committer = self._committer
        if committer is None or not committables:
            return
        backoff_s = _BACKOFF_FIRST_S
        for left in reversed(range(self._context.settings.commit_retries + 1)):
            try:
                await self._context.run_blocking(lambda: committer.commit(committables))
                return
            except CommitFailed:
                raise
            except WorldError as error:
                if not left:
                    raise self._gave_up(checkpoint, len(committables), error) from error
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _gave_up(self, checkpoint: CheckpointId, count: int, error: WorldError) -> CommitFailed:
        tries = self._context.settings.commit_retries + 1
        return CommitFailed(
            f"{count} committables of checkpoint {checkpoint} could not be committed in {tries} "
            f"tries: {error.what}",
            where=f"operator '{self._context.name}'",
            remedy=error.remedy or "They are in the checkpoint and will be committed on restore.",
        )


class PendingCommits:
    """Committables that are not known to be committed, by checkpoint.

    restored: what the restored checkpoint held; all of it is due.
    """

    def __init__(
        self, restored: Sequence[tuple[int, bytes]], restored_checkpoint: CheckpointId | None
    ) -> None:
        self._held: dict[CheckpointId, list[bytes]] = {}
        self._durable: dict[CheckpointId, list[Awaitable[object]]] = {}
        for checkpoint, committable in sorted(restored, key=lambda element: element[0]):
            self._held.setdefault(CheckpointId(checkpoint), []).append(committable)
        self._completed = max([restored_checkpoint or CheckpointId(-1), *self._held])
        self.committing = False

    def add(self, checkpoint: CheckpointId, prepared: Prepared) -> None:
        """A writer has prepared this for the checkpoint."""
        if prepared.committables:
            self._held.setdefault(checkpoint, []).extend(prepared.committables)
        if prepared.durable is not None:
            self._durable.setdefault(checkpoint, []).append(prepared.durable)

    def not_durable(self) -> list[Awaitable[object]]:
        """What has to be done before a snapshot with all of this may be acknowledged."""
        return [future for futures in self._durable.values() for future in futures]

    def elements(self) -> list[tuple[int, bytes]]:
        """All of it, as elements of the operator's state."""
        return [(checkpoint, one) for checkpoint, held in self._held.items() for one in held]

    def complete(self, checkpoint: CheckpointId) -> None:
        """What the checkpoint and those before it hold may be committed."""
        self._completed = max(self._completed, checkpoint)
        for durable in [cut for cut in self._durable if cut <= checkpoint]:
            del self._durable[durable]

    def complete_all(self) -> None:
        """All of it may be committed, for no checkpoint will come."""
        self.complete(max(self._held, default=self._completed))

    def next_due(self) -> CheckpointId | None:
        """The oldest checkpoint whose committables may be committed."""
        return min((cut for cut in self._held if cut <= self._completed), default=None)

    def committables(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        """What the checkpoint holds."""
        return tuple(self._held[checkpoint])

    def confirm(self, checkpoint: CheckpointId) -> None:
        """They are committed."""
        del self._held[checkpoint]


class _AllDurable:
    """Done when all are. Nobody may ever wait for it: a snapshot that is given up does not."""

    def __init__(self, waiting: Sequence[Awaitable[object]]) -> None:
        self._waiting = waiting

    def __await__(self) -> Generator[object, None, None]:
        yield from _all_of(self._waiting).__await__()


async def _all_of(waiting: Sequence[Awaitable[object]]) -> None:
    for one in waiting:
        await asyncio.shield(one)  # a checkpoint that is given up must not take the files along


class _WriterContext:
    """The ``WriterContext`` over an operator's."""

    def __init__(self, context: OperatorContext) -> None:
        self.subtask = context.subtask
        self.parallelism = context.parallelism
        self.job = context.job
        self.operator = context.name
        self.attempt_name = context.attempt_name
        self.restored_checkpoint = context.restored_checkpoint
        self.checkpointing = context.checkpointing
        self.processing_time = context.processing_time
        self.to_coordinator = context.to_coordinator
        self.start = context.start
        self._context = context

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._context.run_blocking(call)
