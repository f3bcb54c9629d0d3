"""Slot sharing groups: named and kept, as programs for Flink name them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.errors import GraphError


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """A named group of steps, with what a slot of it would need.

    Nothing follows from it: each slot hosts a subtask of every step, and the runtime gives slots
    their resources.

    >>> SlotSharingGroup.builder("heavy").set_cpu_cores(2).set_task_heap_memory_mb(512).build()
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory_mb: int | None = None
    task_off_heap_memory_mb: int = 0
    managed_memory_mb: int = 0
    external_resources: dict[str, float] = field(default_factory=dict[str, float])

    @staticmethod
    def builder(name: str) -> SlotSharingGroupBuilder:
        """A builder for a group of that name."""
        return SlotSharingGroupBuilder(name)

    def get_name(self) -> str:
        """The group's name."""
        return self.name


class SlotSharingGroupBuilder:
    """Sets what a slot needs; setters return the builder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cpu_cores: float | None = None
        self._heap_mb: int | None = None
        self._off_heap_mb = 0
        self._managed_mb = 0
        self._external: dict[str, float] = {}

    def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroupBuilder:
        """Sets the cores; memory of the task has to be set too."""
        self._cpu_cores = cpu_cores
        return self

    def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory of the task, MiB; the cores have to be set too."""
        self._heap_mb = task_heap_memory_mb
        return self

    def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory beside the heap, MiB."""
        self._off_heap_mb = task_off_heap_memory_mb
        return self

    def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroupBuilder:
        """Sets the memory of the state backend, MiB."""
        self._managed_mb = managed_memory_mb
        return self

    def set_external_resource(self, name: str, value: float) -> SlotSharingGroupBuilder:
        """Adds another resource, such as ``gpu``."""
        self._external[name] = value
        return self

    def build(self) -> SlotSharingGroup:
        """The group. Raises GraphError for cores without memory, and the reverse."""
        has_both = (self._cpu_cores or 0) > 0 and (self._heap_mb or 0) > 0
        has_none = self._cpu_cores is None and self._heap_mb is None
        beyond = self._off_heap_mb or self._managed_mb or self._external
        if not has_both and not (has_none and not beyond):
            raise GraphError(
                f"The slot sharing group '{self._name}' has {self._cpu_cores} cores and "
                f"{self._heap_mb} MiB of task heap",
                where=f"SlotSharingGroup.builder('{self._name}')",
                remedy="Set both, above 0, or no resources at all.",
            )
        return SlotSharingGroup(
            self._name,
            self._cpu_cores,
            self._heap_mb,
            self._off_heap_mb,
            self._managed_mb,
            dict(self._external),
        )


def group_name(group: str | SlotSharingGroup) -> str:
    """The name of a group, given as itself or as its name."""
    return group if isinstance(group, str) else group.name
