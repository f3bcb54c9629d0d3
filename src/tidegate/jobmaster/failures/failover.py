"""Regions of a job, which fail and are restored together. Without IO.

A region is a set of subtasks that are connected by channels. Nothing passes between two regions,
so one can go back to the newest checkpoint while the others go on. An exchange of all with all
joins everything on both of its sides; over a pointwise one parallel strands stay apart.

Why that keeps exactly-once: a checkpoint is a cut through each region by itself. The next one that
completes holds a region that went on at its new place, and one that was restored at the place that
it has come to since; each has seen its own input once. Regions share only the coordinator of an
operator that runs in several: it lives on, and takes back what a reset subtask was given after that
checkpoint.

Source: checkpoint coordination §18.1; Flink, RestartPipelinedRegionFailoverStrategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.model.settings import FailoverStrategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.model.ids import SubtaskId
    from tidegate.model.topology import Topology


class Regions:
    """The regions of a job. strategy: FULL makes one of all, whatever connects them."""

    def __init__(self, topology: Topology, strategy: FailoverStrategy) -> None:
        self.all = tuple(topology.subtasks())
        self._of: dict[SubtaskId, tuple[SubtaskId, ...]] = {}
        if strategy is FailoverStrategy.FULL:
            self._of = dict.fromkeys(self.all, self.all)
            return
        joined = _Joined(self.all)
        for index, edge in enumerate(topology.edges):
            producers = topology.vertex(edge.source).subtasks()
            consumers = topology.vertex(edge.target).subtasks()
            if edge.partitioner.is_pointwise:
                for channel in topology.channels(index):
                    joined.join(producers[channel.producer], consumers[channel.consumer])
            else:
                for subtask in (*producers, *consumers):
                    joined.join(producers[0], subtask)
        members: dict[SubtaskId, list[SubtaskId]] = {}
        for subtask in self.all:
            members.setdefault(joined.root(subtask), []).append(subtask)
        for region in members.values():
            self._of.update(dict.fromkeys(region, tuple(region)))
        assert self._of.keys() == set(self.all), "each subtask is of one region"

    def of(self, subtask: SubtaskId) -> tuple[SubtaskId, ...]:
        """The subtask's region, in the order of the topology."""
        return self._of[subtask]

    def closure(self, subtasks: Iterable[SubtaskId]) -> tuple[SubtaskId, ...]:
        """All that has to be restored when these have failed, in the order of the topology."""
        failed = {member for subtask in subtasks for member in self._of[subtask]}
        return tuple(subtask for subtask in self.all if subtask in failed)


class _Joined:
    """Sets that are joined two by two; each knows itself by its root."""

    def __init__(self, subtasks: Iterable[SubtaskId]) -> None:
        self._parent = {subtask: subtask for subtask in subtasks}

    def root(self, subtask: SubtaskId) -> SubtaskId:
        parent = self._parent
        while parent[subtask] != subtask:
            parent[subtask] = parent[parent[subtask]]
            subtask = parent[subtask]
        return subtask

    def join(self, one: SubtaskId, other: SubtaskId) -> None:
        self._parent[self.root(other)] = self.root(one)
