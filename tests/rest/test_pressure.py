"""How busy subtasks are, as their slots tell."""

import pytest

from tidegate.jobmaster.view import SubtaskView, VertexView
from tidegate.model.control import ExecutionState, SubtaskFigures
from tidegate.model.ids import VertexId
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.rest.shapes.metric_shapes import Shares, backpressure, shares_of


def subtask(index: int, **shares: int) -> SubtaskView:
    names = {"blocked": "backPressuredTimeMsPerSecond", "busy": "busyTimeMsPerSecond"}
    metrics = {MetricKey(names[name], MetricKind.GAUGE): share for name, share in shares.items()}
    running, figures = ExecutionState.RUNNING, SubtaskFigures()
    return SubtaskView(index, 0, running, None, {}, figures, metrics=metrics)


def vertex(*subtasks: SubtaskView) -> VertexView:
    return VertexView(VertexId(bytes(16)), "map", len(subtasks), 128, subtasks)


def test_shares_of_time_are_known_once_the_slot_has_told_them() -> None:
    assert shares_of(subtask(0)) is None
    shares = shares_of(subtask(0, blocked=600, busy=250))
    assert shares == Shares(blocked=0.6, busy=0.25) and shares.idle == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0, "ok"), (100, "ok"), (110, "low"), (500, "low"), (510, "high")]
)
def test_the_level_of_all_is_that_of_the_greatest_ratio(ratio: int, level: str) -> None:
    page = backpressure(
        vertex(subtask(0, blocked=0, busy=400), subtask(1, blocked=ratio, busy=200), subtask(2)), 77
    )
    assert page["backpressureLevel"] == page["backpressure-level"] == level
    assert page["status"] == "ok" and page["end-timestamp"] == 77
    assert backpressure(vertex(subtask(0)), 77)["status"] == "deprecated"
