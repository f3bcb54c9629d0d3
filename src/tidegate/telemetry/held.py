"""State of a job by step, task and name: how much there is, and how fast it grows.

Bytes of steps and tasks are those of completed checkpoints; entries and bytes by name are what
slots tell of state in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.statistics import CheckpointStatus

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView, VertexView

Object = dict[str, object]

_ENTRIES: Final = "numStateEntries"
_SIZE: Final = "stateSize"
_STATE: Final = "state"
_MINUTE_MS: Final = 60_000


def held_state(job: JobView) -> Object:
    """``/jobs/:jobid/state``: the largest step first."""
    history = [one for one in job.checkpoints.history if one.status is CheckpointStatus.COMPLETED]
    newest = history[0] if history else job.checkpoints.latest_completed
    steps = (_step(vertex, newest, history) for vertex in job.vertices)
    return {
        "checkpoint": None if newest is None else newest.checkpoint,
        "at": None if newest is None else newest.latest_ack_ms,
        "steps": [shape for _, shape in sorted(steps, key=lambda step: -step[0])],
    }


def _step(
    vertex: VertexView, newest: CheckpointStatistics | None, history: list[CheckpointStatistics]
) -> tuple[int, Object]:
    """Bytes of a step, and what is told of it."""
    shares = {} if newest is None else _shares(vertex, newest)
    largest = max(shares, key=lambda index: shares[index], default=None)
    size = sum(shares.values())
    return size, {
        "id": vertex.id.hex(),
        "step": vertex.name,
        "parallelism": vertex.parallelism,
        "bytes": size,
        "grown_a_minute": _growth(vertex, history),
        "largest": None
        if largest is None
        else {"task": vertex.task(largest), "bytes": shares[largest]},
        "states": _states(vertex),
    }


def _shares(vertex: VertexView, one: CheckpointStatistics) -> dict[int, int]:
    """Bytes of state of each subtask in a checkpoint, by its index."""
    share = one.vertex(vertex.id)
    return {} if share is None else {each.index: each.state_size for each in share.acknowledged}


def _growth(vertex: VertexView, history: list[CheckpointStatistics]) -> float | None:
    """Bytes a minute between the oldest and the newest checkpoint that are remembered."""
    if len(history) < 2:
        return None
    newest, oldest = history[0], history[-1]
    passed_ms = newest.latest_ack_ms - oldest.latest_ack_ms
    if passed_ms <= 0:
        return None
    grown = sum(_shares(vertex, newest).values()) - sum(_shares(vertex, oldest).values())
    return grown * _MINUTE_MS / passed_ms


def _states(vertex: VertexView) -> list[Object]:
    """Entries and bytes of each named state over all subtasks, the most entries first.

    Bytes are unknown until the first snapshot.
    """
    operators = {operator.id: operator.name for operator in vertex.operators}
    entries: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    told = {_ENTRIES: entries, _SIZE: sizes}
    for subtask in vertex.subtasks:
        for key, value in subtask.metrics.items():
            if key.name not in told or key.operator is None or not isinstance(value, int):
                continue
            match key.groups:
                case ((group, name),) if group == _STATE:
                    told[key.name][operators[key.operator], name] += value
                case _:
                    pass  # a function has a metric of that name
    names = sorted({*entries, *sizes}, key=lambda name: (-entries[name], -sizes[name], name))
    return [
        {
            "operator": name[0],
            "name": name[1],
            "entries": entries.get(name),
            "bytes": sizes.get(name),
        }
        for name in names
    ]
