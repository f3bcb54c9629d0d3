"""How much state a job has, by step, task and name."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.rest.world import DONE, EMPTY, FIRST, SECOND, VERTEX
from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, SubtaskFigures
from tidegate.model.ids import CheckpointId, OperatorId, VertexId
from tidegate.model.metrics import Group, MetricKey, MetricKind
from tidegate.model.topology import OperatorInfo
from tidegate.telemetry.held import held_state

OPERATOR = OperatorInfo(OperatorId(VERTEX.vertex), "counts")
OTHER = VertexId(b"o" * 16)
NONE: Mapping[str, int] = {}


def gauge(name: str, state: str) -> MetricKey:
    return MetricKey(name, MetricKind.GAUGE, OPERATOR.id, (("state", state),))


def task(index: int, sizes: Mapping[str, int] = NONE, **counts: int) -> SubtaskView:
    metrics = {gauge("numStateEntries", name): count for name, count in counts.items()}
    metrics |= {gauge("stateSize", name): size for name, size in sizes.items()}
    state, figures = ExecutionState.RUNNING, SubtaskFigures()
    return SubtaskView(index, 0, state, None, {state: 1_500}, figures, metrics=metrics)


TASKS = (task(0, {"seen": 30}, seen=3, last=1), task(1, {"seen": 12}, seen=4))
STEP = VertexView(VERTEX.vertex, "counts", 2, 128, TASKS, (OPERATOR,))
EMPTY_STEP = VertexView(OTHER, "read", 1, 128, (task(0),))


def view(*sizes: tuple[int, int, int]) -> JobView:
    """A job with checkpoints, the newest first: when each came, and the state of both tasks."""
    history = tuple(
        replace(
            DONE,
            checkpoint=CheckpointId(len(sizes) - number),
            latest_ack_ms=at_ms,
            vertices=(
                replace(
                    VERTEX,
                    subtasks=(replace(FIRST, state_size=one), replace(SECOND, state_size=two)),
                ),
            ),
        )
        for number, (at_ms, one, two) in enumerate(sizes)
    )
    seen = replace(EMPTY.checkpoints, history=history)
    return replace(EMPTY, vertices=(EMPTY_STEP, STEP), checkpoints=seen)


def test_the_largest_step_comes_first_with_its_largest_task_and_its_growth() -> None:
    held = held_state(view((61_000, 100, 700), (31_000, 90, 500), (1_000, 80, 20)))
    assert (held["checkpoint"], held["at"]) == (3, 61_000)
    first, second = held["steps"]  # type: ignore[misc]
    assert first == {
        "id": VERTEX.vertex.hex(),
        "step": "counts",
        "parallelism": 2,
        "bytes": 800,
        "grown_a_minute": 700,
        "largest": {"task": "counts (2/2)", "bytes": 700},
        "states": [
            {"operator": "counts", "name": "seen", "entries": 7, "bytes": 42},
            {"operator": "counts", "name": "last", "entries": 1, "bytes": None},
        ],
    }
    assert (second["step"], second["bytes"], second["largest"]) == ("read", 0, None)


@pytest.mark.parametrize("sizes", [(), ((1_000, 5, 5),), ((1_000, 5, 5), (1_000, 4, 4))])
def test_growth_is_known_only_between_two_checkpoints(
    sizes: tuple[tuple[int, int, int], ...],
) -> None:
    held = held_state(view(*sizes))
    assert {step["grown_a_minute"] for step in held["steps"]} == {None}  # type: ignore[attr-defined]
    assert (held["checkpoint"] is None) == (not sizes)


@pytest.mark.parametrize("groups", [(), ("mine",), (("country", "nl"),), ("state", "mine")])
def test_metrics_of_functions_with_such_a_name_are_no_state(groups: tuple[Group, ...]) -> None:
    known = held_state(view())
    own = {MetricKey("stateSize", MetricKind.COUNTER, OPERATOR.id, groups): 5}
    first = replace(TASKS[0], metrics={**TASKS[0].metrics, **own})
    shown = replace(view(), vertices=(EMPTY_STEP, replace(STEP, subtasks=(first, TASKS[1]))))
    assert held_state(shown) == known
