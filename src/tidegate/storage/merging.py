"""Few files for many small states: each state is a segment of a file that others share.

A file is of one subtask and one checkpoint, lies in that checkpoint's folder, and is deleted with
it. So nothing counts who uses it: whoever deletes one segment's file deletes the others of the same
acknowledgement with it. Flink's files may also be shared by subtasks and by checkpoints, which
needs a bookkeeping of what in them is still in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.handles import SegmentFileStateHandle, StateScope
from tidegate.model.files import FileChecksum
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.storage.store import Store, Writer


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
        self._written: dict[str, FileChecksum] = {}

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        return self._written

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
            self._written[self._place] = FileChecksum(written.crc32c, written.size)
            self._file = None

    def abort(self) -> None:
        """Drops the unfinished file; the caller deletes durable ones."""
        file, self._file = self._file, None
        if file is not None:
            file.abort()


class Segment:
    """One state's part of a file: a `storage.streams.StateFile`."""

    def __init__(self, merging: FileMerging, place: str, start: int, name: str) -> None:
        self._merging = merging
        self._place = place
        self._start = start
        self._end = start
        self._name = name

    @property
    def checksums(self) -> Mapping[str, FileChecksum]:
        """Empty: the file belongs to several states."""
        return {}

    def write(self, data: bytes) -> None:
        before, self._end = self._end, self._merging.write(data)
        assert before + len(data) == self._end, "one state at a time"

    def close(self) -> SegmentFileStateHandle:
        size = self._end - self._start
        return SegmentFileStateHandle(
            self._place, self._start, size, StateScope.EXCLUSIVE, self._name
        )

    def abort(self) -> None:
        """Leaves the bytes in the shared file, where no handle names them."""
