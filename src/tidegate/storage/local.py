"""Files of this machine, or of a file system that is mounted as one.

A closed or created file is on the disk, including its name: files and their folders are synced.
``create`` writes beside and then links, since a link never replaces; a mount without links is found
out by trying and then offers no atomic create.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import FileMissing, StorageFailed, TooManyOpenFiles
from tidegate.model.descriptors import REMEDY, SHORTAGES
from tidegate.storage.paths import absolute
from tidegate.storage.store import (
    Checksum,
    FileInfo,
    StoreGuarantees,
    Trials,
    Written,
    probe_create,
    try_all,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

_REMEDIES = {
    **dict.fromkeys(SHORTAGES, REMEDY),
    errno.EACCES: "Give this process the right to it, or name another folder.",
    errno.EPERM: "Give this process the right to it, or name another folder.",
    errno.EROFS: "The file system is read-only; name another folder.",
    errno.ENOSPC: "The disk is full; make room, or name another folder.",
    errno.EDQUOT: "The quota is used up; make room, or name another folder.",
    errno.EFBIG: "Raise the limit of a file's size (ulimit -f), or name another folder.",
    errno.ENOENT: "No folder can be made there; name another one.",
    errno.EEXIST: "A file of that name stands there; name another folder.",
    errno.ENOTDIR: "A file has the folder's name; name another folder.",
}

_SYNC_BYTES: Final = 32 << 20
"""Of a file under way that may wait to be synced: the disk works while the next ones come."""


class LocalStore:
    """Files below a folder of this machine; the folder need not exist yet.

    trials: what other stores on the same devices were found to be.
    """

    def __init__(self, root: str, *, trials: Trials | None = None) -> None:
        self._root = Path(absolute(root))
        self._trials = trials or Trials()
        self._guarantees: StoreGuarantees | None = None

    @property
    def root(self) -> str:
        return str(self._root)

    @property
    def guarantees(self) -> StoreGuarantees:
        """Atomic rename always; atomic create if links work, which is tried once."""
        if self._guarantees is None:
            try:
                self._make(self._root)
                device = self._root.stat().st_dev
            except (StorageFailed, OSError):
                return StoreGuarantees(atomic_create=False, atomic_rename=True)
            self._guarantees = self._trials.of(device, self._tried)
        return self._guarantees

    def _tried(self) -> StoreGuarantees:
        name = f".probe-{os.urandom(8).hex()}"
        created = probe_create(self.create, name)
        with contextlib.suppress(StorageFailed):
            self.delete([name])
        return StoreGuarantees(atomic_create=created, atomic_rename=True)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        with _failures("read", self._root / path), (self._root / path).open("rb") as file:
            file.seek(offset)
            return file.read(-1 if size is None else size)

    def info(self, path: str) -> FileInfo | None:
        file = self._root / path
        try:
            with _failures("read", file):
                return FileInfo(path, file.stat().st_size) if file.is_file() else None
        except FileMissing:
            return None

    def open_new(self, path: str) -> LocalWriter:
        self._make(self._root / path, folder_of=True)
        return LocalWriter(self._root / path, path)

    def create(self, path: str, data: bytes) -> bool:
        file = self._root / path
        self._make(file, folder_of=True)
        beside = file.with_name(f".{file.name[:100]}.{os.urandom(8).hex()}.part")
        with _failures("create", file):
            try:
                _write_synced(beside, data)
                # A link fails where the name is taken; a rename would replace the file.
                os.link(beside, file)
            except FileExistsError:
                return False
            finally:
                beside.unlink(missing_ok=True)
            _sync_folder(file.parent)
        return True

    def rename(self, source: str, target: str) -> None:
        self._make(self._root / target, folder_of=True)
        with _failures("rename", self._root / source):
            (self._root / source).replace(self._root / target)
            _sync_folder((self._root / target).parent)

    def delete(self, paths: Iterable[str]) -> None:
        try_all(partial(_unlink, self._root / path) for path in paths)

    def delete_folder(self, path: str) -> None:
        folder = self._root / path
        with _failures("delete", folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def make_folder(self, path: str) -> None:
        folder = self._root / path
        self._make(folder)
        with _failures("write in", folder):
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def is_folder(self, path: str) -> bool:
        with _failures("read", self._root / path):
            return (self._root / path).is_dir()

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """All files below a folder, sorted, without unfinished files of ``create``."""
        folder = self._root / prefix if prefix else self._root
        with _failures("list", folder):
            return iter(sorted(self._walk(folder), key=lambda info: info.path))

    def list_folder(self, path: str) -> Iterator[FileInfo]:
        folder = self._root / path if path else self._root
        with _failures("list", folder):
            return iter(sorted(self._walk(folder, deep=False), key=lambda info: info.path))

    def _walk(self, folder: Path, *, deep: bool = True) -> Iterator[FileInfo]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if deep and not entry.is_symlink():
                            yield from self._walk(Path(entry.path))
                    elif not (entry.name.startswith(".") and entry.name.endswith(".part")):
                        with contextlib.suppress(FileNotFoundError):
                            path = Path(entry.path).relative_to(self._root)
                            found = entry.stat()
                            modified_ms = found.st_mtime_ns // 1_000_000
                            yield FileInfo(path.as_posix(), found.st_size, modified_ms)
        except FileNotFoundError:
            return

    def _make(self, path: Path, *, folder_of: bool = False) -> None:
        folder = path.parent if folder_of else path
        if folder.is_dir():
            return
        with _failures("make", folder):
            missing = [folder, *(above for above in folder.parents if not above.is_dir())]
            folder.mkdir(parents=True, exist_ok=True)
            for made in missing:
                _sync_folder(made.parent)


class LocalWriter:
    """A file of this machine under way. The file has its name from the start."""

    def __init__(self, file: Path, path: str) -> None:
        self._file = file
        self._path = path
        self._checksum = Checksum()
        self._unsynced = 0
        with _failures("create", file):
            self._stream = file.open("xb", buffering=1 << 18)

    def write(self, data: bytes | memoryview) -> None:
        self._checksum.add(data)
        with _failures("write", self._file):
            self._stream.write(data)
            self._unsynced += len(data)
            if self._unsynced >= _SYNC_BYTES:
                os.fsync(self._stream.fileno())
                self._unsynced = 0

    def close(self) -> Written:
        with _failures("write", self._file):
            try:
                self._stream.flush()
                os.fsync(self._stream.fileno())
            finally:
                self._stream.close()
            _sync_folder(self._file.parent)
        return Written(self._path, self._checksum.size, self._checksum.crc32c)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        _unlink(self._file)


def _write_synced(file: Path, data: bytes) -> None:
    with file.open("xb", buffering=0) as stream:
        view = memoryview(data)
        while view:
            view = view[stream.write(view) :]
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some mounted file systems cannot sync a folder, and need not.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _unlink(file: Path) -> None:
    with _failures("delete", file):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _failures(act: str, file: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and act != "make":
            raise FileMissing(f"There is no file {file.name}", where=str(file)) from error
        kind = TooManyOpenFiles if error.errno in SHORTAGES else StorageFailed
        raise kind(
            f"Cannot {act} {file.name}: {error.strerror or error}",
            where=str(file),
            remedy=_REMEDIES.get(error.errno or 0, ""),
        ) from error
    except ValueError as error:
        # A damaged snapshot may name any text as a place.
        if "\0" not in str(file) and not isinstance(error, UnicodeError):
            raise
        raise FileMissing(f"No file has a name such as {file.name!r}", where=repr(file)) from error
