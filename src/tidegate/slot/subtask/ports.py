"""The calls with which a subtask reaches its slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError
    from tidegate.model.control import CheckpointDeclined, ExecutionState
    from tidegate.model.ids import CheckpointId
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot


@dataclass(slots=True)
class SubtaskPorts:
    """How a subtask reaches its slot.

    ready: asks for a turn. changed: its state has changed. decline: it takes no part in a
    checkpoint. snapshot: its share is cut; the slot encodes, uploads and acknowledges it.
    aborted: a checkpoint was given up; the slot stops what is under way for it.
    busy: the number of its snapshots and coroutines that are not done. at: calls something at a
    monotonic time, milliseconds, if the subtask is alive then.
    """

    ready: Callable[[], None]
    changed: Callable[[ExecutionState, TidegateError | None], None]
    decline: Callable[[CheckpointDeclined], None]
    snapshot: Callable[[SubtaskSnapshot], None]
    aborted: Callable[[CheckpointId], None]
    busy: Callable[[], int]
    at: Callable[[int, Callable[[], None]], None]
