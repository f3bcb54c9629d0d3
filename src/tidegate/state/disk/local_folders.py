"""Folders on a slot's machine: what its backends work in, and copies of the last checkpoint.

    <root>/<job>/<slot>.lock                locked by the slot's process as long as it lives
    <root>/<job>/<slot>/<number>/           a folder that a backend works in
    <root>/<job>/copies/chk-<n>/<handle>/   the files of one handle of one checkpoint

A copy costs next to nothing: its files are hard links to those that the backend works with. It is
a hint and no more: whoever restores the handle on this machine may take it, if all files are there
with their sizes and checksums, or else reads the snapshot. So copies belong to the job, not to the
slot that made them, which may have crashed: the next checkpoint that is complete makes all older
ones needless.

The content of these folders is trusted when it is read again, so nobody else may write there: a
job's folder is its user's alone, and one that somebody else has made is refused.

A working folder is its slot's alone, and of no use after it. A slot that starts deletes those whose
slots are gone: the system lets go of the lock of a process that ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.errors import StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle
    from tidegate.model.ids import JobId, SlotId

T = TypeVar("T")

_COPIES: Final = "copies"
_LOCK: Final = ".lock"
_TRIES: Final = 100
_PRIVATE: Final = 0o700
_OTHERS: Final = 0o077
_SYSTEM: Final = 0
"""The user whom everybody has to trust."""


def default_root() -> Path:
    """Default place of local folders: this user's, for temporary files."""
    return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"


class LocalFolders:
    """The local folders of one slot of a job. All its methods block; any thread may call them.

    roots: folders of this machine, on disks of their own or not; the same for all slots of the job.
    copies: where copies are kept; hard links where that is the disk of the working folders. keeps,
    takes: whether copies are made, and used. Nothing is made before the first folder is asked for.
    """

    def __init__(
        self,
        job: JobId,
        slot: SlotId,
        roots: Sequence[Path],
        *,
        copies: Path | None = None,
        keeps: bool = False,
        takes: bool = False,
    ) -> None:
        assert roots, "there is a root for local folders"
        self._jobs = [root / paths.quoted_name(job) for root in roots]
        self._slot = paths.quoted_name(slot)
        self._copies = (copies or roots[0]) / paths.quoted_name(job) / _COPIES
        self._keeps = keeps
        self._takes = takes
        self._mutex = threading.Lock()
        self._folders = 0
        self._lock: int | None = None
        self._completed = CheckpointId(0)

    @property
    def in_use(self) -> bool:
        return self._lock is not None

    def new_folder(self) -> Path:
        """A folder that is not there yet, and goes with the slot; its parent is there.

        The first one deletes the working folders of slots that are gone. Raises StorageFailed.
        """
        try:
            with self._mutex:
                if self._lock is None:
                    self._lock = self._locked()
                    self._clean()
                number = self._folders
                self._folders += 1
            folder = self._jobs[number % len(self._jobs)] / self._slot
            _patiently(lambda: _make_folder(folder))
        except OSError as error:
            raise StorageFailed(
                f"Cannot make local folders for state: {error.strerror or error}",
                where=str(error.filename or self._jobs[0]),
                remedy="Give this process the right to write there, or name other folders with "
                "state.backend.rocksdb.localdir.",
            ) from error
        return folder / str(number)

    # --- copies ---

    def keep(self, handle: IncrementalRemoteKeyedStateHandle, folder: Path) -> None:
        """Take over the folder whose files were uploaded as that handle; it is gone then.

        If it cannot be kept, there is no copy, and the snapshot has to be read.
        """
        if self._keeps:
            with contextlib.suppress(OSError):
                _make_private(self._copies.parent)
                _move(folder, self._copy_of(handle))
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, handle: IncrementalRemoteKeyedStateHandle, folder: Path) -> bool:
        """Makes the handle's folder from a copy; False, without a folder, if there is none."""
        if not self._takes:
            return False
        copy = self._copy_of(handle)
        sizes = {
            file.local_path: file.handle.state_size
            for file in (*handle.shared_state, *handle.private_state)
        }
        try:
            _check_ours(self._copies.parent)
            if {file.name: file.stat().st_size for file in copy.iterdir()} != sizes:
                return False
            folder.mkdir(parents=True)
            for file in handle.shared_state:
                _link(copy / file.local_path, folder / file.local_path)
            for file in handle.private_state:
                shutil.copyfile(copy / file.local_path, folder / file.local_path)
        except OSError:
            # Somebody may be deleting it, for a newer checkpoint is complete.
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: older copies are deleted, whoever made them."""
        if checkpoint <= self._completed:
            return
        self._completed = checkpoint
        for folder, number in self._copied():
            if number < checkpoint:
                shutil.rmtree(folder, ignore_errors=True)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was aborted: its copies are deleted, whoever made them."""
        for folder, number in self._copied():
            if number == checkpoint:
                shutil.rmtree(folder, ignore_errors=True)

    def _copy_of(self, handle: IncrementalRemoteKeyedStateHandle) -> Path:
        name = paths.quoted_name(handle.state_handle_id)
        return self._copies / paths.exclusive_name(CheckpointId(handle.checkpoint_id)) / name

    def _copied(self) -> Iterator[tuple[Path, CheckpointId]]:
        with contextlib.suppress(OSError):
            for folder in list(self._copies.iterdir()):
                checkpoint = paths.checkpoint_of(str(folder))
                if checkpoint is not None:
                    yield folder, checkpoint

    # --- life ---

    def close(self, *, over: bool) -> None:
        """The slot ends: its working folders go, and with the job's last slot here all the rest.

        over: the job needs it no more; otherwise copies stay for slots that come after it.
        """
        if self._lock is None:
            return
        for job in self._jobs:
            shutil.rmtree(job / self._slot, ignore_errors=True)
        (self._jobs[0] / f"{self._slot}{_LOCK}").unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None
        # After its own lock, so that of two that end at once one is the last.
        if over and not self._others():
            shutil.rmtree(self._copies, ignore_errors=True)
        for job in {*self._jobs, self._copies.parent}:
            with contextlib.suppress(OSError):
                job.rmdir()  # unless something is in it

    def _locked(self) -> int:
        """A lock of this process, whose name cleaners see only once it is locked."""
        named = self._jobs[0] / f"{self._slot}{_LOCK}"
        made = named.with_suffix(".new")
        lock = _patiently(lambda: _made(made))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(named)
        return lock

    def _clean(self) -> None:
        for lock in self._locks():
            with _lock_of_dead(lock) as dead:
                if dead:
                    for job in self._jobs:
                        shutil.rmtree(job / lock.stem, ignore_errors=True)
                    lock.unlink(missing_ok=True)

    def _others(self) -> bool:
        for lock in self._locks():
            with _lock_of_dead(lock) as dead:
                if not dead:
                    return True
        return False

    def _locks(self) -> list[Path]:
        """Locks of the other slots; empty if the last of them just removed the folder."""
        try:
            files = sorted(file for file in self._jobs[0].iterdir() if file.suffix == _LOCK)
        except FileNotFoundError:
            return []
        return [file for file in files if file.stem != self._slot]


@contextlib.contextmanager
def _lock_of_dead(lock: Path) -> Generator[bool]:
    """True if nobody holds a lock; meanwhile nobody else can find that out."""
    try:
        opened = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        yield False
    else:
        yield True
    finally:
        os.close(opened)


def _patiently(make: Callable[[], T]) -> T:
    """Makes something; retries if another slot removes its empty folder meanwhile."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return make()
    return make()


def _make_folder(folder: Path) -> None:
    _make_private(folder.parent)
    folder.mkdir(mode=_PRIVATE, exist_ok=True)


def _made(file: Path) -> int:
    _make_private(file.parent)
    return os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)


def _make_private(job: Path) -> None:
    root = job.parent
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=_PRIVATE, exist_ok=True)
    # Whoever owns a folder can put another in place of what is in it; the system's own may be.
    if root.lstat().st_uid not in (os.getuid(), _SYSTEM):
        raise PermissionError(errno.EPERM, "the folder belongs to another user", str(root))
    job.mkdir(mode=_PRIVATE, exist_ok=True)
    found = _check_ours(job)
    if found.st_mode & _OTHERS:
        job.chmod(_PRIVATE)


def _check_ours(job: Path) -> os.stat_result:
    found = job.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "no folder of this user's own", str(job))
    return found


def _move(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        under_way = target.with_name(f".{target.name}")
        shutil.copytree(folder, under_way)
        under_way.rename(target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)
