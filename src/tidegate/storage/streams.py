"""Streams that a subtask writes its states to, and the files behind them.

Small state stays in its handle. Large state goes to a file of its own, or becomes a segment of a
file that several states share (`FileMerging`). Such a file is of one subtask and one checkpoint,
lies in that checkpoint's folder, and is deleted with it. So nothing counts who uses it: whoever
deletes one segment's file deletes the others of the same acknowledgement with it. Flink's files may
also be shared by subtasks and by checkpoints, which needs a bookkeeping of what is still in use.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StateScope,
)
from tidegate.errors import StorageFailed
from tidegate.model.files import FileChecksum, checksum_name
from tidegate.storage import paths
from tidegate.storage.store import Checksum, try_all

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from tidegate.storage.store import Store, Writer, Written

_PARTS_BESIDE: Final = 2
"""Parts that wait for the thread that writes them."""

_PART_BYTES: Final = 8 << 20
"""Of a part: many, since the thread waits some 5 ms for its turn a few times for each."""


class OwnFile:
    """A file for one state. signed: whether its SHA-256 is to be known."""

    def __init__(
        self, store: Store, folder: str, name: str, *, relative: bool, signed: bool = False
    ) -> None:
        self._digest = hashlib.sha256() if signed else None
        self._store = store
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
        """Gives up the file, durable or not, and deletes it. Raises StorageFailed."""
        if self._written is None:
            self._writer.abort()
        else:
            self._store.delete([self._name])


class FileMerging:
    """Writes states one after another; none of them counts before `close`.

    max_bytes: a file of at least this size takes no further state. One state at a time, by one
    thread at a time.
    """

    def __init__(self, store: Store, folder: str, max_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: Writer | None = None
        self._place = ""
        self._position = 0
        self.checksums: dict[str, FileChecksum] = {}

    def segment(self, name: str) -> Segment:
        """Place for one more state.

        name: never used before; given to a new file, if one is needed.
        """
        # Checked between states alone, which are never split: a file may exceed the limit.
        if self._file is not None and self._position >= self._max_bytes:
            self.close()
        if self._file is None:
            self._file = self._store.open_new(name)
            self._place = paths.join(self._folder, name)
            self._position = 0
        return Segment(self, self._place, self._position, name)

    def write(self, data: bytes) -> int:
        """Adds bytes at the end of the file; returns the new end."""
        assert self._file is not None, "a segment of it was given out"
        self._file.write(data)
        self._position += len(data)
        return self._position

    def close(self) -> None:
        """Makes all written states durable. After StorageFailed call ``abort``."""
        if self._file is not None:
            written = self._file.close()
            self.checksums[self._place] = FileChecksum(written.crc32c, written.size)
            self._file = None

    def abort(self) -> None:
        """Deletes all files. Raises StorageFailed."""
        file, self._file = self._file, None
        durable = partial(self._store.delete, [paths.name(place) for place in self.checksums])
        try_all([durable] if file is None else [file.abort, durable])


class Segment:
    """One state's part of a file of several, in place of an `OwnFile`."""

    def __init__(self, merging: FileMerging, place: str, start: int, name: str) -> None:
        self._merging = merging
        self._place = place
        self._start = start
        self._name = name
        self._written = Checksum()
        # Of the segment alone: a restore reads no more of the file than that.
        self.checksums: dict[str, FileChecksum] = {}

    def write(self, data: bytes) -> None:
        self._written.add(data)
        end = self._merging.write(data)
        assert self._start + self._written.size == end, "one state at a time"

    def close(self) -> SegmentFileStateHandle:
        handle = SegmentFileStateHandle(
            self._place, self._start, self._written.size, StateScope.EXCLUSIVE, self._name
        )
        name = checksum_name(handle)
        assert name is not None, "a segment is in a file"
        self.checksums = {name: self._written.file}
        return handle

    def abort(self) -> None:
        """Leaves the bytes in the shared file, where no handle names them."""


class CheckpointStateOutputStream:
    """Takes the bytes of one state, which count only once its handle was requested.

    Bytes are held back up to ``buffer_max`` and go to a file after that; where none can be opened
    they are refused. place: where a file of its own would lie. Used by one thread at a time.
    """

    def __init__(
        self, place: str, open_file: Callable[[], OwnFile | Segment] | None, *, buffer_max: int
    ) -> None:
        self._place = place
        self._open_file = open_file
        self._buffer_max = buffer_max
        self._buffered: list[bytes] = []
        self._position = 0
        self._file: OwnFile | Segment | None = None
        self._closed = False

    @property
    def position(self) -> int:
        return self._position

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        """crc32c and size of the file or segment that was written for it alone."""
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
        if not self._closed:
            self.discard()

    def discard(self) -> None:
        """Deletes the written bytes, also if the handle was requested. Raises StorageFailed."""
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


@frozen
class CheckpointStreamFactory:
    """Makes the streams of one checkpoint.

    store: of the folder; None if state stays in its handle. relative: whether handles name files
    by their place in the folder. buffer_max: bytes up to which state stays in its handle. signed:
    whether the SHA-256 of files is to be known.
    """

    folder: str
    store: Store | None
    relative: bool
    buffer_max: int
    signed: bool

    def create_stream(
        self, name: str, *, merging: FileMerging | None = None
    ) -> CheckpointStateOutputStream:
        store = self.store
        place = paths.join(self.folder, name)
        if store is None:
            return CheckpointStateOutputStream(place, None, buffer_max=self.buffer_max)

        def open_file() -> OwnFile | Segment:
            if merging is not None:
                return merging.segment(name)
            return OwnFile(store, self.folder, name, relative=self.relative, signed=self.signed)

        return CheckpointStateOutputStream(place, open_file, buffer_max=self.buffer_max)

    def delete(self, places: Iterable[str]) -> None:
        """Deletes files that its streams have written. Raises StorageFailed."""
        if self.store is not None:
            self.store.delete(map(paths.name, places))


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
