"""What a job costs, from its view."""

from __future__ import annotations

from dataclasses import replace

from tests.rest.world import DONE, EMPTY, SAVED
from tidegate.jobmaster.view import SlotView
from tidegate.model.control import RowCounts
from tidegate.model.ids import CheckpointId, SlotId
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.telemetry.costs import costs_of

CPU = MetricKey("Status.Process.CPU.Time", MetricKind.GAUGE)


def slot(name: str, nanos: int | None) -> SlotView:
    metrics = {} if nanos is None else {CPU: nanos}
    return SlotView(SlotId(name), "here", 1, 0, 0, metrics=metrics)


def test_nothing_is_said_before_anything_is_known() -> None:
    assert costs_of(EMPTY) == ""
    assert costs_of(replace(EMPTY, slots=(slot("one", None),))) == ""


def test_processor_time_is_that_of_all_slots_and_of_a_million_rows_that_were_read() -> None:
    job = replace(EMPTY, slots=(slot("one", 2_500_000_000), slot("two", 500_000_000)))
    assert costs_of(job) == "3.0 core-seconds of its slots"
    job = replace(job, counts=RowCounts(read=4_000_000))
    assert costs_of(job) == "3.0 core-seconds of its slots, 0.75 a million rows read"


def test_checkpoints_cost_what_the_last_has_and_what_those_after_the_first_wrote() -> None:
    first = replace(DONE, trigger_ms=0, checkpointed_size=900_000)
    second = replace(SAVED, checkpoint=CheckpointId(7), trigger_ms=30_000, checkpointed_size=700)
    third = replace(
        DONE,
        checkpoint=CheckpointId(8),
        trigger_ms=60_000,
        checkpointed_size=300,
        state_size=1_200_000,
    )
    seen = replace(EMPTY.checkpoints, history=(third, second, first))
    assert costs_of(replace(EMPTY, checkpoints=seen)) == (
        "the last checkpoint has 1.2 MB; checkpoints write 1 kB a minute"
    )
    one = replace(EMPTY.checkpoints, history=(first,))
    assert costs_of(replace(EMPTY, checkpoints=one)) == "the last checkpoint has 62 B"
