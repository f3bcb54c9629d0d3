"""A source whose readers, checkpoints and kills come in an order that hypothesis draws."""

from collections.abc import Callable

from hypothesis import strategies as st

from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tidegate.api.operator import SourceOperator
from tidegate.model.settings import SlotSettings

EVENTS = ["step", "step", "step", "checkpoint", "complete", "kill"]


def check_under_kills(
    world: World, make: Callable[[], SourceOperator], data: st.DataObject, expected: list[object]
) -> None:
    """Assert that what is emitted up to the end is each of the expected values once."""
    settings = SlotSettings(rows=data.draw(st.integers(1, 9), "rows"))
    job = SourceJob(world, make, data.draw(st.integers(1, 4), "parallelism"), settings=settings)
    number = 0
    for _ in range(data.draw(st.integers(0, 30), "events")):
        readers = st.integers(0, len(job.readers) - 1)
        match data.draw(st.sampled_from(EVENTS)):
            case "step":
                job.step(data.draw(readers))
            case "checkpoint":
                number += 1
                job.checkpoint(number, steps_between=data.draw(st.lists(readers, max_size=3)))
            case "complete" if job.latest is not None:
                job.complete()
            case "kill":
                job = job.killed(data.draw(st.integers(1, 4), "parallelism"))
    job.run_to_end()
    assert sorted(job.emitted) == expected
