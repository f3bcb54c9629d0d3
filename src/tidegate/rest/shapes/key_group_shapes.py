"""Shapes of what was counted in a checkpoint: state by operator, name and key group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.key_groups import subtask_of_key_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView, VertexView
    from tidegate.snapshots.summary import (
        KeyGroupSummary,
        OperatorSummary,
        SnapshotSummary,
        StateSummary,
    )

Object = dict[str, object]

LISTED: Final = 10
"""Key groups of a state that are listed: so many largest, and so many fastest growing."""

_MINUTE_MS: Final = 60_000


def counted(
    job: JobView,
    one: CheckpointStatistics,
    now: SnapshotSummary,
    older: CheckpointStatistics | None,
    before: SnapshotSummary | None,
) -> Object:
    """Content of a checkpoint, the largest operator and state first.

    older, before: an earlier checkpoint and its content; None if there is none to compare with.
    """
    since = _Since.between(one, older, before)
    vertices = {
        operator.id.hex(): vertex for vertex in job.vertices for operator in vertex.operators
    }
    operators = [_operator(each, vertices.get(each.operator_id), since) for each in now.operators]
    operators.sort(key=lambda each: -_bytes_of(each))
    return {
        "checkpoint": one.checkpoint,
        "at": one.latest_ack_ms,
        "path": one.pointer,
        "compared-with": None
        if since is None or older is None
        else {"checkpoint": older.checkpoint, "at": older.latest_ack_ms},
        "one-key-group-in": now.one_in,
        "bytes": sum(map(_bytes_of, operators)),
        "operators": operators,
    }


def _bytes_of(shape: Object) -> int:
    size = shape["bytes"]
    return size if isinstance(size, int) else 0


class _Since:
    """An earlier checkpoint, as what state has grown from."""

    def __init__(self, before: SnapshotSummary, passed_ms: int) -> None:
        self._passed_ms = passed_ms
        self._states = {
            (operator.operator_id, state.name): state
            for operator in before.operators
            for state in operator.states or ()
        }

    @classmethod
    def between(
        cls,
        one: CheckpointStatistics,
        older: CheckpointStatistics | None,
        before: SnapshotSummary | None,
    ) -> _Since | None:
        """None if there is nothing to compare with."""
        if older is None or before is None:
            return None
        passed_ms = one.latest_ack_ms - older.latest_ack_ms
        return cls(before, passed_ms) if passed_ms > 0 else None

    def state(self, operator_id: str, state: StateSummary) -> float:
        """Bytes a minute by which a state has grown."""
        earlier = self._states.get((operator_id, state.name))
        return self._rate(state.size_bytes, None if earlier is None else earlier.size_bytes)

    def key_groups(self, operator_id: str, state: StateSummary) -> Mapping[int, float]:
        """Bytes a minute by which each key group of a state has grown."""
        earlier = self._states.get((operator_id, state.name))
        sizes = {} if earlier is None else {g.key_group: g.size_bytes for g in earlier.key_groups}
        return {
            group.key_group: self._rate(group.size_bytes, sizes.get(group.key_group))
            for group in state.key_groups
        }

    def _rate(self, now: int | None, before: int | None) -> float:
        return ((now or 0) - (before or 0)) * _MINUTE_MS / self._passed_ms


def _operator(operator: OperatorSummary, vertex: VertexView | None, since: _Since | None) -> Object:
    states, unread = operator.states, operator.note
    if states is not None and any(state.size_bytes is None for state in states):
        states, unread = None, "Flink wrote it, and sizes by key group are known of our own alone"
    shapes = [_state(operator, state, vertex, since) for state in states or () if state.entries]
    shapes.sort(key=lambda each: -_bytes_of(each))
    return {
        "id": operator.operator_id,
        "uid": operator.uid,
        "name": operator.name,
        "step": None if vertex is None else vertex.name,
        "backend": operator.backend,
        "bytes": operator.size_bytes if states is None else sum(map(_bytes_of, shapes)),
        "unread": unread,
        "states": shapes,
    }


def _state(
    operator: OperatorSummary, state: StateSummary, vertex: VertexView | None, since: _Since | None
) -> Object:
    growth = None if since is None else since.key_groups(operator.operator_id, state)
    return {
        "name": state.name,
        "kind": state.kind,
        "bytes": state.size_bytes,
        "entries": state.entries,
        "grown_a_minute": None if since is None else since.state(operator.operator_id, state),
        "key-groups": _key_groups(operator, state, vertex, growth) if state.key_groups else None,
    }


def _key_groups(
    operator: OperatorSummary,
    state: StateSummary,
    vertex: VertexView | None,
    growth: Mapping[int, float] | None,
) -> Object:
    def shapes(groups: Sequence[KeyGroupSummary]) -> list[Object]:
        return [
            {
                "key-group": group.key_group,
                "bytes": group.size_bytes,
                "entries": group.entries,
                "task": _owner(vertex, group.key_group),
                "grown_a_minute": None if growth is None else growth[group.key_group],
            }
            for group in groups[:LISTED]
        ]

    largest = sorted(state.key_groups, key=lambda group: -(group.size_bytes or 0))
    grown = growth or {}
    growing = [group for group in state.key_groups if grown.get(group.key_group, 0) > 0]
    growing.sort(key=lambda group: -grown[group.key_group])
    return {
        "of": operator.max_parallelism,
        "held": len(state.key_groups),
        "mean-bytes": (state.size_bytes or 0) / operator.max_parallelism,
        "largest": shapes(largest),
        "fastest": shapes(growing),
    }


def _owner(vertex: VertexView | None, key_group: int) -> str | None:
    """The subtask that has a key group now; None if its operator is not in the job any more."""
    if vertex is None:
        return None
    return vertex.task(subtask_of_key_group(key_group, vertex.parallelism, vertex.max_parallelism))
