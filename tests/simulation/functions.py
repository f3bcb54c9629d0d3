"""What simulated jobs are made of: a source of numbers, functions that count, a sink."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.outside import OUTSIDE
from tidegate import (
    AsyncFunction,
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    Prepared,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
    WriterContext,
)
from tidegate.api import ship
from tidegate.api.job import MasterTriggerRestoreHook
from tidegate.api.rows.batches import as_rows
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from tidegate import CommittableMessage, DataStream
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId

Row = tuple[int, int, int]
"""A number, its key, how many of the key so far."""

Mark = tuple[str, int, int]
"""``end`` and a subtask of the sink, or ``over`` and a key."""


def is_mark(row: Sequence[object]) -> bool:
    """Whether it tells of an end and not of a number."""
    return isinstance(row[0], str)


# --- the source ---


@dataclass(frozen=True, slots=True)
class Stretch:
    """The numbers from ``next`` (inclusive) to ``end`` (exclusive)."""

    next: int
    end: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """A source of numbers in small splits, each given out when a reader asks for it.

    A reader gives ``rows`` of them each ``tick_ms``.
    """

    first: int
    count: int
    split: int
    tick_ms: int
    rows: int

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> None:
        return None

    def enumerator(self, context: EnumeratorContext[Stretch], restored: bytes | None) -> OneByOne:
        end = self.first + self.count
        starts = range(self.first, end, self.split)
        return OneByOne(context, [Stretch(n, min(end, n + self.split)) for n in starts], restored)

    def reader(self, context: ReaderContext) -> NumbersReader:
        return NumbersReader(self, context)


class OneByOne(SplitListEnumerator[Stretch]):
    """Gives out one split at a time, so that splits are on their way all the time."""

    def __init__(
        self,
        context: EnumeratorContext[Stretch],
        splits: Sequence[Stretch],
        restored: bytes | None,
    ) -> None:
        super().__init__(context, splits, restored)
        self._share = 1


def left_in(data: bytes) -> list[Stretch]:
    """The splits that the state of an enumerator holds."""
    return ship.loads(data, name="simulated")


class NumbersReader:
    """Reads its splits one after the other."""

    def __init__(self, source: Numbers, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._splits: list[Stretch] = []
        self._due_ms = 0
        self._no_more = False

    def add_splits(self, splits: Sequence[Stretch]) -> None:
        self._splits += splits

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        if not self._splits:
            return None
        now_ms = self._context.monotonic_ms()
        if now_ms < self._due_ms:
            self._context.wake_at(self._due_ms)
            return None
        self._due_ms = now_ms + self._source.tick_ms
        split = self._splits.pop(0)
        stop = min(split.end, split.next + self._source.rows)
        if stop < split.end:
            self._splits.insert(0, replace(split, next=stop))
        return RowBatch(list(range(split.next, stop)))

    @property
    def finished(self) -> bool:
        return self._no_more and not self._splits

    @property
    def wants_splits(self) -> bool:
        return not self._splits and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[Stretch]:
        return tuple(self._splits)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


# --- functions ---


class Listening(CheckpointedFunction, CheckpointListener):
    """Tells the world outside what a function is told."""

    def begin(self, run: int, name: str, context: RuntimeContext) -> None:
        self._outside = OUTSIDE[run]
        self._attempt = self._outside.opened(
            name, context.get_index_of_this_subtask(), context.get_attempt_number()
        )

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._outside.took(self._attempt, context.checkpoint)

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._outside.told_complete(self._attempt, checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._outside.told_aborted(self._attempt, checkpoint_id)

    def close(self) -> None:
        if hasattr(self, "_attempt"):
            self._attempt.closed_s = self._outside.now_s()


class Counting(Listening, KeyedProcessFunction):
    """How many of the key came so far, this one included.

    timed: at the end of event time, each key that has come since the last one says so.
    """

    def __init__(self, run: int, name: str, keys: int, *, timed: bool, call_s: float) -> None:
        self._run, self._name, self._keys, self._timed = run, name, keys, timed
        self._call_s = call_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.begin(self._run, self._name, runtime_context)
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self._outside.call(self._call_s)
        self._outside.breaks_at(value)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if self._timed:
            ctx.timer_service().register_event_time_timer(1)
        yield value, value % self._keys, count

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Mark]:
        yield "over", ctx.get_current_key(), 0


class Checking(Listening, KeyedProcessFunction):
    """Passes rows on, and holds that the counts of a key come in order, each once if exactly."""

    def __init__(self, run: int, name: str, *, exactly_once: bool) -> None:
        self._run, self._name, self._exactly_once = run, name, exactly_once

    def open(self, runtime_context: RuntimeContext) -> None:
        self.begin(self._run, self._name, runtime_context)
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(
        self, value: Row | Mark, ctx: KeyedProcessFunction.Context
    ) -> Iterator[Row | Mark]:
        last = self._last.value() or 0
        if is_mark(value):
            yield value
            return
        if self._exactly_once and value[2] != last + 1:
            raise AssertionError(f"key {value[1]}: count {value[2]} came after {last}")
        self._last.update(value[2])
        yield value


class Spreading(Listening, FlatMapFunction):
    """Gives the number as it is, after a call that takes its time. Beside it, what is filtered out.

    others: how many. in_hand: rows that its source polls at once and has to see through before it
    can be cut; 0 where it is in no source's chain.
    """

    def __init__(self, run: int, name: str, call_s: float, others: int, in_hand: int) -> None:
        self._run, self._name, self._call_s, self._others = run, name, call_s, others
        self._in_hand = in_hand

    def open(self, runtime_context: RuntimeContext) -> None:
        self.begin(self._run, self._name, runtime_context)
        self._attempt.in_hand = self._in_hand

    def flat_map(self, value: int) -> Iterator[int | None]:
        self._outside.call(self._call_s, self._attempt)
        for _ in range(self._others):
            yield None
        yield value


class Dropping(FilterFunction):
    """Drops what is no number, after a call that takes its time."""

    def __init__(self, run: int, call_s: float) -> None:
        self._run, self._call_s = run, call_s

    def filter(self, value: int | None) -> bool:
        OUTSIDE[self._run].call(self._call_s)
        return value is not None


class Lookup(AsyncFunction[int, int]):
    """Gives the number after a while, which is another for each."""

    def __init__(self, run: int) -> None:
        self._run = run

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value * 37 % 11 / 100)
        OUTSIDE[self._run].breaks_at(value)
        return [value]


class SlowHook(MasterTriggerRestoreHook[int]):
    """A hook without state; its call takes as long as a call of storage."""

    def get_identifier(self) -> str:
        return "simulated"

    def trigger_checkpoint(self, checkpoint_id: CheckpointId, timestamp_ms: int) -> None:
        return None

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: int | None) -> None:
        pass


# --- the sink ---


@dataclass(frozen=True, slots=True)
class Ledger:
    """A transactional sink into the world outside.

    slow: the subtask that takes ``write_s`` for each batch; −1 for none. durable_s: how long it
    takes until what was prepared is durable.
    """

    run: int
    name: str
    slow: int = -1
    write_s: float = 0.0
    durable_s: float = 0.0

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> Writer:
        return Writer(self, context)

    def committer(self) -> Committer:
        return Committer(self.run)

    def in_parts(self, durable_s: float) -> LedgerInParts:
        return LedgerInParts(self.run, self.name, self.slow, self.write_s, durable_s)


@dataclass(frozen=True, slots=True)
class LedgerInParts(Ledger):
    """The same, whose committers are a step behind its writers; each writer has one committer.

    So rows of a key come into sight in their order, as those of one subtask.
    """

    def add_pre_commit_topology(
        self, committables: DataStream[CommittableMessage]
    ) -> DataStream[CommittableMessage]:
        return committables.key_by(lambda message: message.subtask, Types.LONG())


class Writer:
    """Writes rows, and at the end of its input that it has ended."""

    def __init__(self, sink: Ledger, context: WriterContext) -> None:
        self._sink = sink
        self._outside = OUTSIDE[sink.run]
        self._name = f"{sink.name}-{context.job}-{context.attempt_name}"
        self._subtask = context.subtask
        self._prepared = 0
        self._rows: list[object] = []

    def write(self, batch: Batch) -> Awaitable[object] | None:
        values = as_rows(batch).values
        self._rows += [value if isinstance(value, tuple) else (value, -1, 0) for value in values]
        slow = self._sink.slow == self._subtask
        return asyncio.sleep(self._sink.write_s) if slow else None

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        if end_of_input:
            self._rows.append(("end", self._subtask, 0))
        if not self._rows:
            return Prepared()
        self._prepared += 1
        name = f"{self._name}-{self._prepared}"
        committable = json.dumps([name, self._sink.name, self._rows]).encode()
        self._rows = []
        if not self._sink.durable_s:
            self._outside.durable.add(name)
            return Prepared((committable,))
        return Prepared((committable,), self._flushed(name))

    async def _flushed(self, name: str) -> None:
        await asyncio.sleep(self._sink.durable_s)
        self._outside.durable.add(name)

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        self._rows = []


class Committer:
    def __init__(self, run: int) -> None:
        self._outside = OUTSIDE[run]

    def commit(self, committables: Sequence[bytes]) -> None:
        for committable in committables:
            self._outside.commits(json.loads(committable)[0], committable)

    def close(self) -> None:
        pass
