"""Calls of services for the records of a stream, many at once."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.api.async_functions import AsyncFunction, AsyncRetryStrategy
from tidegate.datastream import checks, types
from tidegate.errors import GraphError
from tidegate.model.duration import Time
from tidegate.operators.async_wait import AsyncWaitOperator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint

T = TypeVar("T")
R = TypeVar("R")


class AsyncDataStream:
    """Attaches an ``AsyncFunction``, or a plain ``async def`` function, to a stream.

    timeout: of one record, over all attempts. capacity: records in flight at once in each subtask;
    further ones wait, and with them the input. On a keyed stream there is no state of keys.

    >>> AsyncDataStream.ordered_wait(ids, Lookup(), Time.seconds(5), capacity=20)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]]],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Results leave as soon as they are there, but never pass a watermark."""
        once = AsyncRetryStrategy.no_restart()
        return _wait(data_stream, async_function, timeout, once, capacity, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]]],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Results leave in the order of their records."""
        once = AsyncRetryStrategy.no_restart()
        return _wait(
            data_stream, async_function, timeout, once, capacity, output_type, ordered=True
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]]],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[R],
        capacity: int = 100,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """As ``unordered_wait``; records are called again as the strategy says."""
        return _wait(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, R] | Callable[[T], Awaitable[list[R]]],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[R],
        capacity: int = 100,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """As ``ordered_wait``; records are called again as the strategy says."""
        return _wait(
            data_stream,
            async_function,
            timeout,
            async_retry_strategy,
            capacity,
            output_type,
            ordered=True,
        )


_CALL = "AsyncDataStream"


def _wait(
    data_stream: DataStream[Any],
    async_function: object,
    timeout: Time,
    retry: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: TypeHint | None,
    *,
    ordered: bool = False,
) -> DataStream[Any]:
    _check(async_function, timeout, retry, capacity)
    operator = AsyncWaitOperator(
        async_function,
        retry,
        ordered=ordered,
        timeout_ms=timeout.to_milliseconds(),
        capacity=capacity,
    )
    declared = types.result_type(output_type, async_function, "async_invoke", iterable=True)
    return data_stream.transform("async wait operator", operator, declared, stateful=True)


def _check(function: object, timeout: object, retry: object, capacity: int) -> None:
    """Raises GraphError for what cannot work."""
    checks.check_function(function, AsyncFunction, _CALL)
    if not _gives_coroutines(function):
        raise GraphError(
            f"{getattr(function, '__name__', type(function).__name__)} is not declared with "
            "'async def'",
            where=_CALL,
            remedy="Declare it, or its async_invoke, with 'async def', and await within; for a "
            "function that blocks use map.",
        )
    if not isinstance(timeout, Time) or timeout.to_milliseconds() < 1:
        raise GraphError(
            f"The timeout is {timeout!r}",
            where=_CALL,
            remedy="Give a Time above 0, such as Time.seconds(5).",
        )
    if not isinstance(retry, AsyncRetryStrategy):
        raise GraphError(
            f"The retry strategy is {retry!r}",
            where=_CALL,
            remedy="Give such as AsyncRetryStrategy.fixed_delay gives, or one of your own.",
        )
    if capacity < 1:
        raise GraphError(
            f"The capacity is {capacity}", where=_CALL, remedy="Give 1 or more calls at once."
        )


def _gives_coroutines(function: object) -> bool:
    called = type(function).async_invoke if isinstance(function, AsyncFunction) else function
    return iscoroutinefunction(called) or iscoroutinefunction(type(called).__call__)
