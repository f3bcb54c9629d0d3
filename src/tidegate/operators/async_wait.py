"""Calls of coroutines for records, many at once.

A record is in flight from its arrival until its results have left; so long it belongs to every
snapshot, and is called anew after a restore, before anything that comes. Calls in flight are no
steps, so that a barrier passes them. A batch is taken in whole: where it holds more records than
may be called now, the others wait, and the input is held back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.async_functions import AsyncFunction
from tidegate.api.batches import as_rows, shown
from tidegate.api.state import OperatorListState, OperatorStateDescriptor
from tidegate.errors import UserCodeFailed
from tidegate.operators.async_queue import Call, CallQueue, OrderedQueue, UnorderedQueue
from tidegate.operators.emit import emit_rows
from tidegate.operators.failures import user_code_failed, user_trace
from tidegate.operators.function import FunctionOperator
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.async_functions import AsyncRetryStrategy
    from tidegate.api.operator import OperatorContext, Output, SnapshotContext, Steps
    from tidegate.model.elements import Batch, Watermark, WatermarkStatus

IN_FLIGHT_STATE = "AsyncWaitInFlight"


class AsyncWaitOperator(FunctionOperator):
    """Any number of values for each, by an ``AsyncFunction`` or a plain coroutine function.

    capacity: records that have been called and whose results have not left. timeout_ms: of one
    record, over all its attempts.
    """

    def __init__(
        self,
        function: object,
        retry: AsyncRetryStrategy[Any],
        *,
        ordered: bool,
        timeout_ms: int,
        capacity: int,
    ) -> None:
        super().__init__(function, "async_invoke")
        self._retry = retry
        self._ordered = ordered
        self._timeout_ms = timeout_ms
        self._capacity = capacity

    def open(self, context: OperatorContext) -> None:
        """Open the function, and take up what was in flight in the restored checkpoint."""
        super().open(context)
        self._context = context
        self._share = context.settings.object_reuse
        predicates = self._retry.get_retry_predicate()
        self._retries_results = predicates.result_predicate()
        self._retries_error = predicates.exception_predicate()
        self._on_timeout = _timeout_of(self._function)
        self._queue: CallQueue = OrderedQueue() if self._ordered else UnorderedQueue()
        self._waiting: deque[Call] = deque()
        self._called = 0
        self.timestamp_ms: int | None = None
        self._progress: asyncio.Future[None] | None = None
        self._state = cast(
            "OperatorListState[tuple[object, int | None]]",
            context.operator_state(OperatorStateDescriptor(IN_FLIGHT_STATE)),
        )
        for value, timestamp_ms in self._state.get():
            self._admit(value, timestamp_ms)
        if self._waiting:
            context.wake()

    # --- what comes ---

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Call as many as there is room for, and hold the input back for the others."""
        rows = as_rows(batch)
        behind = bool(self._waiting)
        stamps = repeat(None) if rows.timestamps_ms is None else rows.timestamps_ms
        for value, timestamp_ms in zip(rows.values, stamps, strict=False):
            self._admit(value, timestamp_ms)
        self._call_next()
        # Another operator of the chain goes on emitting: it at least has to wait its turn.
        return self._catch_up(len(rows), out) if behind else None

    def _catch_up(self, rows: int, out: Output) -> Steps:
        """Until all are called that came before the last ``rows``."""
        yield from self._leave(out)
        while len(self._waiting) > rows:
            yield self._next_done()
            yield from self._leave(out)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Event time advances behind what is in flight."""
        self._mark(watermark, out)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        """The input becomes idle, or active, behind what is in flight."""
        self._mark(status, out)

    def _mark(self, mark: Watermark | WatermarkStatus, out: Output) -> None:
        if self._queue.empty:
            out.emit_watermark(mark)
        else:
            self._queue.mark(mark)

    # --- what leaves ---

    def on_ready(self, out: Output) -> Steps | None:
        """Pass on what is done, and call the next."""
        if self._queue.head() is not None:
            return self._leave(out)
        self._call_next()
        return None

    def finish(self, out: Output) -> Steps:
        """Wait for all that is in flight, which its timeouts bound."""
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
            timed = None if head.timestamp_ms is None else self
            results = self._results(timed=timed is not None)
            yield from emit_rows(results, self._chunk_rows, out, timed=timed) or ()
        self._call_next()

    def _results(self, *, timed: bool) -> Iterator[object]:
        """Of the calls at the head that have timestamps, or have none."""
        while isinstance(head := self._queue.head(), Call):
            if (head.timestamp_ms is not None) is not timed:
                return
            assert head.results is not None, "what is not done does not leave"
            self.timestamp_ms = head.timestamp_ms
            yield from head.results
            self._queue.pop()
            self._called -= 1

    def _next_done(self) -> asyncio.Future[None]:
        self._progress = asyncio.get_running_loop().create_future()
        return self._progress

    # --- calls ---

    def _admit(self, value: object, timestamp_ms: int | None) -> None:
        call = Call(value, timestamp_ms)
        self._queue.add(call)
        self._waiting.append(call)

    def _call_next(self) -> None:
        while self._waiting and self._called < self._capacity:
            self._called += 1
            self._context.start(self._perform(self._waiting.popleft()))
        self.takes_input = not self._waiting

    async def _perform(self, call: Call) -> None:
        limit = asyncio.timeout(self._timeout_ms / 1000)
        try:
            async with limit:
                results = await self._attempts(call.value)
        except (Exception, asyncio.CancelledError) as error:
            if _cancelled():
                raise asyncio.CancelledError from error  # the subtask is over, whatever that was
            if not limit.expired():
                raise self._failed(error, call.value) from error
            results = self._late(call.value, error)
        call.results = results if self._own is None else list(map(self._own, results))
        self._queue.done(call)
        self._context.wake()
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    async def _attempts(self, value: object) -> list[object]:
        for attempt in count(1):
            try:
                results = await self._call(self._given(value))
            except Exception as error:
                if not self._again(self._retries_error, error, attempt):
                    raise
            else:
                checked = self._checked(results, value)
                if not self._again(self._retries_results, checked, attempt):
                    return checked
            if _cancelled():
                raise asyncio.CancelledError  # the function has caught it, or made another of it
            await asyncio.sleep(self._retry.get_backoff_time_millis(attempt) / 1000)
        raise AssertionError("attempts end by one that is not repeated")

    def _again(
        self, predicate: Callable[[Any], bool] | None, outcome: object, attempt: int
    ) -> bool:
        return predicate is not None and self._retry.can_retry(attempt) and predicate(outcome)

    def _given(self, value: object) -> object:
        """What the function may change: the value itself may be called again."""
        return value if self._share else private_copy(value)

    def _late(self, value: object, expired: BaseException) -> list[object]:
        """What the function has to say for a value whose time is over."""
        if self._on_timeout is None:
            raise UserCodeFailed(
                f"a call of operator '{self._name}' took longer than {self._timeout_ms} ms",
                where=f"operator '{self._name}', at the row {shown(value)}",
                remedy="Give it a longer timeout, or results of AsyncFunction.timeout instead.",
                trace=user_trace(expired.__context__ or expired),
            ) from expired
        try:
            return self._checked(self._on_timeout(self._given(value)), value)
        except Exception as error:
            raise self._failed(error, value) from error

    def _failed(self, error: BaseException, value: object) -> Exception:
        if not isinstance(error, Exception):
            cancelled = RuntimeError("what it waited for was cancelled")
            error = cancelled.with_traceback(error.__traceback__)
        return user_code_failed(error, operator=self._name, row=value)

    def _checked(self, results: object, value: object) -> list[object]:
        if isinstance(results, list):
            return cast("list[object]", results)
        raise UserCodeFailed(
            f"the function of operator '{self._name}' gave {shown(results)}, which is no list",
            where=f"operator '{self._name}', at the row {shown(value)}",
            remedy="Give a list of results: [result] for one, [] for none.",
        )

    # --- checkpoints ---

    def snapshot(self, context: SnapshotContext) -> None:
        """Keep what is in flight."""
        super().snapshot(context)
        self._state.update([(call.value, call.timestamp_ms) for call in self._queue.calls()])


def _cancelled() -> bool:
    """Whether somebody wants the running task to end; also one whose time is just over."""
    task = asyncio.current_task()
    assert task is not None, "asked in a task"
    return task.cancelling() > 0


def _timeout_of(function: object) -> Callable[[Any], list[Any]] | None:
    """What a function says to a timeout; None where that fails the job."""
    if isinstance(function, AsyncFunction):
        given = cast("AsyncFunction[Any, Any]", function)
        return None if type(given).timeout is AsyncFunction.timeout else given.timeout
    return None
