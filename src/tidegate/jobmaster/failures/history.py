"""Failures of a job so far: root failures, and those that happened while they were handled.

Source: Flink's exception history; checkpoint coordination §18.3.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidegate.jobmaster.view import FailureView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import TidegateError
    from tidegate.model.ids import SlotId

CONCURRENT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Failure:
    """An error and where it happened. task: its name; "" where it is the job's or a slot's.

    restores: whether it happened while a subtask was being restored.
    """

    error: TidegateError
    task: str = ""
    slot: SlotId | None = None
    restores: bool = False


class FailureHistory:
    """The newest failures, at most so many, newest first."""

    def __init__(self, entries_max: int) -> None:
        self._entries: deque[dict[int, FailureView]] = deque(maxlen=entries_max)
        self._number = 0

    def add(self, failure: Failure, wall_ms: int, *, root: bool) -> int | None:
        """Keep a failure, by the number that is given back; None if there is no room for it.

        root: the job has to be restarted for it; else it happened while that was under way.
        """
        if root:
            self._entries.appendleft({})
        elif not self._entries or len(self._entries[0]) > CONCURRENT_MAX:
            return None
        self._number += 1
        error = failure.error
        view = FailureView(wall_ms, str(error), failure.task, failure.slot, type(error).__name__)
        self._entries[0][self._number] = view
        return self._number

    def label(self, number: int, labels: Mapping[str, str]) -> None:
        """Note labels of a failure; it may be forgotten already."""
        for entry in self._entries:
            if number in entry:
                entry[number] = replace(entry[number], labels=labels)

    def view(self) -> tuple[FailureView, ...]:
        """All failures, newest first."""
        return tuple(
            replace(root, concurrent=tuple(others))
            for root, *others in (entry.values() for entry in self._entries)
        )
