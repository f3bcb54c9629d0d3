"""A backend of keyed rows with a changelog around it: a checkpoint is the end of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.handles import ChangelogStateBackendHandle, KeyGroupsStateHandle
from tidegate.errors import UserError
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.state.log.changelog import COLUMNS_ID
from tidegate.state.pending import Slices
from tidegate.state.protocols import KeyedBackend
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Base
    from tidegate.state.log.log_parts import Batch as Part
    from tidegate.state.pending import Pending, PendingRows
    from tidegate.state.protocols import WrittenColumns
    from tidegate.state.scope import BesideRows
    from tidegate.storage.places import Place
    from tidegate.storage.reading import StateReads

_LOOKS: Final = 4
"""How many times it is looked at how much there is, until there is enough for an upload."""

_ROWS_DRAINED: Final = 1024


class LoggedBackend(KeyedBackend, Protocol):
    """A backend whose changes are logged."""

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

    def base(self, base: Base, place: Place) -> PendingRows | None:
        """All rows, each as it is when it is written; None where there is no state.

        The log counts with the base from its position on, which may be set back here.
        """
        ...


class ChangelogBackend:
    """A `protocols.KeyedBackend` around another one, the changes of whose rows go into a log."""

    prepares = True

    def __init__(self, inner: LoggedBackend, log: ChangeLog) -> None:
        self._inner = inner
        self._log = log
        self._draining = _Draining(inner, log)
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
    ) -> PendingRows:
        if options.kind.is_savepoint:
            return self._inner.snapshot(checkpoint, options, columns)
        log, rows = self._log, self._inner
        base, batches, place = log.cut(full=options.kind is SnapshotKind.FULL_CHECKPOINT)
        if place is None:
            position = log.position
            logged = rows.cut(lambda: batches.extend(log.sealed(position, rows.key_type)))
            if logged is None:
                batches += log.sealed(position, rows.key_type)
        else:
            logged = rows.whole(checkpoint, CheckpointId(base.number))
        return LoggedSnapshot(
            rows, log, checkpoint, base, batches, logged, columns, base_place=place
        )

    def materialize(self) -> BackgroundBase | None:
        begun = self._log.begin_base()
        if begun is None:
            return None
        base, place = begun
        rows = self._inner.base(base, place)
        return None if rows is None else BackgroundBase(self._inner, self._log, base, place, rows)

    def entries(self) -> Mapping[str, int]:
        return self._inner.entries()

    def sizes(self) -> Mapping[str, int]:
        return self._inner.sizes()

    def figure(self, name: str) -> int | None:
        return self._inner.figure(name)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The log names its files whatever becomes of single checkpoints."""

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The log names its files whatever becomes of single checkpoints."""

    def close(self) -> None:
        self._log.close()
        self._inner.close()


class _Draining:
    """Has what was written logged between checkpoints, once that is much."""

    def __init__(self, rows: LoggedBackend, log: ChangeLog) -> None:
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


class LoggedSnapshot:
    """One checkpoint's part of a log; a `pending.PendingRows`.

    batches: parts of the log that it counts on; those from after the cut come until it is encoded.
    What a newer base makes needless meanwhile is still needed here. rows: what is not logged yet,
    or all of them; None where there is nothing. base_place: where they are written as the base,
    which outlives the checkpoint; None where they go into the log.
    """

    waiting = 0

    def __init__(
        self,
        backend: LoggedBackend,
        log: ChangeLog,
        checkpoint: CheckpointId,
        base: Base,
        batches: list[Part],
        rows: Pending[KeyedStateHandle] | None,
        columns: BesideRows | None,
        *,
        base_place: Place | None,
    ) -> None:
        self._backend = backend
        self._log = log
        self._checkpoint = checkpoint
        self._base = base
        self._batches = batches
        self._rows = rows
        self._columns = columns
        self._base_place = base_place

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        if self._rows is not None:
            yield from self._rows.steps(rows)
        if self._columns is not None:
            yield from self._columns.steps()

    def thaw(self) -> None:
        if self._rows is not None:
            self._rows.thaw()
        if self._columns is not None:
            self._columns.release()

    def write(self, place: Place) -> None:
        """Nothing is written before the rest."""

    def upload(self, place: Place) -> ChangelogStateBackendHandle | None:
        base, writer = self._base, self._log.writer
        fresh = self._upload_rows(place)
        columns = self._upload_columns(place)
        fresh += writer.upload(self._batches)
        assert base.handles is not None, "a checkpoint counts on a base that is durable"
        place.names(writer.files.checksums(self._places), fresh)
        if columns is not None:
            fresh += columns.state_size
        materialized = base.handles if columns is None else (*base.handles, columns)
        log = writer.handles_of(self._batches, place, fresh)
        if not materialized and not log:
            return None
        return ChangelogStateBackendHandle(
            self._log.scope.key_groups,
            materialized,
            log,
            base.number,
            self._checkpoint,
            fresh,
            place.new_name(),
        )

    def acknowledged(self) -> None:
        self._log.writer.files.acknowledged(self._places)

    def cancel(self) -> None:
        if self._rows is not None:
            self._rows.cancel()

    @property
    def _places(self) -> Iterator[str]:
        """Where all that it counts on is, as far as it is in files by now."""
        yield from self._base.places
        for batch in self._batches:
            yield from batch.places

    def _upload_rows(self, place: Place) -> int:
        """Bring rows to the log's disk, or write them as its base; gives the base's bytes."""
        rows, base_place = self._rows, self._base_place
        if base_place is None:
            if rows is not None:
                rows.upload(place)
            return 0
        assert rows is not None, "a base is written of rows"
        try:
            handle = rows.upload(base_place)
        except BaseException:
            base_place.discard()
            raise
        # From here on the base counts, whatever becomes of the checkpoint.
        self._log.writer.durable(self._base, handle, base_place)
        self._backend.on_complete(CheckpointId(self._base.number))
        return 0 if handle is None else handle.checkpointed_size

    def _upload_columns(self, place: Place) -> KeyGroupsStateHandle | None:
        columns, scope = self._columns, self._log.scope
        if columns is None:
            return None
        try:
            with place.stream(CheckpointScope.SHARED, merged=False) as stream:
                offsets = scope.write_columns(stream.write, self._checkpoint, columns)
                handle = stream.close_and_get_handle()
        finally:
            columns.release()
        name = f"{COLUMNS_ID}{scope.operator.hex()}-{self._checkpoint}"
        return KeyGroupsStateHandle(scope.key_groups, offsets, handle, name)


class BackgroundBase:
    """A base of a changelog on its way while rows flow.

    `encode` is called on the loop until it gives True, `write` off it after the last time, and
    before that when much is waiting; then `take` on the loop, or `give_up` off it.
    """

    def __init__(
        self,
        backend: LoggedBackend,
        log: ChangeLog,
        base: Base,
        place: Place,
        rows: PendingRows,
    ) -> None:
        self._backend = backend
        self._log = log
        self._base = base
        self._place = place
        self._rows = rows
        self._slices = Slices(log.scope.clock, (rows,))
        self.encode = self._slices.encode

    @property
    def waiting(self) -> int:
        """Bytes that are encoded and not written."""
        return self._rows.waiting

    def write(self) -> None:
        """Write what waits. Blocking. Raises StorageFailed."""
        if self._slices.ended:
            self._log.writer.durable(self._base, self._rows.upload(self._place), self._place)
        else:
            self._rows.write(self._place)

    def take(self) -> None:
        """The base is durable: the next checkpoints count on it."""
        number = CheckpointId(self._base.number)
        if self._log.take(self._base):
            self._backend.on_complete(number)
        else:
            self._backend.on_aborted(number)

    def give_up(self) -> None:
        """Nobody will count on it: delete what was written. Blocking."""
        self._rows.cancel()
        self._place.discard()
