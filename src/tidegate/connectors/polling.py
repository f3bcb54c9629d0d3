"""A base for user-defined sources that are polled for one page after another.

A subclass says where to begin and how to read one page; threads, checkpoints and restores are
handled here. The result of a call belongs to the job as soon as the call returns: rows of a page
that have not left by a barrier are part of the checkpoint. So a page is asked for twice only where
it was lost with its process, and the service need not cut its pages the same way again.
"""

from __future__ import annotations

import copy
import inspect
import logging
from abc import ABC, abstractmethod
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.api.rows.batches import shown
from tidegate.config.spans import Span, millis_of
from tidegate.connectors.shares import restored_splits
from tidegate.errors import UserError, with_article
from tidegate.model.elements import ArrowBatch, RowBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

Position = TypeVar("Position")

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
_TOLD_MS: Final = 30_000


@frozen
class Page(Generic[Position]):
    """Result of one call to a polled source.

    rows: a list of values, or an Arrow record batch; may be empty. position: where the next call
    goes on, any picklable value. end: nothing will come after this page. timestamps_ms: event
    times, one a row; None if rows have none.
    """

    rows: Sequence[Any] | pa.RecordBatch
    position: Position
    end: bool = False
    timestamps_ms: Sequence[int] | None = None


@frozen
class PollingSplit:
    """State of a split: the next position, and rows read before it that have not left yet."""

    name: str
    position: Any
    waiting: Batch | None = None
    end: bool = False


class PollingSource(ABC, Generic[Position]):
    """A source that polls for pages, such as a paged API, a queue, or a growing table.

    Each reader works on a copy of the object: attributes that `open` sets, such as a connection,
    are its own and need not be picklable. `open` and `poll` run on a thread of the reader's own and
    may block; `close` is called once none of them is under way. Calls of a reader never overlap.
    `splits` and `start` run on a thread of the driver, once for a new job, and may block too.
    """

    bounded: bool = False
    """True for a source whose splits all come to an end."""

    pause_s: float | Span = _PAUSE_S
    """Time to wait before a split is asked again that had nothing new; a number is seconds."""

    produced_type: TypeInformation | None = None
    """Type to which the rows are brought, unless `from_source` is given another; None for any."""

    brings_to_type: Final = True
    """True of sources whose rows are held to their `produced_type`."""

    split_type = PollingSplit
    """Class of the splits, which a restore checks."""

    @abstractmethod
    def start(self, split: str) -> Position:
        """Position from which a split is read when the job starts."""

    @abstractmethod
    def poll(self, split: str, position: Position) -> Page[Position]:
        """Reads the page at a position."""

    def splits(self) -> Sequence[str]:
        """Names of the parts that can be read in parallel; not called on a restore."""
        return ("all",)

    def open(self) -> None:
        """Connects; called before the first poll of a reader."""

    def close(self) -> None:
        """Disconnects; called once at the end."""

    def enumerator(
        self, context: EnumeratorContext[PollingSplit], restored: bytes | None
    ) -> PollingEnumerator:
        return PollingEnumerator(self, context, restored)

    def reader(self, context: ReaderContext) -> PollingReader:
        return PollingReader(copy.copy(self), context)


class PollingEnumerator:
    """Asks a new job's source for its splits and their first positions, and deals them out.

    restored: a list of splits; empty where they had not been found by the checkpoint. A restore has
    positions, and needs no service to be there that knows the first ones.
    """

    def __init__(
        self,
        source: PollingSource[Any],
        context: EnumeratorContext[PollingSplit],
        restored: bytes | None,
    ) -> None:
        self._source = source
        self._context = context
        self._ready: set[int] = set()
        self._shares: dict[int, list[PollingSplit]] = {}
        self._found = bool(restored)
        self._waited_ms = 0
        if restored:
            self._deal(restored_splits(PollingSplit, restored))

    def start(self) -> None:
        if not self._found:
            self._context.run_blocking(self._find, self._begin)
            self._context.call_later(_TOLD_MS, self._tell)

    def _find(self) -> object:
        source = self._source
        return [PollingSplit(name, source.start(name)) for name in _names_of(source)]

    def _begin(self, found: object) -> None:
        self._found = True
        self._deal(cast("list[PollingSplit]", found))
        for subtask in sorted(self._ready):
            self._serve(subtask)

    def _tell(self) -> None:
        if not self._found:
            self._waited_ms += _TOLD_MS
            _LOG.warning(
                "source '%s': splits() and start() have not returned for %d s, and nothing is read "
                "before",
                type(self._source).__name__,
                self._waited_ms // 1000,
            )
            self._context.call_later(_TOLD_MS, self._tell)

    def _deal(self, splits: Sequence[PollingSplit]) -> None:
        readers = self._context.parallelism
        # A reader that has splits that never end asks for no others: each is given its share.
        self._shares = {reader: list(splits[reader::readers]) for reader in range(readers)}

    def _serve(self, subtask: int) -> None:
        self._context.assign(subtask, self._shares.pop(subtask, []))
        self._context.no_more_splits(subtask)

    def split_requested(self, subtask: int) -> None:
        return  # readers are given their shares without asking

    def add_back(self, subtask: int, splits: Sequence[PollingSplit]) -> None:
        self._ready.discard(subtask)
        self._shares[subtask] = [*splits, *self._shares.get(subtask, [])]

    def reader_ready(self, subtask: int) -> None:
        self._ready.add(subtask)
        if self._found:
            self._serve(subtask)

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        if not self._found:
            return b""
        left = [split for _, share in sorted(self._shares.items()) for split in share]
        return ship.dumps(left, name="polling enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...


class PollingReader:
    """Polls its splits in turn, one call at a time; a split with nothing new rests for a while."""

    def __init__(self, source: PollingSource[Any], context: ReaderContext) -> None:
        self._source = source
        self._pause_ms = _pause_ms_of(source)
        self._context = context
        self._splits: deque[PollingSplit] = deque()
        self._rest_until_ms: dict[str, int] = {}
        self._asked: PollingSplit | None = None
        self._is_open = False
        self._no_more = False

    def add_splits(self, splits: Sequence[PollingSplit]) -> None:
        self._splits.extend(splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        batch = self._waiting_rows()
        if self._asked is None:
            self._ask()
        return batch

    def _waiting_rows(self) -> Batch | None:
        for index, split in enumerate(self._splits):
            if split.waiting is None:
                continue
            rows, left = self._cut(split.waiting)
            self._splits[index] = replace(split, waiting=left)
            if left is None:
                self._drop_if_ended(self._splits[index])
            return rows
        return None

    def _cut(self, waiting: Batch) -> tuple[Batch, Batch | None]:
        """Rows that may leave at once, and the rest."""
        of_rows = isinstance(waiting, RowBatch)
        limit = self._context.rows if of_rows else self._context.arrow_rows
        if len(waiting) <= limit:
            return waiting, None
        return waiting.piece(0, limit), waiting.piece(limit, len(waiting))

    def _drop_if_ended(self, split: PollingSplit) -> None:
        if split.end and split.waiting is None:
            self._splits.remove(split)

    def _ask(self) -> None:
        now_ms = self._context.monotonic_ms()
        rests: list[int] = []
        for split in self._splits:
            if split.waiting is not None or split.end:
                continue
            until_ms = self._rest_until_ms.get(split.name, now_ms)
            if until_ms <= now_ms:
                self._asked = split
                self._context.read_ahead(lambda split=split: self._read(split), self._arrived)
                return
            rests.append(until_ms)
        if rests:
            self._context.wake_at(min(rests))

    def _read(self, split: PollingSplit) -> object:
        if not self._is_open:
            self._source.open()
            self._is_open = True
        return self._source.poll(split.name, split.position)

    def _arrived(self, found: object) -> None:
        split, self._asked = self._asked, None
        assert split is not None, "a page comes after it was asked for"
        page = self._checked(found)
        batch = _batch_of(page, type(self._source).__name__)
        read = PollingSplit(split.name, page.position, batch if len(batch) else None, page.end)
        self._splits.remove(split)
        # Queue it after the others, so that a split with much data does not starve them.
        self._splits.append(read)
        if len(batch):
            self._rest_until_ms.pop(split.name, None)
        else:
            self._rest_until_ms[split.name] = self._context.monotonic_ms() + self._pause_ms
        self._drop_if_ended(read)

    def _checked(self, found: object) -> Page[Any]:
        if isinstance(found, Page):
            return cast("Page[Any]", found)
        name = type(self._source).__name__
        raise UserError(
            f"poll returned {with_article(type(found))}, not a Page",
            where=f"source '{name}'",
            remedy="Return Page(rows, position), with the position of the next call."
            if not inspect.iscoroutine(found)
            else "Make poll a plain `def`; it runs on a thread, and may block.",
        )

    @property
    def finished(self) -> bool:
        return self._no_more and not self._splits

    @property
    def wants_splits(self) -> bool:
        return not self._splits and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[PollingSplit]:
        return tuple(self._splits)

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None:
        if self._is_open:
            self._source.close()


def _names_of(source: PollingSource[Any]) -> Sequence[str]:
    """Names of a source's splits. Raises UserError unless they are a list of different texts."""
    given = cast("object", source.splits())
    where = f"source '{type(source).__name__}'"
    names: list[object] = []
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = list(cast("Iterable[object]", given))
    texts = [name for name in names if isinstance(name, str)]
    if not texts or len(texts) < len(names):
        raise UserError(
            f"splits returned {given!r}, which is not a list of texts",
            where=where,
            remedy='Return the names of the parts, such as ["eu", "us"].',
        )
    twice = sorted(name for name, times in Counter(texts).items() if times > 1)
    if twice:
        raise UserError(
            f"splits returned {twice[0]!r} more than once, so that it would be read twice",
            where=where,
            remedy="Give each part a name of its own.",
        )
    return texts


def _pause_ms_of(source: PollingSource[Any]) -> int:
    given = source.pause_s
    if isinstance(given, int | float) and not isinstance(given, bool):
        return round(given * 1000)
    return millis_of(given, where=f"source '{type(source).__name__}', pause_s")


def _batch_of(page: Page[Any], name: str) -> Batch:
    """Rows of a page as a batch. Raises UserError for rows or times of another shape."""
    rows, times = page.rows, page.timestamps_ms
    if times is not None and len(times) != len(rows):
        raise UserError(
            f"a page has {len(rows)} rows and {len(times)} timestamps",
            where=f"source '{name}'",
            remedy="Give as many timestamps_ms as rows, or none.",
        )
    stamps = None if times is None else _as_stamps(times, name)
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return RowBatch(list(rows), None if stamps is None else stamps.tolist())
    if type(rows).__name__ == "RecordBatch":
        return ArrowBatch(cast("Any", rows), None if stamps is None else _as_array(stamps))
    raise UserError(
        f"the rows of a page are {with_article(type(rows))}",
        where=f"source '{name}'",
        remedy="Give a list of values, or a pyarrow.RecordBatch.",
    )


def _as_stamps(times: Any, name: str) -> array[int]:
    given = times.tolist() if hasattr(times, "tolist") else times  # of NumPy or Arrow
    try:
        return array("q", given)
    except (TypeError, OverflowError):
        raise UserError(
            f"the timestamps_ms of a page are {shown(given)}, which are not all whole numbers",
            where=f"source '{name}'",
            remedy="Give milliseconds since 1970, each an int of 64 bits, or None for no times.",
        ) from None


def _as_array(stamps: array[int]) -> Any:
    import numpy as np

    return np.asarray(stamps, dtype=np.int64)
