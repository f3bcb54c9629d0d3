"""Sinks that take their time, and state of many keys. Slots import this module by its name."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from tests.e2e.journal import Latch
from tidegate import (
    DataStream,
    KeyedProcessFunction,
    Prepared,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
    WriterContext,
)
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId


@dataclass(frozen=True)
class LateSink:
    """Takes one batch, and no other while the latch is set."""

    held: Latch

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "WaitingWriter":
        return WaitingWriter(0.0, self.held)

    def committer(self) -> None:
        return


@dataclass(frozen=True)
class SlowSink:
    """Takes so long for each batch, without holding up the slot's loop."""

    seconds_a_batch: float

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "WaitingWriter":
        return WaitingWriter(self.seconds_a_batch, None)

    def committer(self) -> None:
        return


class WaitingWriter:
    """Wants no more while it is busy with a batch."""

    def __init__(self, seconds: float, held: Latch | None) -> None:
        self._seconds = seconds
        self._held = held

    def write(self, batch: Batch) -> Awaitable[object]:
        return self._write()

    async def _write(self) -> None:
        await asyncio.sleep(self._seconds)
        while self._held is not None and self._held.is_set:  # noqa: ASYNC110  # it is a file
            await asyncio.sleep(0.01)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        pass


class Counting(KeyedProcessFunction[int, int]):
    """Counts each key's numbers, and says nothing."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        self._count.update((self._count.value() or 0) + 1)


def last_counts(numbers: DataStream[int], keys: int) -> None:
    """Counts of so many keys, all in one slot, while the sources are in two."""
    keyed = numbers.key_by(lambda number: number % keys, key_type=Types.LONG())
    keyed.process(Counting()).set_parallelism(1).print()
