"""Groups records into calls of several: their number, and how long the first one waits."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from flinkformat.frozen import frozen
from tidegate.api.rows.batches import shown
from tidegate.errors import UserCodeFailed, as_error
from tidegate.operators.async_calls.call_places import Attempt
from tidegate.operators.async_calls.cancellation import cancelled

if TYPE_CHECKING:
    from tidegate.operators.async_calls.call_places import Place

QUICK_S: Final = 0.05
"""A call below this grows in any case; what it costs beside the rows cannot be told."""

WORTH: Final = 0.9
"""A row of a larger batch has to cost at most this share of what it cost before."""

TRIAL_AFTER: Final = 100
"""After so many full calls a larger size is tried once more, since services change."""


@frozen
class BatchLimits:
    """Limits of batches. rows: in one call. wait_s: of the first row. cost_s: of one call.

    calls: at once.
    """

    rows: int
    wait_s: float
    cost_s: float
    calls: int


class BatchSize:
    """How many rows to give one call; it begins with one, since nothing is known of the cost.

    It doubles as long as that makes a row cheaper. A row waits for others at most as long as the
    last call took, so that waiting costs less than it saves.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self.rows = 1
        self.wait_s = 0.0
        self._row_s: float | None = None
        self._until_trial = 0

    def took(self, rows: int, cost_s: float) -> None:
        self.wait_s = min(self._limits.wait_s, cost_s)
        if cost_s > self._limits.cost_s:
            self._shrink(rows)
        elif rows >= self.rows:
            self._full(cost_s, cost_s / rows)

    def _full(self, cost_s: float, row_s: float) -> None:
        if self._until_trial:
            self._until_trial -= 1
        elif self._row_s is None or cost_s < QUICK_S or row_s <= WORTH * self._row_s:
            self._row_s = row_s
            self.rows = min(2 * self.rows, self._limits.rows)
        else:
            self._shrink(self.rows)

    def _shrink(self, rows: int) -> None:
        self.rows = max(1, min(rows, self.rows) // 2)
        self._row_s = None
        self._until_trial = TRIAL_AFTER


@dataclass(slots=True, eq=False)
class _Asked:
    """A record that waits for its batch, or for its result."""

    value: object
    attempt: Attempt
    since_s: float
    results: asyncio.Future[object] = field(repr=False)


class Batches:
    """Calls a function for several records at once. operator: its name, for messages.

    fail_alone: of a batch that fails, records are tried one by one.
    """

    def __init__(
        self, place: Place, limits: BatchLimits, operator: str, *, fail_alone: bool
    ) -> None:
        self._fail_alone = fail_alone
        self._place = place
        self._limits = limits
        self._operator = operator
        self._size = BatchSize(limits)
        self._waiting: deque[_Asked] = deque()
        self._calls: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, value: object, attempt: Attempt) -> object:
        """Result for a record. Raises what the function raises for it or for its batch."""
        loop = asyncio.get_running_loop()
        asked = _Asked(value, attempt, loop.time(), loop.create_future())
        self._waiting.append(asked)
        self._send()
        try:
            return await asked.results
        finally:
            if asked in self._waiting:
                self._waiting.remove(asked)

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._waiting and len(self._calls) < self._limits.calls:
            left_s = self._waiting[0].since_s + self._size.wait_s - loop.time()
            if len(self._waiting) < self._size.rows and left_s > 0:
                self._alarm = loop.call_later(left_s, self._send)
                return
            rows = min(self._size.rows, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(rows)]
            call = loop.create_task(self._call(batch))
            self._calls.add(call)
            call.add_done_callback(self._done)

    def _done(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            self._send()

    async def _call(self, batch: list[_Asked]) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def began() -> None:
            nonlocal began_s
            began_s = loop.time()
            for asked in batch:
                asked.attempt.began()

        whole: asyncio.Future[object] = loop.create_future()
        for asked in batch:
            asked.attempt.running = whole
        try:
            outcomes = await self._asked(batch, Attempt(began))
        except (Exception, asyncio.CancelledError) as raised:
            if cancelled():
                raise
            outcomes = [as_error(raised)] * len(batch)
            if self._fail_alone and len(batch) > 1:
                outcomes = [await self._alone(each, Attempt(began)) for each in batch]
        finally:
            whole.cancel()
        self._size.took(len(batch), loop.time() - began_s)
        for asked, outcome in zip(batch, outcomes, strict=True):
            if asked.results.done():
                continue
            if isinstance(outcome, Exception):
                asked.results.set_exception(outcome)
            else:
                asked.results.set_result(outcome)

    async def _asked(self, batch: list[_Asked], attempt: Attempt) -> list[object]:
        given = await self._place.call([asked.value for asked in batch], attempt)
        return self._by_row(given, batch)

    async def _alone(self, asked: _Asked, attempt: Attempt) -> object:
        try:
            return (await self._asked([asked], attempt))[0]
        except (Exception, asyncio.CancelledError) as raised:
            if cancelled():
                raise
            return as_error(raised)

    def _by_row(self, given: object, batch: list[_Asked]) -> list[object]:
        rows = len(batch)
        if isinstance(given, list) and len(cast("list[object]", given)) == rows:
            return cast("list[object]", given)
        raise UserCodeFailed(
            f"the function of operator '{self._operator}' gave {shown(given)} for a batch of "
            f"{rows} rows",
            where=f"operator '{self._operator}', at the row {shown(batch[0].value)}",
            remedy="Give a list with one list of results for each row, in their order; an "
            "exception in a place fails that row alone.",
        )

    async def close(self) -> None:
        """Cancels the calls that can be cancelled."""
        if self._alarm is not None:
            self._alarm.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
