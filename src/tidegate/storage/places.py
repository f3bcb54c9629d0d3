"""Destination of one subtask's share of one checkpoint."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.snapshots import CHECKPOINT, FULL_CHECKPOINT, SharingFilesStrategy
from tidegate.errors import StorageFailed
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId
from tidegate.storage import paths
from tidegate.storage.checkpoints import CheckpointScope
from tidegate.storage.streams import CheckpointStateOutputStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from tidegate.model.elements import Barrier
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import ExecutionId
    from tidegate.storage.checkpoints import (
        CheckpointStorage,
        CheckpointStorageWorkerView,
    )
    from tidegate.storage.merging import FileMerging

_NONE: Final = CheckpointId(0)
"""Where shared files lie depends on no checkpoint."""


class Place(Protocol):
    """Destination of states: a checkpoint's, one that many checkpoints name, or memory."""

    @property
    def sharing(self) -> SharingFilesStrategy:
        """Which files may be shared with other snapshots."""
        ...

    def new_name(self) -> str:
        """A unique file name that tells who made it."""
        ...

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        """A new stream for one state. merged: whether it may share a file."""
        ...

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        """Writes one state and returns its handle. Blocking. Raises StorageFailed."""
        ...

    def names(self, checksums: Mapping[str, FileChecksum], fresh_bytes: int) -> None:
        """Adds references to files that were written before. fresh_bytes: written for this."""
        ...


class CheckpointPlace:
    """Destination of one subtask's share of one checkpoint; remembers what was written there.

    draw: 64 random bits a call, for the files' names. merging: the files that its states share;
    None for a file each. Streams of their own may be written by several threads at once.
    """

    def __init__(
        self,
        view: CheckpointStorageWorkerView,
        barrier: Barrier,
        execution: ExecutionId,
        draw: Callable[[], int],
        merging: FileMerging | None = None,
    ) -> None:
        self._storage = view.storage
        self._barrier = barrier
        self._factory = view.resolve_checkpoint_storage_location(
            barrier.checkpoint, barrier.options.target
        )
        self._execution = execution
        self._draw = draw
        self._merging = merging
        self._streams: list[CheckpointStateOutputStream] = []
        self._named: dict[str, FileChecksum] = {}
        self._named_bytes = 0
        self._given_up = False

    @property
    def sharing(self) -> SharingFilesStrategy:
        """Which files the snapshot may share with others."""
        match self._barrier.options.kind:
            case SnapshotKind.CHECKPOINT:
                return CHECKPOINT.sharing
            case SnapshotKind.FULL_CHECKPOINT:
                return FULL_CHECKPOINT.sharing
            case _:
                return SharingFilesStrategy.NO_SHARING

    def new_name(self) -> str:
        """A unique file name that tells who made it."""
        return paths.state_file(self._execution.epoch, self._execution.attempt, self._draw())

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        """A new stream for one state.

        merged: whether it may share a file; then no other such stream is open at the time.
        """
        if scope is CheckpointScope.EXCLUSIVE:
            factory = self._factory
        else:
            barrier = self._barrier
            factory = self._storage.stream_factory(
                barrier.checkpoint, scope, target=barrier.options.target
            )
        merging = self._merging if merged and scope is CheckpointScope.EXCLUSIVE else None
        stream = factory.create_stream(self.new_name(), merging=merging)
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
        stream = self.stream(scope, merged=merged)
        try:
            for part in parts:
                self._go_on()
                stream.write(part)
            return stream.close_and_get_handle()
        finally:
            stream.close()

    def give_up(self) -> None:
        """Tells `write` to end at its next part, since nobody waits any more. From any thread."""
        self._given_up = True

    def _go_on(self) -> None:
        if self._given_up:
            raise FailureReason.CHECKPOINT_SUBSUMED.aborted(
                f"Checkpoint {self._barrier.checkpoint} was given up while it was written",
            )

    def close(self) -> None:
        """Makes states in shared files durable. Blocking. Raises StorageFailed."""
        if self._merging is not None:
            self._merging.close()

    def discard(self) -> None:
        for stream in self._streams:
            with contextlib.suppress(StorageFailed):
                stream.close()
        # What cannot be deleted is left to the sweep of orphans.
        if self._merging is not None:
            with contextlib.suppress(StorageFailed):
                self._merging.abort()
        with contextlib.suppress(StorageFailed):
            self._storage.files.delete_files(self._written)

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
        """crc32c and size of each written or named file, by its place."""
        return {**self._named, **self._written}

    @property
    def _written(self) -> dict[str, FileChecksum]:
        shared = {} if self._merging is None else self._merging.checksums
        own = {
            place: written
            for stream in self._streams
            for place, written in stream.checksums.items()
        }
        return {**shared, **own}


class SharedPlace:
    """Destination of files of a subtask that belong to no single checkpoint.

    draw: 64 random bits a call, for the files' names. sharing: which files of older checkpoints
    may be named beside them.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        execution: ExecutionId,
        draw: Callable[[], int],
        sharing: SharingFilesStrategy,
    ) -> None:
        self.sharing = sharing
        self._storage = storage
        self._execution = execution
        self._draw = draw
        self._streams: list[CheckpointStateOutputStream] = []

    def new_name(self) -> str:
        return paths.state_file(self._execution.epoch, self._execution.attempt, self._draw())

    def stream(
        self, scope: CheckpointScope = CheckpointScope.SHARED, *, merged: bool = False
    ) -> CheckpointStateOutputStream:
        """A new stream; its file is shared whatever the caller asks for."""
        factory = self._storage.stream_factory(_NONE, CheckpointScope.SHARED)
        stream = factory.create_stream(self.new_name())
        self._streams.append(stream)
        return stream

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.SHARED,
        *,
        merged: bool = False,
    ) -> StreamStateHandle:
        stream = self.stream()
        try:
            for part in parts:
                stream.write(part)
            return stream.close_and_get_handle()
        finally:
            stream.close()

    def names(self, checksums: Mapping[str, FileChecksum], fresh_bytes: int) -> None:
        """No checkpoint is acknowledged from here."""

    def discard(self) -> None:
        """Deletes everything written here, since nobody will learn of it. Blocking."""
        for stream in self._streams:
            with contextlib.suppress(StorageFailed):
                stream.close()
        self.delete(self.checksums)

    def delete(self, places: Iterable[str]) -> None:
        """Deletes files of which nobody knows, as far as possible. Blocking."""
        with contextlib.suppress(StorageFailed):
            self._storage.files.delete_files(places)

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        return {
            place: written
            for stream in self._streams
            for place, written in stream.checksums.items()
        }


class InlinePlace:
    """A `Place` that keeps all state in its handles. numbers: for names that nothing else has."""

    sharing = SharingFilesStrategy.NO_SHARING

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def new_name(self) -> str:
        return f"memory:/state-{next(self._numbers)}"

    def stream(
        self, scope: CheckpointScope = CheckpointScope.EXCLUSIVE, *, merged: bool = True
    ) -> CheckpointStateOutputStream:
        return CheckpointStateOutputStream(self.new_name(), None, buffer_max=1 << 40)

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        with self.stream() as stream:
            for part in parts:
                stream.write(part)
            return stream.close_and_get_handle()

    def names(self, checksums: Mapping[str, FileChecksum], fresh_bytes: int) -> None:
        """Inline state names no files."""
