"""Trigger sequences: the requests that wait for one, and the one that runs.

    request → plan → id → folder → operators' coordinators → hooks → subtasks

One sequence runs at a time, from the request to the triggers of the subtasks, though several
checkpoints may be under way. Its number tells a late answer to an earlier one apart.

Source: checkpoint coordination §3.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.checkpoint.coordinator.commands import TakeNextId
from tidegate.checkpoint.coordinator.events import NextIdTaken
from tidegate.checkpoint.coordinator.requests import Request, properties_of

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.events import CheckpointRequested, NextIdFailed
    from tidegate.model.ids import CheckpointId
    from tidegate.model.settings import CheckpointSettings


QUEUE_MAX: Final = 1_000


@dataclass(slots=True)
class _Sequence:
    """The trigger sequence that runs. checkpoint: None until it has an id."""

    request: Request
    checkpoint: CheckpointId | None = None


@frozen
class TooSoon:
    """This periodic request came before the minimal pause was over, at ``next_ms``."""

    request: Request
    next_ms: int


class Triggers:
    """Chooses the next request, and knows how far its sequence has come.

    Savepoints come first, then forced, then asked-for requests, then older ones. One periodic
    request waits at most, which is not so in Flink: while one checkpoint is long under way others
    would pile up behind it, and be tried all at once when it is over.

    highest: the highest id of a checkpoint so far.
    """

    def __init__(self, settings: CheckpointSettings, highest: CheckpointId) -> None:
        self._max_concurrent = settings.max_concurrent
        self._min_pause_ms = settings.min_pause_ms
        self._requests: list[Request] = []
        self._running: _Sequence | None = None
        self._number = 0
        self._highest = highest
        self._last_completion_ms: int | None = None

    @property
    def waiting(self) -> int:
        return len(self._requests)

    @property
    def checkpoint(self) -> CheckpointId | None:
        """The checkpoint of the sequence that runs; None if none runs, or it has no id yet."""
        return None if self._running is None else self._running.checkpoint

    def submit(self, request: Request) -> Request | None:
        """Queue it; the result is the request that there is no room for, perhaps this one.

        A periodic one is passed over where another waits, which does for both.
        """
        periodic_waits = bool(self._requests) and self._requests[-1].periodic
        if periodic_waits and request.periodic:
            return None
        full = len(self._requests) >= QUEUE_MAX
        if full and not periodic_waits:
            return request
        insort(self._requests, request, key=_rank)
        evicted = self._requests.pop() if full else None
        assert not any(waiting.periodic for waiting in self._requests[:-1]), "one, and last"
        assert len(self._requests) <= QUEUE_MAX, "what waits has a bound"
        return evicted

    def drain(self) -> list[Request]:
        """Every waiting request, in order; none waits afterwards."""
        drained, self._requests = self._requests, []
        return drained

    def choose(self, pending: int, cleaning: int, now_ms: int) -> Request | TooSoon | None:
        """The request to begin now, taken out of the queue; None if nothing may begin.

        `TooSoon` takes its request out of the queue as well. pending: checkpoints under way.
        cleaning: checkpoints that are being deleted.
        """
        busy = self._running is not None or cleaning > self._max_concurrent
        if busy or not self._requests:
            return None
        head = self._requests[0]
        if head.properties.forced:
            return self._requests.pop(0)
        if pending >= self._max_concurrent:
            return None
        if head.periodic and self._last_completion_ms is not None:
            next_ms = self._last_completion_ms + self._min_pause_ms
            if next_ms > now_ms:
                return TooSoon(self._requests.pop(0), next_ms)
        return self._requests.pop(0)

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
        assert not self._requests, "what waits is refused first"
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


def _rank(request: Request) -> tuple[bool, bool, bool, int]:
    return (
        not request.properties.is_savepoint,
        not request.properties.forced,
        request.periodic,
        request.created_ms,
    )
