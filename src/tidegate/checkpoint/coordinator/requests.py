"""Requests for checkpoints: by whom, of which kind, and how subtasks are to take the snapshot.

Source: checkpoint coordination §3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
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

_SAVEPOINTS: Final = {
    SnapshotKind.SAVEPOINT: SavepointType.savepoint,
    SnapshotKind.SUSPEND: SavepointType.suspend,
    SnapshotKind.TERMINATE: SavepointType.terminate,
}


@frozen
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
