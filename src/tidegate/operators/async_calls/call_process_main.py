"""The other side of `CallProcesses`: opens a function, and calls it on request."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import signal
import sys
import threading
from functools import partial
from inspect import isawaitable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, cast

from tidegate.api import ship
from tidegate.errors import as_error
from tidegate.operators.async_calls.call_places import closed, opened
from tidegate.operators.failures import user_trace
from tidegate.operators.function import row_call
from tidegate.typeinfo.by_value import pickled_by_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.operators.async_calls.call_context import CallContext

_SET_PARENT_DEATH_SIGNAL: Final = 1


def serve(fd: int, parent: int) -> None:
    """Answer what comes over a connection until it says to close.

    The first message is a function, the name of its method, and its context; an empty one closes.
    """
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which says what ends
    connection: Connection[bytes, bytes] = Connection(fd)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    with asyncio.Runner() as runner:
        served = _Served(runner.get_loop())
        connection.send_bytes(_answer(partial(served.open, inbox.get())))
        while message := inbox.get():
            connection.send_bytes(_answer(partial(served.call, message)))
        connection.send_bytes(_answer(served.close))


class _Served:
    """The function in its process; its awaitables are awaited on a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def open(self, message: bytes) -> None:
        shipped, context = cast("tuple[bytes, CallContext]", pickle.loads(message))
        loaded = ship.loads(shipped, name=context.name)
        self._function, method = cast("tuple[object, str]", loaded)
        self._call = row_call(self._function, method)
        self._whole(opened(self._function, context))

    def call(self, message: bytes) -> object:
        return self._whole(self._call(pickle.loads(message)))

    def close(self) -> None:
        self._whole(closed(self._function))

    def _whole(self, given: object) -> object:
        return self._loop.run_until_complete(_result(given)) if isawaitable(given) else given


async def _result(given: Awaitable[object]) -> object:
    return await given


def _answer(act: Callable[[], object]) -> bytes:
    """Success flag with the result, or failure with the exception and its place."""
    try:
        return pickled_by_value((True, act(), ""))
    except BaseException as raised:
        error = as_error(raised)
        return pickled_by_value((False, _portable(error), user_trace(error)))


def _portable(error: Exception) -> Exception:
    """The exception, or its text if another process can't rebuild it."""
    try:
        again = pickle.loads(pickled_by_value(error))
    except Exception:
        again = None
    if type(again) is type(error):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def _read(connection: Connection[bytes, bytes], inbox: SimpleQueue[bytes]) -> None:
    while True:
        try:
            inbox.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # the slot is gone, and a call may go on for minutes


def _die_with(parent: int) -> None:
    """Ends the process with its slot, even during a call that holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # the slot was gone before
