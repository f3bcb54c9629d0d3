"""The log of one operator's keyed state: every change since a snapshot of all of it, its base.

A record says what an entry is, or that there is none; so to read the log from any place before the
last change of each entry gives the state, and reading a part twice does no harm. That carries all:

- Changes need not be logged one by one. A backend knows which entries were written, and encodes
  them as they are when some megabytes have gathered; the rest when a barrier comes.
- A base that is made in the background needs no barrier. Each of its entries may be as of another
  moment, if only the log that counts with it begins before the first one.
- A log that was cut off in the middle by a failure goes on with what was not written.

**Who owns the files.** What is written here is named by every checkpoint from then on, until a
newer base makes it needless for all that follow; the base that a checkpoint names is never older
than that of one before it. So no checkpoint can be complete without a file that a later one needs,
and the driver's registry may be trusted with all files, whatever becomes of single checkpoints
(`checkpoint.registry`). A file that no acknowledgement has named is deleted here once nothing can
name it any more: no base, no part and no checkpoint under way. If the slot ends before that, the
sweep of orphans deletes it.

Why so: docs/design/changelog.md. Bytes: docs/formats/changelog.md.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    HandleAndOffset,
    InMemoryChangelogStateHandle,
    StateChange,
)
from flinkformat.snapshots import SharingFilesStrategy
from tidegate.errors import StorageFailed
from tidegate.state.format.blocks import KeyedHeader, compressor, header_bytes
from tidegate.state.log.log_parts import Base, Batch, Changes, LogFiles
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flinkformat.handles import ChangelogStateHandle, KeyedStateHandle
    from tidegate.model.settings import ChangelogSettings
    from tidegate.state.format.blocks import StateHeader
    from tidegate.state.log.log_parts import Part
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place

COLUMNS_ID: Final = "columns-"
"""Prefix of the names of columnar state, which each checkpoint writes again, beside its base."""

_ENTRY_BYTES_AT_FIRST: Final = 100.0

STORAGE: Final = "filesystem"
"""How Flink names a log that is in files."""

DESCRIPTION: Final = -1
"""The key group of the change that says which states a part of the log is of."""


class ChangeLog:
    """The log of one operator in one subtask: its parts in order, and the base before them.

    place: makes a place for files. start: runs a call off the loop. Its methods are called on the
    loop, unless they say otherwise.
    """

    def __init__(
        self,
        scope: StateScope,
        settings: ChangelogSettings,
        place: Callable[[SharingFilesStrategy], Place],
        start: Callable[[Callable[[], None]], None],
    ) -> None:
        self.settings = settings
        self.scope = scope
        self.writer = LogWriter(scope, settings, place)
        self._start = start
        self._open = Changes()
        self.position = 0
        self._batches: list[Batch] = []
        self._base = Base(-1, 0, ())
        # Whatever is in use: by the log, by checkpoints under way and bases in the background.
        self._alive = WeakSet[Batch | Base]()
        self._numbers = 0
        self.row_bytes = _ENTRY_BYTES_AT_FIRST

    def restore(self, handles: Sequence[KeyedStateHandle]) -> None:
        """Go on where a checkpoint has left off, if it was this subtask's; else begin with a base.

        The state itself is its backend's to restore.
        """
        if not handles:
            return
        self._numbers = 1 + max(map(_number_of, handles))
        self._base = Base(self._numbers, 0)
        if len(handles) > 1:
            return
        [handle], groups = handles, self.scope.key_groups
        if isinstance(handle, ChangelogStateBackendHandle) and handle.key_groups == groups:
            parts = [each for each in handle.materialized if not _is_columns(each)]
            if any(each.key_groups != groups for each in parts):
                return  # a folder of files cannot be cut, and came whole to others, too
            self._base = Base(self._numbers, 0, tuple(parts))
            for part in _parts_of(handle.non_materialized):
                self._batches.append(Batch(self.position, None, None, part, size_of(part)))
                self.position += 1

    def close(self) -> None:
        """No checkpoint will follow: what is being written goes once that has ended."""
        self.writer.closed = True

    def append(
        self, group: int, state: StateHeader, kind: int, rows: int, keys: bytes, values: bytes
    ) -> None:
        """Logs the current form of these entries."""
        self._open.add(group, state, kind, rows, keys, values)

    def is_due(self, entries: int) -> bool:
        """True where so many entries more are enough for an upload, and not too many are on it."""
        waiting = sum(batch.changes.size for batch in self._batches if batch.changes is not None)
        due = self._open.size + entries * self.row_bytes >= self.settings.persist_bytes
        return due and waiting < self.settings.in_flight_bytes

    def persist(self, key_type: bytes | None) -> None:
        """Have what is encoded written soon; where that fails, the next checkpoint tries again."""
        if self._seal(key_type):

            def upload() -> None:
                with contextlib.suppress(StorageFailed):
                    self.writer.upload(list(self._batches))

            self._start(upload)

    def _seal(self, key_type: bytes | None) -> bool:
        """Close the open part; False where it is empty."""
        if not self._open.size:
            return False
        self.row_bytes = self._open.size / max(1, self._open.rows)
        batch = Batch(self.position, key_type, self._open, size=self._open.size)
        self._alive.add(batch)
        self._batches.append(batch)
        self._open = Changes()
        self.position += 1
        return True

    # --- checkpoints ---

    def cut(self, *, full: bool) -> tuple[Base, list[Batch], Place | None]:
        """A checkpoint begins: with the newest base, or a new one where that is not durable.

        full: no older file may be named. Gives the base, the parts of the log that count with it
        by now, and where the base is to be written; None where it is there.
        """
        self._collect()
        if self._base.handles is not None and not full:
            return self._base, list(self._batches), None
        again = SharingFilesStrategy.FORWARD if full else SharingFilesStrategy.FORWARD_BACKWARD
        self._replace(self._new_base())
        return self._base, [], self.writer.new_place(again)

    def sealed(self, number: int, key_type: bytes | None) -> list[Batch]:
        """The parts of the log from this one on, up to now."""
        self._seal(key_type)
        return [batch for batch in self._batches if batch.number >= number]

    # --- bases in the background ---

    def begin_base(self) -> tuple[Base, Place] | None:
        """A base of what is there from now on; None where no part of the log would be needless."""
        if self._base.handles is None:
            return None  # a checkpoint writes one
        if not self._open.size and not any(b.number >= self._base.position for b in self._batches):
            return None
        return self._new_base(), self.writer.new_place(SharingFilesStrategy.FORWARD_BACKWARD)

    def take(self, base: Base) -> bool:
        """Adopts a durable base; True if the next checkpoints name it, and no newer one."""
        assert base.handles is not None, "a base counts once it is durable"
        if base.number < self._base.number:
            return False
        self._replace(base)
        return True

    def _new_base(self) -> Base:
        self._numbers += 1
        base = Base(self._numbers, self.position)
        self._alive.add(base)
        return base

    def _replace(self, base: Base) -> None:
        self._base = base
        self._batches = [batch for batch in self._batches if batch.number >= base.position]
        self._collect()

    def _collect(self) -> None:
        """Delete what nothing can name any more, save what the driver has heard of.

        A base that is being written may name again any file of an earlier one.
        """
        alive = list(self._alive)
        if any(isinstance(each, Base) and each.handles is None for each in alive):
            return
        doomed = self.writer.files.needless({place for each in alive for place in each.places})
        if doomed:
            place = self.writer.new_place(SharingFilesStrategy.FORWARD)
            self._start(lambda: place.delete(doomed))


class LogWriter:
    """Makes parts of a log durable, one after the other; off the loop.

    new_place: makes a place for files. closed: no checkpoint will follow, so that what is written
    goes at once.
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
        # Made here, since PyArrow takes long to import: no part that is written waits for that.
        self._compress = compressor() if settings.compressed else None
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
        number, states = batch.number, changes.states
        header = header_bytes(
            KeyedHeader(scope.operator, number, scope.max_parallelism, batch.key, states, None)
        )
        sections = changes.sections(self._compress)
        place = self.new_place(SharingFilesStrategy.FORWARD)
        if self._in_memory:
            batch.part = self._inline(number, header, sections, place.new_name())
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


def _number_of(handle: KeyedStateHandle) -> int:
    match handle:
        case ChangelogStateBackendHandle():
            return max(handle.materialization_id, 0)
        case _:
            return getattr(handle, "checkpoint_id", 0)


def _is_columns(handle: KeyedStateHandle) -> bool:
    return getattr(handle, "state_handle_id", "").startswith(COLUMNS_ID)


def _parts_of(handles: Iterable[ChangelogStateHandle]) -> Iterable[Part]:
    for handle in handles:
        if isinstance(handle, InMemoryChangelogStateHandle):
            yield handle
        else:
            yield from handle.handles
