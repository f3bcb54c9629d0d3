"""The stream that a subtask writes one state to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import StorageFailed
from tidegate.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
)
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.storage.store import Store, Writer, Written


class CheckpointStateOutputStream:
    """Takes the bytes of one state; its handle counts only once it was asked for.

    Bytes are held back up to ``buffer_max`` and go to a file after that; without a store they
    are refused. Used by one thread at a time.
    """

    def __init__(
        self,
        store: Store | None,
        folder: str,
        name: str,
        *,
        relative: bool,
        buffer_max: int,
    ) -> None:
        self._store = store
        self._place = paths.join(folder, name)
        self._name = name
        self._relative = relative
        self._buffer_max = buffer_max
        self._buffered: list[bytes] = []
        self._position = 0
        self._writer: Writer | None = None
        self._written: Written | None = None
        self._closed = False

    @property
    def position(self) -> int:
        """Bytes written so far: where the next ones begin."""
        return self._position

    @property
    def checksums(self) -> Mapping[str, tuple[int, int]]:
        """The file that was written: its place, crc32c and size; empty for inline state."""
        if self._written is None:
            return {}
        return {self._place: (self._written.crc32c, self._written.size)}

    def write(self, data: bytes | memoryview) -> None:
        """Adds bytes at the end. Raises StorageFailed; then only ``close`` is left to do."""
        assert not self._closed, "the stream is closed"
        piece = bytes(data)
        self._position += len(piece)
        if self._writer is not None:
            self._writer.write(piece)
            return
        self._buffered.append(piece)
        if self._store is None:
            self._check_size()
        elif self._position >= self._buffer_max:
            self._writer = self._store.open_new(self._name)
            self._writer.write(b"".join(self._buffered))
            self._buffered.clear()

    def close_and_get_handle(
        self,
    ) -> ByteStreamStateHandle | FileStateHandle | RelativeFileStateHandle:
        """Makes the bytes durable and says where they are.

        Raises StorageFailed, and then leaves nothing behind.
        """
        assert not self._closed, "the stream is closed"
        if self._writer is None:
            self._closed = True
            return ByteStreamStateHandle(self._place, b"".join(self._buffered))
        try:
            self._written = self._writer.close()
        except StorageFailed:
            self.close()
            raise
        self._closed = True
        if self._relative:
            return RelativeFileStateHandle(self._name, self._position, file_path=self._place)
        return FileStateHandle(self._place, self._position)

    def close(self) -> None:
        """Gives the state up unless its handle was given out; deletes what was written."""
        if self._closed:
            return
        self._closed = True
        self._buffered.clear()
        if self._writer is not None:
            self._writer.abort()

    def __enter__(self) -> CheckpointStateOutputStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_size(self) -> None:
        if self._position > self._buffer_max:
            raise StorageFailed(
                "Size of the state is larger than the maximum permitted memory-backed state. "
                f"Size={self._position}, maxSize={self._buffer_max}.",
                where=self._place,
                remedy="Give a checkpoint folder (execution.checkpointing.dir), so that state "
                "goes to files.",
            )
