"""The store of checkpoints, for a coordinator without one: it answers each command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.worlds.clock import WALL_MS
from tidegate.checkpoint.coordinator import commands, events
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.events import CheckpointEvent


class CheckpointStore:
    """Gives ids and places, writes all, and keeps the pointers that it was told last."""

    def __init__(self) -> None:
        self.next_id = 1
        self.pointers: list[int] = []

    def answers(self, command: object, now_ms: int) -> list[CheckpointEvent]:
        """What it says to a command; nothing to one that is not for it."""
        match command:
            case commands.TakeNextId(trigger, above):
                self.next_id = max(self.next_id, above + 1)
                taken = events.NextIdTaken(trigger, CheckpointId(self.next_id), WALL_MS + now_ms)
                self.next_id += 1
                return [taken]
            case commands.PrepareLocation(checkpoint, savepoint, target):
                place = f"{target}/savepoint-{checkpoint}" if savepoint else f"/chk-{checkpoint}"
                return [events.LocationReady(checkpoint, place)]
            case commands.SnapshotCoordinator(checkpoint, operator):
                return [events.CoordinatorSnapshotTaken(checkpoint, operator, b"splits")]
            case commands.TriggerHooks(checkpoint):
                return [events.HooksTriggered(checkpoint)]
            case commands.WriteMetadata(checkpoint, _, location):
                return [events.MetadataWritten(checkpoint, location, 100)]
            case commands.AddPointer(checkpoint, _, retained):
                self.pointers = list(retained)
                return [events.PointerAdded(checkpoint)]
            case commands.ForgetPointers(_, retained):
                self.pointers = list(retained)
                return [events.PointersForgotten()]
            case commands.DiscardCheckpoint(checkpoint):
                return [events.Cleaned(checkpoint)]
            case _:
                return []
