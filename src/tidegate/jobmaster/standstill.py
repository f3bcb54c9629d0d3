"""Event time that stands still behind one input while other inputs go on: who holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.model.control import ExecutionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.model.ids import VertexId

STANDSTILL_MS: Final = 10_000
"""For how long event time may stand still before somebody is told."""


@frozen
class Standstill:
    """A step waits for event time. silent: names of the inputs that hold it back, with subtasks.

    watermark_ms: event time that it has reached. for_ms: how long it has stood there.
    """

    step: str
    silent: str
    watermark_ms: int
    for_ms: int


@dataclass(slots=True)
class _Seen:
    watermark_ms: int
    since_ms: int
    furthest_ms: int
    ahead_until_ms: int


_Place = tuple["VertexId", int, int]
"""Vertex, index and attempt of a subtask."""


class Standstills:
    """Looks at a job from time to time, and names each standstill once.

    A subtask stands still where its watermark has not advanced for a while in which another of its
    inputs has. The inputs that hold it back may stand still themselves; then only they are named.
    """

    def __init__(self) -> None:
        self._seen: dict[_Place, _Seen] = {}
        self._told: set[VertexId] = set()

    def look(self, view: JobView, now_ms: int) -> list[Standstill]:
        stalled = {
            vertex.id: subtask
            for vertex in view.vertices
            for subtask in vertex.subtasks
            if self._stands_still(vertex, subtask, now_ms)
        }
        self._told &= stalled.keys()
        names = {vertex.id: vertex for vertex in view.vertices}
        found: list[Standstill] = []
        for vertex_id, subtask in stalled.items():
            held_by = [
                (view.edges[edge].source, producer) for edge, producer, _ in subtask.figures.held_by
            ]
            behind_another = any(source in stalled for source, _ in held_by)
            if vertex_id in self._told or behind_another or not held_by:
                continue
            self._told.add(vertex_id)
            seen = self._seen[_place(names[vertex_id], subtask)]
            silent = _named((names[source], producer) for source, producer in held_by)
            waited_ms = now_ms - seen.since_ms
            name = names[vertex_id].name
            found.append(Standstill(name, silent, seen.watermark_ms, waited_ms))
        return found

    def _stands_still(self, vertex: VertexView, subtask: SubtaskView, now_ms: int) -> bool:
        place, figures = _place(vertex, subtask), subtask.figures
        reached, furthest = figures.watermark_ms, figures.furthest_ms
        if reached is None or furthest is None or subtask.state is not ExecutionState.RUNNING:
            self._seen.pop(place, None)
            return False
        seen = self._seen.get(place)
        if seen is None or seen.watermark_ms != reached or furthest <= reached:
            self._seen[place] = _Seen(reached, now_ms, furthest, now_ms)
            return False
        if furthest > seen.furthest_ms:
            seen.furthest_ms, seen.ahead_until_ms = furthest, now_ms
        return seen.ahead_until_ms - seen.since_ms >= STANDSTILL_MS


def _place(vertex: VertexView, subtask: SubtaskView) -> _Place:
    return (vertex.id, subtask.index, subtask.attempt)


def _named(inputs: Iterable[tuple[VertexView, int]]) -> str:
    texts = [f"{vertex.name} ({producer + 1}/{vertex.parallelism})" for vertex, producer in inputs]
    return ", ".join(dict.fromkeys(texts))
