"""A job is stopped so that it can go on later, with as little to do again as possible."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.jobmaster.events import CancelRequested, SuspendRequested
from tidegate.model.elements import SnapshotKind

if TYPE_CHECKING:
    from tidegate.api.job import CheckpointDone
    from tidegate.driver.answers import Answers
    from tidegate.driver.inbox import Inbox
    from tidegate.model.settings import JobSettings


async def suspend(inbox: Inbox, answers: Answers, settings: JobSettings, reason: str) -> None:
    """Have a last checkpoint taken, within the limit of the settings, then end the job.

    A job without checkpoints has nothing to go on from, and is cancelled.
    """
    if not settings.checkpoints.periodic:
        inbox.post(CancelRequested(reason))
        return
    done: Future[CheckpointDone] = Future()
    # Behind a periodic one that waits for a long call it would wait for the next call as well.
    number = answers.expect(done)
    inbox.post(CheckpointRequested(number, SnapshotKind.CHECKPOINT, urgent=True))
    # One that fails, or takes too long, is no reason to stay: the one before is there.
    last = asyncio.wrap_future(done)
    last.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([last], timeout=settings.last_checkpoint_ms / 1000)
    inbox.post(SuspendRequested(reason))
