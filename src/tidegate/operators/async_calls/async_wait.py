"""Calls of a user's function for records, many at once.

A record is in flight from its arrival until its results have left; so long it belongs to every
snapshot, and is called again after a restore, before anything that comes. Calls in flight are no
steps, and the end of the subtask waits for none but in ``finish``: so a barrier passes them, and a
job that is suspended or cancelled leaves them behind. A batch is taken in whole: where it holds
more records than may be called now, the others wait, and the input is held back.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, cast

from tidegate.api import ship
from tidegate.api.dead_letters import DeadLetter
from tidegate.api.functions.async_functions import AsyncFunction
from tidegate.api.operator import Pause
from tidegate.api.pieces import PIECE_GROWTH
from tidegate.api.rows.batches import as_rows
from tidegate.api.state import OperatorListState, OperatorStateDescriptor
from tidegate.errors import UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.model.metrics import MetricKind
from tidegate.operators.async_calls.async_queue import (
    Call,
    CallQueue,
    LoopTasks,
    OrderedQueue,
    Seats,
    UnorderedQueue,
)
from tidegate.operators.async_calls.attempts import Attempts
from tidegate.operators.async_calls.call_batches import Batches, BatchLimits
from tidegate.operators.async_calls.call_context import CallContext
from tidegate.operators.async_calls.call_places import (
    InProcesses,
    OnLoop,
    OnThreads,
    gives_coroutines,
)
from tidegate.operators.async_calls.call_processes import CallProcesses
from tidegate.operators.async_calls.call_settings import Executor
from tidegate.operators.async_calls.cancellation import cancelled
from tidegate.operators.emit import emit_sorted
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.function import FunctionOperator
from tidegate.operators.row_loop import stamps_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.functions.async_functions import AsyncRetryStrategy
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.output_tag import OutputTag
    from tidegate.model.elements import Batch, Watermark, WatermarkStatus
    from tidegate.operators.async_calls.call_places import Place
    from tidegate.operators.async_calls.call_settings import CallSettings

IN_FLIGHT_STATE = "AsyncWaitInFlight"


class AsyncWaitOperator(FunctionOperator):
    """Any number of results for each value, by an ``AsyncFunction``; one, by a plain function."""

    dead_letters: OutputTag[DeadLetter] | None = None
    """Side output of the records whose calls fail; None if these fail the job."""

    def __init__(
        self,
        function: object,
        retry: AsyncRetryStrategy[Any],
        settings: CallSettings,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(function, called_method(function))
        self._retry = retry
        self._settings = settings
        self._ordered = ordered
        self._open_places: list[Place | Batches] = []

    def open(self, context: OperatorContext) -> None:
        self._context = context
        ordered = self._ordered or context.info.settings.repeatable
        self._queue: CallQueue = OrderedQueue() if ordered else UnorderedQueue()
        self._seats = Seats(self._settings.capacity, context.tasks.wake)
        self._tasks = LoopTasks(context.tasks)
        self._rows_max = 2 * context.info.settings.rows
        self._leaving = 1  # results to pass on at once
        self._progress: asyncio.Future[None] | None = None
        self._letters = context.tasks.metrics.counter("numDeadLetters")
        context.tasks.metrics.registry.tell(
            "callsGoingOnAfterTimeout", MetricKind.GAUGE, lambda: self._seats.going_on
        )
        self.declare(context)
        for value, timestamp_ms in self._state.get():
            self._admit(value, timestamp_ms)
        super().open(context)

    def declare(self, context: OperatorContext) -> None:
        self._state = cast(
            "OperatorListState[tuple[object, int | None]]",
            context.state.operator_state(OperatorStateDescriptor(IN_FLIGHT_STATE)),
        )

    def _open_functions(self, context: OperatorContext) -> None:
        place = self._place(context)
        self._open_places.append(place)
        shipped = isinstance(place, InProcesses)
        metrics = None if shipped else context.tasks.metrics
        opening = place.open(CallContext(context.info, metrics))
        if opening is None:
            self._opened()
        else:
            self._tasks.begin(self._when_open(opening))

    async def _when_open(self, opening: Awaitable[None]) -> None:
        await opening
        self._opened()

    def _opened(self) -> None:
        self._seats.open()
        if self._seats.has_waiting:
            self._context.tasks.wake()

    def _place(self, context: OperatorContext) -> Place:
        settings, function = self._settings, self._function
        batched = self._method == "async_invoke_batch"
        in_processes = settings.executor is Executor.PROCESS
        coroutine = gives_coroutines(self._call) and not in_processes
        at_once = settings.calls_at_once(batched=batched, coroutine=coroutine)
        if coroutine:
            place = OnLoop(function, self._call)
        elif in_processes:
            shipped = ship.dumps((function, self._method), name=self._name)
            place = InProcesses(CallProcesses(shipped), context.tasks.threads(at_once))
        else:
            place = OnThreads(function, self._call, context.tasks.threads(at_once))
        ask = place.call
        if batched:
            limits = BatchLimits(
                rows=min(settings.batch_rows, settings.capacity),
                wait_s=settings.batch_wait_ms / 1000,
                cost_s=settings.timeout_ms / 2000,
                calls=at_once,
            )
            alone = self.dead_letters is not None
            batches = Batches(place, limits, self._name, fail_alone=alone)
            self._open_places.append(batches)
            ask = batches.ask
        self._attempts = Attempts(
            function,
            ask,
            self._retry,
            self._seats,
            context.tasks.metrics.counter("numCallsTimedOut"),
            timeout_ms=settings.timeout_ms,
            share=context.info.settings.object_reuse,
            operator=self._name,
        )
        return place

    # --- what comes ---

    def process(self, batch: Batch, port: int, out: Output) -> None:
        rows = as_rows(batch)
        stamps = stamps_of(rows)
        for value, timestamp_ms in zip(rows.values, stamps, strict=False):
            self._admit(value, timestamp_ms)
        self._call_next()

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._mark(watermark, out)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        self._mark(status, out)

    def _mark(self, mark: Watermark | WatermarkStatus, out: Output) -> None:
        if self._queue.empty:
            out.emit_watermark(mark)
        else:
            self._queue.mark(mark)

    # --- what leaves ---

    def on_ready(self, out: Output) -> Steps | None:
        if self._queue.head() is not None:
            return self._leave(out)
        self._call_next()
        return None

    @property
    def drained(self) -> bool:
        return self._queue.empty

    def finish(self, out: Output) -> Steps:
        yield from self._leave(out)
        while not self._queue.empty:
            yield self._next_done()
            yield from self._leave(out)

    def _leave(self, out: Output) -> Steps:
        while (head := self._queue.head()) is not None:
            if not isinstance(head, Call):
                self._queue.pop()
                out.emit_watermark(head)
                continue
            done = self._take_done(timed=head.timestamp_ms is not None)
            # All results of a call leave before the pause: what has left is in no snapshot.
            for start in range(0, len(done), self._rows_max):
                emit_sorted(done.piece(start, start + self._rows_max), out)
            self._call_next()
            # What a slow function behind this step was given has to be done before a barrier.
            if out.has_room:
                self._leaving = min(self._rows_max, self._leaving * PIECE_GROWTH)
            else:
                self._leaving = 1
                yield Pause.HERE
        self._call_next()

    def _take_done(self, *, timed: bool) -> RowBatch:
        """Results of calls at the head, which all have timestamps or all have none."""
        values: list[object] = []
        stamps: list[int] = []
        while len(values) < self._leaving and isinstance(head := self._queue.head(), Call):
            if (head.timestamp_ms is not None) is not timed:
                break
            assert head.results is not None, "what is not done does not leave"
            values += head.results
            if head.timestamp_ms is not None:
                stamps += [head.timestamp_ms] * len(head.results)
            self._queue.pop()
            self._seats.leave(head)
        return RowBatch(values, stamps if timed else None)

    def _next_done(self) -> asyncio.Future[None]:
        self._progress = asyncio.get_running_loop().create_future()
        return self._progress

    # --- calls ---

    def _admit(self, value: object, timestamp_ms: int | None) -> None:
        call = Call(value, timestamp_ms)
        self._queue.add(call)
        self._seats.wait(call)

    def _call_next(self) -> None:
        while (call := self._seats.take()) is not None:
            self._tasks.begin(self._perform(call))
        self.takes_input = self._seats.takes_more

    async def _perform(self, call: Call) -> None:
        try:
            call.results = self._owned(await self._attempts.outcome(call), call.value)
        except UserCodeFailed as error:
            if self.dead_letters is None:
                raise
            letter = DeadLetter(f"operator '{self._name}'", error.what, value=call.value)
            call.results = [(self.dead_letters, letter)]
            self._letters.inc()
        self._queue.done(call)
        self._context.tasks.wake()
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def _owned(self, results: list[object], value: object) -> list[object]:
        """The results as the next operator's own. Raises UserCodeFailed for what has no copy."""
        if self._own is None:
            return results
        try:
            return list(map(self._own, results))
        except Exception as error:
            for result in results:
                if iscoroutine(result):
                    result.close()  # or Python tells of it, apart from the failure
            raise_user_code_failed(error, operator=self._name, row=value)

    # --- checkpoints ---

    def snapshot(self, context: SnapshotContext) -> None:
        super().snapshot(context)
        self._state.update([(call.value, call.timestamp_ms) for call in self._queue.calls()])

    def close(self) -> Awaitable[None] | None:
        self._seats.close()
        self._tasks.leave()
        return self._end() if self._open_places else None

    async def _end(self) -> None:
        await self._tasks.end()
        for place in reversed(self._open_places):
            try:
                await place.close()
            except BaseException as error:
                if cancelled():
                    raise
                raise_user_code_failed(error, operator=self._name, call="close")


def called_method(function: object) -> str:
    """The method of an ``AsyncFunction`` to call; for plain functions, that for single values."""
    if isinstance(function, AsyncFunction):
        kind = type(cast("AsyncFunction[Any, Any]", function))
        if kind.async_invoke_batch is not AsyncFunction.async_invoke_batch:
            return "async_invoke_batch"
    return "async_invoke"
