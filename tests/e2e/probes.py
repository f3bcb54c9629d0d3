"""Functions that note down what the engine does with them. Slots import this module by its name."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from tests.e2e.jobs import Counted, RunningCount
from tests.e2e.journal import Journal, Latch
from tidegate import (
    CheckpointedFunction,
    CheckpointListener,
    KeyedProcessFunction,
    MapFunction,
    OperatorStateDescriptor,
    RedistributionMode,
    RuntimeContext,
    SnapshotContext,
    Types,
)
from tidegate.model.ids import CheckpointId

T = TypeVar("T")


@dataclass
class Probe(MapFunction[T, T], CheckpointedFunction, CheckpointListener):
    """Passes values on, counts them in operator state, and notes every call.

    snapshot_s: how long each snapshot takes. held: its snapshots wait while this is set, in the
    subtask ``held_in``, or in all. failing: its snapshots raise while this is set.
    """

    journal: Journal
    name: str
    snapshot_s: float = 0.0
    held: Latch | None = None
    held_in: int | None = None
    failing: Latch | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self._state = runtime_context.get_operator_list_state(OperatorStateDescriptor("rows"))
        restored = self._state.get()
        self.rows = sum(restored)
        self._thread = threading.get_ident()
        self._note("open", restored=restored, attempt=runtime_context.get_attempt_number())

    def map(self, value: T) -> T:
        self.rows += 1
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        time.sleep(self.snapshot_s)
        if self.held is not None and self.held_in in (None, self.subtask):
            self.held.wait()
        if self.failing is not None and self.failing.is_set:
            raise RuntimeError("this snapshot was told to fail")
        self._state.update([self.rows])
        self._note(
            "snapshot",
            checkpoint=context.checkpoint,
            timestamp_ms=context.triggered_ms,
            rows=self.rows,
        )

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._note("complete", checkpoint=checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._note("aborted", checkpoint=checkpoint_id)

    def close(self) -> None:
        self._note("close")

    def _note(self, event: str, **fields: object) -> None:
        thread = threading.get_ident()
        self.journal.note(
            event,
            name=self.name,
            subtask=self.subtask,
            thread=thread,
            own_thread=thread == self._thread,
            **fields,
        )


@dataclass
class SlowSnapshotCount(RunningCount, CheckpointedFunction):
    """The running count, with snapshots that take their time."""

    snapshot_s: float

    def snapshot_state(self, context: SnapshotContext) -> None:
        time.sleep(self.snapshot_s)


class CountWithTotal(RunningCount, CheckpointedFunction):
    """The running count, and beside it in operator state how many numbers came in all."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._total = runtime_context.get_operator_list_state(OperatorStateDescriptor("total"))
        self.rows = sum(self._total.get())

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Counted]:
        self.rows += 1
        return super().process_element(value, ctx)

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._total.update([self.rows])


class Unpicklable(KeyedProcessFunction[int, Counted]):
    """Puts into state what cannot become bytes, while the latch is set."""

    def __init__(self, latch: Latch) -> None:
        self._latch = latch

    def open(self, runtime_context: RuntimeContext) -> None:
        from tidegate import ValueStateDescriptor

        self._state = runtime_context.get_state(ValueStateDescriptor("anything"))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Counted]:
        self._state.update(threading.Lock() if self._latch.is_set else value)
        yield {"number": value, "key": value % 17, "count": 0}


@dataclass(frozen=True)
class Breaking:
    """Passes values on; raises while the latch is set."""

    latch: Latch

    def __call__(self, value: T) -> T:
        if self.latch.is_set:
            raise ValueError(f"told to fail at {value!r}")
        return value


@dataclass(frozen=True)
class BreakingOnce:
    """Passes values on; the first call that finds the latch set releases it and raises."""

    latch: Latch

    def __call__(self, value: T) -> T:
        if self.latch.is_set and self.latch.take():
            raise ValueError(f"told to fail once, at {value!r}")
        return value


@dataclass
class Holding(MapFunction[Counted, Counted], CheckpointedFunction):
    """Passes rows on and holds their numbers, in a list that is split and in one that all see."""

    journal: Journal

    def open(self, runtime_context: RuntimeContext) -> None:
        union = RedistributionMode.UNION
        self._list = runtime_context.get_operator_list_state(
            OperatorStateDescriptor("list", Types.LONG())
        )
        self._union = runtime_context.get_operator_list_state(
            OperatorStateDescriptor("union", Types.LONG(), union)
        )
        self._numbers = list(self._list.get())
        self.journal.note("open", list=self._numbers, union=sorted(self._union.get()))

    def map(self, value: Counted) -> Counted:
        self._numbers.append(value["number"])
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._list.update(self._numbers)
        self._union.update(self._numbers)

    def close(self) -> None:
        self.journal.note("close", list=self._numbers)
