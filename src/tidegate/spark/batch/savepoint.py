"""The savepoint that a batch ends with: each task writes its share, the driver its metadata."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from flinkformat.snapshots import SavepointFormatType
from tidegate.checkpoint.coordinator.pending import Acknowledgements
from tidegate.checkpoint.coordinator.plan import CheckpointPlan
from tidegate.checkpoint.coordinator.requests import properties_of
from tidegate.clock import SystemClock
from tidegate.driver.checkpoint_files import write_snapshot
from tidegate.model.elements import Barrier, CheckpointOptions, SnapshotKind
from tidegate.model.versions import versions
from tidegate.spark.batch.shuffle import ONLY
from tidegate.spark.batch.start import EVENT_TIMES
from tidegate.storage.checkpoints import CheckpointStorage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flinkformat.snapshots import MasterState
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import CheckpointAcknowledged
    from tidegate.model.ids import JobId, OperatorId, VertexId


class FinalSavepoint:
    """Makes a new folder below a target, and completes it. Raises StorageFailed.

    barrier: the last element of each task's input. completed: its metadata is written and its files
    are there, so it belongs to the user.
    """

    def __init__(self, graph: JobGraph, job: JobId, target: str) -> None:
        self.completed = False
        self._graph = graph
        self._storage = CheckpointStorage(job, graph.settings.checkpoints)
        self.path = self._storage.initialize_savepoint_location(target, secrets.randbits(64))
        options = CheckpointOptions(SnapshotKind.SUSPEND, target=self.path, canonical=True)
        self.barrier = Barrier(ONLY, SystemClock().wall_ms(), options)

    def complete(
        self,
        shares: Sequence[CheckpointAcknowledged],
        coordinators: Mapping[OperatorId, bytes],
        hooks: tuple[MasterState, ...],
        event_times: Mapping[VertexId, int],
    ) -> None:
        """Write its metadata, and look for all of its files. coordinators, hooks: their states.

        event_times: how far event time has come, in milliseconds.
        """
        executions = tuple(share.execution for share in shares)
        plan = CheckpointPlan((), executions, (), ())
        told = Acknowledgements(ONLY, plan, self._graph.topology)
        for share in shares:
            told.add(share, share.state)
        kind, settings = SnapshotKind.SUSPEND, self._graph.settings.checkpoints
        metadata = told.metadata(
            coordinators,
            {
                "job_name": self._graph.name,
                "versions": versions(),
                EVENT_TIMES: {vertex.hex(): ms for vertex, ms in event_times.items()},
            },
            properties_of(kind, SavepointFormatType.CANONICAL, settings),
            hooks,
        )
        write_snapshot(self._storage, metadata, self.path)
        self.completed = True

    def discard(self) -> None:
        """Delete what there is of it."""
        self._storage.files.discard(self.path, ())
