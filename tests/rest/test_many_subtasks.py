"""Answers about many subtasks: each walks over the view a few times, however many there are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.rest.shown import ONE, READER, READS, SLOTS, VIEW
from tidegate.jobmaster.view import SlotView, SubtaskView, VertexView
from tidegate.model.ids import SlotId, VertexId
from tidegate.rest.shapes import cluster_shapes, job_shapes
from tidegate.rest.shapes.archive_shapes import archived
from tidegate.telemetry.picture import picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.jobmaster.view import JobView

NOW_MS = 20_000
STEPS, TASKS = 4, 50
WALKS_MAX = 4 * STEPS
"""So often an answer may go through all slots, or the subtasks of a step."""


class Counted(tuple[SlotView, ...]):
    """Slots that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[SlotView]:
        Counted.walks += 1
        return super().__iter__()


class Tasks(tuple[SubtaskView, ...]):
    """Subtasks that do so too."""

    walks = 0

    def __iter__(self) -> Iterator[SubtaskView]:
        Tasks.walks += 1
        return super().__iter__()


def many() -> JobView:
    """A view of 200 subtasks, each in a slot of its own."""

    def step(number: int) -> VertexView:
        id = VertexId(bytes([number]) * 16)
        tasks = (
            replace(READS, index=index, slot=SlotId(f"slot-{number}-{index}"))
            for index in range(TASKS)
        )
        return replace(READER, id=id, parallelism=TASKS, subtasks=Tasks(tasks))

    vertices = tuple(map(step, range(STEPS)))
    first = next(slot for slot in SLOTS if slot.id == ONE)
    slots = Counted(
        replace(first, id=task.slot) for each in vertices for task in each.subtasks if task.slot
    )
    return replace(VIEW, vertices=vertices, slots=slots)


MANY = many()
STEP = MANY.vertices[0]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: picture(MANY, NOW_MS, since=0),
        lambda: job_shapes.details(MANY, NOW_MS),
        lambda: job_shapes.vertex_details(MANY, STEP, NOW_MS),
        lambda: job_shapes.subtask_times(MANY, STEP, NOW_MS),
        lambda: job_shapes.slots_of(MANY, STEP, NOW_MS),
        lambda: job_shapes.exceptions(MANY, 20, None),
        lambda: cluster_shapes.slots(MANY, NOW_MS),
        lambda: cluster_shapes.driver_metrics(MANY, [1, 2, 3]),
        lambda: job_shapes.cluster(MANY, "1"),
    ],
    ids=["picture", "job", "step", "times", "by slot", "failures", "slots", "driver", "overview"],
)
def test_an_answer_goes_through_the_view_a_few_times(answer: Callable[[], object]) -> None:
    Counted.walks = Tasks.walks = 0
    answer()
    assert Counted.walks <= WALKS_MAX
    assert Tasks.walks <= WALKS_MAX * STEPS


def test_an_archive_of_many_subtasks_stays_small() -> None:
    data = archived(MANY, NOW_MS)
    assert len(json.loads(data)["archive"]) > STEPS * TASKS
    assert len(data) < 4 << 20
