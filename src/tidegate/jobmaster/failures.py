"""What has failed in a job so far: roots, and what failed while they were handled.

Source: Flink's exception history; checkpoint coordination §18.3.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.jobmaster.view import FailureView

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.ids import SlotId

CONCURRENT_MAX = 64


class FailureHistory:
    """The newest failures, at most so many, newest first."""

    def __init__(self, entries_max: int) -> None:
        self._entries: deque[FailureView] = deque(maxlen=entries_max)

    def root(self, error: TidegateError, task: str, slot: SlotId | None, wall_ms: int) -> None:
        """A failure that the job has to be restarted for."""
        self._entries.appendleft(FailureView(wall_ms, str(error), task, slot))

    def concurrent(self, error: TidegateError) -> None:
        """A failure while another one is handled."""
        if self._entries and len(self._entries[0].concurrent) < CONCURRENT_MAX:
            newest = self._entries[0]
            self._entries[0] = replace(newest, concurrent=(*newest.concurrent, str(error)))

    def view(self) -> tuple[FailureView, ...]:
        """All, newest first."""
        return tuple(self._entries)
