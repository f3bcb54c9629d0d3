"""Files behind ``pyarrow.fs``: S3, Google Cloud Storage, Azure, HDFS.

Arrow offers no create-if-absent, so neither does this store: nothing may be made atomically by
name alone. On object stores a file appears whole when its writer closes.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import fs

from tidegate.errors import FileMissing, StorageFailed
from tidegate.storage import paths
from tidegate.storage.store import (
    Checksum,
    FileInfo,
    StoreGuarantees,
    Written,
    failed,
    missing,
    try_all,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

_RENAMING: Final = ("hdfs", "local")
_OBJECT_STORES: Final = ("s3", "gcs", "abfs")


class ArrowStore:
    """A store over an Arrow file system. folder: its root there. root: the same as a URL."""

    def __init__(self, file_system: fs.FileSystem, folder: str, root: str) -> None:
        self._fs = file_system
        self._folder = folder.rstrip("/")
        self._root = root

    @staticmethod
    def open(url: str) -> ArrowStore:
        with _failures("reach", url):
            file_system, folder = fs.FileSystem.from_uri(url)
        return ArrowStore(file_system, folder, paths.absolute(url))

    @property
    def root(self) -> str:
        return self._root

    @property
    def guarantees(self) -> StoreGuarantees:
        """No atomic create; atomic rename if the file system has real folders."""
        return StoreGuarantees(atomic_create=False, atomic_rename=self._fs.type_name in _RENAMING)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        with _failures("read", self._url(path)), self._fs.open_input_file(self._full(path)) as file:
            length = file.size() - offset if size is None else min(size, file.size() - offset)
            return file.read_at(length, offset) if length > 0 else b""

    def info(self, path: str) -> FileInfo | None:
        with _failures("read", self._url(path)):
            found = self._fs.get_file_info(self._full(path))
        return FileInfo(path, found.size) if found.type == fs.FileType.File else None

    def open_new(self, path: str) -> ArrowWriter:
        if self.info(path) is not None:
            raise StorageFailed(f"The file {path} exists", where=self._url(path))
        with _failures("create", self._url(path)):
            self._make(self._full(paths.parent(f"/{path}").strip("/")))
            return ArrowWriter(self, self._fs.open_output_stream(self._full(path)), path)

    def create(self, path: str, data: bytes) -> bool:
        """Always refuses: Arrow could tell two creators that each made the file."""
        raise StorageFailed(
            "This store cannot create a file atomically", where=f"{self._url(path)} {len(data)}"
        )

    def rename(self, source: str, target: str) -> None:
        if self.info(source) is None:
            raise missing(source, self._root)
        with _failures("rename", self._url(source)):
            self._make(self._full(paths.parent(f"/{target}").strip("/")))
            self._fs.move(self._full(source), self._full(target))

    def delete(self, paths: Iterable[str]) -> None:
        try_all(partial(self._delete_one, path) for path in paths)

    def delete_folder(self, path: str) -> None:
        with _failures("delete", self._url(path)):
            if self._fs.get_file_info(self._full(path)).type == fs.FileType.Directory:
                self._fs.delete_dir(self._full(path))

    def make_folder(self, path: str) -> None:
        with _failures("make", self._url(path)):
            self._make(self._full(path))

    def is_folder(self, path: str) -> bool:
        with _failures("read", self._url(path)):
            return self._fs.get_file_info(self._full(path)).type == fs.FileType.Directory

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        return self._files(prefix, deep=True)

    def list_folder(self, path: str) -> Iterator[FileInfo]:
        return self._files(path, deep=False)

    def _files(self, prefix: str, *, deep: bool) -> Iterator[FileInfo]:
        selector = fs.FileSelector(self._full(prefix), recursive=deep, allow_not_found=True)
        with _failures("list", self._url(prefix)):
            found = self._fs.get_file_info(selector)
        files = [
            FileInfo(info.path.removeprefix(f"{self._folder}/"), info.size, _modified_ms(info))
            for info in found
            if info.type == fs.FileType.File
        ]
        return iter(sorted(files, key=lambda info: info.path))

    def _make(self, folder: str) -> None:
        if self._fs.type_name not in _OBJECT_STORES:
            self._fs.create_dir(folder, recursive=True)

    def _delete_one(self, path: str) -> None:
        with (
            contextlib.suppress(FileMissing),
            _failures("delete", self._url(path)),
        ):
            if self.info(path) is not None:
                self._fs.delete_file(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _url(self, path: str) -> str:
        return f"{self._root}/{path}"


class ArrowWriter:
    """A file behind Arrow under way."""

    def __init__(self, store: ArrowStore, stream: pa.NativeFile, path: str) -> None:
        self._store = store
        self._stream = stream
        self._path = path
        self._checksum = Checksum()

    def write(self, data: bytes | memoryview) -> None:
        self._checksum.add(data)
        with _failures("write", self._path):
            self._stream.write(data)

    def close(self) -> Written:
        with _failures("write", self._path):
            self._stream.close()
        return Written(self._path, self._checksum.size, self._checksum.crc32c)

    def abort(self) -> None:
        """Deletes the file; Arrow offers no other way than to close it first."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()
        self._store.delete([self._path])


@contextlib.contextmanager
def _failures(act: str, url: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileMissing(f"There is no file {paths.name(url)}", where=url) from error
    except (OSError, pa.ArrowException) as error:
        raise failed(f"Cannot {act} {paths.name(url)}: {error}", url, error) from error


def _modified_ms(info: fs.FileInfo) -> int | None:
    return None if info.mtime_ns is None else info.mtime_ns // 1_000_000
