"""Where the checkpoints of a job are kept: its folders, and the streams of its state.

Two forms. ``filesystem``: state goes to files, small state into its handle. ``jobmanager``: all
state goes into handles and so to the driver's memory, at most 5 MiB each; where a folder is
given all the same, ``_metadata`` goes there, so that a new driver can start from it.

Slots write state and acknowledge the handles; a stream that is closed without a handle leaves
nothing behind. The driver writes ``_metadata``: whole or not at all, never twice. Layout and rules:
Flink's; the folders are made by `tidegate.storage.paths`. Work on files wherever they lie is in
`tidegate.storage.state_files`. All calls block.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import CHECKPOINT, FULL_CHECKPOINT, SharingFilesStrategy
from tidegate.errors import StorageFailed
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.places import Place
from tidegate.storage.state_files import StateFiles
from tidegate.storage.store import try_all
from tidegate.storage.stores import MEMORY_SCHEME, Stores
from tidegate.storage.streams import CheckpointStreamFactory, FileMerging

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.model.elements import Barrier
    from tidegate.model.ids import Attempt, Epoch, ExecutionId, JobId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.store import FileInfo

STATE_IN_MEMORY_MAX: Final = 5 * 1024 * 1024
"""Bytes of one state that the driver's memory takes; Flink's default."""

UNFINISHED_MAX: Final = 64
"""Checkpoints that a sweep looks back on for empty folders; few are under way at a time."""


class CheckpointStorage:
    """The checkpoints of one job, seen by its driver or by one of its slots.

    stores: opens every place that state may lie in; unless given, ``memory:`` means a world of
    this storage's own. files: reads, writes and deletes by places.
    """

    def __init__(
        self, job: JobId, settings: CheckpointSettings, stores: Stores | None = None
    ) -> None:
        self._job = job
        self._stores = stores or Stores(MemoryFiles())
        # What is signed is whole files, so that a state has a file for itself then.
        signed = settings.key_file is not None
        self.files = StateFiles(self._stores, signed=signed)
        self._merged_file_max = None if signed else settings.merged_file_max_bytes
        self._root = paths.absolute(settings.directory or f"{MEMORY_SCHEME}:")
        self._store = self._stores.open(self._root)
        self._in_memory = settings.storage == "jobmanager"
        self._inline_threshold = settings.inline_threshold_bytes
        self.key_file = settings.key_file

    @property
    def root(self) -> str:
        return self._root

    # The driver's half

    def initialize_base_locations(self) -> None:
        """Makes the job's folders. Raises StorageFailed if they cannot be written."""
        try:
            for folder in (
                paths.job_folder(self._job),
                paths.shared_folder(self._job),
                paths.task_owned_folder(self._job),
            ):
                self._store.make_folder(folder)
        except StorageFailed as error:
            raise StorageFailed(
                f"Failed to create checkpoint storage at checkpoint coordinator side: {error.what}",
                where=error.where or self._root,
                remedy=error.remedy
                or "Check that execution.checkpointing.dir exists and can be written.",
            ) from error

    def initialize_location(self, checkpoint: CheckpointId) -> str:
        """Creates the folder of a checkpoint and returns its location.

        Raises StorageFailed if a ``_metadata`` is in it: checkpoints are never replaced.
        """
        folder = paths.exclusive_folder(self._job, checkpoint)
        if self._store.info(paths.join(folder, paths.METADATA)) is not None:
            raise StorageFailed(
                f"The folder of checkpoint {checkpoint} holds a checkpoint already",
                where=self.location(checkpoint),
                remedy="Name another checkpoint folder, or start from that checkpoint.",
            )
        self._store.make_folder(folder)
        return self.location(checkpoint)

    def location(self, checkpoint: CheckpointId) -> str:
        return paths.join(self._root, paths.exclusive_folder(self._job, checkpoint))

    def initialize_savepoint_location(self, target: str, bits64: int) -> str:
        """Makes a new folder for a savepoint below a target. bits64: 64 random bits.

        Raises StorageFailed if there is one of that name; then draw again (Flink tries ten
        times).
        """
        store = self._stores.open(target)
        folder = paths.savepoint_folder(self._job, bits64)
        if store.is_folder(folder):
            raise StorageFailed(f"The folder {folder} exists", where=store.root)
        store.make_folder(folder)
        return paths.join(store.root, folder)

    def kept(self) -> tuple[list[CheckpointId], int]:
        """The completed checkpoints in the job's folder, and the size of all its files in bytes."""
        infos = self.files_of_job()
        folders = [paths.parent(info.path) for info in infos if info.path.endswith(paths.METADATA)]
        found = [paths.checkpoint_of(folder) for folder in folders]
        numbers = sorted(number for number in found if number is not None)
        return numbers, sum(info.size for info in infos)

    def files_of_job(self) -> list[FileInfo]:
        """All files in the job's folder, their paths below the root."""
        return list(self._store.list(paths.job_folder(self._job)))

    def sweep(
        self,
        epoch: Epoch,
        next_id: CheckpointId,
        *,
        kept: Collection[CheckpointId],
        used: Collection[str],
        among: Collection[FileInfo] | None = None,
    ) -> None:
        """Deletes what earlier runs of the job have left and no kept checkpoint names.

        epoch: of this run. next_id: the first checkpoint that is this run's. used: places of the
        files that kept checkpoints name. among: files of the job as they were listed before; those
        that are there now unless given. Tries everything, then raises the first StorageFailed.
        """
        # By name, of which no two files have the same: places may be spelled in other ways.
        names = frozenset(map(paths.name, used))
        doomed: list[str] = []
        needed: set[str] = set()
        # By number too: a folder without files is in no listing.
        over = dict.fromkeys(
            paths.exclusive_folder(self._job, CheckpointId(number))
            for number in range(max(1, next_id - UNFINISHED_MAX), next_id)
            if number not in kept
        )
        for info in self.files_of_job() if among is None else among:
            folder = paths.parent(info.path)
            checkpoint = paths.checkpoint_of(folder)
            counts_not = checkpoint is not None and checkpoint < next_id and checkpoint not in kept
            wrote = paths.epoch_of(info.path)
            if paths.name(info.path) in names:
                # A kept checkpoint may name a file in the folder of one that is gone.
                needed.add(folder)
            # Drivers and slots of lower epochs are fenced off: no checkpoint that could still
            # complete names a file of theirs.
            elif counts_not or (wrote is not None and wrote < epoch):
                doomed.append(info.path)
            if counts_not:
                over[folder] = None
        gone = [folder for folder in over if folder not in needed]
        alone = [file for file in doomed if paths.parent(file) not in gone]
        try_all(
            [
                *(partial(self._store.delete, [file]) for file in alone),
                *(partial(self._store.delete_folder, folder) for folder in gone),
            ]
        )

    def sweep_shared(self, epoch: Epoch, below: Attempt, *, used: Collection[str]) -> None:
        """Deletes shared files that attempts of a run below this one have left.

        used: places of those that are needed, in any spelling. Tries everything, then raises the
        first StorageFailed.
        """
        names = frozenset(map(paths.name, used))
        orphans = [
            info.path
            for info in self._store.list(paths.shared_folder(self._job))
            if (wrote := paths.attempt_of(info.path)) is not None
            and wrote[0] == epoch
            and wrote[1] < below
            and paths.name(info.path) not in names
        ]
        self._store.delete(orphans)

    # The slots' half

    def place(
        self,
        barrier: Barrier,
        execution: ExecutionId,
        draw: Callable[[], int],
        *,
        merged: bool = False,
    ) -> Place:
        """Destination of one subtask's share of one checkpoint.

        draw: 64 random bits a call, for the files' names. merged: whether states that are the
        checkpoint's own may share files.
        """
        checkpoint, target = barrier.checkpoint, barrier.options.target
        match barrier.options.kind:
            case SnapshotKind.CHECKPOINT:
                sharing = CHECKPOINT.sharing
            case SnapshotKind.FULL_CHECKPOINT:
                sharing = FULL_CHECKPOINT.sharing
            case _:
                sharing = SharingFilesStrategy.NO_SHARING
        own = self.streams(checkpoint, target=target)
        return Place(
            own,
            self.shared_streams if target is None else own,
            _names(execution, draw),
            sharing,
            self.merge_files(checkpoint, target=target) if merged else None,
        )

    def shared_place(
        self, execution: ExecutionId, draw: Callable[[], int], sharing: SharingFilesStrategy
    ) -> Place:
        """Destination of files of a subtask that belong to no single checkpoint; see `place`.

        sharing: which files of older checkpoints may be named beside them.
        """
        shared = self.shared_streams
        return Place(shared, shared, _names(execution, draw), sharing)

    def streams(
        self, checkpoint: CheckpointId, *, target: str | None = None
    ) -> CheckpointStreamFactory:
        """Streams of state that is a checkpoint's own.

        target: the folder of a savepoint. It stands alone, so all its files go there.
        """
        location = self.location(checkpoint) if target is None else paths.absolute(target)
        return self._streams_into(location, relative=True)

    @property
    def shared_streams(self) -> CheckpointStreamFactory:
        """Streams of state that several checkpoints may name."""
        folder = paths.join(self._root, paths.shared_folder(self._job))
        return self._streams_into(folder, relative=False)

    def _streams_into(self, folder: str, *, relative: bool) -> CheckpointStreamFactory:
        store = None if self._in_memory else self._stores.open(folder)
        limit = STATE_IN_MEMORY_MAX if self._in_memory else self._inline_threshold
        return CheckpointStreamFactory(folder, store, relative, limit, self.files.signed)

    def merge_files(
        self, checkpoint: CheckpointId, *, target: str | None = None
    ) -> FileMerging | None:
        """Shared files for the states of one subtask that are a checkpoint's own.

        None if each has its own: that is so in a savepoint (target: its folder), which can be
        moved, for segments are named by absolute places, and where snapshots are signed.
        """
        if self._merged_file_max is None or target is not None:
            return None
        folder = self.location(checkpoint)
        return FileMerging(self._stores.open(folder), folder, self._merged_file_max)


def _names(execution: ExecutionId, draw: Callable[[], int]) -> Callable[[], str]:
    return lambda: paths.state_file(execution.epoch, execution.attempt, draw())
