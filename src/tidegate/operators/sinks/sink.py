"""Sinks: a writer in the slot, and the commit protocol.

Output written before a barrier is a set of committables in that checkpoint. It is committed when
the checkpoint is complete, and after a restore from it: never before it is certain that the job
restores from it or from a later one, and at least once after. They stay in operator state until
their commit is confirmed, so a crash at any point commits them again; commits are idempotent.

Checkpoints are committed in their order. One that was given up leaves its committables to the next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from tidegate.api.operator import Operator
from tidegate.api.rows.batches import raised
from tidegate.api.sink import CoordinatedSink
from tidegate.api.state import OperatorListState, OperatorStateDescriptor
from tidegate.errors import CommitFailed, WorldError
from tidegate.model.ids import CheckpointId
from tidegate.model.metrics import MetricKind
from tidegate.model.topology import Delivery, DeliveryGuarantee
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.sinks.hosted_writer import HostedWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator, Sequence

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.sink import Committer, Sink
    from tidegate.model.elements import Batch, OperatorEvent
    from tidegate.model.ids import JobId

_LOG: Final = logging.getLogger(__name__)
_TOLD_S: Final = 30.0
"""After so long without an answer, somebody may wonder what the job waits for."""
_BACKOFF_FIRST_S: Final = 0.01
_BACKOFF_MAX_S: Final = 1.0


class Commits:
    """Commits what completed checkpoints hold, the oldest first, one at a time.

    committer: None if nothing has to be done. restored: what the restored checkpoint held; all
    of it is due.
    """

    def __init__(
        self,
        context: OperatorContext,
        committer: Committer | None,
        restored: Sequence[tuple[int, bytes]],
    ) -> None:
        self._context = context
        self._committer = committer
        self._held: dict[CheckpointId, list[bytes]] = {}
        for checkpoint, committable in sorted(restored, key=lambda element: element[0]):
            self._held.setdefault(CheckpointId(checkpoint), []).append(committable)
        begun = context.info.restored or CheckpointId(-1)
        self._completed = max([begun, *self._held])
        self._committing = False
        self.recovered: asyncio.Future[None] | None = None
        if committer is not None:
            context.tasks.metrics.registry.tell(
                "pendingCommittables",
                MetricKind.GAUGE,
                lambda: sum(map(len, list(self._held.values()))),
            )

    def recover(self, then: Callable[[], None]) -> None:
        """Commits what the restored checkpoint held, if it held any, and calls back.

        Meanwhile, and only then, ``recovered`` is a future.
        """
        if self._next_due() is None:
            then()
            return
        self.recovered = asyncio.get_running_loop().create_future()
        self._context.tasks.start(self._recover(self.recovered, then))

    async def _recover(self, recovered: asyncio.Future[None], then: Callable[[], None]) -> None:
        await self.commit_due()
        self.recovered = None
        then()
        recovered.set_result(None)

    def add(self, checkpoint: CheckpointId, committables: Sequence[bytes]) -> None:
        if committables:
            self._held.setdefault(checkpoint, []).extend(committables)

    def elements(self) -> list[tuple[int, bytes]]:
        return [(checkpoint, one) for checkpoint, held in self._held.items() for one in held]

    def complete(self, checkpoint: CheckpointId) -> None:
        self._completed = max(self._completed, checkpoint)
        if self._next_due() is not None and not self._committing:
            self._context.tasks.start(self.commit_due())

    async def commit_all(self) -> None:
        """Commits everything, since no checkpoint will come. Raises as `commit_due`."""
        self._completed = max(self._held, default=self._completed)
        await self.commit_due()

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()

    def _next_due(self) -> CheckpointId | None:
        return min((cut for cut in self._held if cut <= self._completed), default=None)

    async def commit_due(self) -> None:
        """Commits everything due. Raises CommitFailed if that is impossible, or fails too often."""
        if self._committing:
            return  # two completions came before the first of these ran; that one does both
        self._committing = True
        try:
            while (checkpoint := self._next_due()) is not None:
                await self._commit(checkpoint, tuple(self._held[checkpoint]))
                del self._held[checkpoint]
        finally:
            self._committing = False

    async def _commit(self, checkpoint: CheckpointId, committables: Sequence[bytes]) -> None:
        committer = self._committer
        if committer is None or not committables:
            return
        info = self._context.info
        await commit(
            committer,
            committables,
            self._context.tasks.run_blocking,
            retries=info.settings.commit_retries,
            name=info.name,
            of=f"checkpoint {checkpoint}",
            remedy="They are in the checkpoint and will be committed on restore.",
        )


async def commit(
    committer: Committer,
    committables: Sequence[bytes],
    run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
    *,
    retries: int,
    name: str,
    of: str,
    remedy: str = "",
) -> None:
    """Commits, again where the world is at fault. name: of the operator. of: what holds them.

    remedy: help where what fails has none. Raises CommitFailed if that is impossible, or fails too
    often, UserCodeFailed for a mistake in the committer.
    """
    backoff_s = _BACKOFF_FIRST_S
    for left in reversed(range(retries + 1)):
        try:
            answer = asyncio.ensure_future(run_blocking(lambda: committer.commit(committables)))
            await _told(answer, f"{len(committables)} committables of {of}", name)
            return
        except CommitFailed:
            raise
        except (WorldError, OSError) as error:
            if not left:
                ours = error if isinstance(error, WorldError) else None
                why = raised(error) if ours is None else ours.what
                raise CommitFailed(
                    f"{len(committables)} committables of {of} could not be committed in "
                    f"{retries + 1} tries: {why}",
                    where=f"operator '{name}'",
                    remedy=(ours and ours.remedy) or remedy,
                ) from error
        except Exception as error:
            raise_user_code_failed(error, operator=name, call="commit")
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)


async def _told(answer: asyncio.Future[object], what: str, name: str) -> None:
    """Waits for a call of a committer, and tells of it while it does not return."""
    waited_s = 0.0
    try:
        while not (await asyncio.wait((answer,), timeout=_TOLD_S))[0]:
            waited_s += _TOLD_S
            _LOG.warning("operator '%s' has been committing %s for %d s", name, what, waited_s)
    except asyncio.CancelledError:
        answer.cancel()
        raise
    answer.result()


class Durability:
    """Work under way that makes prepared output durable.

    Each snapshot waits for all of it, whichever checkpoint the output was prepared for: one that
    was given up leaves its committables to the next, before it may have been flushed.
    """

    def __init__(self) -> None:
        self._work: list[asyncio.Future[object]] = []

    def add(self, work: asyncio.Future[object]) -> None:
        self._work.append(work)

    def left(self) -> list[Awaitable[object]]:
        """All that has not succeeded."""
        self._work = [work for work in self._work if not _succeeded(work)]
        return [*self._work]


def _succeeded(work: asyncio.Future[object]) -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


class AllOf:
    """Done when all awaitables are. It may never be awaited, as when a snapshot is aborted."""

    def __init__(self, waiting: Sequence[Awaitable[object]]) -> None:
        self._waiting = waiting

    def __await__(self) -> Generator[object, None, None]:
        yield from all_of(self._waiting).__await__()


async def all_of(waiting: Sequence[Awaitable[object]]) -> None:
    """Waits for all; work that is abandoned meanwhile goes on."""
    for one in waiting:
        await asyncio.shield(one)  # a checkpoint that is given up must not take the files along


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

    def committer(self) -> Committer | None:
        """A new committer of what its writers prepare; None if nothing has to be done."""
        return self._sink.committer()

    def clean_up(self, jobs: Collection[JobId]) -> None:
        """Deletes what attempts of jobs have left that are over. Raises StorageFailed."""
        clean_up = getattr(self._sink, "clean_up", None)
        if clean_up is not None:
            clean_up(jobs)

    @property
    def delivery(self) -> Delivery:
        said = getattr(self._sink, "delivery", None)
        if said is not None:
            return said
        if self.commits:
            return Delivery(DeliveryGuarantee.EXACTLY_ONCE)
        return Delivery(DeliveryGuarantee.AT_LEAST_ONCE)

    @property
    def commits(self) -> bool:
        """True if output becomes visible only with a completed checkpoint."""
        committer = self.committer()
        if committer is None:
            return False
        committer.close()
        return True

    @property
    def commits_within_ms(self) -> int | None:
        """Time within which output has to be committed, or it is lost; None for no limit."""
        return getattr(self._sink, "commits_within_ms", None)

    @property
    def waits_for_checkpoints(self) -> bool:
        """True if a job that takes checkpoints shows records only with a completed one."""
        return self.commits or getattr(self._sink, "waits_for_checkpoints", False)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        if (writer := self._made()) is not None:
            writer.on_complete(checkpoint)

    def on_event(self, event: OperatorEvent) -> None:
        if (writer := self._made()) is not None:
            writer.on_event(event)

    def close(self) -> None:
        if (writer := self._made()) is not None:
            writer.close()

    def _made(self) -> HostedWriter | None:
        return getattr(self, "_writer", None)


class SinkOperator(SinkHost):
    """Hosts the writer and the committer of a sink."""

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self.declare(context)
        self._writer: HostedWriter | None = None
        self._finished = False
        self._prepared: list[bytes] = []
        self._durability = Durability()
        self._passed: list[CheckpointId] = []
        self._commits = Commits(context, self.committer(), self._committables_state.get())
        self._commits.recover(self._make_writer)

    def declare(self, context: OperatorContext) -> None:
        self._committables_state = committables_state(context)
        self._writer_state = writer_state(context)

    def _make_writer(self) -> None:
        restored = self._writer_state.get()
        self._writer = HostedWriter(self._sink, SinkWriterContext(self._context), restored)
        # What it is given now lies behind these barriers. Their state was the restored one.
        for checkpoint in self._passed:
            self._prepare(end_of_input=False)
            self._writer.snapshot(checkpoint)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        if self._writer is None:
            return self._write_later(batch)
        waiting = self._writer.write(batch)
        return None if waiting is None else iter((waiting,))

    def _write_later(self, batch: Batch) -> Steps:
        yield self._commits.recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        yield self._writer.write(batch)

    def finish(self, out: Output) -> Steps:
        if self._commits.recovered is not None:
            yield self._commits.recovered
        assert self._writer is not None, "a failed recovery ends the subtask"
        self._prepare(end_of_input=True)
        self._finished = True
        if not self._context.info.checkpointing:
            yield self._commit_without_checkpoint()

    async def _commit_without_checkpoint(self) -> None:
        self._cut(CheckpointId(0))
        await all_of(self._durability.left())
        await self._commits.commit_all()

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        if self._writer is None:
            self._passed.append(checkpoint)
        elif not self._finished:
            self._prepare(end_of_input=False)

    def _prepare(self, *, end_of_input: bool) -> None:
        assert self._writer is not None, "asked for with a writer only"
        self._prepared += prepared_by(
            self._writer, self._context, self._durability, end_of_input=end_of_input
        )

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        self._cut(context.checkpoint)
        waiting = self._durability.left()
        if self._commits.recovered is not None:
            # So that once a checkpoint after the restore is complete, nothing older is needed.
            waiting.append(self._commits.recovered)
        self._committables_state.update(self._commits.elements())
        if self._writer is not None:
            self._writer_state.update(self._writer.snapshot(context.checkpoint))
        return AllOf(waiting) if waiting else None

    def _cut(self, checkpoint: CheckpointId) -> None:
        self._commits.add(checkpoint, self._prepared)
        self._prepared = []

    def on_complete(self, checkpoint: CheckpointId) -> None:
        super().on_complete(checkpoint)
        self._commits.complete(checkpoint)

    def close(self) -> None:
        super().close()
        if (commits := getattr(self, "_commits", None)) is not None:
            commits.close()


def committables_state(context: OperatorContext) -> OperatorListState[tuple[int, bytes]]:
    found = context.state.operator_state(OperatorStateDescriptor(COMMITTABLES_STATE))
    return cast("OperatorListState[tuple[int, bytes]]", found)


def writer_state(context: OperatorContext) -> OperatorListState[bytes]:
    found = context.state.operator_state(OperatorStateDescriptor(WRITER_STATE))
    return cast("OperatorListState[bytes]", found)


def prepared_by(
    writer: HostedWriter, context: OperatorContext, durability: Durability, *, end_of_input: bool
) -> Sequence[bytes]:
    """Committables that a writer prepares; their durability under way is added."""
    prepared = writer.prepare_commit(end_of_input=end_of_input)
    if prepared.durable is not None:
        durable = asyncio.ensure_future(prepared.durable)
        # What cannot be made durable is lost to this attempt: that is more than a checkpoint's
        # failure, so it is the subtask's.
        context.tasks.start(all_of([durable]))
        durability.add(durable)
    return prepared.committables


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
        self.answers = not context.info.settings.repeatable
        self.processing_time = context.time.processing_time
        self.to_coordinator = context.tasks.to_coordinator
        self.start = context.tasks.start
        self._context = context

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._context.tasks.run_blocking(call)
