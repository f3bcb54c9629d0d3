"""Sources: a reader in the slot, polled, whose splits come from the enumerator on the driver."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, cast

from tidegate.api import ship
from tidegate.api.operator import Polled, SourceOperator
from tidegate.api.rows.conversion import Conversion
from tidegate.api.state import OperatorListState, OperatorStateDescriptor
from tidegate.api.watermarks import WatermarkStrategy
from tidegate.model.elements import OperatorEvent, RowBatch
from tidegate.model.metrics import MetricKind
from tidegate.operators.event_time.event_time import EventTime
from tidegate.operators.event_time.stamps import assigner_by_row
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.sources.source_coordinator import (
    NoMoreSplits,
    ReaderAlignment,
    SourceCoordinator,
    SplitsAssigned,
    SplitsWanted,
    WatermarkAllowed,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidegate.api.coordinator import CoordinatorContext
    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.source import Source, SourceReader, Staged
    from tidegate.metrics import MetricRegistry
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

STATE_NAME = "SourceReaderState"

_READ_AHEAD_MAX = 2
"""Calls that a reader has under way at once: one waits for records, one may tell what was read."""


class SourceReaderOperator(SourceOperator):
    """Hosts the reader of a source; its coordinator hosts the enumerator.

    name: of the source, for messages. type_info: brings the records to a type; None for none.
    """

    def __init__(
        self,
        source: Source[object],
        watermark_strategy: WatermarkStrategy | None = None,
        name: str = "source",
        type_info: TypeInformation | None = None,
    ) -> None:
        self._source = source
        self._strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        self._name = name
        self._type = type_info

    @property
    def by_row(self) -> Mapping[str, str]:
        return assigner_by_row(self._strategy)

    def check(self) -> None:
        check = getattr(self._source, "check", None)
        if check is not None:
            check()

    @property
    def unmatched(self) -> Sequence[str]:
        """Places where a continuing source finds nothing at present."""
        return getattr(self._source, "unmatched", ())

    @property
    def missing_columns(self) -> Mapping[str, str | None]:
        """Columns that are read and nothing has, with the nearest name if one is near."""
        return getattr(self._source, "missing_columns", {})

    @property
    def bounded(self) -> bool:
        return self._source.bounded

    @property
    def staged(self) -> Staged | None:
        """Data that must be written for the source; None without such data."""
        return getattr(self._source, "staged", None)

    def over(self, source: Source[object]) -> SourceReaderOperator:
        """Makes a copy that reads another source, with records of the same kind."""
        made = copy(self)
        made._source = source
        return made

    def coordinator(self, context: CoordinatorContext) -> SourceCoordinator:
        return SourceCoordinator(self._source, context, self._name, self._strategy.alignment)

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._wanting = False
        self._letters = context.tasks.metrics.counter("numDeadLetters")
        self._time = EventTime(self._strategy, context)
        # Made here and not in the driver: a conversion of bounded integers can't be pickled.
        self._conversion = None if self._type is None else Conversion(self._type, self._name)
        alignment = self._strategy.alignment
        self._alignment = None if alignment is None else ReaderAlignment(alignment, context)
        restored = self._restored(context)
        self._rows_full = context.info.settings.rows
        self._arrow_rows_full = context.info.settings.arrow_rows
        self._reader_context = _ReaderContext(context, self._name)
        self._reader: SourceReader[object] = self._source.reader(self._reader_context)
        pending = getattr(self._reader, "pending_records", None)
        if pending is not None:
            tell_pending(context.tasks.metrics.registry, pending)
        if restored:
            self._reader.add_splits(restored)

    def declare(self, context: OperatorContext) -> None:
        self._restored(context)

    def _restored(self, context: OperatorContext) -> list[object]:
        descriptor = OperatorStateDescriptor(STATE_NAME)
        self._state = cast("OperatorListState[bytes]", context.state.operator_state(descriptor))
        kind = getattr(self._source, "split_type", object)
        name = f"the reader of source '{self._name}'"
        return [ship.restored(kind, data, name=name) for data in self._state.get()]

    def poll(self, out: Output) -> Polled:
        reader, alignment = self._reader, self._alignment
        rests = alignment is not None and alignment.rests(self._time.position_ms)
        self._time.beat(out, reading=not rests)
        if rests:
            return self._nothing()
        self._reader_context.rows = min(self._rows_full, out.rows_max)
        self._reader_context.arrow_rows = min(self._arrow_rows_full, out.rows_max)
        batch = self._polled()
        letters = self._reader_context.take_letters()
        for tag, found in letters:
            self._letters.inc(len(found))
            out.emit_side(tag, RowBatch(list(found)))
        if batch is not None and len(batch):
            self._time.emit(batch, out)
        if batch is not None or letters:
            return Polled.MORE
        if reader.wants_splits and not self._wanting:
            self._wanting = True
            self._context.tasks.to_coordinator(OperatorEvent(SplitsWanted()))
        return self._nothing()

    def _nothing(self) -> Polled:
        if not self._reader.finished:
            return Polled.NOTHING
        if self._alignment is not None:
            self._alignment.end()
        return Polled.END

    def _polled(self) -> Batch | None:
        try:
            batch = self._reader.poll()
        except BaseException as error:
            raise_user_code_failed(error, operator=self._name, call="reader")
        return batch if batch is None or self._conversion is None else self._conversion.batch(batch)

    def on_event(self, event: OperatorEvent) -> None:
        match event.payload:
            case SplitsAssigned(splits):
                self._wanting = False
                self._reader.add_splits([ship.loads(data, name=self._name) for data in splits])
            case NoMoreSplits():
                self._reader.no_more_splits()
            case WatermarkAllowed(ms):
                assert self._alignment is not None, "only readers of a group are told"
                self._alignment.allow(ms)
            case other:
                raise AssertionError(f"no event of a source's coordinator: {other!r}")
        self._context.tasks.wake()

    def snapshot(self, context: SnapshotContext) -> None:
        splits = self._reader.snapshot(context.checkpoint)
        self._state.update([ship.dumps(split, name=self._name) for split in splits])

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._reader.on_complete(checkpoint)

    def close(self) -> None:
        context, reader = getattr(self, "_reader_context", None), getattr(self, "_reader", None)
        try:
            if reader is not None:
                reader.close()
        except BaseException as error:
            raise_user_code_failed(error, operator=self._name, call="close")
        finally:
            if context is not None:
                context.close()


def tell_pending(registry: MetricRegistry, pending: Callable[[], Mapping[str, int]]) -> None:
    """Registers how far a reader is behind. pending: records not yet read, by split."""

    def by_split() -> Mapping[str, int]:
        try:
            return pending()
        except Exception:  # the reader is closed meanwhile; figures are no reason to fail
            return {}

    registry.tell_by("pendingRecords", "split", by_split)
    registry.tell("pendingRecords", MetricKind.GAUGE, lambda: sum(by_split().values()))


class _ReaderContext:
    """The ``ReaderContext`` over an operator's. name: of the source, for messages."""

    def __init__(self, context: OperatorContext, name: str) -> None:
        self._context = context
        self._name = name
        self.subtask = context.info.subtask
        self.parallelism = context.info.parallelism
        self.rows = context.info.settings.rows
        self.arrow_rows = context.info.settings.arrow_rows
        self.repeatable = context.info.settings.repeatable
        self.processing_time = context.time.processing_time
        self.monotonic_ms = context.time.monotonic_ms
        self.wake_at = context.time.wake_at
        self.skipped = context.tasks.skipped
        self._letters: list[tuple[str, Sequence[DeadLetter]]] = []
        # Readers of idle sources wait nearly always. On the slot's pool, the steps of a checkpoint
        # would queue behind them.
        self._threads = context.tasks.threads(_READ_AHEAD_MAX)

    def dead_letters(self, tag: OutputTag[DeadLetter], letters: Sequence[DeadLetter]) -> None:
        self._letters.append((tag.tag_id, letters))

    def take_letters(self) -> list[tuple[str, Sequence[DeadLetter]]]:
        taken, self._letters = self._letters, []
        return taken

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._context.tasks.run_blocking(call)

    def read_ahead(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        self._context.tasks.start(self._read_ahead(call, then))

    async def _read_ahead(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        try:
            then(await self._context.tasks.run_blocking(call, on=self._threads))
        except Exception as error:
            raise_user_code_failed(error, operator=self._name, call="reader")
        self._context.tasks.poll_soon()

    def close(self) -> None:
        self._threads.close()
