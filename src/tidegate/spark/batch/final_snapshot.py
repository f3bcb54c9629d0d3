"""The snapshot that a batch ends with: each task writes its share, the driver its metadata.

A savepoint has all of its files to itself. A checkpoint of a series names again what the one before
it has written; of the series the two newest are kept, since a batch may have to be run once more.

Nothing fences the tries of a batch of a series: a driver that was taken for dead may go on beside
the one that runs its batch again, and the first of them whose metadata is written has run it. So
each try writes its name into the folder of the checkpoint, and what the others have left is deleted
behind that; of files that the batches share, only what was there before, for the next batch may
have begun by then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from flinkformat.frozen import frozen
from flinkformat.snapshots import SavepointFormatType
from tidegate.checkpoint.coordinator.pending import Acknowledgements
from tidegate.checkpoint.coordinator.plan import CheckpointPlan
from tidegate.checkpoint.coordinator.requests import properties_of
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.driver.checkpoint_files import write_snapshot
from tidegate.driver.starting.restore import DAMAGED, read_snapshot
from tidegate.errors import StorageFailed
from tidegate.model.elements import Barrier, CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId, Epoch, JobId
from tidegate.model.versions import versions
from tidegate.spark.batch.start import EVENT_TIMES
from tidegate.storage import paths
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flinkformat.snapshots import (
        CheckpointMetadata,
        CheckpointProperties,
        MasterState,
        SubtaskState,
    )
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import CheckpointAcknowledged
    from tidegate.model.ids import OperatorId, VertexId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.store import FileInfo

Ending = Callable[["JobGraph", "JobId", "CompletedCheckpoint | None"], "FinalSnapshot | None"]
"""Begins the snapshot of a batch: of its graph, its job, and the snapshot that it started from.

None: there is none, and the batch only commits what is in the one that it started from.
"""

_AFTER_ALL: Final = Epoch(2)
"""Tasks of a batch write as of the epoch before."""


def only_commits(graph: JobGraph, job: JobId, start: CompletedCheckpoint | None) -> None:
    """A batch reads nothing: its sinks commit what they are restored with."""


def savepoint_in(folder: str) -> Ending:
    """A batch ends with a savepoint below a folder."""
    return lambda graph, job, before: FinalSavepoint(graph, job, folder, before)


class FinalSnapshot:
    """One snapshot that is under way.

    barrier: the last element of each task's input. job: for whom its files are kept. settings: how
    tasks write them. stays: its metadata may be there or come, so that nothing may be deleted that
    it names. registry: what files of older ones it may name. former: jobs that have tried to run
    the same batch before.
    """

    former: Sequence[JobId] = ()
    _may_be_there_all_the_same: ClassVar = False

    def __init__(
        self,
        graph: JobGraph,
        job: JobId,
        settings: CheckpointSettings,
        barrier: Barrier,
        path: str,
    ) -> None:
        self.stays = False
        self.job = job
        self.settings = settings
        self.barrier = barrier
        self.path = path
        self.registry = SharedStateRegistry()
        self.storage = CheckpointStorage(job, settings)
        self._graph = graph

    @property
    def properties(self) -> CheckpointProperties:
        kind = self.barrier.options.kind
        return properties_of(kind, SavepointFormatType.CANONICAL, self.settings)

    def complete(
        self,
        shares: Sequence[CheckpointAcknowledged],
        coordinators: Mapping[OperatorId, bytes],
        hooks: tuple[MasterState, ...],
        event_times: Mapping[VertexId, int],
        *,
        again: bool,
    ) -> None:
        """Write its metadata. coordinators, hooks: their states.

        event_times: how far event time has come, in milliseconds. again: a task has been run more
        than once, and may have left files. Raises StorageFailed, and CheckpointAborted where a
        share names a file that nobody has; `stays` says what that leaves.
        """
        try:
            told = self._told(shares)
            facts = {
                "job_name": self._graph.name,
                "versions": versions(),
                EVENT_TIMES: {vertex.hex(): ms for vertex, ms in event_times.items()},
            }
            self._write(told.metadata(coordinators, facts, self.properties, hooks), again=again)
        except BaseException:
            self.stays = self._may_be_there_all_the_same
            raise

    def _told(self, shares: Sequence[CheckpointAcknowledged]) -> Acknowledgements:
        executions = tuple(share.execution for share in shares)
        plan = CheckpointPlan((), executions, (), ())
        told = Acknowledgements(self.barrier.checkpoint, plan, self._graph.topology)
        for share in shares:
            told.add(share, self._registered(share))
        for state in told.states():
            told.checksums.update(self.registry.checksums(state))
        return told

    def _write(self, metadata: CheckpointMetadata, *, again: bool) -> None:
        write_snapshot(self.storage, metadata, self.path)

    def _registered(self, share: CheckpointAcknowledged) -> dict[OperatorId, SubtaskState] | None:
        """The state of a share, without placeholders."""
        if share.state is None:
            return None
        written = dict(share.figures.checksums)
        return {
            operator: self.registry.register_state(state, self.barrier.checkpoint, written)
            for operator, state in share.state.items()
        }

    def discard(self) -> None:
        """Delete what there is of it."""
        self.storage.files.discard(self.path, ())


class FinalSavepoint(FinalSnapshot):
    """A savepoint in a new folder below a target. Raises StorageFailed.

    before: the snapshot that the batch started from. Its number is the next, for sinks number what
    they write by that, such as transactions.
    """

    def __init__(
        self, graph: JobGraph, job: JobId, target: str, before: CompletedCheckpoint | None
    ) -> None:
        checkpoints = graph.settings.checkpoints
        path = CheckpointStorage(job, checkpoints).initialize_savepoint_location(
            target, secrets.randbits(64)
        )
        settings = in_files(checkpoints, checkpoints.directory or path)
        options = CheckpointOptions(SnapshotKind.SUSPEND, target=path, canonical=True)
        number = CheckpointId(1 if before is None else before.checkpoint + 1)
        barrier = Barrier(number, SystemClock().wall_ms(), options)
        super().__init__(graph, job, settings, barrier, path)


@frozen
class CheckpointSeries:
    """The checkpoints that batches take one after another, below a folder. job: for all of them."""

    directory: str
    job: JobId

    def path(self, number: CheckpointId) -> str:
        return paths.join(self.directory, paths.exclusive_folder(self.job, number))

    def newest(self) -> CheckpointId | None:
        """Number of the last complete one; lists all files. Raises StorageFailed."""
        folder = paths.join(self.directory, paths.job_folder(self.job))
        complete = [
            paths.checkpoint_of(paths.parent(info.path))
            for info in Stores().open(folder).list()
            if paths.name(info.path) == paths.METADATA
        ]
        return max((each for each in complete if each is not None), default=None)

    def next(self, number: CheckpointId) -> Ending:
        """A batch ends with the checkpoint of that number."""
        return lambda graph, job, before: SeriesCheckpoint(graph, self, number, job, before)


class SeriesCheckpoint(FinalSnapshot):
    """A checkpoint of a series, in the form of its tasks' state backend.

    job: that tries to run its batch. before: the one that the batch started from. A write that
    fails may have happened all the same; then the next try commits. Raises StorageFailed.
    """

    _may_be_there_all_the_same = True

    def __init__(
        self,
        graph: JobGraph,
        series: CheckpointSeries,
        number: CheckpointId,
        job: JobId,
        before: CompletedCheckpoint | None,
    ) -> None:
        settings = in_files(graph.settings.checkpoints, series.directory)
        barrier = Barrier(number, SystemClock().wall_ms(), CheckpointOptions())
        super().__init__(graph, series.job, settings, barrier, series.path(number))
        self._log = process_log().bind(job=graph.name)
        self._before = before
        self._older = self._read(CheckpointId(number - 2))
        for each in (self._older, before):
            if each is not None:
                self.registry.register_restored(each.metadata, self.properties)
        store = Stores().open(series.directory)
        # A try that failed, or what a driver has left that died before it deleted that.
        left = (number, CheckpointId(number - 3))
        self._has_left = any(
            store.is_folder(paths.exclusive_folder(series.job, each)) for each in left
        )
        self.storage.initialize_location(number)
        self.former = tries(self.path)
        Stores().open(self.path).open_new(paths.try_file(job)).close()

    def _read(self, number: CheckpointId) -> CompletedCheckpoint | None:
        """A checkpoint of the series; None where there is none that can be read."""
        try:
            path, key_file = self.storage.location(number), self.settings.key_file
            return read_snapshot(self.storage.files, path, lambda: secrets.token_hex(16), key_file)
        except DAMAGED:
            return None

    def _write(self, metadata: CheckpointMetadata, *, again: bool) -> None:
        there = self._there() if again or self._has_left else None
        super()._write(metadata, again=again)
        try:
            self._delete_replaced()
            if there is not None:
                self._sweep(there)
        except StorageFailed as error:
            self._log.warning("files could not be deleted", error=error.what, where=error.where)

    def _there(self) -> list[FileInfo] | None:
        try:
            return self.storage.files_of_job()
        except StorageFailed:
            return None

    def _delete_replaced(self) -> None:
        if self._older is None or self._before is None:
            return
        needless = self.registry.release_below(self._before.checkpoint)
        files = (*self._older.deletable_paths(), *needless)
        self.storage.files.discard(self._older.pointer, files)

    def _sweep(self, there: Sequence[FileInfo]) -> None:
        """Delete what nobody names of the files that were there before it was complete."""
        own = self._read(self.barrier.checkpoint)
        if own is None:
            return
        kept = [own] if self._before is None else [self._before, own]
        self.storage.sweep(
            _AFTER_ALL,
            CheckpointId(self.barrier.checkpoint + 1),
            kept={each.checkpoint for each in kept},
            used={path for each in kept for path in each.paths()},
            among=there,
        )

    def discard(self) -> None:
        """Leave it to the next try, whose sweep finds its folder, and what it has shared."""


def tries(checkpoint: str) -> list[JobId]:
    """Jobs that have tried to run the batch of a checkpoint. Raises StorageFailed."""
    jobs = [paths.try_of(info.path) for info in Stores().open(checkpoint).list()]
    return [job for job in jobs if job is not None]


def in_files(settings: CheckpointSettings, directory: str) -> CheckpointSettings:
    """Settings for tasks, none of whose state is the driver's to keep."""
    return replace(settings, storage="filesystem", directory=directory)
