"""A snapshot between its quick part and its acknowledgement: encoded in slices, then written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from flinkformat.handles import KeyedStateHandle
from flinkformat.snapshots import EMPTY, SubtaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from flinkformat.handles import OperatorStateHandle
    from tidegate.clock import Clock
    from tidegate.storage.places import Place

H = TypeVar("H", covariant=True)

_ROWS_AT_FIRST: Final = 256
_ROWS_MIN: Final = 32
_ROWS_MAX: Final = 1 << 11
"""So many objects a core's cache holds from the first touch to the last: 280 ns an entry of 90
bytes, where 65,536 at a time take 380."""


class Pending(Protocol[H]):
    """One part of a snapshot after its quick part, on its way into a handle at a place.

    First `steps` are drawn on the loop, or `thaw` ends them early. Then comes one `upload`, which
    blocks and runs off the loop; `cancel` comes at any time.
    """

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        """Encode; a step encodes about `rows` entries and gives their number."""
        ...

    def thaw(self) -> None:
        """The steps end early: free what is kept for them."""
        ...

    def upload(self, place: Place) -> H | None:
        """Write the rest; None where there is no state. Raises StorageFailed."""
        ...

    def cancel(self) -> None:
        """Nobody wants it any more. An upload under way goes on with what it has."""
        ...


class PendingRows(Pending[KeyedStateHandle], Protocol):
    """Keyed state, of which much may be written while more is encoded.

    `acknowledged` comes after the upload, where the driver hears of its handle.
    """

    @property
    def waiting(self) -> int:
        """Bytes that `write` would write; 0 where they have to wait for what comes last."""
        ...

    def write(self, place: Place) -> None:
        """Write what waits. Blocking. Raises StorageFailed; what was written is the place's."""
        ...

    def acknowledged(self) -> None:
        """The driver hears of the handle."""
        ...


class PendingSnapshot:
    """One operator's snapshot after its quick part.

    `encode` is called on the loop until it gives True, then `upload` once, off the loop, and after
    that `acknowledged`; in between `write` may write what is `waiting`, off the loop and once at a
    time, or else all that is encoded stays in memory; `cancel` at any time, on the loop.
    """

    def __init__(
        self, clock: Clock, keyed: PendingRows, operator: Pending[OperatorStateHandle]
    ) -> None:
        self._keyed = keyed
        self._operator = operator
        self.write, self.acknowledged = keyed.write, keyed.acknowledged
        # Columns come last in keyed state, for they teach the pace of copying.
        self._parts = (operator, keyed)
        self._slices = Slices(clock, self._parts)
        self._cancelled = False

    @property
    def waiting(self) -> int:
        """Bytes that `write` would write: of key groups of which nothing is left to be encoded."""
        return 0 if self.is_encoded else self._keyed.waiting

    @property
    def is_encoded(self) -> bool:
        """True once nothing of it is left to be encoded."""
        return self._cancelled or self._slices.ended

    def encode(self, budget_ms: float) -> bool:
        """Encode for about that long; True once all is encoded.

        A slice is longer by a small piece at most, unless a single entry takes longer.
        """
        return self._cancelled or self._slices.encode(budget_ms)

    def finish(self) -> None:
        """Encode all that is left; a failure is raised by the next `encode` or `upload`."""
        try:
            self.encode(math.inf)
        except Exception as error:
            assert error is self._slices.failure

    def upload(self, place: Place) -> SubtaskState:
        """Write what was encoded, a stream each for keyed and for operator state.

        Blocking, off the loop. Raises StorageFailed, and then leaves no stream open.
        """
        if self._slices.failure is not None:
            raise self._slices.failure
        if self._cancelled:
            return EMPTY
        assert self._slices.ended, "a snapshot is uploaded after it was encoded"
        return SubtaskState(
            managed_keyed=self._keyed.upload(place), managed_operator=self._operator.upload(place)
        )

    def cancel(self) -> None:
        """Free what is kept for it. An upload under way goes on with what it has."""
        self._slices.end()
        self._cancelled = True
        for part in self._parts:
            part.cancel()


class Slices:
    """Draws the steps of parts in slices of a few milliseconds. failure: of a step that failed."""

    def __init__(self, clock: Clock, parts: tuple[Pending[object], ...]) -> None:
        self._clock = clock
        self._parts = parts
        self._rows = _ROWS_AT_FIRST
        self._row_s = 0.0
        self._steps = self._all_steps()
        self.failure: Exception | None = None
        self.ended = False

    def encode(self, budget_ms: float) -> bool:
        """Draw steps for about that long; True after the last one. Raises what a step raised."""
        if self.failure is not None:
            raise self.failure
        if self.ended:
            return True
        began = self._clock.precise_s()
        deadline = began + budget_ms / 1000
        try:
            while (rows := next(self._steps, None)) is not None:
                ended = self._clock.precise_s()
                self._learn(rows, ended - began)
                if ended >= deadline:
                    return False
                self._aim(deadline - ended)
                began = ended
        except Exception as error:
            self.failure = error
            self.end()
            raise
        self.ended = True
        return True

    def end(self) -> None:
        """Free what is kept for steps that will not be drawn."""
        if not self.ended:
            self.ended = True
            self._steps.close()
            for part in self._parts:
                part.thaw()

    def _all_steps(self) -> Generator[int, None, None]:
        for part in self._parts:
            yield from part.steps(lambda: self._rows)

    def _learn(self, rows: int, seconds: float) -> None:
        each = seconds / max(rows, 1)
        self._row_s = each if self._row_s == 0.0 else (self._row_s + each) / 2

    def _aim(self, left_s: float) -> None:
        """Sets how many entries the next step has, to take about that long."""
        if self._row_s > 0.0:
            fit = left_s / self._row_s
            self._rows = int(min(max(fit, _ROWS_MIN), _ROWS_MAX))
