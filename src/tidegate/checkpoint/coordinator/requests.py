"""Requests for checkpoints, and which of them runs next.

Source: checkpoint coordination §3.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import (
    CHECKPOINT,
    FULL_CHECKPOINT,
    CheckpointProperties,
    SavepointFormatType,
    SavepointType,
)
from tidegate.model.elements import AlignmentType, CheckpointOptions, SnapshotKind
from tidegate.model.settings import CheckpointingMode

if TYPE_CHECKING:
    from tidegate.model.settings import CheckpointSettings

QUEUE_MAX: Final = 1_000

_SAVEPOINTS: Final = {
    SnapshotKind.SAVEPOINT: SavepointType.savepoint,
    SnapshotKind.SUSPEND: SavepointType.suspend,
    SnapshotKind.TERMINATE: SavepointType.terminate,
}


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody wants a snapshot.

    number: the asker's, None for the periodic ones. target: folder for a savepoint's own folder.
    holds: nothing else is triggered from now on, unless this fails.
    """

    created_ms: int
    kind: SnapshotKind
    properties: CheckpointProperties
    number: int | None = None
    target: str | None = None
    holds: bool = False

    def __post_init__(self) -> None:
        assert self.number is not None or not self.holds, "only what was asked for stops a job"
        assert self.number is not None or not self.kind.is_savepoint, "a savepoint is asked for"

    @property
    def periodic(self) -> bool:
        """True if it is the coordinator's own."""
        return self.number is None


def periodic_request(settings: CheckpointSettings, now_ms: int) -> Request:
    """Request that the coordinator makes by itself."""
    kind = SnapshotKind.CHECKPOINT
    return Request(now_ms, kind, properties_of(kind, SavepointFormatType.CANONICAL, settings))


def properties_of(
    kind: SnapshotKind, format: SavepointFormatType, settings: CheckpointSettings
) -> CheckpointProperties:
    """Properties of a snapshot of that kind. format: for savepoints alone."""
    if kind.is_savepoint:
        return CheckpointProperties.for_savepoint(
            _SAVEPOINTS[kind](format), forced=not settings.unaligned
        )
    return CheckpointProperties.for_checkpoint(
        settings.retention,
        snapshot_type=FULL_CHECKPOINT if kind is SnapshotKind.FULL_CHECKPOINT else CHECKPOINT,
    )


NEVER_MS: Final = 2**63 - 1
"""An alignment timeout that is not reached."""


def options_of(
    request: Request, settings: CheckpointSettings, *, full: bool, location: str
) -> CheckpointOptions:
    """How subtasks are to take the snapshot. full: no file of an older checkpoint may be used.

    location: the snapshot's folder; only that of a savepoint needs to be told.
    """
    kind, asked = request.kind, request.properties.snapshot_type
    timeout_ms: int | None = None
    if settings.mode is CheckpointingMode.AT_LEAST_ONCE:
        alignment = AlignmentType.AT_LEAST_ONCE
    elif kind.is_savepoint or not settings.unaligned:
        alignment = AlignmentType.ALIGNED
    elif settings.aligned_timeout_ms in (0, NEVER_MS):
        alignment = AlignmentType.UNALIGNED
    else:
        alignment = AlignmentType.ALIGNED
        timeout_ms = settings.aligned_timeout_ms
    return CheckpointOptions(
        kind=SnapshotKind.FULL_CHECKPOINT if full and not kind.is_savepoint else kind,
        alignment=alignment,
        aligned_timeout_ms=timeout_ms,
        target=location if kind.is_savepoint else None,
        canonical=isinstance(asked, SavepointType)
        and asked.format is SavepointFormatType.CANONICAL,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Work in progress when a request is chosen.

    pending: checkpoints in progress. cleaning: checkpoints that are being deleted.
    last_completion_ms: when the last snapshot was complete; None before the first.
    """

    triggering: bool
    pending: int
    cleaning: int
    last_completion_ms: int | None


@dataclass(frozen=True, slots=True)
class TooSoon:
    """This periodic request came before the minimal pause was over, at ``next_ms``."""

    request: Request
    next_ms: int


class RequestQueue:
    """Waiting requests: savepoints first, then forced, then asked-for ones, then by age.

    One periodic request waits at most, which is not so in Flink: while one checkpoint is long under
    way others would pile up behind it, and be tried all at once when it is over.
    """

    def __init__(self, settings: CheckpointSettings) -> None:
        self._max_concurrent = settings.max_concurrent
        self._min_pause_ms = settings.min_pause_ms
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

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

    def choose(self, load: Load, now_ms: int) -> Request | TooSoon | None:
        """The request to run now, taken out of the queue; None if nothing may run.

        `TooSoon` takes its request out of the queue as well.
        """
        if load.triggering or not self._requests or load.cleaning > self._max_concurrent:
            return None
        head = self._requests[0]
        if head.properties.forced:
            return self._requests.pop(0)
        if load.pending >= self._max_concurrent:
            return None
        if head.periodic and load.last_completion_ms is not None:
            next_ms = load.last_completion_ms + self._min_pause_ms
            if next_ms > now_ms:
                return TooSoon(self._requests.pop(0), next_ms)
        return self._requests.pop(0)

    def drain(self) -> list[Request]:
        """Every waiting request, in order; the queue is empty afterwards."""
        drained, self._requests = self._requests, []
        return drained


def _rank(request: Request) -> tuple[bool, bool, bool, int]:
    return (
        not request.properties.is_savepoint,
        not request.properties.forced,
        request.periodic,
        request.created_ms,
    )
