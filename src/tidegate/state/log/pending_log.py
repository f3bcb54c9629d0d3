"""A checkpoint of a log, and the bases behind it, until they are durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.handles import ChangelogStateBackendHandle, KeyGroupsStateHandle
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import KeyedStreamWriter
from tidegate.state.log.changelog import COLUMNS_ID
from tidegate.state.pending import Slices
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flinkformat.handles import KeyedStateHandle
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Base, Batch
    from tidegate.state.protocols import BesideRows, KeyedBackend, Pending
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place


class LoggedSnapshot:
    """One checkpoint's part of a log; a `protocols.Pending`.

    batches: parts of the log that it counts on; those from after the cut come until it is encoded.
    What a newer base makes needless meanwhile is still needed here. rows: what is not logged yet,
    or the base itself; None where there is nothing.
    """

    waiting = 0

    def __init__(
        self,
        scope: StateScope,
        checkpoint: CheckpointId,
        log: ChangeLog,
        base: Base,
        batches: list[Batch],
        rows: Pending[KeyedStateHandle] | None,
        columns: BesideRows | None,
    ) -> None:
        self._scope = scope
        self._checkpoint = checkpoint
        self._log = log
        self._base = base
        self._batches = batches
        self._rows = rows
        self._columns = columns

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
        fresh = 0
        if self._rows is not None:
            written = self._rows.upload(place)
            fresh = 0 if written is None else written.checkpointed_size
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
            self._scope.key_groups,
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

    def _upload_columns(self, place: Place) -> KeyGroupsStateHandle | None:
        columns, scope = self._columns, self._scope
        if columns is None:
            return None
        header = scope.header(self._checkpoint, None, [], columns.header)
        try:
            with place.stream(CheckpointScope.SHARED, merged=False) as stream:
                blocks = columns.blocks()
                rows = KeyedStreamWriter(stream.write, header, scope.key_groups, scope.compress)
                for group in scope.key_groups:
                    rows.add(group, blocks.get(group, ()))
                handle = stream.close_and_get_handle()
        finally:
            columns.release()
        name = f"{COLUMNS_ID}{scope.operator.hex()}-{self._checkpoint}"
        return KeyGroupsStateHandle(scope.key_groups, rows.offsets, handle, name)


class PendingBase:
    """A snapshot of all keyed rows, for a log to begin anew.

    A checkpoint writes one where there is none, as a `protocols.Pending`; the others are made in
    the background, as a `protocols.Materialization`. inner: the backend whose rows they are.
    """

    def __init__(
        self,
        scope: StateScope,
        log: ChangeLog,
        base: Base,
        place: Place,
        rows: Pending[KeyedStateHandle],
        inner: KeyedBackend,
    ) -> None:
        self._log = log
        self._base = base
        self._place = place
        self._rows = rows
        self._inner = inner
        self._slices = Slices(scope.clock, (rows,))
        self.steps = rows.steps
        self.thaw = rows.thaw

    @property
    def waiting(self) -> int:
        return self._rows.waiting

    # --- by a checkpoint ---

    def upload(self, place: Place) -> KeyedStateHandle | None:
        """Write it to a place of its own, for it outlives the checkpoint."""
        del place
        try:
            handle = self._rows.upload(self._place)
        except BaseException:
            self._place.discard()
            raise
        self._log.writer.durable(self._base, handle, self._place)
        self._inner.on_complete(CheckpointId(self._base.number))
        return handle

    def acknowledged(self) -> None:
        """A base counts whatever becomes of the checkpoint."""

    def cancel(self) -> None:
        self._rows.cancel()

    # --- in the background ---

    def encode(self, budget_ms: float) -> bool:
        return self._slices.encode(budget_ms)

    def write(self, place: Place | None = None) -> None:
        del place
        if self._slices.ended:
            self._log.writer.durable(self._base, self._rows.upload(self._place), self._place)
        else:
            self._rows.write(self._place)

    def take(self) -> None:
        number = CheckpointId(self._base.number)
        if self._log.take(self._base):
            self._inner.on_complete(number)
        else:
            self._inner.on_aborted(number)

    def give_up(self) -> None:
        self._rows.cancel()
        self._place.discard()
