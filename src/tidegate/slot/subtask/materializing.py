"""Has the keyed state of a subtask's operators written now and then, so that its logs stay short.

Each operator has a time of its own within the interval, so that not all write at once. Nothing of
it belongs to a checkpoint: state is encoded in short slices while records flow, and the next
checkpoints count on what was written once it is durable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import StorageFailed, TidegateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.model.settings import ChangelogSettings
    from tidegate.slot.subtask.ending import Ending
    from tidegate.slot.subtask.host import Host
    from tidegate.state.backend import OperatorBackend
    from tidegate.state.log.changelog_backend import BackgroundBase

SLICE_MS: Final = 1.0
"""How long a slice is; the loop has three times as long for other work after it."""

PART_BYTES: Final = 4 << 20
"""Encoded bytes that are written before more are encoded."""


class Materializing:
    """The materialisations of one subtask. ending: tells that no checkpoint will follow."""

    def __init__(
        self,
        backends: Sequence[OperatorBackend],
        settings: ChangelogSettings,
        host: Host,
        ending: Ending,
        where: str,
    ) -> None:
        self._backends = backends
        self._settings = settings
        self._host = host
        self._ending = ending
        self._where = where
        self._failures = 0

    def begin(self) -> None:
        interval_ms = self._settings.materialize_ms
        if interval_ms is None:
            return
        for backend in self._backends:
            self._next(backend, self._host.chance.uniform_ms(1, interval_ms), interval_ms)

    def _next(self, backend: OperatorBackend, wait_ms: int, interval_ms: int) -> None:
        def begin() -> None:
            if self._ending.operators_finished:
                return
            pending = backend.materialize()
            if pending is None:
                self._next(backend, interval_ms, interval_ms)
            else:
                self._host.start(self._materialize(backend, pending, interval_ms))

        self._host.call_at(self._host.clock.monotonic_ms() + wait_ms, begin)

    async def _materialize(
        self, backend: OperatorBackend, pending: BackgroundBase, interval_ms: int
    ) -> None:
        try:
            while not pending.encode(SLICE_MS):
                if self._ending.operators_finished:
                    await self._host.run_blocking(pending.give_up)
                    return
                if pending.waiting >= PART_BYTES:
                    await self._host.run_blocking(pending.write)
                else:
                    await asyncio.sleep(3 * SLICE_MS / 1000)
            await self._host.run_blocking(pending.write)
        except TidegateError as error:
            await self._host.run_blocking(pending.give_up)
            self._failed(error)
        else:
            self._failures = 0
            pending.take()
        self._next(backend, interval_ms, interval_ms)

    def _failed(self, error: TidegateError) -> None:
        self._failures += 1
        self._host.log.warning(
            "materialisation failed and will be retried; the log continues",
            failures=self._failures,
            error=str(error),
        )
        if self._failures > self._settings.failures_max:
            raise StorageFailed(
                f"The state could not be materialised {self._failures} times in a row: "
                f"{error.what}",
                where=error.where or self._where,
                remedy=error.remedy
                or "See that the checkpoint folder can be written; "
                "state.changelog.max-failures-allowed says how many failures are borne.",
            ) from error
