"""States on disk that are written, saved and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.worlds.storage import MEMORY
from tidegate import (
    MapStateDescriptor,
    Types,
)
from tidegate.model.elements import CheckpointOptions, RowBatch, SnapshotKind
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flinkformat.snapshots import SubtaskState
    from tests.state.disk_world import Disk
    from tests.state.world import Subtask
    from tidegate.api.state import StateDescriptor


NUMBERS = MapStateDescriptor("numbers", Types.LONG(), Types.LONG())


CANONICAL = CheckpointOptions(SnapshotKind.SAVEPOINT, canonical=True)


def maps(subtask: Subtask, descriptor: StateDescriptor = NUMBERS, key: object = "k") -> Any:
    return subtask.on(key).backend.keyed_state(descriptor)


def taken(disk: Disk, subtask: Subtask, checkpoint: int = 1) -> SubtaskState:
    """A snapshot, of which the backend knows that it is complete."""
    pending = subtask.backend.snapshot(CheckpointId(checkpoint))
    pending.finish()
    state = disk.uploaded(pending)
    subtask.backend.on_complete(CheckpointId(checkpoint))
    batch_comes(subtask)
    return state


def batch_comes(subtask: Subtask, keys: Sequence[str] = ("k",)) -> None:
    assert subtask.backend.before_batch is not None
    groups = [subtask.on(key).cell.group for key in keys]
    subtask.backend.before_batch(RowBatch([0] * len(keys), None, keys, groups))


def saved(subtask: Subtask) -> SubtaskState:
    """A savepoint in canonical form."""
    pending = subtask.backend.snapshot(CheckpointId(9), CANONICAL)
    pending.finish()
    return pending.upload(MEMORY)
