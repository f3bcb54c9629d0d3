"""Committables that wait for their checkpoint, and their commit once it is complete.

They stay with whoever has them, in his state, until their commit is confirmed, so a crash at any
point commits them again; commits are idempotent. Checkpoints are committed in their order. One that
was given up leaves its committables to the next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import CommitFailed, WorldError
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from tidegate.api.operator import OperatorContext
    from tidegate.api.sink import Committer, Prepared

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
        self._durable: dict[CheckpointId, list[Awaitable[object]]] = {}
        for checkpoint, committable in sorted(restored, key=lambda element: element[0]):
            self._held.setdefault(CheckpointId(checkpoint), []).append(committable)
        begun = context.info.restored or CheckpointId(-1)
        self._completed = max([begun, *self._held])
        self._committing = False

    def add(self, checkpoint: CheckpointId, prepared: Prepared) -> None:
        """Adds what a writer has prepared for a checkpoint."""
        if prepared.committables:
            self._held.setdefault(checkpoint, []).extend(prepared.committables)
        if prepared.durable is not None:
            self._durable.setdefault(checkpoint, []).append(prepared.durable)

    def not_durable(self) -> list[Awaitable[object]]:
        """Work that must finish before a snapshot of all this may be acknowledged."""
        return [future for futures in self._durable.values() for future in futures]

    def elements(self) -> list[tuple[int, bytes]]:
        """All committables, as elements of the operator's state."""
        return [(checkpoint, one) for checkpoint, held in self._held.items() for one in held]

    def complete(self, checkpoint: CheckpointId) -> None:
        """Commits everything up to a checkpoint."""
        self._completed = max(self._completed, checkpoint)
        for durable in [cut for cut in self._durable if cut <= checkpoint]:
            del self._durable[durable]
        if self.due and not self._committing:
            self._context.tasks.start(self.commit_due())

    def complete_all(self) -> None:
        """Makes everything due, since no checkpoint will come; followed by `commit_due`."""
        self._completed = max(self._held, default=self._completed)

    @property
    def due(self) -> bool:
        return self._next_due() is not None

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
        backoff_s = _BACKOFF_FIRST_S
        for left in reversed(range(self._context.info.settings.commit_retries + 1)):
            try:
                await self._context.tasks.run_blocking(lambda: committer.commit(committables))
                return
            except CommitFailed:
                raise
            except WorldError as error:
                if not left:
                    raise self._gave_up(checkpoint, len(committables), error) from error
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _gave_up(self, checkpoint: CheckpointId, count: int, error: WorldError) -> CommitFailed:
        tries = self._context.info.settings.commit_retries + 1
        return CommitFailed(
            f"{count} committables of checkpoint {checkpoint} could not be committed in {tries} "
            f"tries: {error.what}",
            where=f"operator '{self._context.info.name}'",
            remedy=error.remedy or "They are in the checkpoint and will be committed on restore.",
        )


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
