"""Slow calls wait a moment at each checkpoint, so that the slot's part of it is done in one gap.

The subtasks of a slot share its loop. Where one that has been cut went on at once with a call of
50 ms, each step of the checkpoint (a barrier to another subtask, a slice of a snapshot, the end of
a write) would wait for another call, and slots that wait for each other's barriers would wait for
each other's calls in a row.

Where a barrier comes later than a call takes, as through channels in front of slow functions, the
slot's steps would each wait for a call all the same. So a moment is left behind each of the next
calls too.

Where checkpoints come one upon the other, the slot always has something to do for one. So nobody
waits twice without a call in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.api.pieces import TURN_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.model.ids import CheckpointId, ExecutionId

STEPS_S: Final = 0.03
"""Time that a slot's part of a checkpoint may need beside the calls that other slots are in."""

MOMENTS: Final = 10
"""Behind so many calls a moment is left to one checkpoint."""

MOMENT_S: Final = 0.01
MOMENT_OF_CALL: Final = 0.2
"""How long a moment is: the lesser of the first and this share of a call."""


@dataclass(slots=True)
class _Waiting:
    """A subtask that waits. until_s: None while it is in a call; moments: those that are left."""

    checkpoint: CheckpointId
    call_s: float
    until_s: float | None
    moments: int = MOMENTS


class Courtesy:
    """Knows which subtasks of a slot wait, and for which checkpoint.

    is_open: whether the slot has still to do something for a checkpoint.
    """

    def __init__(self, is_open: Callable[[CheckpointId], bool]) -> None:
        self._is_open = is_open
        self._waiting: dict[ExecutionId, _Waiting] = {}
        self._until_s: dict[ExecutionId, float] = {}  # of who has waited, and not called since

    def cut(
        self, execution: ExecutionId, checkpoint: CheckpointId, call_s: float, now_s: float
    ) -> None:
        """A subtask has been cut; it waits as long as its last call took, ``call_s``, and a moment.

        Another slot may have begun such a call just before the checkpoint, and its barrier comes
        behind that. To give up then would be to have waited for nothing.
        """
        if call_s > TURN_S:
            until_s = self._until_s.setdefault(execution, now_s + call_s + STEPS_S)
            self._waiting[execution] = _Waiting(checkpoint, call_s, until_s)

    def called(self, execution: ExecutionId, seconds: float) -> None:
        """A turn of a subtask that was not for a checkpoint took so long."""
        if seconds > TURN_S:
            self._until_s.pop(execution, None)

    def waits(self, execution: ExecutionId, now_s: float) -> bool:
        """True if a subtask begins no further call for the moment; else one begins now."""
        waiting = self._waiting.get(execution)
        if waiting is None:
            return False
        if not waiting.moments or not self._is_open(waiting.checkpoint):
            del self._waiting[execution]
            return False
        if waiting.until_s is None:
            waiting.until_s = now_s + min(MOMENT_S, waiting.call_s * MOMENT_OF_CALL)
        if now_s < waiting.until_s:
            return True
        waiting.until_s = None
        waiting.moments -= 1
        return False

    def given_up(self, checkpoint: CheckpointId) -> None:
        self._waiting = {
            execution: waiting
            for execution, waiting in self._waiting.items()
            if waiting.checkpoint != checkpoint
        }

    def forget(self, execution: ExecutionId) -> None:
        self._waiting.pop(execution, None)
        self._until_s.pop(execution, None)
