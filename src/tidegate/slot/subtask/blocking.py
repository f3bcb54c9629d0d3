"""The calls that a subtask's operators have on the slot's pool.

A thread cannot be stopped. Whoever waits for a call may be cancelled, but the call goes on using
what it has at hand, such as an open file; so an operator is closed only after the last of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class BlockingCalls:
    """One subtask's calls. run_blocking: runs one on the pool."""

    def __init__(self, run_blocking: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._run_blocking = run_blocking
        self._under_way: set[asyncio.Future[object]] = set()
        self._over = False

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def run(self, call: Callable[[], object]) -> Awaitable[object]:
        """Runs a call on the pool; cancelling the caller does not hide that it continues."""
        running = asyncio.ensure_future(self._run_blocking(lambda: self._unless_over(call)))
        self._under_way.add(running)
        running.add_done_callback(self._returned)
        return asyncio.shield(running)

    def _returned(self, call: asyncio.Future[object]) -> None:
        self._under_way.discard(call)
        if not call.cancelled():
            call.exception()  # who waited for it may be gone, and nobody else would look

    def _unless_over(self, call: Callable[[], object]) -> object:
        return None if self._over else call()

    def give_up(self) -> None:
        """The subtask is over: what waits for a thread does nothing any more."""
        self._over = True

    async def ended(self, limit_s: float) -> bool:
        """Wait until none is under way; False if that takes too long."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)
        return not self._under_way
