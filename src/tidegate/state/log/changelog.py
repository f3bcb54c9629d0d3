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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    HandleAndOffset,
    InMemoryChangelogStateHandle,
    KeyGroupsStateHandle,
    StateChange,
)
from flinkformat.snapshots import SharingFilesStrategy
from flinkformat.state_streams import files_of
from tidegate.errors import StorageFailed, UserError
from tidegate.state.log.log_files import LogFiles
from tidegate.state.log.log_parts import Changes
from tidegate.storage.checkpoints import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flinkformat.handles import ChangelogStateHandle, KeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.model.settings import ChangelogSettings
    from tidegate.state.format.headers import StateHeader
    from tidegate.state.log.log_parts import LoggedRows, LogPlace
    from tidegate.storage.places import CheckpointPlace

    Part = HandleAndOffset | InMemoryChangelogStateHandle

STORAGE: Final = "filesystem"
"""How Flink names a log that is in files."""

COLUMNS_ID: Final = "columns-"
"""Prefix of the names of columnar state, which each checkpoint writes again, beside its base."""

DESCRIPTION: Final = -1
"""The key group of the change that says which states a part of the log is of."""

_ENTRY_BYTES_AT_FIRST: Final = 100.0
_LOOKS: Final = 4
"""How many times it is looked at how much there is, until there is enough for an upload."""

_ROWS_DRAINED: Final = 1024


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """A part of the log. changes: None once it is durable, as `part`."""

    number: int
    key: bytes | None
    changes: Changes | None
    part: Part | None = None
    size: int = 0

    @property
    def places(self) -> Iterator[str]:
        if isinstance(self.part, HandleAndOffset):
            yield self.part.handle.physical_id


@dataclass(slots=True, eq=False, weakref_slot=True)
class Base:
    """A snapshot of all keyed rows. handles: None as long as it is not durable.

    position: the number of the first part of the log that counts with it.
    """

    number: int
    position: int
    handles: tuple[KeyedStateHandle, ...] | None = None

    @property
    def places(self) -> Iterator[str]:
        for handle in self.handles or ():
            yield from files_of(handle)


class ChangeLog:
    """The log of one operator in one subtask.

    place: makes a place for files. start: runs a call off the loop. Its methods are called on the
    loop, unless they say otherwise; `logs` first.
    """

    def __init__(
        self,
        operator: OperatorId,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        settings: ChangelogSettings,
        place: Callable[[SharingFilesStrategy], LogPlace],
        start: Callable[[Callable[[], None]], None],
    ) -> None:
        self._settings = settings
        self.key_groups = key_groups
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._new_place = place
        self._start = start
        self._lock = threading.Lock()
        self._open = Changes()
        self._logged: LoggedRows
        self._position = 0
        self._batches: list[Batch] = []
        self._base = Base(-1, 0, ())
        # Whatever is in use: by the log, by checkpoints under way and bases in the background.
        self._alive = WeakSet[Batch | Base]()
        self._files = LogFiles()
        self._numbers = 0
        self._rows = self._unseen = 0
        self._left = 0
        self._closed = False
        self._row_bytes = _ENTRY_BYTES_AT_FIRST
        self._compress: Callable[[bytes], bytes] | None = None
        if settings.compressed:
            # PyArrow takes long to import, and is not waited for where a part is written.
            from tidegate.state.format.compression import compressed

            self._compress = compressed

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
        [handle] = handles
        if isinstance(handle, ChangelogStateBackendHandle) and handle.key_groups == self.key_groups:
            parts = [each for each in handle.materialized if not _is_columns(each)]
            if any(each.key_groups != self.key_groups for each in parts):
                return  # a folder of files cannot be cut, and came whole to others, too
            self._base = Base(self._numbers, 0, tuple(parts))
            for part in _parts_of(handle.non_materialized):
                self._batches.append(Batch(self._position, None, None, part, _size_of(part)))
                self._position += 1

    def close(self) -> None:
        """No checkpoint follows; files being written are deleted when done."""
        self._closed = True

    # --- changes ---

    def logs(self, rows: LoggedRows) -> None:
        """Sets the rows that are logged."""
        self._logged = rows

    def append(
        self, group: int, state: StateHeader, kind: int, rows: int, keys: bytes, values: bytes
    ) -> None:
        """Logs the current form of these entries."""
        self._open.add(group, state, kind, rows, keys, values)
        self._rows += rows

    def go_on(self, rows: int) -> None:
        """So many rows are about to come: log some of what was written, once that is much.

        What can't be logged now stays for the next checkpoint, which says so where it fails again.
        """
        self._unseen += rows
        if self._left <= 0:
            if self._unseen * self._row_bytes * _LOOKS < self._settings.persist_bytes:
                return
            self._unseen, entries = 0, self._logged.undrained
            self._left = entries if self._is_due(entries) else 0
        if self._left > 0:
            drained = max(_ROWS_DRAINED, 2 * rows)
            self._left -= drained
            try:
                self._logged.drain(drained)
            except UserError:
                self._left = 0
            if self._left <= 0:
                self._persist()

    def _is_due(self, entries: int) -> bool:
        waiting = sum(batch.changes.size for batch in self._batches if batch.changes is not None)
        due = self._open.size + entries * self._row_bytes >= self._settings.persist_bytes
        return due and waiting < self._settings.in_flight_bytes

    def _persist(self) -> None:
        """Schedules writing of encoded parts; after a failure the next checkpoint tries again."""
        if self._seal():

            def upload() -> None:
                with contextlib.suppress(StorageFailed):
                    self._upload(list(self._batches))

            self._start(upload)

    def _seal(self) -> bool:
        if not self._open.size:
            return False
        self._row_bytes = self._open.size / max(1, self._rows)
        batch = Batch(self._position, self._logged.key_type, self._open, size=self._open.size)
        self._alive.add(batch)
        self._batches.append(batch)
        self._open, self._rows = Changes(), 0
        self._position += 1
        return True

    # --- checkpoints ---

    def cut(self, checkpoint: CheckpointId, *, full: bool) -> PendingLog:
        """A checkpoint begins: with the newest base, or a new one where that is not durable.

        full: no older file may be named.
        """
        self._collect()
        if self._base.handles is not None and not full:
            return PendingLog(self, checkpoint, self._base, self._batches)
        again = SharingFilesStrategy.FORWARD if full else SharingFilesStrategy.FORWARD_BACKWARD
        self._replace(self._new_base())
        return PendingLog(self, checkpoint, self._base, (), place=self._new_place(again))

    def sealed(self, number: int) -> list[Batch]:
        """Parts of the log from this one up to now."""
        self._seal()
        return [batch for batch in self._batches if batch.number >= number]

    @property
    def position(self) -> int:
        return self._position

    def handle(
        self,
        pending: PendingLog,
        place: CheckpointPlace,
        columns: KeyGroupsStateHandle | None,
    ) -> ChangelogStateBackendHandle | None:
        """Handle for a checkpoint, all durable. Blocking, off the loop."""
        base, batches = pending.base, pending.batches
        before = {batch for batch in batches if batch.part is not None}
        self._upload(batches)
        assert base.handles is not None, "a checkpoint counts on a base that is durable"
        fresh = sum(batch.size for batch in batches if batch not in before)
        fresh += sum(part.checkpointed_size for part in base.handles) if pending.is_full else 0
        place.names(self._files.checksums(pending.places), fresh)
        if columns is not None:
            fresh += columns.state_size
        materialized = base.handles if columns is None else (*base.handles, columns)
        log = self._handles_of(batches, place, fresh)
        if not materialized and not log:
            return None
        return ChangelogStateBackendHandle(
            self.key_groups,
            materialized,
            log,
            base.number,
            pending.checkpoint,
            fresh,
            place.new_name(),
        )

    def _handles_of(
        self, batches: Sequence[Batch], place: CheckpointPlace, fresh: int
    ) -> tuple[ChangelogStateHandle, ...]:
        """Handles of the parts in order; adjacent ones in files share a handle."""
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
                name = place.new_name()
                found.append(
                    ChangelogStateHandleStream(
                        self.key_groups, tuple(files), size, min(fresh, size), name, STORAGE
                    )
                )
                files = []
        return tuple(found)

    # --- bases in the background ---

    def begin_base(self) -> tuple[Base, LogPlace] | None:
        """Starts a base of the current entries; None if it would replace no part of the log."""
        if self._base.handles is None:
            return None  # a checkpoint writes one
        if not self._open.size and not any(b.number >= self._base.position for b in self._batches):
            return None
        return self._new_base(), self._new_place(SharingFilesStrategy.FORWARD_BACKWARD)

    def durable(self, base: Base, handle: KeyedStateHandle | None, place: LogPlace) -> None:
        """A base was written to a place; None if it was empty. From any thread."""
        self._files.wrote(place.checksums)
        base.handles = () if handle is None else (handle,)
        if self._closed:
            place.delete(place.checksums)

    def take(self, base: Base) -> bool:
        """Adopts a durable base; True if the next checkpoints name it, and no newer one."""
        assert base.handles is not None, "a base counts once it is durable"
        if base.number < self._base.number:
            return False
        self._replace(base)
        return True

    def _new_base(self) -> Base:
        self._numbers += 1
        base = Base(self._numbers, self._position)
        self._alive.add(base)
        return base

    def _replace(self, base: Base) -> None:
        self._base = base
        self._batches = [batch for batch in self._batches if batch.number >= base.position]
        self._collect()

    def acknowledged(self, pending: PendingLog) -> None:
        """The driver learns of a checkpoint."""
        self._files.acknowledged(pending.places)

    def _collect(self) -> None:
        """Delete what nothing can name any more, save what the driver has heard of.

        A base that is being written may name again any file of an earlier one.
        """
        alive = list(self._alive)
        if any(isinstance(each, Base) and each.handles is None for each in alive):
            return
        doomed = self._files.needless({place for each in alive for place in each.places})
        if doomed:
            place = self._new_place(SharingFilesStrategy.FORWARD)
            self._start(lambda: place.delete(doomed))

    # --- off the loop ---

    def _upload(self, batches: Sequence[Batch]) -> None:
        """Writes what is not durable yet, in order. Blocking. Raises StorageFailed."""
        with self._lock:
            for batch in batches:
                if batch.part is None:
                    self._write(batch)

    def _write(self, batch: Batch) -> None:
        changes = batch.changes
        assert changes is not None, "what is not durable is kept"
        header = changes.header(self._operator, batch.number, self._max_parallelism, batch.key)
        sections = changes.sections(self._compress)
        if self._settings.in_memory:
            batch.part = self._in_memory(batch.number, header, sections)
        else:
            place = self._new_place(SharingFilesStrategy.FORWARD)
            parts = (header, *(section for _, section in sections))
            handle = place.write(parts, CheckpointScope.SHARED, merged=False)
            # In this order: a file that is known and in no part would be deleted.
            batch.part = HandleAndOffset(0, handle)
            self._files.wrote(place.checksums)
            if self._closed:
                place.delete(place.checksums)
        batch.size = _size_of(batch.part)
        batch.changes = None

    def _in_memory(
        self, number: int, header: bytes, sections: Iterable[tuple[int, bytes]]
    ) -> InMemoryChangelogStateHandle:
        changes = [StateChange(DESCRIPTION, header)]
        changes += [StateChange(group, section) for group, section in sections]
        name = self._new_place(SharingFilesStrategy.FORWARD).new_name()
        return InMemoryChangelogStateHandle(
            self.key_groups, number, number + 1, tuple(changes), name
        )


class PendingLog:
    """One checkpoint's part of the log. place: where it writes its base itself; None if it doesn't.

    batches: what it counts on; those from after the cut come with `seal`. What a newer base makes
    needless meanwhile is still needed here.
    """

    def __init__(
        self,
        log: ChangeLog,
        checkpoint: CheckpointId,
        base: Base,
        batches: Sequence[Batch],
        *,
        place: LogPlace | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.base = base
        self.batches = list(batches)
        self._log = log
        self._position = log.position
        self._place = place

    @property
    def is_full(self) -> bool:
        """True if it writes its base itself."""
        return self._place is not None

    @property
    def places(self) -> Iterator[str]:
        """Places of everything it depends on, as far as these are files by now."""
        yield from self.base.places
        for batch in self.batches:
            yield from batch.places

    def seal(self) -> None:
        """Ends the log at the barrier: all earlier changes are in it, and no later ones."""
        if not self.is_full:
            self.batches += self._log.sealed(self._position)

    def acknowledged(self) -> None:
        """The driver learns of the checkpoint, and owns its files from now on."""
        self._log.acknowledged(self)

    def upload(
        self,
        place: CheckpointPlace,
        write_base: Callable[[LogPlace], KeyedStateHandle | None],
        columns: KeyGroupsStateHandle | None,
    ) -> ChangelogStateBackendHandle | None:
        """Make all of it durable; None if there is no state. Blocking, off the loop.

        columns: columnar state. Raises StorageFailed, CheckpointAborted.
        """
        if self._place is not None:
            try:
                handle = write_base(self._place)
            except BaseException:
                self._place.delete(self._place.checksums)
                raise
            self._log.durable(self.base, handle, self._place)
        return self._log.handle(self, place, columns)


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


def _size_of(part: Part) -> int:
    return part.handle.state_size if isinstance(part, HandleAndOffset) else part.state_size
