"""A subtask as it was deployed: the facts about it that never change while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flinkformat.key_groups import KeyGroupRange
from tidegate.model.control import Deploy
from tidegate.model.ids import Attempt, Epoch, ExecutionId, JobId, SubtaskId
from tidegate.model.topology import Topology

if TYPE_CHECKING:
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Vertex


@dataclass(frozen=True)
class Deployment:
    """What was deployed, and of which job."""

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
        operators: bytes = b"",
    ) -> Deployment:
        """A subtask that is linked to no other, as in a harness or a dry run."""
        execution = ExecutionId(SubtaskId(vertex.id, index), Attempt(0), Epoch(1))
        topology = Topology((vertex,), ())
        deploy = Deploy(execution, operators, topology, {}, {}, {}, restored)
        return Deployment(JobId("0" * 32), settings, deploy)

    @property
    def execution(self) -> ExecutionId:
        return self.deploy.execution

    @property
    def index(self) -> int:
        """Index of the subtask within its vertex."""
        return self.deploy.execution.subtask.index

    @cached_property
    def vertex(self) -> Vertex:
        """The vertex of which this is a subtask."""
        return self.deploy.topology.vertex(self.deploy.execution.subtask.vertex)

    @cached_property
    def task_name(self) -> str:
        """``name (2/4)``: vertex, index from 1, parallelism."""
        return self.deploy.topology.name_of(self.deploy.execution.subtask)

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups whose state the subtask holds."""
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
