"""A subtask as it was deployed: the facts about it that never change while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flinkformat.key_groups import KeyGroupRange
from tidegate.model.control import Deploy
from tidegate.model.ids import Attempt, Epoch, ExecutionId, JobId, SubtaskId, VertexId
from tidegate.model.topology import Edge, Topology, Vertex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Partitioner


@dataclass(frozen=True)
class Deployment:
    """A subtask of a job, as the driver has described it."""

    job: JobId
    settings: JobSettings
    deploy: Deploy

    @staticmethod
    def without_job(
        vertex: Vertex,
        settings: JobSettings,
        *,
        index: int = 0,
        restored: CheckpointId | None = None,
        inputs: Sequence[tuple[Partitioner, int]] = (),
    ) -> Deployment:
        """A subtask that no job has deployed, as in a harness or a dry run.

        inputs: partitioner and port of each edge that leads to it, all from one subtask.
        """
        execution = ExecutionId(SubtaskId(vertex.id, index), Attempt(0), Epoch(1))
        before = Vertex(VertexId(b"before"), "before", (), 1, vertex.max_parallelism)
        edges = (Edge(before.id, vertex.id, kind, 0, port) for kind, port in inputs)
        topology = Topology((before, vertex), tuple(edges))
        deploy = Deploy(execution, b"", topology, {}, {}, {}, restored)
        return Deployment(JobId("0" * 32), settings, deploy)

    @property
    def execution(self) -> ExecutionId:
        return self.deploy.execution

    @property
    def index(self) -> int:
        return self.deploy.execution.subtask.index

    @cached_property
    def vertex(self) -> Vertex:
        return self.deploy.topology.vertex(self.deploy.execution.subtask.vertex)

    @cached_property
    def task_name(self) -> str:
        return self.deploy.topology.name_of(self.deploy.execution.subtask)

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange.of(self.index, self.vertex.parallelism, self.vertex.max_parallelism)

    @property
    def inputs(self) -> list[tuple[int, ChannelId]]:
        """Channels that the subtask reads, each with the number of its edge among the inputs."""
        topology = self.deploy.topology
        return [
            (number, channel)
            for number, edge in enumerate(topology.inputs(self.vertex.id))
            for channel in topology.channels(edge)
            if channel.consumer == self.index
        ]

    @property
    def outputs(self) -> list[tuple[int, ChannelId]]:
        """Channels that the subtask writes, each with the number of its edge among the outputs."""
        topology = self.deploy.topology
        return [
            (number, channel)
            for number, edge in enumerate(topology.outputs(self.vertex.id))
            for channel in topology.channels(edge)
            if channel.producer == self.index
        ]
