"""What a place for files has to offer, and the parts that all stores share.

A `Store` is rooted at a folder; paths are relative to it, with ``/`` between names. All calls
block: shells run them through an injected ``run_blocking``. Stores may be called from several
threads at once. Whatever goes wrong is a `StorageFailed`; after one from a writing call it is
open whether the write happened.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from google_crc32c import extend

from tidegate.errors import FileMissing, StorageFailed, TooManyOpenFiles
from tidegate.model.descriptors import shortage
from tidegate.model.files import FileChecksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@dataclass(frozen=True, slots=True)
class StoreGuarantees:
    """What a store can promise beyond reading and writing.

    atomic_create: ``create`` never replaces a file, and of two callers one is told so; the file
    is there whole or not at all. atomic_rename: ``rename`` does all or nothing.
    """

    atomic_create: bool
    atomic_rename: bool


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its path below the store's root, and its size in bytes.

    modified_ms: wall time at which it was written last, where the store tells.
    """

    path: str
    size: int
    modified_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Written:
    """A file that stands: its path below the root, its size in bytes, its checksum."""

    path: str
    size: int
    crc32c: int


class Writer(Protocol):
    """A new file under way. It counts for nothing until ``close`` has returned."""

    def write(self, data: bytes | memoryview) -> None:
        """Adds bytes at the end."""
        ...

    def close(self) -> Written:
        """Makes the file durable."""
        ...

    def abort(self) -> None:
        """Gives the file up and deletes what there is of it; nothing after ``close``."""
        ...


class Store(Protocol):
    """Files below one folder."""

    @property
    def root(self) -> str:
        """The folder, as an absolute path or URL."""
        ...

    @property
    def guarantees(self) -> StoreGuarantees:
        """What this store promises; found out by trying, at the first look."""
        ...

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file, fewer where it ends earlier. Raises FileMissing."""
        ...

    def info(self, path: str) -> FileInfo | None:
        """A file's size; None where there is no such file."""
        ...

    def open_new(self, path: str) -> Writer:
        """Starts a file whose name nobody else uses; makes the folders it needs."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Makes a whole file unless there is one: False. Only where ``atomic_create``."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Moves a file, replacing the target; atomic where ``atomic_rename``. FileMissing."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; those that are not there are no error. Tries all, then raises."""
        ...

    def delete_folder(self, path: str) -> None:
        """Deletes a folder with all that is in it; none there is no error."""
        ...

    def make_folder(self, path: str) -> None:
        """Makes a folder where the store knows such things. Raises where nobody may write."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of this name, or a file below it."""
        ...

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """All files below a folder, at any depth, in order of their paths."""
        ...


class Checksum:
    """The crc32c and size of bytes that come in pieces; their SHA-256 too where that is asked."""

    def __init__(self, *, sha256: bool = False) -> None:
        self.size = 0
        self.crc32c = 0
        self._digest = hashlib.sha256() if sha256 else None

    def add(self, data: bytes | memoryview) -> None:
        """Takes in the next piece."""
        piece = data if isinstance(data, bytes) else bytes(data)
        self.crc32c = extend(self.crc32c, piece)
        self.size += len(piece)
        if self._digest is not None:
            self._digest.update(piece)

    @property
    def file(self) -> FileChecksum:
        """Of a file of all bytes so far."""
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
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """So many bytes from the position on, or all, in one read; fewer at the end."""
        left = max(0, self._size - self._position)
        wanted = left if size < 0 else min(size, left)
        if wanted == 0:
            return b""
        data = self._store.read(self._path, offset=self._start + self._position, size=wanted)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes from the position on, in one read."""
        return self.read()

    def readinto(self, buffer: object) -> int:
        """Fills a buffer from the position on."""
        view = memoryview(cast("bytearray", buffer)).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


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
    """Makes a file that is there whole or not at all, by the best means the store has.

    Raises StorageFailed where such a file exists, as far as the store can tell.
    """
    checksum = Checksum()
    checksum.add(data)
    if store.guarantees.atomic_create:
        if not store.create(path, data):
            raise StorageFailed(
                f"The file {name_of(path)} exists and is not replaced",
                where=f"{store.root}/{path}",
            )
    elif store.info(path) is not None:
        raise StorageFailed(
            f"The file {name_of(path)} exists and is not replaced", where=f"{store.root}/{path}"
        )
    elif store.guarantees.atomic_rename:
        under_way = f"{path}.part"
        write_new(store, under_way, data)
        store.rename(under_way, path)
    else:
        write_new(store, path, data)
    return Written(path, checksum.size, checksum.crc32c)


def write_new(store: Store, path: str, data: bytes) -> Written:
    """Writes a file in one go; what there is of it is deleted where that fails."""
    writer = store.open_new(path)
    try:
        writer.write(data)
        return writer.close()
    except StorageFailed:
        writer.abort()
        raise


def failed(what: str, where: str, error: Exception) -> StorageFailed:
    """What to raise where a library that reads or writes has raised something."""
    if (short := shortage(error)) is not None:
        return TooManyOpenFiles(what, where=where, remedy=short.remedy)
    return StorageFailed(what, where=where)


def missing(path: str, root: str) -> FileMissing:
    """The error of a file that is not there."""
    return FileMissing(f"There is no file {name_of(path)}", where=f"{root}/{path}")


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def try_all(calls: Iterable[Callable[[], None]]) -> None:
    """Makes every call, then raises the first StorageFailed there was."""
    first: StorageFailed | None = None
    for call in calls:
        try:
            call()
        except StorageFailed as error:
            first = first or error
    if first is not None:
        raise first


def probe_create(create: Callable[[str, bytes], bool], name: str) -> bool:
    """Whether ``create`` refuses a second file of one name; the caller deletes it."""
    try:
        return create(name, b"probe") and not create(name, b"probe again")
    except StorageFailed:
        return False
