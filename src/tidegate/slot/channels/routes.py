"""Ways to spread the output of an edge over its channels, by the edge's partitioner."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tidegate.api.rows.batches import arrow_take, copied, shown, take
from tidegate.api.rows.column_rows import ColumnRows, as_columns
from tidegate.api.rows.keys import drawn, keys_of_rows
from tidegate.errors import GraphError
from tidegate.loops.forms import loops
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.nullable import Nullable
from tidegate.model.topology import Partitioner
from tidegate.traced.calls import batch_call
from tidegate.typeinfo.key_hash import KeyHasher, subtasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidegate.api.operator import Combiner, KeyBy, OutputPlan
    from tidegate.clock import Clock
    from tidegate.loops.forms import Loops
    from tidegate.model.chance import Chance
    from tidegate.model.elements import Batch
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.channels.output import ChannelOutput

BLOCK_ROWS: Final = 8_192
"""Rows of Arrow batches that one channel gets in a row, where each row has to have its channel."""


_FEW_ROWS: Final = 16
"""Fewer rows stay rows where nobody evaluates columns: a single one takes a quarter of the time.

Who folds columns would have to give up what is folded at each batch of the other form.
"""


class Route(Protocol):
    """Spreads the output of one edge over its channels."""

    def batch(self, batch: Batch, now_ms: int) -> None: ...


class WayOut:
    """Leads results over one edge to other subtasks. clock: asked once a batch."""

    __slots__ = ("_clock", "_route")

    def __init__(self, route: Route, clock: Clock) -> None:
        self._route = route
        self._clock = clock

    def accept(self, batch: Batch) -> None:
        self._route.batch(batch, self._clock.monotonic_ms())


class CombinedRoute:
    """Spreads what a combiner makes of rows."""

    def __init__(self, combiner: Combiner, route: Route) -> None:
        self._combiner = combiner
        self._route = route

    def batch(self, batch: Batch, now_ms: int) -> None:
        for part in self._combiner.add(batch):
            self._route.batch(part, now_ms)

    def flush(self, now_ms: int) -> None:
        """Spreads what the combiner still holds."""
        for part in self._combiner.flush():
            self._route.batch(part, now_ms)


class _Broadcast:
    """Every channel gets every row; also the way of an edge with one channel."""

    def __init__(self, channels: Sequence[ChannelOutput], *, share: bool) -> None:
        self._channels = channels
        self._share = share

    def batch(self, batch: Batch, now_ms: int) -> None:
        last = len(self._channels) - 1
        for index, channel in enumerate(self._channels):
            own = batch if index == last or self._share else copied(batch)
            if isinstance(own, RowBatch):
                channel.rows(own, now_ms)
            else:
                channel.arrow(own)


class _RoundRobin:
    """Rows are dealt out one by one, Arrow batches one by one.

    first: the channel that begins. draw: the one that begins with each batch; None for the next.
    """

    def __init__(
        self, channels: Sequence[ChannelOutput], first: int, draw: Callable[[], int] | None = None
    ) -> None:
        self._channels = channels
        self._next = first % len(channels)
        self._draw = draw

    def batch(self, batch: Batch, now_ms: int) -> None:
        channels, count = self._channels, len(self._channels)
        if self._draw is not None:
            self._next = self._draw() % count
        if isinstance(batch, ArrowBatch):
            channels[self._next].arrow(batch)
            self._next = (self._next + 1) % count
            return
        for offset in range(min(count, len(batch))):
            part = _every(batch, offset, count)
            channels[(self._next + offset) % count].rows(part, now_ms)
        self._next = (self._next + len(batch)) % count


class _RoundRobinByRows(_RoundRobin):
    """Deals Arrow batches out in blocks, for where one ends depends on time."""

    _left = BLOCK_ROWS

    def batch(self, batch: Batch, now_ms: int) -> None:
        if not isinstance(batch, ArrowBatch):
            super().batch(batch, now_ms)
            return
        start = 0
        while start < len(batch):
            stop = min(start + self._left, len(batch))
            self._channels[self._next].arrow(batch.piece(start, stop))
            self._left -= stop - start
            start = stop
            if not self._left:
                self._left = BLOCK_ROWS
                self._next = (self._next + 1) % len(self._channels)


def _every(batch: RowBatch, first: int, step: int) -> RowBatch:
    """Every so many rows from one on, without keys."""
    if isinstance(batch, ColumnRows):
        return batch.stamped(batch.stamps).every(first, step)
    times = batch.timestamps_ms
    return RowBatch(batch.values[first::step], None if times is None else times[first::step])


class _Custom:
    """The user's partitioner chooses the channel of each row."""

    def __init__(
        self,
        channels: Sequence[ChannelOutput],
        key: KeyBy,
        partition: Callable[[object, int], int],
        where: str,
    ) -> None:
        self._channels = channels
        self._key = key
        self._partition = partition
        self._where = where

    def batch(self, batch: Batch, now_ms: int) -> None:
        rows = batch if isinstance(batch, RowBatch) else _rows_of(batch)
        count = len(self._channels)
        keys = keys_of_rows(rows.values, self._key, self._where)
        calls = map(self._partition, keys, repeat(count))
        chosen = drawn(calls, rows.values, name="partitioner", where=self._where)
        for value, target in zip(rows.values, chosen, strict=True):
            if not (isinstance(target, int | np.integer) and 0 <= target < count):
                raise GraphError(
                    f"the partitioner chose {shown(target)} of {count} partitions",
                    where=f"{self._where}, at the row {shown(value)}",
                    remedy="Return a whole number from 0 to num_partitions - 1.",
                )
        spread(rows, np.array(chosen, np.int64), self._channels, now_ms)


def _rows_of(batch: ArrowBatch) -> RowBatch:
    times = batch.timestamps_ms
    return RowBatch(batch.batch.to_pylist(), None if times is None else times.tolist())


class _Hash:
    """Each row goes to the subtask that holds its key group."""

    def __init__(
        self,
        channels: Sequence[ChannelOutput],
        key: KeyBy,
        max_parallelism: int,
        where: str,
        *,
        trace: bool,
        read_as_columns: bool,
        loops: Loops,
    ) -> None:
        self._channels = channels
        self._key = key
        self._columns_of = partial(as_columns, loops=loops, if_few=not read_as_columns)
        self._columns_from = 0 if read_as_columns else _FEW_ROWS
        self._where = where
        self._hasher = KeyHasher(key.key_type, max_parallelism, where=where)
        self._of_columns = batch_call(key.selector, enabled=trace)
        self._takes_columns = trace and (self._of_columns is not None or key.column is not None)
        self._may_be_columns = self._takes_columns
        # A look-up costs half a nanosecond a row, the division that it stands for several.
        self._target_of_group = subtasks_of(
            np.arange(max_parallelism, dtype=np.int16), len(channels), max_parallelism
        ).astype(np.min_scalar_type(len(channels)))

    def batch(self, batch: Batch, now_ms: int) -> None:
        if isinstance(batch, ArrowBatch):
            self._arrow(batch)
        else:
            self._rows(batch, now_ms)

    def _rows(self, batch: RowBatch, now_ms: int) -> None:
        keyed = self._keyed_columns(batch)
        if keyed is not None:
            self._spread_columns(keyed, now_ms)
            return
        selected = keys_of_rows(batch.values, self._key, self._where)
        keys, groups = self._hasher.keyed(selected)
        keyed = RowBatch(batch.values, batch.timestamps_ms, list(keys), groups.tolist())
        if len(self._channels) == 1:
            # Nothing is pulled apart, yet whoever reads has to know the key.
            self._channels[0].rows(keyed, now_ms)
            return
        spread(keyed, self._target_of_group.take(groups), self._channels, now_ms)

    def _keyed_columns(self, batch: RowBatch) -> ColumnRows | None:
        """The rows as columns with keys; None where each row has to be looked at.

        Once rows are not what columns can be, or their keys not, later ones are not tried either.
        """
        columns = batch
        if not self._takes_columns or not len(batch):
            return None
        if not isinstance(columns, ColumnRows):
            if len(batch) < self._columns_from:
                return None
            columns = self._columns_of(batch) if self._may_be_columns else None
        key = None if columns is None else self._key_of(columns)
        groups = None if key is None else self._hasher.groups_of_column(key)
        if columns is None or key is None or groups is None:
            self._may_be_columns = False
            return None
        fields = columns.columns[: columns.width]
        position = next((at for at, field in enumerate(fields) if field is key), None)
        return columns.keyed(key if position is None else position, groups)

    def _key_of(self, rows: ColumnRows) -> np.ndarray | None:
        call, key = self._of_columns, None
        if call is None:
            key = None if self._key.column is None else rows.column(self._key.column)
        elif not call.is_tuple and (found := call(rows)) is not None:
            key = found[0]
        return None if isinstance(key, Nullable) else key

    def _spread_columns(self, keyed: ColumnRows, now_ms: int) -> None:
        assert keyed.groups is not None, "they have keys"
        if len(self._channels) == 1:
            self._channels[0].rows(keyed, now_ms)
            return
        for channel, chosen in _parts(self._target_of_group.take(keyed.groups), self._channels):
            channel.rows(keyed.take(chosen), now_ms)

    def _arrow(self, batch: ArrowBatch) -> None:
        column = self._key.column
        if column is None:
            raise GraphError(
                "Arrow batches reach a key_by that was given a function",
                where=self._where,
                remedy="Key Arrow batches by a column's name.",
            )
        position = batch.batch.schema.get_field_index(column)
        if position < 0:
            raise GraphError(
                f"there is no column '{column}'; there are {', '.join(batch.batch.schema.names)}",
                where=self._where,
                remedy="Give key_by the name of a column of the batches that reach it.",
            )
        groups = self._hasher.key_groups_of_column(batch.batch.column(position))
        keyed = ArrowBatch(batch.batch, batch.timestamps_ms, column, groups)
        if len(self._channels) == 1:
            self._channels[0].arrow(keyed)
            return
        for channel, chosen in _parts(self._target_of_group.take(groups), self._channels):
            channel.arrow(arrow_take(keyed, chosen))


def make_route(
    plan: OutputPlan,
    partitioner: Partitioner,
    channels: Sequence[ChannelOutput],
    *,
    max_parallelism: int,
    subtask: int,
    settings: SlotSettings,
    chance: Chance,
    where: str,
) -> Route:
    """The way in which an edge spreads its rows."""
    share = settings.object_reuse
    match partitioner:
        case Partitioner.HASH:
            assert plan.key is not None, "a keyed edge has a key"
            form, trace = loops(settings.loops), settings.trace_functions
            return _Hash(
                channels,
                plan.key,
                max_parallelism,
                where,
                trace=trace,
                read_as_columns=plan.read_as_columns,
                loops=form,
            )
        case Partitioner.CUSTOM:
            assert plan.partition is not None and plan.key is not None, "checked by graph"
            return _Custom(channels, plan.key, plan.partition, where)
        case Partitioner.BROADCAST:
            return _Broadcast(channels, share=share)
        case Partitioner.SHUFFLE if len(channels) > 1 and not settings.repeatable:
            return _RoundRobin(channels, 0, chance.bits64)
        case Partitioner.REBALANCE | Partitioner.RESCALE | Partitioner.SHUFFLE if len(channels) > 1:
            first = 0 if partitioner is Partitioner.RESCALE else subtask
            return (_RoundRobinByRows if settings.repeatable else _RoundRobin)(channels, first)
        case _:
            return _Broadcast(channels[:1], share=share)


def spread(
    rows: RowBatch, targets: np.ndarray, channels: Sequence[ChannelOutput], now_ms: int
) -> None:
    """Give each row to the channel that ``targets`` (shape (rows,)) names, in order."""
    for channel, chosen in _parts(targets, channels):
        channel.rows(take(rows, chosen.tolist()), now_ms)


def _parts(
    targets: np.ndarray, channels: Sequence[ChannelOutput]
) -> Iterator[tuple[ChannelOutput, np.ndarray]]:
    """Each channel that gets rows, with the positions of these."""
    for index, channel in enumerate(channels):
        chosen = np.flatnonzero(targets == index)
        if len(chosen):
            yield channel, chosen
