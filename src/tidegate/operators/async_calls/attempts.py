"""The attempts of one call: up to its timeout, again where the program says so, and checked."""

from __future__ import annotations

import asyncio
from inspect import iscoroutine
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tidegate.api.functions.async_functions import AsyncFunction
from tidegate.api.rows.batches import shown
from tidegate.errors import UserCodeFailed
from tidegate.operators.async_calls.call_places import Attempt
from tidegate.operators.async_calls.cancellation import cancelled
from tidegate.operators.failures import raise_user_code_failed, user_trace
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.api.functions.async_functions import AsyncRetryStrategy
    from tidegate.metrics import Counter
    from tidegate.operators.async_calls.async_queue import Call, Seats


class Attempts:
    """Calls a user's function for one record at a time, any number of records at once.

    ask: calls the function once. seats: where a call that goes on after its timeout stays. share:
    True if the function may change what it is given. operator: its name.
    """

    def __init__(
        self,
        function: object,
        ask: Callable[[object, Attempt], Awaitable[object]],
        retry: AsyncRetryStrategy[Any],
        seats: Seats,
        timed_out: Counter,
        *,
        timeout_ms: int,
        share: bool,
        operator: str,
    ) -> None:
        predicates = retry.get_retry_predicate()
        self._retry = retry
        self._retries_results = predicates.result_predicate()
        self._retries_error = predicates.exception_predicate()
        self._on_timeout = _timeout_of(function)
        self._gives_one = not isinstance(function, AsyncFunction)
        self._ask = ask
        self._seats = seats
        self._timed_out = timed_out
        self._timeout_ms = timeout_ms
        self._share = share
        self._operator = operator

    async def outcome(self, call: Call) -> list[object]:
        """The results of a call. Raises UserCodeFailed if it fails or its time is over."""
        loop, timeout_s = asyncio.get_running_loop(), self._timeout_ms / 1000
        limit = asyncio.timeout(None)

        def began() -> None:
            if limit.when() is None and not attempt.over:
                limit.reschedule(loop.time() + timeout_s)

        attempt = Attempt(began)
        try:
            async with limit:
                return await self._attempts(call.value, attempt)
        except (Exception, asyncio.CancelledError) as error:
            if cancelled():
                raise asyncio.CancelledError from error  # the subtask is over, whatever that was
            if not limit.expired():
                self._fail(error, call.value)
            self._timed_out.inc()
            self._seats.keep(call, attempt.running)
            return self._late(call.value, error)
        finally:
            attempt.over = True

    async def _attempts(self, value: object, attempt: Attempt) -> list[object]:
        for number in count(1):
            try:
                results = await self._ask(self._given(value), attempt)
                if isinstance(results, Exception):
                    raise results
            except Exception as error:
                if not self._again(self._retries_error, error, number):
                    raise
            else:
                checked = self._checked(results, value)
                if not self._again(self._retries_results, checked, number):
                    return checked
            if cancelled():
                raise asyncio.CancelledError  # the function has caught it, or made another of it
            await asyncio.sleep(self._retry.get_backoff_time_millis(number) / 1000)
        raise AssertionError("attempts end by one that is not repeated")

    def _again(
        self, predicate: Callable[[Any], bool] | None, outcome: object, attempt: int
    ) -> bool:
        return predicate is not None and self._retry.can_retry(attempt) and predicate(outcome)

    def _given(self, value: object) -> object:
        return value if self._share else private_copy(value)

    def _late(self, value: object, expired: BaseException) -> list[object]:
        if self._on_timeout is None:
            raise UserCodeFailed(
                f"a call of operator '{self._operator}' took longer than {self._timeout_ms} ms",
                where=f"operator '{self._operator}', at the row {shown(value)}",
                remedy="Give it a longer timeout, or results of AsyncFunction.timeout instead.",
                trace=user_trace(expired.__context__ or expired),
            ) from expired
        try:
            return self._listed(self._on_timeout(self._given(value)), value)
        except BaseException as error:
            self._fail(error, value)

    def _fail(self, error: BaseException, value: object) -> NoReturn:
        if isinstance(error, asyncio.CancelledError):
            stopped = RuntimeError("what it waited for was cancelled")
            error = stopped.with_traceback(error.__traceback__)
        raise_user_code_failed(error, operator=self._operator, row=value)

    def _checked(self, given: object, value: object) -> list[object]:
        if iscoroutine(given):
            given.close()
            raise UserCodeFailed(
                f"the function of operator '{self._operator}' gave a coroutine, and is not "
                "declared with 'async def'",
                where=f"operator '{self._operator}', at the row {shown(value)}",
                remedy="Declare it with 'async def', and await within.",
            )
        return [given] if self._gives_one else self._listed(given, value)

    def _listed(self, given: object, value: object) -> list[object]:
        if isinstance(given, list):
            return cast("list[object]", given)
        raise UserCodeFailed(
            "The result of AsyncFunction should be of list type: the function of operator "
            f"'{self._operator}' gave {shown(given)}, which is not a list",
            where=f"operator '{self._operator}', at the row {shown(value)}",
            remedy="Give a list of results: [result] for one, [] for none.",
        )


def _timeout_of(function: object) -> Callable[[Any], list[Any]] | None:
    if isinstance(function, AsyncFunction):
        given = cast("AsyncFunction[Any, Any]", function)
        return None if type(given).timeout is AsyncFunction.timeout else given.timeout
    return None
