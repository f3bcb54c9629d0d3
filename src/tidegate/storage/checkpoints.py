"""Where checkpoints are kept: streams for state, ``_metadata``, and finding both again.

Two forms. ``filesystem``: state goes to files, small state into its handle. ``jobmanager``: all
state goes into handles and so to the driver's memory, at most 5 MiB each; where a folder is
given all the same, ``_metadata`` goes there, so that a new driver can start from it.

Slots write state and acknowledge the handles; a stream that is closed without a handle leaves
nothing behind. The driver writes ``_metadata``: whole or not at all, never twice. Layout and
rules: Flink's; the folders are made by `tidegate.storage.paths`. All calls block.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from google_crc32c import value as crc32c

from flinkformat.handles import RelativeFileStateHandle, StreamStateHandle
from flinkformat.state_streams import place_of, replace_streams
from tidegate.errors import FileMissing, FormatError, RestoreRefused, StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.merging import FileMerging
from tidegate.storage.store import open_stream, publish, try_all
from tidegate.storage.stores import MEMORY_SCHEME, Stores
from tidegate.storage.streams import CheckpointStateOutputStream, OwnFile

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping

    from flinkformat.state_streams import SnapshotPart, Stream
    from tidegate.model.ids import Attempt, Epoch, JobId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.store import Store
    from tidegate.storage.streams import StateFile

STATE_IN_MEMORY_MAX: Final = 5 * 1024 * 1024
"""Bytes of one state that the driver's memory takes; Flink's default."""

FACTORIES_MAX: Final = 8
"""Checkpoints for which a slot remembers where their state goes; few are under way at a time."""

UNFINISHED_MAX: Final = 64
"""Checkpoints that a sweep looks back on for empty folders; few are under way at a time."""

T = TypeVar("T", bound="SnapshotPart")


class CheckpointScope(Enum):
    """Whose a file of state is; Flink's ``CheckpointedStateScope``."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    TASK_OWNED = "taskowned"


_REMEDY: Final = f"Name the folder of a checkpoint (…/chk-7) or savepoint, or its {paths.METADATA}."
_SUBSUMED: Final = (
    "A running job deletes a checkpoint as soon as it needs it no more: take one that is still "
    "there, or a savepoint ('tidegate savepoint'), which stays."
)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A ``_metadata`` that was read.

    directory: the snapshot's folder, its external pointer. place: of the file itself.
    """

    data: bytes
    directory: str
    place: str

    @contextlib.contextmanager
    def being_decoded(self) -> Generator[None]:
        """Errors about its bytes say which file they are in, and what to do."""
        try:
            yield
        except (FormatError, RestoreRefused) as error:
            error.where = ", ".join(filter(None, [self.place, error.where]))
            error.remedy = error.remedy or "Put the file back as it was, or name another snapshot."
            raise


@dataclass(frozen=True, slots=True)
class CheckpointStreamFactory:
    """Makes the streams of one checkpoint.

    store: of the folder; None where state stays in its handle. relative: whether handles name files
    by their place in the folder. buffer_max: bytes up to which state stays in its handle. signed:
    whether the SHA-256 of files is to be known.
    """

    folder: str
    store: Store | None
    relative: bool
    buffer_max: int
    signed: bool

    def create_stream(
        self, name: str, *, merging: FileMerging | None = None
    ) -> CheckpointStateOutputStream:
        """A stream for one state; as `CheckpointStorage.create_stream`."""
        store = self.store
        place = paths.join(self.folder, name)
        if store is None:
            return CheckpointStateOutputStream(place, None, buffer_max=self.buffer_max)

        def open_file() -> StateFile:
            if merging is not None:
                return merging.segment(name)
            return OwnFile(store, self.folder, name, relative=self.relative, signed=self.signed)

        return CheckpointStateOutputStream(place, open_file, buffer_max=self.buffer_max)


class CheckpointStorageWorkerView:
    """A slot's half of the storage: where a checkpoint's own state goes is found out once."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self.storage = storage
        self._factories: dict[tuple[CheckpointId, str | None], CheckpointStreamFactory] = {}

    def resolve_checkpoint_storage_location(
        self, checkpoint: CheckpointId, target: str | None
    ) -> CheckpointStreamFactory:
        """Where the state goes that is this checkpoint's own. target: the folder of a savepoint."""
        found = self._factories.get((checkpoint, target))
        if found is None:
            found = self.storage.stream_factory(
                checkpoint, CheckpointScope.EXCLUSIVE, target=target
            )
            self._factories[checkpoint, target] = found
            if len(self._factories) > FACTORIES_MAX:
                del self._factories[next(iter(self._factories))]
        return found


class CheckpointStorage:
    """The checkpoints of one job, seen by its driver or by one of its slots.

    stores: opens every place that state may lie in, the ``memory:`` world of the job's driver
    among them. inline_threshold: state smaller than this stays in its handle.
    merged_file_max_bytes: how large a file gets that several states share; None for a file each.
    key_file: holds what snapshots are signed with; None where they are not. State has a file for
    itself then, for what is signed is whole files.
    """

    def __init__(
        self,
        job: JobId,
        stores: Stores,
        *,
        directory: str | None,
        in_memory: bool,
        inline_threshold_bytes: int,
        merged_file_max_bytes: int | None = None,
        state_in_memory_max: int = STATE_IN_MEMORY_MAX,
        key_file: str | None = None,
    ) -> None:
        self._job = job
        self._stores = stores
        self._root = paths.absolute(directory or f"{MEMORY_SCHEME}:")
        self._store = stores.open(self._root)
        self._in_memory = in_memory
        self._inline_threshold = inline_threshold_bytes
        self._merged_file_max = merged_file_max_bytes
        self._state_in_memory_max = state_in_memory_max
        self.key_file = key_file

    @property
    def signed(self) -> bool:
        """Whether snapshots are signed, so that files are known by their SHA-256."""
        return self.key_file is not None

    @property
    def root(self) -> str:
        """The checkpoint folder; ``memory:`` where there is none."""
        return self._root

    # The driver's half

    def initialize_base_locations(self) -> None:
        """Makes the job's folders. Raises StorageFailed where they cannot be written."""
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
        """Makes the folder of a checkpoint, and says which it is.

        Raises StorageFailed where a ``_metadata`` is in it: nobody's checkpoint is replaced.
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
        """The folder of a checkpoint."""
        return paths.join(self._root, paths.exclusive_folder(self._job, checkpoint))

    def initialize_savepoint_location(self, target: str, bits64: int) -> str:
        """Makes a new folder for a savepoint below a target. bits64: 64 random bits.

        Raises StorageFailed where there is one of that name; then draw again (Flink tries ten
        times).
        """
        store = self._stores.open(target)
        folder = paths.savepoint_folder(self._job, bits64)
        if store.is_folder(folder):
            raise StorageFailed(f"The folder {folder} exists", where=store.root)
        store.make_folder(folder)
        return paths.join(store.root, folder)

    def write_metadata(self, location: str, data: bytes) -> str:
        """Makes a snapshot of its folder, durably; the result is its external pointer.

        Raises StorageFailed where there is a ``_metadata``; as after every failed write, it is
        open whether this one stands.
        """
        location = paths.absolute(location)
        publish(self._stores.open(location), paths.METADATA, data)
        return location

    def check_snapshot(
        self, location: str, metadata: tuple[int, int], files: Mapping[str, int]
    ) -> None:
        """Looks whether this process can read a snapshot. metadata: size and crc32c of that file.

        files: sizes of the others by path. Raises StorageFailed where one is not what was written.
        """
        store = self._stores.open(location)
        data = store.read(paths.METADATA)
        if (len(data), crc32c(data)) != metadata:
            raise _misread(paths.METADATA, location)
        there = {paths.name(file.path): file.size for file in store.list()} if files else {}
        for path, size in files.items():
            found = there.get(paths.name(path))
            if found is None:  # it is in no snapshot's own folder
                elsewhere, name = self._stores.locate(path)
                info = elsewhere.info(name)
                found = None if info is None else info.size
            if found is None:
                raise FileMissing(f"There is no file {paths.name(path)}", where=path)
            if found != size:
                raise _misread(paths.name(path), path)

    def read_metadata(self, pointer: str) -> MetadataFile:
        """Reads the snapshot that a folder, or its ``_metadata``, names.

        Raises RestoreRefused where there is none.
        """
        pointer = paths.absolute(pointer)
        if paths.name(pointer) == paths.METADATA:
            return self._read_metadata_of(paths.parent(pointer), pointer)
        store, name = self._stores.locate(pointer)
        if store.info(name) is not None:
            return MetadataFile(store.read(name), paths.parent(pointer), pointer)
        if not store.is_folder(name):
            raise RestoreRefused(
                f"Cannot find checkpoint or savepoint file/directory '{pointer}' on file system "
                f"'{paths.scheme_of(pointer)}'.",
                where=pointer,
                remedy=_REMEDY if paths.checkpoint_of(pointer) is None else _SUBSUMED,
            )
        return self._read_metadata_of(pointer, pointer)

    def _read_metadata_of(self, directory: str, pointer: str) -> MetadataFile:
        try:
            data = self._stores.open(directory).read(paths.METADATA)
        except FileMissing as error:
            raise RestoreRefused(
                f"Cannot find meta data file '{paths.METADATA}' in directory '{directory}'.",
                where=pointer,
                remedy="A checkpoint without it was never completed; name another one. A "
                "checkpoint folder holds them as <job-id>/chk-<n>.",
            ) from error
        return MetadataFile(data, directory, paths.join(directory, paths.METADATA))

    def missing(self, files: Iterable[str]) -> list[str]:
        """Which of these absolute places no file is at, in order; a listing for each folder."""
        wanted = sorted(files)
        there = {
            paths.join(folder, info.path)
            for folder in dict.fromkeys(paths.parent(file) for file in wanted)
            for info in self._stores.open(folder).list()
        }
        return [file for file in wanted if file not in there]

    def discard(self, location: str, files: Iterable[str]) -> None:
        """Deletes a snapshot: ``_metadata`` first, then its files, then its folder.

        files: absolute places, as in the handles. So a ``_metadata`` that can be read is whole.
        Tries everything, then raises the first StorageFailed.
        """
        location = paths.absolute(location)
        store, folder = self._stores.locate(location)
        store.delete([paths.join(folder, paths.METADATA)])
        try_all((partial(self.delete_files, list(files)), partial(store.delete_folder, folder)))

    def kept(self) -> tuple[list[CheckpointId], int]:
        """The completed checkpoints in the job's folder, and the bytes of all its files."""
        infos = list(self._store.list(paths.job_folder(self._job)))
        folders = [paths.parent(info.path) for info in infos if info.path.endswith(paths.METADATA)]
        found = [paths.checkpoint_of(folder) for folder in folders]
        numbers = sorted(number for number in found if number is not None)
        return numbers, sum(info.size for info in infos)

    def sweep(
        self,
        epoch: Epoch,
        next_id: CheckpointId,
        *,
        kept: Collection[CheckpointId],
        used: Collection[str],
    ) -> None:
        """Deletes what earlier runs of the job have left and no kept checkpoint names.

        epoch: of this run. next_id: the first checkpoint that is this run's. used: absolute places
        of the files that kept checkpoints name. Tries everything, then raises the first
        StorageFailed.
        """
        doomed: list[str] = []
        needed: set[str] = set()
        over = dict.fromkeys(
            paths.exclusive_folder(self._job, CheckpointId(number))
            for number in range(max(1, next_id - UNFINISHED_MAX), next_id)
            if number not in kept
        )
        for info in self._store.list(paths.job_folder(self._job)):
            folder = paths.parent(info.path)
            checkpoint = paths.checkpoint_of(folder)
            counts_not = checkpoint is not None and checkpoint < next_id and checkpoint not in kept
            wrote = paths.epoch_of(info.path)
            if paths.join(self._root, info.path) in used:
                needed.add(folder)
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

        used: absolute places of those that are needed. Tries everything, then raises the first
        StorageFailed.
        """
        orphans = [
            info.path
            for info in self._store.list(paths.shared_folder(self._job))
            if (wrote := paths.attempt_of(info.path)) is not None
            and wrote[0] == epoch
            and wrote[1] < below
            and paths.join(self._root, info.path) not in used
        ]
        self._store.delete(orphans)

    def delete_files(self, files: Iterable[str]) -> None:
        """Deletes files by their absolute places; those that are not there are no error."""
        located = [self._stores.locate(file) for file in files]
        try_all(partial(store.delete, [name]) for store, name in located)

    # The slots' half

    def create_stream(
        self,
        checkpoint: CheckpointId,
        scope: CheckpointScope,
        name: str,
        *,
        target: str | None = None,
        merging: FileMerging | None = None,
    ) -> CheckpointStateOutputStream:
        """A stream for one state of one subtask.

        name: from `paths.state_file`, never used before. target: the folder of the snapshot
        where it is not the checkpoint's own; a savepoint stands alone, so all its files go there.
        merging: from `merge_files` of the same checkpoint, where it is to share a file.
        """
        return self.stream_factory(checkpoint, scope, target=target).create_stream(
            name, merging=merging
        )

    def stream_factory(
        self, checkpoint: CheckpointId, scope: CheckpointScope, *, target: str | None = None
    ) -> CheckpointStreamFactory:
        """Where streams of a checkpoint go; as for `create_stream`."""
        exclusive = scope is CheckpointScope.EXCLUSIVE or target is not None
        if target is not None:
            folder = paths.absolute(target)
        else:
            folder = paths.join(self._root, self._folder_of(checkpoint, scope))
        if self._in_memory:
            return CheckpointStreamFactory(
                folder, None, exclusive, self._state_in_memory_max, self.signed
            )
        return CheckpointStreamFactory(
            folder, self._stores.open(folder), exclusive, self._inline_threshold, self.signed
        )

    def merge_files(
        self, checkpoint: CheckpointId, *, target: str | None = None
    ) -> FileMerging | None:
        """Shared files for the states of one subtask that are a checkpoint's own.

        None where each has its own: that is so in a savepoint (target: its folder), which can be
        moved, for segments are named by absolute places, and where snapshots are signed.
        """
        if self._merged_file_max is None or target is not None or self.signed:
            return None
        folder = paths.join(self._root, paths.exclusive_folder(self._job, checkpoint))
        return FileMerging(self._stores.open(folder), folder, self._merged_file_max)

    def _folder_of(self, checkpoint: CheckpointId, scope: CheckpointScope) -> str:
        match scope:
            case CheckpointScope.EXCLUSIVE:
                return paths.exclusive_folder(self._job, checkpoint)
            case CheckpointScope.SHARED:
                return paths.shared_folder(self._job)
            case CheckpointScope.TASK_OWNED:
                return paths.task_owned_folder(self._job)

    # Reading state, on either side

    def open_handle(self, handle: StreamStateHandle, *, buffer_bytes: int = 1 << 20) -> BinaryIO:
        """A handle's bytes as a seekable stream, from their begin to their end.

        buffer_bytes: as of `open_stream`. Raises FileMissing where the file is gone, StorageFailed
        where it cannot be read.
        """
        place = place_of(handle)
        assert place is not None, "relative handles are resolved, placeholders replaced"
        if isinstance(place, bytes):
            return io.BytesIO(place)
        store, name = self._stores.locate(place.path)
        return open_stream(
            store, name, start=place.start, size=place.size, buffer_bytes=buffer_bytes
        )

    def read_handle(
        self, handle: StreamStateHandle, *, offset: int = 0, size: int | None = None
    ) -> bytes:
        """A part of a handle's bytes in one read; all of them unless told otherwise."""
        with self.open_handle(handle) as stream:
            stream.seek(offset)
            return stream.read(-1 if size is None else size)


def checkpoint_storage(
    job: JobId, settings: CheckpointSettings, stores: Stores | None = None
) -> CheckpointStorage:
    """The storage that a job's settings ask for.

    stores: given where ``memory:`` is to mean a certain world, as in the simulator.
    """
    return CheckpointStorage(
        job,
        stores or Stores(MemoryFiles()),
        directory=settings.directory,
        in_memory=settings.storage == "jobmanager",
        inline_threshold_bytes=settings.inline_threshold_bytes,
        merged_file_max_bytes=settings.merged_file_max_bytes,
        key_file=settings.key_file,
    )


def resolve_relative(value: T, directory: str) -> T:
    """The same metadata or handle, its relative handles told which folder they lie in."""
    folder = paths.absolute(directory)

    def resolved(stream: Stream) -> StreamStateHandle:
        handle = stream.handle
        if isinstance(handle, RelativeFileStateHandle):
            return replace(handle, file_path=paths.join(folder, handle.relative_path))
        return handle

    return replace_streams(value, resolved)


def _misread(name: str, where: str) -> StorageFailed:
    return StorageFailed(
        f"{name} does not read as it was written",
        where=where,
        remedy="Name a folder on another store; look after this one.",
    )
