"""Places where a function is called: on the slot's loop, on threads, or in processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Protocol, cast

from tidegate.api.functions.async_functions import AsyncFunction
from tidegate.errors import as_error
from tidegate.operators.async_calls.cancellation import cancelled
from tidegate.operators.failures import raise_user_code_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.api.operator import Threads
    from tidegate.operators.async_calls.call_context import CallContext
    from tidegate.operators.async_calls.call_processes import CallProcesses
    from tidegate.operators.function import RowCall


@dataclass(slots=True)
class Attempt:
    """One attempt for a record. began: to be called as the user's code begins.

    running: what goes on when nobody waits for the attempt any more. over: nobody does.
    """

    began: Callable[[], None]
    running: asyncio.Future[object] | None = None
    over: bool = False


class Place(Protocol):
    """Place where a function is called."""

    def open(self, context: CallContext) -> Awaitable[None] | None:
        """Opens the function; None if that is done already."""
        ...

    async def call(self, argument: object, attempt: Attempt) -> object:
        """Calls the function and returns its result; raises what it raises."""
        ...

    async def close(self) -> None:
        """Closes the function. Calls may still be running."""
        ...


def gives_coroutines(call: object) -> bool:
    """True for an ``async def``, or an object with such a ``__call__``."""
    return iscoroutinefunction(call) or iscoroutinefunction(type(call).__call__)


class OnLoop:
    """Calls coroutines on the slot's loop."""

    def __init__(self, function: object, call: RowCall) -> None:
        self._function = function
        self._call = call

    def open(self, context: CallContext) -> Awaitable[None] | None:
        return opened(self._function, context)

    async def call(self, argument: object, attempt: Attempt) -> object:
        attempt.began()
        try:
            return await self._call(argument)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as raised:  # the loop would end with some of them
            raise as_error(raised) from None

    async def close(self) -> None:
        await closed(self._function)


class OnThreads:
    """Calls plain functions on threads: many at once, as far as they release the interpreter."""

    def __init__(self, function: object, call: RowCall, threads: Threads) -> None:
        self._function = function
        self._call = call
        self._threads = threads

    def open(self, context: CallContext) -> Awaitable[None] | None:
        """Opens the function; a plain ``open``, which may load a model, runs on a thread too."""
        if not isinstance(self._function, AsyncFunction):
            return None
        return self._open(self._function, context)

    async def _open(self, function: object, context: CallContext) -> None:
        opening = await self._threads.run(lambda: opened(function, context))
        if opening is not None:
            await cast("Awaitable[None]", opening)

    async def call(self, argument: object, attempt: Attempt) -> object:
        return await on_thread(self._threads, lambda: self._call(argument), attempt)

    async def close(self) -> None:
        self._threads.close()
        await closed(self._function)


class InProcesses:
    """Calls plain functions that hold the interpreter in processes of their own."""

    def __init__(self, processes: CallProcesses, threads: Threads) -> None:
        self._processes = processes
        self._threads = threads

    def open(self, context: CallContext) -> Awaitable[None] | None:
        return self._open(context)

    async def _open(self, context: CallContext) -> None:
        await self._threads.run(lambda: self._processes.begin(context))

    async def call(self, argument: object, attempt: Attempt) -> object:
        loop = asyncio.get_running_loop()

        def began() -> None:
            loop.call_soon_threadsafe(attempt.began)

        running = Attempt(lambda: None)
        try:
            return await on_thread(
                self._threads, lambda: self._processes.call(argument, began), running
            )
        finally:
            attempt.running = running.running

    async def close(self) -> None:
        self._processes.kill_busy()
        try:
            await self._threads.run(self._processes.close)
        finally:
            self._threads.close()


async def on_thread(threads: Threads, call: Callable[[], object], attempt: Attempt) -> object:
    loop = asyncio.get_running_loop()
    begun = False

    def run() -> object:
        nonlocal begun
        begun = True
        loop.call_soon_threadsafe(attempt.began)
        return call()

    running = threads.run(run)
    attempt.running = running
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not begun:
            running.cancel()
        raise


def opened(function: object, context: CallContext) -> Awaitable[None] | None:
    """Opens a function; returns an awaitable if it has to be awaited. Raises UserCodeFailed."""
    if not isinstance(function, AsyncFunction):
        return None
    try:
        left = function.open(context)
    except BaseException as error:
        raise_user_code_failed(error, operator=context.name, call="open")
    return _awaited(left, context.name) if isawaitable(left) else None


async def _awaited(left: Awaitable[object], operator: str) -> None:
    try:
        await left
    except BaseException as error:
        if cancelled():
            raise
        raise_user_code_failed(error, operator=operator, call="open")


async def closed(function: object) -> None:
    """Closes a function; raises what it raises."""
    if isinstance(function, AsyncFunction):
        left = function.close()
        if isawaitable(left):
            await left
