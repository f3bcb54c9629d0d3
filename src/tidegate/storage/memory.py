"""Files in memory: the twin of a real store, for tests, the simulator and jobs without a folder.

A `MemoryFiles` is one world of files; stores are rooted somewhere in it, as folders are on a
disk. It has every guarantee, and it publishes a file when its writer closes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tidegate.errors import StorageFailed
from tidegate.storage.store import Checksum, FileInfo, StoreGuarantees, Written, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class MemoryFiles:
    """All files of one world, by absolute path; may be used from several threads."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.lock = threading.Lock()

    def store(self, root: str = "memory:") -> MemoryStore:
        return MemoryStore(self, root)


class MemoryStore:
    """A store over `MemoryFiles`."""

    def __init__(self, world: MemoryFiles, root: str) -> None:
        self._world = world
        self._root = root.rstrip("/")

    @property
    def root(self) -> str:
        return self._root

    @property
    def guarantees(self) -> StoreGuarantees:
        return StoreGuarantees(atomic_create=True, atomic_rename=True)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        data = self._world.files.get(self._full(path))
        if data is None:
            raise missing(path, self._root)
        return data[offset : None if size is None else offset + size]

    def info(self, path: str) -> FileInfo | None:
        data = self._world.files.get(self._full(path))
        return None if data is None else FileInfo(path, len(data))

    def open_new(self, path: str) -> MemoryWriter:
        if self.info(path) is not None:
            raise StorageFailed(f"The file {path} exists", where=self._full(path))
        return MemoryWriter(self, path)

    def create(self, path: str, data: bytes) -> bool:
        with self._world.lock:
            if self._full(path) in self._world.files:
                return False
            self._world.files[self._full(path)] = data
            return True

    def rename(self, source: str, target: str) -> None:
        with self._world.lock:
            data = self._world.files.pop(self._full(source), None)
            if data is None:
                raise missing(source, self._root)
            self._world.files[self._full(target)] = data

    def delete(self, paths: Iterable[str]) -> None:
        with self._world.lock:
            for path in paths:
                self._world.files.pop(self._full(path), None)

    def delete_folder(self, path: str) -> None:
        folder = self._full(path)
        with self._world.lock:
            for file in [file for file in self._world.files if file.startswith(f"{folder}/")]:
                del self._world.files[file]
            self._world.folders = {
                other
                for other in self._world.folders
                if other != folder and not other.startswith(f"{folder}/")
            }

    def make_folder(self, path: str) -> None:
        with self._world.lock:
            self._world.folders.add(self._full(path))

    def is_folder(self, path: str) -> bool:
        folder = self._full(path)
        with self._world.lock:
            everything = (*self._world.folders, *self._world.files)
        return folder in self._world.folders or any(
            other.startswith(f"{folder}/") for other in everything
        )

    def list_folder(self, path: str) -> Iterator[FileInfo]:
        above = f"{path}/" if path else ""
        return (info for info in self.list(path) if "/" not in info.path.removeprefix(above))

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        folder = self._full(prefix)
        with self._world.lock:
            found = [
                FileInfo(file.removeprefix(f"{self._root}/"), len(data))
                for file, data in self._world.files.items()
                if file.startswith(f"{folder}/")
            ]
        return iter(sorted(found, key=lambda info: info.path))

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class MemoryWriter:
    """A file in memory under way."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._pieces: list[bytes] | None = []
        self._checksum = Checksum()

    def write(self, data: bytes | memoryview) -> None:
        assert self._pieces is not None, "the file is closed"
        piece = bytes(data)
        self._checksum.add(piece)
        self._pieces.append(piece)

    def close(self) -> Written:
        assert self._pieces is not None, "the file is closed"
        data = b"".join(self._pieces)
        self._pieces = None
        if not self._store.create(self._path, data):
            raise StorageFailed(f"The file {self._path} exists", where=self._store.root)
        return Written(self._path, self._checksum.size, self._checksum.crc32c)

    def abort(self) -> None:
        self._pieces = None
