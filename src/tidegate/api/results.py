"""Rows on their way from a collect sink to the user's program."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.errors import TidegateError


class ResultBuffer:
    """Holds the rows of one collect sink until the program takes them.

    It lives in the driver as long as the job, so it outlives the coordinators that fill it and
    remembers what came: a chunk that is put again after a restore is dropped. The driver's loop
    puts and ends, the user's thread takes.
    """

    def __init__(self, rows_max: int = 65_536) -> None:
        self._rows_max = rows_max
        self._chunks: deque[Sequence[object]] = deque()
        self._rows = 0
        self._came: dict[str, _Numbers] = {}
        self._ended = False
        self._error: TidegateError | None = None
        self._changed = Condition()

    @property
    def has_room(self) -> bool:
        """Whether senders should go on; what comes all the same is kept."""
        return self._rows < self._rows_max

    def put(self, origin: str, number: int, rows: Sequence[object]) -> None:
        """Take in a chunk. origin: who made it. number: which of its chunks, counted from 1."""
        with self._changed:
            if self._ended or not self._came.setdefault(origin, _Numbers()).add(number):
                return
            self._chunks.append(rows)
            self._rows += len(rows)
            self._changed.notify_all()

    def end(self, error: TidegateError | None = None) -> None:
        """Nothing more will come. error: raised to the program once it has taken the rest."""
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._changed.notify_all()

    def take(self) -> Sequence[object] | None:
        """The oldest chunk, waiting for one; None at the end. Raises what the job ended with."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            if self._chunks:
                chunk = self._chunks.popleft()
                self._rows -= len(chunk)
                return chunk
        if self._error is not None:
            raise self._error
        return None

    def __iter__(self) -> Iterator[object]:
        while (chunk := self.take()) is not None:
            yield from chunk


class _Numbers:
    """A set of numbers from 1 that is nearly without gaps."""

    def __init__(self) -> None:
        self._all_to = 0
        self._beyond: set[int] = set()

    def add(self, number: int) -> bool:
        """Whether it was not in it yet."""
        if number <= self._all_to or number in self._beyond:
            return False
        self._beyond.add(number)
        while self._all_to + 1 in self._beyond:
            self._all_to += 1
            self._beyond.remove(self._all_to)
        return True
