"""Calls of services and models for the records of a stream, many at once."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidegate.api.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from tidegate.config.spans import millis_of
from tidegate.datastream.checking import checks, types
from tidegate.errors import GraphError
from tidegate.model.duration import Time
from tidegate.operators.async_calls.async_wait import AsyncWaitOperator, called_method
from tidegate.operators.async_calls.call_places import gives_coroutines
from tidegate.operators.async_calls.call_settings import CallSettings, Executor
from tidegate.operators.function import row_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.config.spans import Span
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint

T = TypeVar("T")
R = TypeVar("R")

BATCH_WAIT: Final = Time.milliseconds(100)
"""How long a record waits for others at most."""


class AsyncDataStream:
    """Attaches an ``AsyncFunction`` to a stream, or a plain function that gives one result.

    timeout: of one record, over all attempts, from the time when its call begins; a ``Time``, a
    ``timedelta``, a text such as ``"5 s"``, or milliseconds. capacity: records in flight at once in
    each subtask; further ones wait, and with them the input. executor: who makes the calls of plain
    functions, "thread" or "process"; an ``async def`` runs on the slot's loop unless "process" is
    given. workers: threads or processes in each subtask; of batches, how many are under way at
    once. Default: for each record in flight a thread, for each core a process, one batch.
    batch_size, batch_wait: most rows of one call of ``async_invoke_batch``, and how long a row
    waits for others; within these, sizes adapt to what a call costs. On a keyed stream there is no
    state of keys.

    >>> AsyncDataStream.ordered_wait(ids, Lookup(), Time.seconds(5), capacity=20)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[R]] | Callable[[T], R],
        timeout: Span,
        capacity: int = 100,
        output_type: TypeHint | None = None,
        *,
        executor: str = "thread",
        workers: int | None = None,
        batch_size: int = 64,
        batch_wait: Span = BATCH_WAIT,
    ) -> DataStream[R]:
        """Results leave as soon as they are there, but never pass a watermark."""
        calls = _settings(timeout, capacity, executor, workers, batch_size, batch_wait)
        return _wait(data_stream, async_function, _ONCE, calls, output_type, ordered=False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[R]] | Callable[[T], R],
        timeout: Span,
        capacity: int = 100,
        output_type: TypeHint | None = None,
        *,
        executor: str = "thread",
        workers: int | None = None,
        batch_size: int = 64,
        batch_wait: Span = BATCH_WAIT,
    ) -> DataStream[R]:
        """Results leave in the order of their records."""
        calls = _settings(timeout, capacity, executor, workers, batch_size, batch_wait)
        return _wait(data_stream, async_function, _ONCE, calls, output_type, ordered=True)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[R]] | Callable[[T], R],
        timeout: Span,
        async_retry_strategy: AsyncRetryStrategy[R],
        capacity: int = 100,
        output_type: TypeHint | None = None,
        *,
        executor: str = "thread",
        workers: int | None = None,
        batch_size: int = 64,
        batch_wait: Span = BATCH_WAIT,
    ) -> DataStream[R]:
        """Works as ``unordered_wait``; records are called again as the strategy says."""
        calls = _settings(timeout, capacity, executor, workers, batch_size, batch_wait)
        return _wait(
            data_stream, async_function, async_retry_strategy, calls, output_type, ordered=False
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[R]] | Callable[[T], R],
        timeout: Span,
        async_retry_strategy: AsyncRetryStrategy[R],
        capacity: int = 100,
        output_type: TypeHint | None = None,
        *,
        executor: str = "thread",
        workers: int | None = None,
        batch_size: int = 64,
        batch_wait: Span = BATCH_WAIT,
    ) -> DataStream[R]:
        """Works as ``ordered_wait``; records are called again as the strategy says."""
        calls = _settings(timeout, capacity, executor, workers, batch_size, batch_wait)
        return _wait(
            data_stream, async_function, async_retry_strategy, calls, output_type, ordered=True
        )


_CALL: Final = "AsyncDataStream"
_ONCE: Final = AsyncRetryStrategy.no_restart()


def _wait(
    data_stream: DataStream[Any],
    async_function: object,
    retry: AsyncRetryStrategy[Any],
    calls: CallSettings,
    output_type: TypeHint | None,
    *,
    ordered: bool,
) -> DataStream[Any]:
    _check(async_function, retry, calls)
    operator = AsyncWaitOperator(async_function, retry, calls, ordered=ordered)
    several = isinstance(async_function, AsyncFunction)
    declared = types.result_type(output_type, async_function, "async_invoke", iterable=several)
    return data_stream.transform("async wait operator", operator, declared, stateful=True)


def _settings(
    timeout: object,
    capacity: int,
    executor: str,
    workers: int | None,
    batch_size: int,
    batch_wait: object,
) -> CallSettings:
    timeout_ms = millis_of(timeout, where=_CALL)
    if timeout_ms < 1:
        raise GraphError(
            f"The timeout is {timeout_ms} ms",
            where=_CALL,
            remedy="Give more than 0, such as Time.seconds(5).",
        )
    wait_ms = millis_of(batch_wait, where=_CALL)
    if wait_ms < 0:
        raise GraphError(
            f"batch_wait is {wait_ms} ms",
            where=_CALL,
            remedy="Give 0 or more, such as Time.milliseconds(50); 0 waits for no other row.",
        )
    if executor not in [each.value for each in Executor]:
        raise GraphError(
            f"The executor is {executor!r}",
            where=_CALL,
            remedy="Give 'thread', or 'process' for work that holds the interpreter.",
        )
    counts = (
        ("capacity", capacity),
        ("workers", 1 if workers is None else workers),
        ("batch_size", batch_size),
    )
    for name, number in counts:
        if number < 1:
            raise GraphError(f"The {name} is {number}", where=_CALL, remedy="Give 1 or more.")
    return CallSettings(
        timeout_ms,
        capacity,
        Executor(executor),
        workers,
        batch_size,
        wait_ms,
    )


def _check(function: object, retry: object, calls: CallSettings) -> None:
    checks.check_function(function, AsyncFunction, _CALL)
    method = called_method(function)
    if isinstance(function, AsyncFunction):
        kind = type(cast("AsyncFunction[Any, Any]", function))
        if method == "async_invoke" and kind.async_invoke is AsyncFunction.async_invoke:
            raise GraphError(
                f"{kind.__name__} has neither async_invoke nor async_invoke_batch of its own",
                where=_CALL,
                remedy="Write one of them.",
            )
    if not isinstance(retry, AsyncRetryStrategy):
        raise GraphError(
            f"The retry strategy is {retry!r}",
            where=_CALL,
            remedy="Give such as AsyncRetryStrategy.fixed_delay gives, or one of your own.",
        )
    called = row_call(function, method)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        name = getattr(called, "__qualname__", type(called).__name__)
        raise GraphError(
            f"{name} is a generator function, and is to return its results",
            where=_CALL,
            remedy="Return in place of yield; an AsyncFunction returns a list of results.",
        )
    on_loop = calls.executor is Executor.THREAD and gives_coroutines(called)
    if calls.workers is not None and on_loop and method == "async_invoke":
        raise GraphError(
            f"workers is {calls.workers}, and an 'async def' has neither threads nor processes",
            where=_CALL,
            remedy="Give capacity: records in flight at once.",
        )
