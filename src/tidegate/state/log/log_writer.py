"""Writes the parts of a log, and says which of its files a checkpoint names. Off the loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ChangelogStateHandleStream,
    HandleAndOffset,
    InMemoryChangelogStateHandle,
    StateChange,
)
from flinkformat.snapshots import SharingFilesStrategy
from tidegate.state.log.log_files import LogFiles
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flinkformat.handles import ChangelogStateHandle, KeyedStateHandle
    from tidegate.model.settings import ChangelogSettings
    from tidegate.state.log.log_parts import Base, Batch, Part
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place

STORAGE: Final = "filesystem"
"""How Flink names a log that is in files."""

DESCRIPTION: Final = -1
"""The key group of the change that says which states a part of the log is of."""


class LogWriter:
    """Makes parts of a log durable, one after the other. new_place: makes a place for files.

    closed: no checkpoint will follow, so that what is written goes at once.
    """

    def __init__(
        self,
        scope: StateScope,
        settings: ChangelogSettings,
        place: Callable[[SharingFilesStrategy], Place],
    ) -> None:
        self._scope = scope
        self._in_memory = settings.in_memory
        self._lock = threading.Lock()
        self._compress: Callable[[bytes], bytes] | None = None
        if settings.compressed:
            # PyArrow takes long to import, and is not waited for where a part is written.
            from tidegate.state.format.compression import compressed

            self._compress = compressed
        self.new_place = place
        self.files = LogFiles()
        self.closed = False

    def upload(self, batches: Sequence[Batch]) -> int:
        """Write what is not durable yet, in order; gives its bytes. Raises StorageFailed."""
        with self._lock:
            fresh = [batch for batch in batches if batch.part is None]
            for batch in fresh:
                self._write(batch)
        return sum(batch.size for batch in fresh)

    def durable(self, base: Base, handle: KeyedStateHandle | None, place: Place) -> None:
        """A base was written to a place; None where there was nothing."""
        self.files.wrote(place.checksums)
        base.handles = () if handle is None else (handle,)
        if self.closed:
            place.delete(place.checksums)

    def handles_of(
        self, batches: Sequence[Batch], place: Place, fresh: int
    ) -> tuple[ChangelogStateHandle, ...]:
        """The parts in order; those in files, one after the other, in one handle."""
        found: list[ChangelogStateHandle] = []
        files: list[HandleAndOffset] = []
        parts = [batch.part for batch in batches]
        for index, part in enumerate(parts):
            if isinstance(part, InMemoryChangelogStateHandle):
                found.append(part)
                continue
            assert part is not None, "what was uploaded is durable"
            files.append(part)
            if index + 1 == len(parts) or not isinstance(parts[index + 1], HandleAndOffset):
                size = sum(each.handle.state_size for each in files)
                name, groups = place.new_name(), self._scope.key_groups
                found.append(
                    ChangelogStateHandleStream(
                        groups, tuple(files), size, min(fresh, size), name, STORAGE
                    )
                )
                files = []
        return tuple(found)

    def _write(self, batch: Batch) -> None:
        changes, scope = batch.changes, self._scope
        assert changes is not None, "what is not durable is kept"
        header = changes.header(scope.operator, batch.number, scope.max_parallelism, batch.key)
        sections = changes.sections(self._compress)
        place = self.new_place(SharingFilesStrategy.FORWARD)
        if self._in_memory:
            batch.part = self._inline(batch.number, header, sections, place.new_name())
        else:
            parts = (header, *(section for _, section in sections))
            handle = place.write(parts, CheckpointScope.SHARED, merged=False)
            # In this order: a file that is known and in no part would be deleted.
            batch.part = HandleAndOffset(0, handle)
            self.files.wrote(place.checksums)
            if self.closed:
                place.delete(place.checksums)
        batch.size = size_of(batch.part)
        batch.changes = None

    def _inline(
        self, number: int, header: bytes, sections: Iterable[tuple[int, bytes]], name: str
    ) -> InMemoryChangelogStateHandle:
        changes = [StateChange(DESCRIPTION, header)]
        changes += [StateChange(group, section) for group, section in sections]
        groups = self._scope.key_groups
        return InMemoryChangelogStateHandle(groups, number, number + 1, tuple(changes), name)


def size_of(part: Part) -> int:
    """Bytes of a part of a log."""
    return part.handle.state_size if isinstance(part, HandleAndOffset) else part.state_size
