"""The stream that a subtask writes one state to, and the file behind it."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from tidegate.errors import StorageFailed
from tidegate.model.files import FileChecksum
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from flinkformat.handles import SegmentFileStateHandle
    from tidegate.storage.store import Store, Written

_PARTS_BESIDE: Final = 2
"""Parts that wait for the thread that writes them."""

_PART_BYTES: Final = 8 << 20
"""Of a part: many, since the thread waits some 5 ms for its turn a few times for each."""


class StateFile(Protocol):
    """Destination of a state that is too large for its handle."""

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        """Place, crc32c and size of a file that is this state's alone; empty until durable."""
        ...

    def write(self, data: bytes) -> None:
        """Adds bytes at the end."""
        ...

    def close(self) -> FileStateHandle | RelativeFileStateHandle | SegmentFileStateHandle:
        """Returns where the state is; a file of its own is durable then."""
        ...

    def abort(self) -> None:
        """Gives up the state; deletes a file of its own."""
        ...


class OwnFile:
    """A file for one state. signed: whether its SHA-256 is to be known."""

    def __init__(
        self, store: Store, folder: str, name: str, *, relative: bool, signed: bool = False
    ) -> None:
        self._digest = hashlib.sha256() if signed else None
        self._writer = store.open_new(name)
        self._place = paths.join(folder, name)
        self._name = name
        self._relative = relative
        self._written: Written | None = None

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        if self._written is None:
            return {}
        digest = "" if self._digest is None else self._digest.hexdigest()
        return {self._place: FileChecksum(self._written.crc32c, self._written.size, digest)}

    def write(self, data: bytes) -> None:
        self._writer.write(data)
        if self._digest is not None:
            # Hashed on the way: to read the file again would double its transfer.
            self._digest.update(data)

    def close(self) -> FileStateHandle | RelativeFileStateHandle:
        written = self._written = self._writer.close()
        if self._relative:
            return RelativeFileStateHandle(self._name, written.size, file_path=self._place)
        return FileStateHandle(self._place, written.size)

    def abort(self) -> None:
        self._writer.abort()


class CheckpointStateOutputStream:
    """Takes the bytes of one state, which count only once its handle was requested.

    Bytes are held back up to ``buffer_max`` and go to a file after that; where none can be opened
    they are refused. place: where a file of its own would lie. Used by one thread at a time.
    """

    def __init__(
        self, place: str, open_file: Callable[[], StateFile] | None, *, buffer_max: int
    ) -> None:
        self._place = place
        self._open_file = open_file
        self._buffer_max = buffer_max
        self._buffered: list[bytes] = []
        self._position = 0
        self._file: StateFile | None = None
        self._closed = False

    @property
    def position(self) -> int:
        return self._position

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        """Place, crc32c and size of the file that was written for it alone."""
        return {} if self._file is None else self._file.checksums

    def write(self, data: bytes | memoryview) -> None:
        """Adds bytes at the end. After StorageFailed only ``close`` is allowed."""
        assert not self._closed, "the stream is closed"
        piece = bytes(data)
        self._position += len(piece)
        if self._file is not None:
            self._file.write(piece)
            return
        self._buffered.append(piece)
        if self._open_file is None:
            self._check_size()
        elif self._position >= self._buffer_max:
            # No file before this: most states are small, and stay in their handle.
            self._file = self._open_file()
            self._file.write(b"".join(self._buffered))
            self._buffered.clear()

    def close_and_get_handle(
        self,
    ) -> ByteStreamStateHandle | FileStateHandle | RelativeFileStateHandle | SegmentFileStateHandle:
        """Returns the handle; makes the bytes durable unless they share a file.

        Raises StorageFailed, and then leaves nothing behind.
        """
        assert not self._closed, "the stream is closed"
        if self._file is None:
            self._closed = True
            return ByteStreamStateHandle(self._place, b"".join(self._buffered))
        try:
            handle = self._file.close()
        except StorageFailed:
            self.close()
            raise
        self._closed = True
        return handle

    def close(self) -> None:
        """Gives up the state unless its handle was requested; deletes the written bytes."""
        if self._closed:
            return
        self._closed = True
        self._buffered.clear()
        if self._file is not None:
            self._file.abort()

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


@contextmanager
def written_beside(
    write: Callable[[bytes], None],
) -> Generator[Callable[[bytes | memoryview], None]]:
    """Writes on a thread of its own, in order, while the caller makes the next piece.

    Gives what takes pieces; some 40 MB of them wait at most. The exception of a write is raised at
    a later piece or at the end of the block, and no further write begins. None is under way behind
    the block.
    """
    pieces: list[bytes | memoryview] = []
    size = 0
    failed = False
    waiting: deque[Future[None]] = deque()

    def write_next(part: bytes) -> None:
        nonlocal failed
        if not failed:
            failed = True
            write(part)
            failed = False

    def hand_over() -> None:
        nonlocal size
        if len(waiting) == _PARTS_BESIDE:
            waiting.popleft().result()
        waiting.append(pool.submit(write_next, b"".join(pieces)))
        pieces.clear()
        size = 0

    def take(piece: bytes | memoryview) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        if size >= _PART_BYTES:
            hand_over()

    with ThreadPoolExecutor(1, "tidegate-stream") as pool:
        try:
            yield take
            hand_over()
            while waiting:
                waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
