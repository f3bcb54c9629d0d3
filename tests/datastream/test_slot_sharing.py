from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.datastream.fakes import environment, numbers
from tidegate import GraphError, MemorySize, SlotSharingGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.datastream.settings.slot_sharing import SlotSharingGroupBuilder

    Set = Callable[[SlotSharingGroupBuilder], SlotSharingGroupBuilder]


def test_a_group_keeps_what_it_was_given() -> None:
    builder = SlotSharingGroup.builder("heavy").set_cpu_cores(2).set_task_heap_memory_mb(512)
    builder.set_task_off_heap_memory_mb(1).set_managed_memory_mb(2).set_external_resource("gpu", 1)
    assert builder.build() == SlotSharingGroup(
        "heavy", 2, *map(MemorySize.of_mebi_bytes, (512, 1, 2)), {"gpu": 1}
    )
    assert SlotSharingGroup.builder("light").build().get_name() == "light"


@pytest.mark.parametrize(
    "set_part",
    [
        lambda builder: builder.set_cpu_cores(1),
        lambda builder: builder.set_task_heap_memory_mb(1),
        lambda builder: builder.set_cpu_cores(1).set_task_heap_memory_mb(0),
        lambda builder: builder.set_managed_memory_mb(1),
    ],
)
def test_a_profile_has_cores_and_heap(set_part: Set) -> None:
    with pytest.raises(GraphError, match="slot sharing group 'half'"):
        set_part(SlotSharingGroup.builder("half")).build()


def test_a_step_accepts_a_group_by_name_or_as_it_is() -> None:
    env = environment()
    group = SlotSharingGroup("heavy")
    stream = numbers(env).slot_sharing_group(group)
    assert env.register_slot_sharing_group(group) is env
    assert stream.slot_sharing_group("light") is stream
    with pytest.raises(GraphError, match="slot_sharing_group has nothing to apply to"):
        stream.rebalance().slot_sharing_group("light")
