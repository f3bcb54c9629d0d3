"""Files behind ``fsspec``: whatever has a driver there.

Atomic create is offered only where the driver passes the condition on to the server, which of the
known ones s3fs and gcsfs do, and where a trial shows that it holds.
"""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import ConfigError, FileMissing, StorageFailed
from tidegate.storage import paths
from tidegate.storage.store import (
    Checksum,
    FileInfo,
    StoreGuarantees,
    Trials,
    Written,
    failed,
    missing,
    probe_create,
    try_all,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from fsspec import AbstractFileSystem

CONDITIONAL_CREATE: Final = ("s3", "s3a", "gs", "gcs")
"""Schemes whose driver creates a file on condition that there is none."""

_RENAMING: Final = ("file", "local", "hdfs", "webhdfs", "sftp", "smb")


class FsspecStore:
    """A store over an fsspec file system. folder: its root there. root: the same as a URL.

    trials: what other stores in the same buckets were found to be.
    """

    def __init__(
        self,
        file_system: AbstractFileSystem,
        folder: str,
        root: str,
        *,
        trials: Trials | None = None,
    ) -> None:
        # fsspec has no types worth the name; this is the only place that calls it.
        self._fs: Any = file_system
        self._folder = folder.rstrip("/")
        self._root = root
        protocol: object = self._fs.protocol
        self._protocols = (
            (protocol,) if isinstance(protocol, str) else cast("tuple[str, ...]", protocol)
        )
        self._trials = trials or Trials()
        self._guarantees: StoreGuarantees | None = None

    @staticmethod
    def open(url: str, *, trials: Trials | None = None) -> FsspecStore:
        """The store at a URL.

        Raises ConfigError if fsspec has no driver for its scheme, StorageFailed where that driver
        reaches nothing.
        """
        try:
            from fsspec.core import url_to_fs

            file_system, folder = cast("tuple[Any, str]", url_to_fs(url, use_listings_cache=False))
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"There is no driver for {paths.scheme_of(url)}: files",
                where=url,
                remedy=f"Install tidegate[fsspec] and the scheme's driver. {error}",
            ) from error
        except Exception as error:
            # Some drivers connect here already, and their errors are of any kind.
            told = str(error) or type(error).__name__
            raise failed(f"Cannot reach {url}: {told}", url, error) from error
        return FsspecStore(file_system, folder, paths.absolute(url), trials=trials)

    @property
    def root(self) -> str:
        return self._root

    @property
    def guarantees(self) -> StoreGuarantees:
        """Guarantees that the driver is known for and a trial has confirmed."""
        if self._guarantees is None:
            bucket = self._folder.lstrip("/").partition("/")[0]
            self._guarantees = self._trials.of((self._protocols, bucket), self._tried)
        return self._guarantees

    def _tried(self) -> StoreGuarantees:
        created = False
        if any(protocol in CONDITIONAL_CREATE for protocol in self._protocols):
            name = f".probe-{os.urandom(8).hex()}"
            created = probe_create(self._create, name)
            with contextlib.suppress(StorageFailed):
                self.delete([name])
        renamed = any(protocol in _RENAMING for protocol in self._protocols)
        return StoreGuarantees(atomic_create=created, atomic_rename=renamed)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        end = None if size is None else offset + size
        with self._failures("read", path):
            if end == offset:
                return b""
            return cast("bytes", self._fs.cat_file(self._full(path), start=offset, end=end))

    def info(self, path: str) -> FileInfo | None:
        try:
            with self._failures("read", path):
                found = cast("dict[str, Any]", self._fs.info(self._full(path)))
        except FileMissing:
            return None
        return FileInfo(path, int(found["size"] or 0)) if found["type"] == "file" else None

    def open_new(self, path: str) -> FsspecWriter:
        if self.info(path) is not None:
            raise StorageFailed(f"The file {path} exists", where=f"{self._root}/{path}")
        with self._failures("create", path):
            self._fs.makedirs(paths.parent(self._full(path)), exist_ok=True)
            return FsspecWriter(self, self._fs.open(self._full(path), "wb"), path)

    def create(self, path: str, data: bytes) -> bool:
        """Creates a whole file unless it exists, if ``atomic_create``."""
        if not self.guarantees.atomic_create:
            raise StorageFailed(
                "This store cannot create a file atomically", where=f"{self._root}/{path}"
            )
        return self._create(path, data)

    def rename(self, source: str, target: str) -> None:
        if self.info(source) is None:
            raise missing(source, self._root)
        with self._failures("rename", source):
            self._fs.makedirs(paths.parent(self._full(target)), exist_ok=True)
            self._fs.mv(self._full(source), self._full(target))

    def delete(self, paths: Iterable[str]) -> None:
        try_all(partial(self._delete_one, path) for path in paths)

    def delete_folder(self, path: str) -> None:
        with contextlib.suppress(FileMissing), self._failures("delete", path):
            self._fs.rm(self._full(path), recursive=True)

    def make_folder(self, path: str) -> None:
        with self._failures("make", path):
            self._fs.makedirs(self._full(path), exist_ok=True)

    def is_folder(self, path: str) -> bool:
        with self._failures("read", path):
            return bool(self._fs.isdir(self._full(path)))

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        return self._files(prefix, depth=None)

    def list_folder(self, path: str) -> Iterator[FileInfo]:
        return self._files(path, depth=1)

    def _files(self, prefix: str, *, depth: int | None) -> Iterator[FileInfo]:
        try:
            with self._failures("list", prefix):
                found = cast(
                    "dict[str, dict[str, Any]]",
                    self._fs.find(self._full(prefix), maxdepth=depth, detail=True),
                )
        except FileMissing:
            return iter(())
        base = self._full("")
        files = [
            FileInfo(file.removeprefix(f"{base}/"), int(info["size"] or 0), _modified_ms(info))
            for file, info in found.items()
        ]
        return iter(sorted(files, key=lambda info: info.path))

    def _create(self, path: str, data: bytes) -> bool:
        with self._failures("create", path):
            try:
                self._fs.pipe_file(self._full(path), data, mode="create")
            except FileExistsError:
                return False
        return True

    def _delete_one(self, path: str) -> None:
        with contextlib.suppress(FileMissing), self._failures("delete", path):
            self._fs.rm_file(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    @contextlib.contextmanager
    def _failures(self, act: str, path: str) -> Generator[None]:
        where = f"{self._root}/{path}"
        try:
            yield
        except FileNotFoundError as error:
            raise FileMissing(f"There is no file {paths.name(where)}", where=where) from error
        except StorageFailed:
            raise
        except Exception as error:
            # Drivers pass on any error of their client library; each is a failure of the store.
            told = error or type(error).__name__
            raise failed(f"Cannot {act} {paths.name(where)}: {told}", where, error) from error


class FsspecWriter:
    """A file behind fsspec under way."""

    def __init__(self, store: FsspecStore, stream: Any, path: str) -> None:
        self._store = store
        self._stream = stream
        self._path = path
        self._checksum = Checksum()

    def write(self, data: bytes | memoryview) -> None:
        self._checksum.add(data)
        self._call("write", data)

    def close(self) -> Written:
        self._call("close")
        return Written(self._path, self._checksum.size, self._checksum.crc32c)

    def abort(self) -> None:
        """Discards uploaded parts if the driver can, and deletes the file."""
        for step in ("discard", "close"):
            with contextlib.suppress(StorageFailed, AttributeError, NotImplementedError):
                self._call(step)
        self._store.delete([self._path])

    def _call(self, method: str, *arguments: object) -> None:
        try:
            getattr(self._stream, method)(*arguments)
        except AttributeError:
            raise
        except Exception as error:
            # As for the store: a driver's errors are of any kind.
            raise StorageFailed(
                f"Cannot write {self._path}: {error or type(error).__name__}",
                where=f"{self._store.root}/{self._path}",
            ) from error


def _modified_ms(info: dict[str, Any]) -> int | None:
    """Modification time; each driver has another name for it."""
    found = [info[name] for name in ("mtime", "LastModified", "last_modified") if name in info]
    match found:
        case [datetime() as at, *_]:
            return round(at.timestamp() * 1_000)
        case [int() | float() as at, *_]:
            return round(at * 1_000)
        case _:
            return None
