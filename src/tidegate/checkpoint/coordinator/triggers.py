"""Trigger sequences: the requests that wait for one, and the one that runs.

    request → plan → id → folder → operators' coordinators → hooks → subtasks

One sequence runs at a time, from the request to the triggers of the subtasks, though several
checkpoints may be under way. Its number tells a late answer to an earlier one apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.checkpoint.coordinator.commands import TakeNextId
from tidegate.checkpoint.coordinator.events import NextIdTaken
from tidegate.checkpoint.coordinator.requests import Load, Request, RequestQueue, properties_of

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.events import CheckpointRequested, NextIdFailed
    from tidegate.checkpoint.coordinator.requests import TooSoon
    from tidegate.model.ids import CheckpointId
    from tidegate.model.settings import CheckpointSettings


@dataclass(slots=True)
class _Sequence:
    """The trigger sequence that runs. checkpoint: None until it has an id."""

    request: Request
    checkpoint: CheckpointId | None = None


class Triggers:
    """Chooses the next request, and knows how far its sequence has come.

    highest: the highest id of a checkpoint so far.
    """

    def __init__(self, settings: CheckpointSettings, highest: CheckpointId) -> None:
        self._queue = RequestQueue(settings)
        self._running: _Sequence | None = None
        self._number = 0
        self._highest = highest
        self._last_completion_ms: int | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._queue)

    @property
    def checkpoint(self) -> CheckpointId | None:
        """The checkpoint of the sequence that runs; None if none runs, or it has no id yet."""
        return None if self._running is None else self._running.checkpoint

    def submit(self, request: Request) -> Request | None:
        """Queue a request; the result is one that there is no room for, perhaps this one."""
        return self._queue.submit(request)

    def drain(self) -> list[Request]:
        """Every waiting request, in order; none waits afterwards."""
        return self._queue.drain()

    def choose(self, pending: int, cleaning: int, now_ms: int) -> Request | TooSoon | None:
        """The request to begin now, taken out of the queue; None if nothing may begin.

        pending: checkpoints under way. cleaning: checkpoints that are being deleted.
        """
        running = self._running is not None
        return self._queue.choose(
            Load(running, pending, cleaning, self._last_completion_ms), now_ms
        )

    def begin(self, request: Request) -> TakeNextId:
        """Begin the sequence of a request: it needs an id."""
        assert self._running is None, "one trigger sequence runs at a time"
        self._number += 1
        self._running = _Sequence(request)
        return TakeNextId(self._number, self._highest)

    def answered(self, answer: NextIdTaken | NextIdFailed) -> Request | None:
        """The request whose sequence has its answer about an id, and stops here for now.

        None for the answer to a sequence that is over.
        """
        running = self._running
        if running is None or answer.trigger != self._number:
            return None
        assert running.checkpoint is None, "a sequence takes one id"
        self._running = None
        if isinstance(answer, NextIdTaken):
            # Ids rise even where the request fails now: the number is spent.
            assert answer.checkpoint > self._highest, f"id {answer.checkpoint} is not above"
            self._highest = answer.checkpoint
        return running.request

    def go_on(self, request: Request, checkpoint: CheckpointId) -> None:
        """The sequence goes on under its id."""
        assert self._running is None, "one trigger sequence runs at a time"
        assert checkpoint == self._highest, "the newest id is this sequence's"
        self._running = _Sequence(request, checkpoint)

    def over(self, checkpoint: CheckpointId) -> None:
        """The checkpoint's subtasks are triggered, or it is given up."""
        if self.checkpoint == checkpoint:
            self._running = None

    def completed(self, now_ms: int) -> None:
        """A checkpoint is complete; the pause before the next counts from here."""
        assert now_ms >= (self._last_completion_ms or now_ms), "time does not go back"
        self._last_completion_ms = now_ms

    def end(self) -> Request | None:
        """The job is over: the request whose sequence ran, for it fails."""
        assert not self._queue, "what waits is refused first"
        running, self._running = self._running, None
        return None if running is None else running.request


def asked_request(asked: CheckpointRequested, settings: CheckpointSettings, now_ms: int) -> Request:
    """The request that somebody else has made."""
    properties = properties_of(asked.kind, asked.format, settings)
    if asked.urgent and not settings.unaligned:
        properties = replace(properties, forced=True)
    return Request(
        now_ms,
        asked.kind,
        properties,
        asked.request,
        asked.target,
        asked.kind.is_synchronous or asked.cancels,
    )
