"""A backend of keyed rows with a changelog around it: a checkpoint is the end of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tidegate.errors import UserError
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.state.log.pending_log import LoggedSnapshot, PendingBase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Base
    from tidegate.state.protocols import (
        BesideRows,
        KeyedBackend,
        Pending,
        StateReads,
        WrittenColumns,
    )
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place

_LOOKS: Final = 4
"""How many times it is looked at how much there is, until there is enough for an upload."""

_ROWS_DRAINED: Final = 1024


class LoggedRows(Protocol):
    """Keyed rows whose changes are logged."""

    @property
    def key_type(self) -> bytes | None:
        """Snapshot of the keys' serializer; None until a key was seen."""
        ...

    @property
    def undrained(self) -> int:
        """Number of written entries that are not in the log."""
        ...

    def drain(self, rows: int) -> None:
        """Log about so many of them, as they are now. Raises UserError for what can't be."""
        ...

    def cut(self, sealed: Callable[[], None]) -> Pending[KeyedStateHandle] | None:
        """Set aside what is not logged yet, to be logged as it is now; None without state.

        sealed: called once all of it is in the log, and nothing that was written later.
        """
        ...

    def whole(self, checkpoint: CheckpointId, number: CheckpointId) -> Pending[KeyedStateHandle]:
        """All rows as they are now, for a base that a checkpoint writes. number: of the base."""
        ...

    def base(self, base: Base, place: Place) -> Pending[KeyedStateHandle] | None:
        """All rows, each as it is when it is written; None where there is no state.

        The log counts with the base from its position on, which may be set back here.
        """
        ...


class ChangelogBackend:
    """A `protocols.KeyedBackend` around another one, the changes of whose rows go into a log.

    rows: what the log asks of the other one.
    """

    prepares = True

    def __init__(
        self, scope: StateScope, inner: KeyedBackend, rows: LoggedRows, log: ChangeLog
    ) -> None:
        self._scope = scope
        self._inner = inner
        self._rows = rows
        self._log = log
        self._draining = _Draining(rows, log)
        self.state = inner.state
        self.scan = inner.scan

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        if self._inner.prepares:
            self._inner.before_batch(batch, encoding=encoding)
        # What was cut at a barrier goes into the log before anything newer.
        if not encoding:
            self._draining.go_on(len(batch))

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        self._log.restore(handles)
        return self._inner.restore(handles, reader)

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> Pending[KeyedStateHandle]:
        if options.kind.is_savepoint:
            return self._inner.snapshot(checkpoint, options, columns)
        log, rows = self._log, self._rows
        base, batches, place = log.cut(full=options.kind is SnapshotKind.FULL_CHECKPOINT)
        if place is None:
            position = log.position
            tail = rows.cut(lambda: batches.extend(log.sealed(position, rows.key_type)))
            if tail is None:
                batches += log.sealed(position, rows.key_type)
        else:
            whole = rows.whole(checkpoint, CheckpointId(base.number))
            tail = PendingBase(self._scope, log, base, place, whole, self._inner)
        return LoggedSnapshot(self._scope, checkpoint, log, base, batches, tail, columns)

    def materialize(self) -> PendingBase | None:
        begun = self._log.begin_base()
        if begun is None:
            return None
        base, place = begun
        rows = self._rows.base(base, place)
        if rows is None:
            return None
        return PendingBase(self._scope, self._log, base, place, rows, self._inner)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The log names its files whatever becomes of single checkpoints."""

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The log names its files whatever becomes of single checkpoints."""

    def close(self) -> None:
        self._log.close()
        self._inner.close()


class _Draining:
    """Has what was written logged between checkpoints, once that is much."""

    def __init__(self, rows: LoggedRows, log: ChangeLog) -> None:
        self._rows = rows
        self._log = log
        self._unseen = 0
        self._left = 0

    def go_on(self, rows: int) -> None:
        """So many rows are about to come: log some of what was written.

        What can't be logged now stays for the next checkpoint, which says so where it fails again.
        """
        self._unseen += rows
        if self._left <= 0:
            if self._unseen * self._log.row_bytes * _LOOKS < self._log.settings.persist_bytes:
                return
            self._unseen, entries = 0, self._rows.undrained
            self._left = entries if self._log.is_due(entries) else 0
        if self._left > 0:
            drained = max(_ROWS_DRAINED, 2 * rows)
            self._left -= drained
            try:
                self._rows.drain(drained)
            except UserError:
                self._left = 0
            if self._left <= 0:
                self._log.persist(self._rows.key_type)
