"""Carries rows of a collect sink to the user's program."""

from __future__ import annotations

from collections import deque
from threading import Condition, Lock
from typing import TYPE_CHECKING, TypeAlias

from tidegate.api.rows.batches import dict_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tidegate.errors import TidegateError

    Chunk: TypeAlias = list[object] | pa.RecordBatch


class ResultBuffer:
    """Keeps the records of one collect sink until the program takes them, in chunks as they came.

    A chunk is a list of rows or an Arrow batch. The buffer lives in the driver as long as the job,
    so it outlives the coordinators that fill it and remembers what came: a chunk that is put again
    after a restore is dropped. The driver's loop puts and ends, the user's thread takes.
    """

    def __init__(self, rows_max: int = 65_536) -> None:
        self._rows_max = rows_max
        self._chunks: deque[Chunk] = deque()
        self._rows = 0
        self._came: dict[str, _Numbers] = {}
        self._ended = False
        self._error: TidegateError | None = None
        self._changed = Condition()

    @property
    def has_room(self) -> bool:
        """True if senders should go on; what comes anyway is kept."""
        return self._rows < self._rows_max

    def put(self, origin: str, number: int, rows: Chunk) -> None:
        """Adds a chunk. origin: its maker. number: among the chunks of its maker, from 1."""
        with self._changed:
            if self._ended or not self._came.setdefault(origin, _Numbers()).add(number):
                return
            self._chunks.append(rows)
            self._rows += len(rows)
            self._changed.notify_all()

    def end(self, error: TidegateError | None = None) -> None:
        """Ends the results. error: raised in the program after the rest."""
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._changed.notify_all()

    def waiting(self, count: int) -> list[object]:
        """The oldest records that wait, so many at most; they stay."""
        with self._changed:
            found: list[object] = []
            for chunk in self._chunks:
                rows = chunk[: count - len(found)]
                found += rows if isinstance(rows, list) else dict_rows(rows)
                if len(found) >= count:
                    break
            return found

    def take(self) -> Chunk | None:
        """The oldest chunk, waiting for one; None at the end. Raises the job's error."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            if self._chunks:
                chunk = self._chunks.popleft()
                self._rows -= len(chunk)
                return chunk
        if self._error is not None:
            raise self._error
        return None

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, waiting for each."""
        while (chunk := self.take()) is not None:
            yield chunk

    def __iter__(self) -> Iterator[object]:
        for chunk in self.chunks():
            yield from chunk if isinstance(chunk, list) else dict_rows(chunk)


class ResultBuffers:
    """The buffers of a job's collect sinks, by name. Any thread may ask."""

    def __init__(self) -> None:
        self._buffers: dict[str, ResultBuffer] = {}
        self._asking = Lock()
        self._over = False
        self._error: TidegateError | None = None

    def of(self, name: str) -> ResultBuffer:
        """The buffer of a sink; made here where nobody has asked for it before."""
        with self._asking:
            buffer = self._buffers.setdefault(name, ResultBuffer())
            if self._over:
                buffer.end(self._error)
        return buffer

    def end(self, error: TidegateError | None) -> None:
        """The job is over: nothing comes any more, for whoever asks."""
        with self._asking:
            self._over, self._error = True, error
            for buffer in self._buffers.values():
                buffer.end(error)


class _Numbers:
    """A set of numbers from 1 that has hardly any gaps."""

    def __init__(self) -> None:
        self._all_to = 0
        self._beyond: set[int] = set()

    def add(self, number: int) -> bool:
        """Adds a number; False if it was there already."""
        if number <= self._all_to or number in self._beyond:
            return False
        self._beyond.add(number)
        while self._all_to + 1 in self._beyond:
            self._all_to += 1
            self._beyond.remove(self._all_to)
        return True
