"""Slot sharing groups: named and kept, as programs for Flink name them."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar, cast

from flinkformat.frozen import frozen
from tidegate.config.values import MemoryType
from tidegate.errors import GraphError


@frozen(order=True)
class MemorySize:
    """So many bytes.

    >>> str(MemorySize.of_mebi_bytes(512))
    '512 mb'
    """

    bytes_size: int

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size of this many MiB."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """The size in whole bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """The size in KiB, rounded down."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """The size in MiB, rounded down."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """The size in GiB, rounded down."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """The size in TiB, rounded down."""
        return self.bytes_size >> 40

    def __str__(self) -> str:
        return MemoryType().render(self.bytes_size)


@frozen
class SlotSharingGroup:
    """A named group of steps, with what a slot of it would need; None for what was not said.

    Nothing follows from it: each slot hosts a subtask of every step, and the runtime gives slots
    their resources.

    >>> SlotSharingGroup.builder("heavy").set_cpu_cores(2).set_task_heap_memory_mb(512).build()
    """

    Builder: ClassVar[type[SlotSharingGroupBuilder]]

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict[str, float])

    @staticmethod
    def builder(name: str) -> SlotSharingGroupBuilder:
        """A builder for a group of that name."""
        return SlotSharingGroupBuilder(name)

    def get_name(self) -> str:
        """Name of the slot sharing group."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Number of cores of the group."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Memory of the group's task."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Memory of the group beside the heap."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Memory of the group's state backend."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Other resources of the group, by name."""
        return dict(self.external_resources)


class SlotSharingGroupBuilder:
    """Sets what a slot needs; setters return the builder."""

    def __init__(self, name: str) -> None:
        self._group = SlotSharingGroup(name)

    def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroupBuilder:
        """Sets the cores; memory of the task has to be set too."""
        self._group = replace(self._group, cpu_cores=cpu_cores)
        return self

    def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Sets the memory of the task; the cores have to be set too."""
        self._group = replace(self._group, task_heap_memory=task_heap_memory)
        return self

    def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory of the task, MiB."""
        return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

    def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Sets the memory beside the heap."""
        self._group = replace(self._group, task_off_heap_memory=task_off_heap_memory)
        return self

    def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory beside the heap, MiB."""
        return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

    def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroupBuilder:
        """Sets the memory of the state backend."""
        self._group = replace(self._group, managed_memory=managed_memory)
        return self

    def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory of the state backend, MiB."""
        return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

    def set_external_resource(self, name: str, value: float) -> SlotSharingGroupBuilder:
        """Adds another resource, such as ``gpu``."""
        resources = {**self._group.external_resources, name: value}
        self._group = replace(self._group, external_resources=resources)
        return self

    def build(self) -> SlotSharingGroup:
        """The group. Raises GraphError for cores without memory, and the reverse."""
        group = self._group
        if group == SlotSharingGroup(group.name):
            return group
        heap, cores = group.task_heap_memory, group.cpu_cores
        if not (cores or 0) > 0 or heap is None or not heap.bytes_size:
            raise GraphError(
                f"The slot sharing group '{group.name}' has {cores} cores and "
                f"{heap or 'no memory'} of task heap",
                where=f"SlotSharingGroup.builder('{group.name}')",
                remedy="Set both, above 0, or no resources at all.",
            )
        none = MemorySize(0)
        return replace(
            group,
            task_off_heap_memory=group.task_off_heap_memory or none,
            managed_memory=group.managed_memory or none,
        )


SlotSharingGroup.Builder = SlotSharingGroupBuilder


def group_name(group: str | SlotSharingGroup) -> str:
    """The name of a group, given as itself or as its name."""
    if isinstance(group, SlotSharingGroup):
        return group.name
    if isinstance(cast("object", group), str):
        return group
    raise GraphError(
        f"slot_sharing_group takes a text or a SlotSharingGroup, not {group!r}",
        where="slot_sharing_group",
        remedy='Write slot_sharing_group("...").',
    )
