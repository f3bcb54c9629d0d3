"""Interface of a place for files, and the parts that all stores share.

A `Store` is rooted at a folder; paths are relative to it, with ``/`` between names. All calls
block: shells run them through an injected ``run_blocking``. Stores may be called from several
threads at once. Whatever goes wrong is a `StorageFailed`; after one from a writing call it is
open whether the write happened.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from google_crc32c import extend

from flinkformat.frozen import frozen
from tidegate.errors import FileMissing, StorageFailed, TooManyOpenFiles
from tidegate.model.descriptors import shortage
from tidegate.model.files import FileChecksum

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator


@frozen
class StoreGuarantees:
    """Guarantees of a store beyond reading and writing.

    atomic_create: ``create`` never replaces a file, and of two callers one is told so; the file
    is there whole or not at all. atomic_rename: ``rename`` does all or nothing.
    """

    atomic_create: bool
    atomic_rename: bool


@frozen
class FileInfo:
    """A file: its path below the store's root, and its size in bytes.

    modified_ms: wall time at which it was written last, where the store tells.
    """

    path: str
    size: int
    modified_ms: int | None = field(default=None, compare=False)


@frozen
class Written:
    """A file that stands: its path below the root, its size in bytes, its checksum."""

    path: str
    size: int
    crc32c: int


class Writer(Protocol):
    """A new file under construction. It does not count until ``close`` has returned."""

    def write(self, data: bytes | memoryview) -> None:
        """Adds bytes at the end."""
        ...

    def close(self) -> Written:
        """Makes the file durable."""
        ...

    def abort(self) -> None:
        """Gives up and deletes the file; does nothing after ``close``."""
        ...


class Store(Protocol):
    """Files below one folder."""

    @property
    def root(self) -> str:
        """The folder, as an absolute path or URL."""
        ...

    @property
    def guarantees(self) -> StoreGuarantees:
        """Guarantees of this store; the first access tries them out."""
        ...

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file, fewer if it ends earlier. Raises FileMissing."""
        ...

    def info(self, path: str) -> FileInfo | None:
        """A file's size; None if there is no such file."""
        ...

    def open_new(self, path: str) -> Writer:
        """Starts a file whose name nobody else uses; makes the folders it needs."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Creates a whole file; returns False if it exists. Needs ``atomic_create``."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Moves a file over the target; atomic with ``atomic_rename``. Raises FileMissing."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; missing ones are not an error. Tries all, then raises."""
        ...

    def delete_folder(self, path: str) -> None:
        """Deletes a folder and its content; a missing one is not an error."""
        ...

    def make_folder(self, path: str) -> None:
        """Creates a folder, if the store has folders. Raises if it is not writable."""
        ...

    def is_folder(self, path: str) -> bool:
        """True if a folder, or a file below it, has this name."""
        ...

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """All files below a folder, at any depth, in order of their paths.

        A symbolic link to a folder is neither a file nor followed.
        """
        ...

    def list_folder(self, path: str) -> Iterator[FileInfo]:
        """Files that are in a folder itself, in order of their paths; does not look into others."""
        ...


class Checksum:
    """crc32c and size of bytes that arrive in pieces, and their SHA-256 on request."""

    def __init__(self, *, sha256: bool = False) -> None:
        self.size = 0
        self.crc32c = 0
        self._digest = hashlib.sha256() if sha256 else None

    def add(self, data: bytes | memoryview) -> None:
        piece = data if isinstance(data, bytes) else bytes(data)
        self.crc32c = extend(self.crc32c, piece)
        self.size += len(piece)
        if self._digest is not None:
            self._digest.update(piece)

    @property
    def file(self) -> FileChecksum:
        digest = "" if self._digest is None else self._digest.hexdigest()
        return FileChecksum(self.crc32c, self.size, digest)


class RangeReader(io.RawIOBase):
    """A file of a store as a seekable stream; each read is one ranged read of the store."""

    def __init__(self, store: Store, path: str, *, start: int = 0, size: int | None = None) -> None:
        super().__init__()
        if size is None:
            info = store.info(path)
            if info is None:
                raise missing(path, store.root)
            size = info.size - start
        self._store = store
        self._path = path
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size < 0 else min(size, left)
        if wanted == 0:
            return b""
        data = self._store.read(self._path, offset=self._start + self._position, size=wanted)
        if len(data) < wanted:
            raise shortened(
                f"The file has become shorter: {len(data)} of {wanted} bytes could be read",
                where=f"{self._store.root}/{self._path}, byte {self._start + self._position}",
            )
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def shortened(what: str, *, where: str) -> StorageFailed:
    """Error for a file that has lost bytes since somebody began to read it."""
    return StorageFailed(
        what,
        where=where,
        remedy="Files that jobs read are not to be changed: move them away, and write new ones.",
    )


def open_stream(
    store: Store,
    path: str,
    *,
    start: int = 0,
    size: int | None = None,
    buffer_bytes: int = 1 << 20,
) -> BinaryIO:
    """A file, or a part of it, as a seekable stream. Raises FileMissing.

    buffer_bytes: that are read ahead; 0 for none, where each read is one of the store and its bytes
    are not copied.
    """
    reader = RangeReader(store, path, start=start, size=size)
    stream = io.BufferedReader(reader, buffer_size=buffer_bytes) if buffer_bytes else reader
    return cast("BinaryIO", stream)


def publish(store: Store, path: str, data: bytes) -> Written:
    """Publishes a file, whole or not at all, by the best means that the store has.

    Raises StorageFailed if such a file exists, as far as the store can tell.
    """
    checksum = Checksum()
    checksum.add(data)
    atomic = store.guarantees.atomic_create
    taken = not store.create(path, data) if atomic else store.info(path) is not None
    if taken:
        raise StorageFailed(
            f"The file {name_of(path)} exists and is not replaced",
            where=f"{store.root}/{path}",
            remedy="Name another folder, and see that no other job writes there.",
        )
    if not atomic and store.guarantees.atomic_rename:
        under_way = f"{path}.part"
        write_new(store, under_way, data)
        store.rename(under_way, path)
    elif not atomic:
        # Such stores show a file only when its writer closes, so it is whole all the same.
        write_new(store, path, data)
    return Written(path, checksum.size, checksum.crc32c)


def write_new(store: Store, path: str, data: bytes) -> Written:
    """Writes a file in one go; deletes the remains on failure."""
    writer = store.open_new(path)
    try:
        writer.write(data)
        return writer.close()
    except StorageFailed:
        writer.abort()
        raise


def failed(what: str, where: str, error: Exception) -> StorageFailed:
    """The StorageFailed for an exception that a library raised."""
    if (short := shortage(error)) is not None:
        return TooManyOpenFiles(what, where=where, remedy=short.remedy)
    return StorageFailed(what, where=where)


def missing(path: str, root: str) -> FileMissing:
    return FileMissing(f"There is no file {name_of(path)}", where=f"{root}/{path}")


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def try_all(calls: Iterable[Callable[[], None]]) -> None:
    """Makes every call, then raises the first StorageFailed."""
    first: StorageFailed | None = None
    for call in calls:
        try:
            call()
        except StorageFailed as error:
            first = first or error
    if first is not None:
        raise first


class Trials:
    """Stores that were tried out and do create atomically, by what they lie on.

    A checkpoint has a folder, and so a store, of its own: without this each would be tried, which
    takes longer than to write its ``_metadata``.
    """

    def __init__(self) -> None:
        self._passed: dict[Hashable, StoreGuarantees] = {}

    def of(self, volume: Hashable, try_out: Callable[[], StoreGuarantees]) -> StoreGuarantees:
        """Guarantees of a store on a volume, such as a device or a bucket.

        What has failed may have failed for want of space, so it says nothing of other stores.
        """
        found = self._passed.get(volume)
        if found is None:
            found = try_out()
            if found.atomic_create:
                self._passed[volume] = found
        return found


def probe_create(create: Callable[[str, bytes], bool], name: str) -> bool:
    """True if ``create`` refuses to replace a file; the caller deletes the trial file."""
    try:
        return create(name, b"probe") and not create(name, b"probe again")
    except StorageFailed:
        return False
