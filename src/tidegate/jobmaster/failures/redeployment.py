"""A restart that is under way, or the first start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.jobmaster.slots import SlotWait

if TYPE_CHECKING:
    from tidegate.model.ids import SubtaskId


@dataclass(slots=True)
class Redeployment:
    """Subtasks that are to be deployed, and what stands in the way.

    subtasks: whole regions, in the order of the topology. due_ms: not before then; None for the
    first deployment. waited: it is due. slots: the wait for them. hooks_asked, hooks_ready: how
    far the master hooks are.
    """

    subtasks: tuple[SubtaskId, ...]
    due_ms: int | None = None
    waited: bool = False
    slots: SlotWait = field(default_factory=SlotWait)
    hooks_asked: bool = False
    hooks_ready: bool = False
