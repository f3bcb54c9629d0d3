"""Keyed state as the files of a folder: what of it is uploaded, and how it comes back.

A backend hands in a folder of hard links that nobody changes any more. Its ``.sst`` files never
change once they are written, and no name stands for two of them in the life of a backend: so one
that a completed checkpoint has uploaded is only named again, by a placeholder that the driver's
registry replaces. The other files are small and each checkpoint's own.
"""

from __future__ import annotations

import shutil
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from flinkformat.frozen import frozen
from flinkformat.handles import HandleAndLocalPath, IncrementalRemoteKeyedStateHandle
from flinkformat.snapshots import SharingFilesStrategy
from tidegate.errors import FormatError, StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.state.shared_files import SharedFiles, in_own_files, placeholder
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flinkformat.handles import StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.model.settings import StateFileSettings
    from tidegate.state.disk.local_folders import LocalFolders
    from tidegate.state.disk.store import RocksDBMemory
    from tidegate.storage.places import Place
    from tidegate.storage.reading import StateReads

T = TypeVar("T")

COLUMNS_FILE: Final = "columns"
"""Name of the file beside a key space that holds columnar state, as blocks of keyed state."""

SHAREABLE: Final = ".sst"
"""Ending of the names of files that never change."""

TRANSFER_THREADS: Final = 4
"""Files of one folder that are on their way at a time, unless told otherwise."""

PART_BYTES: Final = 1 << 20
"""Bytes of a file that an upload has in memory, for each file that is on its way."""


@frozen
class LocalPlace:
    """Where and how an operator may keep keyed state on disk. backend_id: UUID, as text."""

    folders: LocalFolders
    backend_id: str
    memory: RocksDBMemory
    files: StateFileSettings


class IncrementalFiles:
    """The folders of one operator's subtask, of which checkpoints share files.

    backend_id: UUID of the backend's folder, as text. threads: files on their way at a time.
    restored: the handle with whose folder the backend has begun, none of its ``.sst`` files
    written anew; None if it has begun with another one. named: by name of the file.
    """

    named: SharedFiles[str, StreamStateHandle]

    def __init__(
        self,
        backend_id: str,
        key_groups: KeyGroupRange,
        *,
        threads: int = TRANSFER_THREADS,
        restored: IncrementalRemoteKeyedStateHandle | None = None,
    ) -> None:
        self._backend_id = backend_id
        self._key_groups = key_groups
        self._threads = threads
        self.named = SharedFiles()
        if restored is not None:
            files = {file.local_path: file.handle for file in restored.shared_state}
            self.named = SharedFiles(CheckpointId(restored.checkpoint_id), in_own_files(files))

    def upload(
        self,
        folder: Path,
        checkpoint: CheckpointId,
        place: Place,
        *,
        shared: bool,
        meta: bytes,
        placeholders: bool = True,
    ) -> IncrementalRemoteKeyedStateHandle:
        """Write a checkpoint's folder, but for what is there already. Blocking, off the loop.

        shared: whether later checkpoints may name its files; those of a savepoint they never do.
        meta: the backend's description of its states. placeholders: whether the driver knows what
        is there already. Raises StorageFailed, and CheckpointAborted
        where the checkpoint was given up meanwhile; what was written is the place's to delete.
        """
        alone = place.sharing is SharingFilesStrategy.NO_SHARING
        shared = shared and not alone
        shareable, private = _files_of(folder)
        known: dict[str, StreamStateHandle] = {}
        if shared:
            backward = place.sharing is SharingFilesStrategy.FORWARD_BACKWARD
            wanted = {file.name for file in shareable} if backward else set[str]()
            known = self.named.begin(
                checkpoint,
                lambda files: {name: file for name, file in files.items() if name in wanted},
            )
        try:
            fresh = [file for file in shareable if file.name not in known]
            scope = CheckpointScope.SHARED if shared else CheckpointScope.EXCLUSIVE
            written = _write(fresh, place, scope, self._threads)
            own = {file.name: place.write(_parts_of(file)) for file in private}
            header = place.write([meta])
        except BaseException:
            self.named.on_aborted(checkpoint)
            raise
        if shared:
            self.named.uploaded(checkpoint, in_own_files(written))
        again = (
            {name: placeholder(handle) for name, handle in known.items()} if placeholders else known
        )
        # Of a checkpoint that shares nothing all files are its own; of a savepoint, which nobody
        # deletes, a job that claims it may go on with them.
        listed, more = (written, {}) if shared or alone else ({}, written)
        new = (*written.values(), *own.values(), header)
        return IncrementalRemoteKeyedStateHandle(
            checkpoint,
            self._backend_id,
            self._key_groups,
            sum(handle.state_size for handle in new),
            header,
            _named({**again, **listed}),
            _named({**own, **more}),
            place.new_name(),
        )


def download(
    handle: IncrementalRemoteKeyedStateHandle,
    folder: Path,
    reader: StateReads,
    *,
    threads: int = TRANSFER_THREADS,
    local: LocalFolders | None = None,
) -> bytes:
    """Bring a checkpoint's files into a new folder; the result is its ``meta``. Blocking.

    local: where a copy of them may be, which is taken instead. Leaves no folder where it raises:
    RestoreRefused, FormatError and StorageFailed as `StateReads.copy` does.
    """
    files = (*handle.shared_state, *handle.private_state)
    for file in files:
        _refuse_outside(file.local_path, reader)
    try:
        if local is None or not _taken(handle, folder, reader, local, threads):
            folder.mkdir(parents=True)
            calls = [partial(reader.copy, file.handle, folder / file.local_path) for file in files]
            in_parallel(calls, threads)
        return reader.read(handle.meta)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _taken(
    handle: IncrementalRemoteKeyedStateHandle,
    folder: Path,
    reader: StateReads,
    local: LocalFolders,
    threads: int,
) -> bool:
    """True if a copy with exactly the uploaded bytes provided the folder."""
    if not local.take(handle, folder):
        return False
    files = (*handle.shared_state, *handle.private_state)
    held = in_parallel(
        [partial(reader.holds, file.handle, folder / file.local_path) for file in files], threads
    )
    if not all(held):
        shutil.rmtree(folder)
    return all(held)


def _refuse_outside(name: str, reader: StateReads) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FormatError(
            "A file of keyed state has no name that a file in a folder can have",
            where=reader.where,
            expected="a name such as 000012.sst",
            found=repr(name),
        )


def _write(
    files: Sequence[Path], place: Place, scope: CheckpointScope, threads: int
) -> dict[str, StreamStateHandle]:
    calls = [partial(place.write, _parts_of(file), scope, merged=False) for file in files]
    handles = in_parallel(calls, threads)
    return {file.name: handle for file, handle in zip(files, handles, strict=True)}


def in_parallel(calls: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Results of calls, in order, with a number of them at a time; a failure stops further ones.

    Raises the first failure in order. With one thread, all is done on the caller's.
    """
    if threads == 1 or len(calls) < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(threads, len(calls)), "tidegate-files") as pool:
        futures = [pool.submit(call) for call in calls]
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=True, cancel_futures=True)
    failures = [f.exception() for f in futures if not f.cancelled()]
    for failure in failures:
        if failure is not None:
            raise failure
    return [future.result() for future in futures]


def _files_of(folder: Path) -> tuple[list[Path], list[Path]]:
    files = sorted(folder.iterdir())
    shareable = [file for file in files if file.suffix == SHAREABLE]
    return shareable, [file for file in files if file.suffix != SHAREABLE]


def _parts_of(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb", buffering=0) as stream:
            while part := stream.read(PART_BYTES):
                yield part
    except OSError as error:
        raise StorageFailed(
            f"Cannot read {file.name}: {error.strerror or error}", where=str(file)
        ) from error


def _named(files: Mapping[str, StreamStateHandle]) -> tuple[HandleAndLocalPath, ...]:
    return tuple(HandleAndLocalPath(name, files[name]) for name in sorted(files))
