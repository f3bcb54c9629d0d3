"""Functions that wait for others: a coroutine for each record, and when to call it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.api.functions.runtime_context import Function
from tidegate.config.spans import millis_of
from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidegate.api.functions.runtime_context import RuntimeContext
    from tidegate.config.spans import Span

In = TypeVar("In")
Out = TypeVar("Out")
R = TypeVar("R")


class AsyncFunction(Function, Generic[In, Out]):
    """Calls that take their time, many at once; any number of results for each value.

    Either ``async_invoke`` or ``async_invoke_batch`` is written. As an ``async def`` it runs on the
    event loop of the slot: between two awaits it has the loop to itself, so a call that blocks
    holds up everything. A plain function runs on threads, or in processes. Make objects that calls
    share, such as a client of a service, in ``open``; ``open`` and ``close`` may be ``async def``
    too. It has no state. A record is called again after a restore unless its results were passed on
    before the checkpoint.

    >>> class Lookup(AsyncFunction[str, tuple[str, str]]):
    ...     async def open(self, runtime_context: RuntimeContext) -> None:
    ...         self.client = await connect()
    ...
    ...     async def async_invoke(self, value: str) -> list[tuple[str, str]]:
    ...         return [(value, await self.client.get(value))]
    """

    def open(  # pyright: ignore[reportIncompatibleMethodOverride]  # wider: it is awaited here
        self, runtime_context: RuntimeContext, /
    ) -> Awaitable[None] | None:
        """Called once before the first call; may be ``async def``."""

    def close(  # pyright: ignore[reportIncompatibleMethodOverride]  # wider: it is awaited here
        self,
    ) -> Awaitable[None] | None:
        """Called once at the end; after a failure or a cancel, calls may still be running."""

    def async_invoke(self, value: In, /) -> Awaitable[list[Out]] | list[Out]:
        """Results for a value. A coroutine is cancelled when its time is over."""
        raise NotImplementedError("async_invoke was not written")

    def async_invoke_batch(
        self, values: list[In]
    ) -> Awaitable[Sequence[list[Out] | Exception]] | Sequence[list[Out] | Exception]:
        """Results for several values, in their order: a list with a list for each.

        An exception in a place is the failure of that value alone; one that is raised is that of
        each. It is called instead of ``async_invoke`` where it is written.
        """
        raise NotImplementedError("async_invoke_batch was not written")

    def timeout(self, value: In, /) -> list[Out]:
        """Results for a value whose call, with all its attempts, took too long.

        Default: raises TimeoutError, which fails the job.
        """
        raise TimeoutError("the call took longer than its timeout")


class AsyncRetryPredicate(ABC, Generic[Out]):
    """Outcomes of a call that deserve another attempt."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[Out]], bool] | None:
        """Predicate for a list of results: True to call again. None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Predicate for an exception: True to call again. None: never."""


class AsyncRetryStrategy(ABC, Generic[Out]):
    """Number of attempts for a record, and the pauses between them."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """True if this attempt, counted from 1, may be followed by another."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Pause in milliseconds between this attempt and the next."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[Out]:
        """Results and exceptions after which to call again."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """A strategy of a single attempt."""
        return _Backoff(1, 0, 0, 1.0, _Predicates(None, None))

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: Span,
        result_predicate: Callable[[list[R]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[R]:
        """At most this many attempts, the first included, with equal pauses.

        backoff_time_millis: milliseconds, or a span such as ``timedelta(seconds=1)`` or ``"1 s"``.
        Another one follows where a predicate says so of the results, or of the exception; without
        predicates each exception is followed by one.

        >>> AsyncRetryStrategy.fixed_delay(3, 100)
        """
        pause_ms = millis_of(backoff_time_millis, where="AsyncRetryStrategy.fixed_delay")
        _check("fixed_delay", max_attempts=max_attempts, backoff_time_millis=pause_ms)
        predicates = _predicates(result_predicate, exception_predicate)
        return _Backoff(max_attempts, pause_ms, pause_ms, 1.0, predicates)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: Span,
        max_retry_delay: Span,
        multiplier: float,
        result_predicate: Callable[[list[R]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[R]:
        """Works as ``fixed_delay``, but the pause is multiplied after each attempt, up to a limit.

        >>> AsyncRetryStrategy.exponential_backoff(
        ...     5, 100, 2_000, 2.0, exception_predicate=lambda e: isinstance(e, OSError)
        ... )
        """
        where = "AsyncRetryStrategy.exponential_backoff"
        first_ms = millis_of(initial_delay, where=where)
        greatest_ms = millis_of(max_retry_delay, where=where)
        _check(
            "exponential_backoff",
            max_attempts=max_attempts,
            initial_delay=first_ms,
            max_retry_delay=greatest_ms,
            multiplier=multiplier,
        )
        predicates = _predicates(result_predicate, exception_predicate)
        return _Backoff(max_attempts, first_ms, greatest_ms, multiplier, predicates)


class _Predicates(AsyncRetryPredicate[Out]):
    def __init__(
        self,
        of_results: Callable[[list[Out]], bool] | None,
        of_exception: Callable[[Exception], bool] | None,
    ) -> None:
        self._of_results = of_results
        self._of_exception = of_exception

    def result_predicate(self) -> Callable[[list[Out]], bool] | None:
        return self._of_results

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._of_exception


def _predicates(
    of_results: Callable[[list[R]], bool] | None,
    of_exception: Callable[[Exception], bool] | None,
) -> _Predicates[R]:
    """Default predicates: without any, every exception is worth another attempt."""
    if of_results is None and of_exception is None:
        return _Predicates(None, lambda _: True)
    return _Predicates(of_results, of_exception)


class _Backoff(AsyncRetryStrategy[Out]):
    def __init__(
        self,
        attempts_max: int,
        delay_ms: int,
        delay_max_ms: int,
        multiplier: float,
        predicates: AsyncRetryPredicate[Out],
    ) -> None:
        self._attempts_max = attempts_max
        self._delay_ms = delay_ms
        self._delay_max_ms = delay_max_ms
        self._multiplier = multiplier
        self._predicates = predicates

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts < self._attempts_max

    def __repr__(self) -> str:
        return (
            f"AsyncRetryStrategy(max_attempts={self._attempts_max}, delay_ms={self._delay_ms}, "
            f"delay_max_ms={self._delay_max_ms}, multiplier={self._multiplier})"
        )

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay_ms = float(self._delay_ms)
        for _ in range(current_attempts - 1):
            if delay_ms >= self._delay_max_ms:
                break
            delay_ms *= self._multiplier
        return int(min(delay_ms, self._delay_max_ms))

    def get_retry_predicate(self) -> AsyncRetryPredicate[Out]:
        return self._predicates


_LEAST = {"max_attempts": 1, "multiplier": 1}


def _check(call: str, **given: float) -> None:
    wrong = [name for name, value in given.items() if value < _LEAST.get(name, 0)]
    if wrong:
        raise GraphError(
            " and ".join(f"{name} is {given[name]}" for name in wrong),
            where=f"AsyncRetryStrategy.{call}",
            remedy="; ".join(f"{name} has to be {_LEAST.get(name, 0)} or more" for name in wrong)
            + ".",
        )
