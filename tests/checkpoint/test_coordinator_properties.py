"""What holds for the coordinator whatever happens, in whatever order: §22 of its specification.

A world of subtasks with incremental state, of storage that answers late and fails, of restarts and
stops, is driven by a list of numbers. After each step the invariants are checked; at the end the
faults stop, and everything must come to rest with no file too many or too few.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.snapshots import RetentionPolicy
from tests.checkpoint.chaos import TOPOLOGY, Chaos, paths_in
from tests.checkpoint.world import World
from tests.properties import examples
from tidegate.checkpoint.coordinator import commands
from tidegate.model.control import (
    JobStatus,
)
from tidegate.model.ids import CheckpointId, SubtaskId
from tidegate.model.settings import CheckpointSettings


@pytest.mark.feature("F149")
@examples(120)
@given(
    steps=st.lists(st.integers(0, 10_000), max_size=150),
    max_concurrent=st.integers(1, 3),
    retained_max=st.integers(1, 2),
    timeout_ms=st.sampled_from([200, 3_000, 600_000]),
    tolerable=st.sampled_from([0, 1_000]),
    status=st.sampled_from([JobStatus.FINISHED, JobStatus.CANCELED]),
    retention=st.sampled_from(list(RetentionPolicy)),
)
def test_whatever_happens_nothing_needed_is_deleted_and_nothing_needless_stays(
    steps: list[int],
    max_concurrent: int,
    retained_max: int,
    timeout_ms: int,
    tolerable: int,
    status: JobStatus,
    retention: RetentionPolicy,
) -> None:
    world = Chaos(
        CheckpointSettings(
            interval_ms=500,
            max_concurrent=max_concurrent,
            retained_max=retained_max,
            timeout_ms=timeout_ms,
            tolerable_failures=tolerable,
            retention=retention,
        )
    )
    for number in steps:
        world.step(number)
        world.check()
    world.come_to_rest(status)
    kept = {path for pointer in world.store.pointers for path in paths_in(world.metadata[pointer])}
    assert kept <= set(world.files)
    if not world.in_doubt:
        assert kept == set(world.files)


@examples(50)
@given(order=st.permutations(list(TOPOLOGY.subtasks())), times=st.lists(st.integers(0, 40)))
def test_it_completes_once_whatever_the_order_of_acknowledgements(
    order: list[SubtaskId], times: list[int]
) -> None:
    world = World(CheckpointSettings(interval_ms=10_000), TOPOLOGY)
    world.start()
    world.advance(0)
    for subtask, ms in zip([*order, *order], [*times, 0, 0, 0, 0, 0, 0], strict=False):
        world.advance(ms)
        world.acknowledge(1, subtask)
    assert world.counts() == (1, 0, 1, 0)
    assert len(world.all(commands.AddPointer)) == 1
    assert CheckpointId(1) in world.store.pointers
