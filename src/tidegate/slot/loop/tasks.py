"""Coroutines that run beside the turns of a slot's subtasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any


class Tasks:
    """Coroutines that have not ended. of: others among which each of them is counted too."""

    def __init__(self, of: Tasks | None = None) -> None:
        self._of = of
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._count(task)
        return task

    def _count(self, task: asyncio.Task[None]) -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._of is not None:
            self._of._count(task)

    def cancel(self) -> None:
        """Cancel all but the one that calls."""
        for task in self._running:
            if task is not asyncio.current_task():
                task.cancel()

    async def ended(self) -> None:
        """Wait until none is left; the end of one may begin another. Raises what one has raised."""
        while self._running:
            for outcome in await asyncio.gather(*self._running, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome
