"""Where tests write state, and where they read it: memory, and files in a dict."""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from flinkformat.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from tidegate.model.files import FileChecksum
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.places import CheckpointScope, Place
from tidegate.storage.streams import CheckpointStateOutputStream

_NAMES = count()


class MemoryPlace:
    """Where all state stays in its handle, unless another stream is given."""

    bytes_written = 0
    checksums: Mapping[str, FileChecksum] = {}

    def __init__(self, stream: CheckpointStateOutputStream | None = None) -> None:
        self._stream = stream

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        """A stream; no two have one name, for streams are told apart by it."""
        name = f"memory:/state-{next(_NAMES)}"
        return self._stream or CheckpointStateOutputStream(name, None, buffer_max=1 << 40)

    def close(self) -> None:
        """Nothing is open."""


MEMORY = MemoryPlace()


class FilesInDict:
    """Files that are there as long as the dict has them, and what reads them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._numbers = count()

    def new_name(self) -> str:
        return f"file-{next(self._numbers)}"

    def read(self, handle: StreamStateHandle) -> bytes:
        if isinstance(handle, ByteStreamStateHandle):
            return handle.data
        assert isinstance(handle, FileStateHandle)
        return self.files[handle.file_path]

    def view(self, handle: StreamStateHandle, new_file: object = None) -> memoryview:
        return memoryview(self.read(handle))

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        target.write_bytes(self.read(handle))

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        return file.read_bytes() == self.read(handle)


class SlowStorage:
    """Each stream takes a while, and notes on which thread it was made."""

    def __init__(self, storage: CheckpointStorage, slow: Callable[[], None]) -> None:
        self._storage = storage
        self._slow = slow

    def place(self, *of: Any, **more: Any) -> Place:
        place = self._storage.place(*of, **more)
        stream = place.stream

        def slow(*named: Any, **more: Any) -> object:
            self._slow()
            return stream(*named, **more)

        place.stream = slow  # type: ignore[method-assign]
        return place

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)
