"""Operations that one request begins and others ask about, by an id.

The client may choose the id. The same id again means the same operation, even if that failed.
Source: REST §1.1.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tidegate.clock import Clock

OPERATIONS_MAX: Final = 1_000
"""Operations that are remembered; of those that have ended the oldest are forgotten first."""

LAST_READ_MS: Final = 10_000
"""Whoever has not read a result so long after the end of the operation is not waiting for it."""


@dataclass(slots=True)
class _Operation:
    future: Future[Any]
    ended_ms: int | None = None
    read: bool = False


class Operations:
    """The operations of one job; safe to use from any thread.

    store_ms: how long the result of one can be read once it has ended.
    """

    def __init__(self, clock: Clock, store_ms: int) -> None:
        self._clock = clock
        self._store_ms = store_ms
        self._lock = threading.Lock()
        self._all_read = threading.Condition(self._lock)
        self._known: dict[tuple[str, str], _Operation] = {}

    def begin(self, kind: str, id: str, begin: Callable[[], Future[Any]]) -> None:
        """Begins an operation, unless one of this kind and id exists. Raises what ``begin`` raises.

        Raises OverflowError if too many are under way.
        """
        with self._lock:
            self._forget()
            if (kind, id) in self._known:
                return
            if len(self._known) >= OPERATIONS_MAX:
                raise OverflowError(f"{OPERATIONS_MAX} operations are under way")
            operation = self._known[kind, id] = _Operation(begin())
        operation.future.add_done_callback(lambda _: self._ended(operation))

    def find(self, kind: str, id: str) -> Future[Any] | None:
        """The operation of that kind and id; None if it is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            operation = self._known.get((kind, id))
            if operation is None:
                return None
            if operation.future.done():
                operation.read = True
                self._all_read.notify_all()
            return operation.future

    @property
    def awaited(self) -> bool:
        """True if a client has probably still to read an operation's result."""
        with self._lock:
            return self._awaited()

    def wait_until_read(self) -> None:
        """Waits until no result is awaited; at most `LAST_READ_MS`."""
        with self._lock:
            self._all_read.wait_for(lambda: not self._awaited(), LAST_READ_MS / 1000)

    def _awaited(self) -> bool:
        since_ms = self._clock.monotonic_ms() - LAST_READ_MS
        return any(
            not one.read and (one.ended_ms is None or one.ended_ms > since_ms)
            for one in self._known.values()
        )

    def _ended(self, operation: _Operation) -> None:
        operation.ended_ms = self._clock.monotonic_ms()

    def _forget(self) -> None:
        """Drops operations that ended too long ago, and the oldest ended ones beyond the limit."""
        until_ms = self._clock.monotonic_ms() - self._store_ms
        ended = {key: one.ended_ms for key, one in self._known.items() if one.ended_ms is not None}
        spare = len(self._known) - OPERATIONS_MAX + 1
        for number, (key, ended_ms) in enumerate(ended.items()):
            if ended_ms < until_ms or number < spare:
                del self._known[key]
