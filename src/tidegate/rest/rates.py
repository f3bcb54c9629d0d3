"""Shares of time of each subtask, computed from two readings of its counters."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.jobmaster.view import JobView, SubtaskView
    from tidegate.model.control import SubtaskFigures
    from tidegate.model.ids import VertexId

WINDOW_MS: Final = 5_000
"""How far back a share looks, as in Flink; at least from one set of counters to the next."""

_SAMPLES_MAX: Final = 16

Key = tuple["VertexId", int, int]


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of time, each from 0 to 1: blocked by readers, busy, idle."""

    blocked: float
    busy: float

    @property
    def idle(self) -> float:
        return max(0.0, 1.0 - self.blocked - self.busy)


class Rates:
    """The latest counters, by subtask and attempt."""

    def __init__(self) -> None:
        self._seen: dict[Key, deque[SubtaskFigures]] = {}

    def saw(self, job: JobView) -> None:
        """Stores the counters of all subtasks, and drops subtasks that are gone."""
        seen: dict[Key, deque[SubtaskFigures]] = {}
        for vertex in job.vertices:
            for subtask in vertex.subtasks:
                key = (vertex.id, subtask.index, subtask.attempt)
                known = seen[key] = self._seen.get(key, deque(maxlen=_SAMPLES_MAX))
                if subtask.figures.at_ms and (not known or known[-1].at_ms < subtask.figures.at_ms):
                    known.append(subtask.figures)
        self._seen = seen

    def of(self, vertex: VertexId, subtask: SubtaskView) -> Shares | None:
        """Shares of a subtask's time; None until its counters were read twice."""
        known = self._seen.get((vertex, subtask.index, subtask.attempt))
        if known is None or len(known) < 2:
            return None
        newest = known[-1]
        earlier = [one for one in known if newest.at_ms - one.at_ms >= WINDOW_MS]
        since = earlier[-1] if earlier else known[0]
        passed_ms = newest.at_ms - since.at_ms
        return Shares(
            blocked=min(1.0, (newest.blocked_ms - since.blocked_ms) / passed_ms),
            busy=min(1.0, (newest.busy_ms - since.busy_ms) / passed_ms),
        )
