"""Destination of a subtask's states: one checkpoint, or files that many checkpoints name."""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.snapshots import SharingFilesStrategy
from tidegate.errors import StorageFailed
from tidegate.model.failure_reason import FailureReason
from tidegate.storage.streams import CheckpointStreamFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId
    from tidegate.storage.streams import CheckpointStateOutputStream, FileMerging


class CheckpointScope(Enum):
    """Owner of a file of state; Flink's ``CheckpointedStateScope``."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class Place:
    """Destination of states, which remembers what was written there.

    own, shared: streams of either scope; equal where no single checkpoint owns a file. new_name: a
    unique file name, which tells who made it. sharing: which files the snapshot may share with
    others. merging: the files that its states share; None for a file each. Streams of their own
    may be written by several threads at once.
    """

    def __init__(
        self,
        own: CheckpointStreamFactory,
        shared: CheckpointStreamFactory,
        new_name: Callable[[], str],
        sharing: SharingFilesStrategy,
        merging: FileMerging | None = None,
    ) -> None:
        self.new_name = new_name
        self.sharing = sharing
        self._own = own
        self._shared = shared
        self._merging = merging
        self._streams: list[CheckpointStateOutputStream] = []
        self._named: dict[str, FileChecksum] = {}
        self._named_bytes = 0
        self._given_up: CheckpointId | None = None

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        """A new stream for one state.

        merged: whether it may share a file; then no other such stream is open at the time.
        """
        if scope is CheckpointScope.SHARED:
            stream = self._shared.create_stream(self.new_name())
        else:
            merging = self._merging if merged else None
            stream = self._own.create_stream(self.new_name(), merging=merging)
        self._streams.append(stream)
        return stream

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        """Writes one state and returns its handle. Blocking.

        Raises StorageFailed, and CheckpointAborted between two parts once it was given up.
        """
        with self.stream(scope, merged=merged) as stream:
            for part in parts:
                # A call that writes cannot be stopped from outside, so it looks for itself.
                if self._given_up is not None:
                    raise FailureReason.CHECKPOINT_SUBSUMED.aborted(
                        f"Checkpoint {self._given_up} was given up while it was written",
                    )
                stream.write(part)
            return stream.close_and_get_handle()

    def give_up(self, checkpoint: CheckpointId) -> None:
        """Tells `write` to end at its next part, since nobody waits any more. From any thread."""
        self._given_up = checkpoint

    def close(self) -> None:
        """Makes states in shared files durable. Blocking. Raises StorageFailed."""
        if self._merging is not None:
            self._merging.close()

    def discard(self) -> None:
        """Deletes everything written here, since nobody will learn of it. Blocking."""
        merged = () if self._merging is None else (self._merging.abort,)
        for delete in (*(stream.discard for stream in self._streams), *merged):
            # What cannot be deleted is left to the sweep of orphans.
            with contextlib.suppress(StorageFailed):
                delete()

    def delete(self, places: Iterable[str]) -> None:
        """Deletes shared files of which nobody knows, as far as possible. Blocking."""
        with contextlib.suppress(StorageFailed):
            self._shared.delete(places)

    def names(self, checksums: Mapping[str, FileChecksum], fresh_bytes: int) -> None:
        """Adds references to files that were written before and outlive this snapshot.

        fresh_bytes: that were written for it.
        """
        self._named.update(checksums)
        self._named_bytes += fresh_bytes

    @property
    def bytes_written(self) -> int:
        """Bytes of all streams, and of files written for it elsewhere."""
        return sum(stream.position for stream in self._streams) + self._named_bytes

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        """crc32c and size of each written or named file and segment, by its name."""
        found = dict(self._named)
        if self._merging is not None:
            found |= self._merging.checksums
        for stream in self._streams:
            found |= stream.checksums
        return found


def inline_place(numbers: Iterator[int]) -> Place:
    """A place that keeps all state in its handles. numbers: for names that nothing else has."""
    inline = CheckpointStreamFactory("memory:/", None, True, 1 << 40, False)
    return Place(inline, inline, lambda: f"state-{next(numbers)}", SharingFilesStrategy.NO_SHARING)
