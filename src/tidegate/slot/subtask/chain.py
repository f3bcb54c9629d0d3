"""The operators of one subtask, calling each other directly, and their work in pieces.

An operator that returned steps keeps what comes after in a queue until they are exhausted; so the
order of elements is kept however long it takes. So does one that is given more rows than it works
off in a few milliseconds, or that is given any when the turn is over. The chain is idle when no
operator has steps or a queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.api.operator import Pause
from tidegate.api.pieces import PIECE_S, ROWS_UNBOUNDED, TURN_S, Intake
from tidegate.api.rows.batches import copied
from tidegate.errors import as_error
from tidegate.model.elements import ArrowBatch, RowBatch, Watermark, WatermarkStatus
from tidegate.slot.subtask.work import Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    import structlog

    from tidegate.api.operator import Operator, OperatorContext, Steps
    from tidegate.api.pieces import Portion
    from tidegate.clock import Clock
    from tidegate.model.elements import Batch
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.channels.output import ChannelOutput, Room
    from tidegate.slot.subtask.context import OperatorHost
    from tidegate.slot.subtask.turns import Turns
    from tidegate.state.backend import OperatorBackend


class Taker(Protocol):
    """A consumer of an operator's results: the next operator, or a way out of the subtask."""

    def accept(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class Beside:
    """Counts side outputs and watermarks of an operator.

    worked_s: spent on them. watermark_ms: the latest; None before the first.
    """

    rows: int = 0
    worked_s: float = 0.0
    watermark_ms: int | None = None


class ChainOutput:
    """Gives one operator's results to those that take them; its `Output`.

    convert: brings results to their declared types, by side output; None is the main one. unread:
    side outputs with rows that nobody reads, as keys. rows: emitted so far, without those to side
    outputs. worked_s: spent on them. beside: the rest.
    """

    def __init__(
        self,
        room: Room,
        clock: Clock,
        *,
        share: bool,
        convert: Mapping[str | None, Callable[[Batch], Batch]] | None = None,
    ) -> None:
        self._room = room
        self._portion = room.portion()
        self._now_s = clock.precise_s
        self._share = share
        self._convert = convert or {}
        self._convert_main = self._convert.get(None)
        self._main: list[Taker] = []
        self._sides: dict[str, list[Taker]] = {}
        self._next: list[ChainedOperator] = []
        self._channels: list[ChannelOutput] = []
        self.piece_rows = ROWS_UNBOUNDED
        self.unread: dict[str, None] = {}
        self.rows = 0
        self.worked_s = 0.0
        self.beside = Beside()

    def add_operator(self, operator: ChainedOperator, tag: str | None) -> None:
        self.takers(tag).append(operator)
        self._next.append(operator)

    def add_way_out(self, way: Taker, channels: Sequence[ChannelOutput], tag: str | None) -> None:
        self.takers(tag).append(way)
        self._channels += channels

    def takers(self, tag: str | None) -> list[Taker]:
        """The consumers of a side output, or of the main one, to which more may be added."""
        return self._main if tag is None else self._sides.setdefault(tag, [])

    # --- Output ---

    @property
    def has_room(self) -> bool:
        """True if no channel waits for credit, and no operator down the chain is at work."""
        return self._room.is_free and all(operator.takes_more for operator in self._next)

    @property
    def rows_max(self) -> int:
        """Rows to emit at once; more would wait together for credit."""
        return min(self._portion.rows, self.piece_rows)

    def emit(self, batch: Batch) -> None:
        count = len(batch)
        if count:
            self.rows += count
            began_s = self._now_s()
            convert = self._convert_main
            self._give(self._main, batch if convert is None else convert(batch))
            self._portion.given(count, self.rows_max)
            self.worked_s += self._now_s() - began_s

    def emit_side(self, tag: str, batch: Batch) -> None:
        if not len(batch):
            return
        self.beside.rows += len(batch)
        began_s = self._now_s()
        takers = self._sides.get(tag)
        if takers is None:
            self.unread[tag] = None
        else:
            convert = self._convert.get(tag)
            self._give(takers, batch if convert is None else convert(batch))
        self.beside.worked_s += self._now_s() - began_s

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        if isinstance(watermark, Watermark):
            self.beside.watermark_ms = watermark.ms
        began_s = self._now_s()
        for operator in self._next:
            operator.accept_watermark(watermark)
        for channel in self._channels:
            channel.mark(watermark)
        self.beside.worked_s += self._now_s() - began_s

    @property
    def below_s(self) -> float:
        """Time spent on rows, side outputs and watermarks that were emitted."""
        return self.worked_s + self.beside.worked_s

    def _give(self, takers: list[Taker], batch: Batch) -> None:
        if len(takers) == 1:
            takers[0].accept(batch)
            return
        for index, taker in enumerate(takers):
            own = batch if self._share or index == len(takers) - 1 else copied(batch)
            taker.accept(own)


class LastInputs:
    """Keeps the last batches that an operator was given. rows: so many are in them at least."""

    def __init__(self, rows: int) -> None:
        self._rows_max = rows
        self._rows = 0
        self.batches: deque[tuple[Batch, int]] = deque()

    def add(self, batch: Batch, port: int) -> None:
        """A batch is given to the operator."""
        self.batches.append((batch, port))
        self._rows += len(batch)
        while len(self.batches) > 1:
            first = len(self.batches[0][0])
            if self._rows - first < self._rows_max:
                return
            self._rows -= first
            self.batches.popleft()


class ChainedOperator:
    """One operator of the chain with its state, and its work in progress.

    rows: given to it so far. watermark_ms: the latest, None before the first. work: the time that
    it spends. context: what it sees of the slot. backend: keeps its state. turns: once the present
    one is over, nothing more is begun. host: waits for what the steps wait for. inputs: None if the
    last ones are not kept.
    """

    def __init__(
        self,
        operator: Operator,
        context: OperatorContext,
        backend: OperatorBackend,
        out: ChainOutput,
        turns: Turns,
        host: OperatorHost,
        inputs: LastInputs | None = None,
    ) -> None:
        self.inputs = inputs
        self.operator = operator
        self.context = context
        self.backend = backend
        self.out = out
        self.rows = 0
        self.watermark_ms: int | None = None
        self.work = Work(operator.piece_s, out, turns.now_s)
        self._turns = turns
        self._host = host
        self._prepare = backend.before_batch
        self._steps: Steps | None = None
        self._paused = False
        self._awaited: Awaitable[object] | None = None
        self._queue: deque[tuple[Batch | Watermark | WatermarkStatus | None, int]] = deque()

    @property
    def idle(self) -> bool:
        return self._steps is None and not self._queue

    @property
    def can_be_cut(self) -> bool:
        """True if a snapshot may be taken: it is idle, or pauses with nothing behind it."""
        return self.idle or (self._paused and not self._queue)

    @property
    def takes_more(self) -> bool:
        """True if a new batch would be processed at once, all the way down the chain."""
        return self.idle and self.operator.takes_input and self.out.has_room

    @property
    def can_go_on(self) -> bool:
        return not self.idle and self._awaited is None and self.out.has_room

    def accept(self, batch: Batch, port: int = 0) -> None:
        self.rows += len(batch)
        is_busy = self._steps is not None or bool(self._queue)
        if is_busy or len(batch) > self.work.piece.rows or self._turns.over:
            self._queue.append((batch, port))
            if not is_busy:
                self.advance()
        else:
            self._begin(self._process(batch, port))

    def accept_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        if self._steps is not None or self._queue or self._turns.over:
            self._queue.append((watermark, 0))
        else:
            self._begin(self._taken(watermark, 0))

    def ready(self) -> None:
        """Tell the operator that it has its turn."""
        if self._steps is not None or self._queue:
            self._queue.append((None, 0))
        else:
            self._begin(self._on_ready())

    def finish(self) -> None:
        assert self.idle, "an operator is finished when it is idle"
        self.work.begin()
        self._begin(self._worked(self.operator.finish(self.out)))

    def advance(self) -> None:
        """Go on as long as there is room, time and nothing to wait for, up to a pause."""
        while self.can_go_on and not self._turns.over:
            self._paused = False
            if self._steps is None:
                self._steps = self._taken(*self._queue.popleft())
                continue
            found = self._advanced(self._steps)
            if found is Pause.HERE:
                self._paused = True
                return
            self._await(found)

    def _advanced(self, steps: Steps) -> Awaitable[object] | Pause | None:
        """The next yield of the steps; None also where they are exhausted."""
        self.work.resume()
        try:
            found = next(steps)
        except StopIteration:
            self._steps = None
            self.work.end()
            return None
        except Exception:
            self._steps = None
            raise
        self.work.rest()
        return found

    def _begin(self, steps: Steps | None) -> None:
        if steps is not None:
            self._steps = steps
            self.advance()

    def _taken(
        self, element: Batch | Watermark | WatermarkStatus | None, port: int
    ) -> Steps | None:
        if isinstance(element, RowBatch | ArrowBatch):
            rows = self.work.piece.rows
            if len(element) > rows:
                self._queue.appendleft((element.piece(rows, len(element)), port))
                element = element.piece(0, rows)
            return self._process(element, port)
        if isinstance(element, Watermark):
            self.watermark_ms = element.ms
            self.work.begin()
            return self._worked(self.operator.on_watermark(element, self.out))
        if element is None:
            return self._on_ready()
        self.operator.on_watermark_status(element, self.out)
        return None

    def _process(self, batch: Batch, port: int) -> Steps | None:
        """Lets the operator process a batch, and learns from the duration."""
        if self.inputs is not None:
            self.inputs.add(batch, port)
        if self._prepare is not None:
            self._prepare(batch)
        self.work.begin(len(batch))
        return self._worked(self.operator.process(batch, port, self.out))

    def _on_ready(self) -> Steps | None:
        self.work.begin()
        return self._worked(self.operator.on_ready(self.out))

    def _worked(self, steps: Steps | None) -> Steps | None:
        if steps is None:
            self.work.end()
        else:
            self.work.rest()
        return steps

    def _await(self, awaited: Awaitable[object] | None) -> None:
        if awaited is not None:
            self._awaited = awaited
            self._host.wait(awaited, self)

    def awaited_done(self) -> None:
        self._awaited = None


class Chain:
    """The operators of a subtask, head first."""

    def __init__(self, operators: Sequence[ChainedOperator]) -> None:
        self.operators = operators
        self.head = operators[0]
        self.finishing = False
        self._opened: list[ChainedOperator] = []

    def open(self) -> None:
        """Open the operators, tail to head, so that all are ready before the first one emits."""
        for each in reversed(self.operators):
            self._opened.append(each)
            each.operator.open(each.context)

    def close(self, failed: Callable[[Exception], object]) -> list[Awaitable[None]]:
        """Close what was opened; the result is what is left to be awaited. failed: gets errors."""
        closing: list[Awaitable[None]] = []
        for each in self._opened:
            try:
                left = each.operator.close()
            except BaseException as raised:
                failed(as_error(raised))
            else:
                closing += [] if left is None else [left]
        for each in self.operators:
            each.backend.close()
        return closing

    @property
    def idle(self) -> bool:
        return all(operator.idle for operator in self.operators)

    @property
    def can_be_cut(self) -> bool:
        return all(operator.can_be_cut for operator in self.operators)

    @property
    def takes_input(self) -> bool:
        return all(operator.operator.takes_input for operator in self.operators)

    @property
    def drained(self) -> bool:
        return all(operator.operator.drained for operator in self.operators)

    @property
    def can_go_on(self) -> bool:
        return any(operator.can_go_on for operator in self.operators)

    def ready(self) -> bool:
        """Tell the operators that they are woken; False if some are at work and not told.

        What is behind the last one at work is told all the same: it may be what that waits for.
        """
        at_work = [i for i, operator in enumerate(self.operators) if not operator.idle]
        first = at_work[-1] + 1 if at_work else 0
        for operator in self.operators[first:]:
            operator.ready()
        return first == 0

    def advance(self) -> None:
        """Continues work in progress, tail first, so that older work leaves first."""
        for operator in reversed(self.operators):
            operator.advance()

    def intake(self, settings: SlotSettings, portion: Portion, *, is_source: bool) -> Intake:
        """A new measure of how many rows to take in; many where a function takes batches."""
        longest_s = max(each.operator.piece_s for each in self.operators)
        # What a source has not given yet costs nothing to leave to it.
        least_s = TURN_S if is_source else PIECE_S
        rows_max = max(settings.rows, settings.arrow_rows)
        return Intake(rows_max, longest_s if longest_s > TURN_S else least_s, portion)

    def tell(self, tell: Callable[[Operator], None]) -> None:
        """Tells all operators, tail to head. An exception does not keep it from the others."""
        raised: Exception | None = None
        for chained in reversed(self.operators):
            try:
                tell(chained.operator)
            except Exception as error:
                raised = raised or error
        if raised is not None:
            raise raised

    def finish(self) -> Iterator[None]:
        """Finish the operators head to tail; yields while one of them has work in progress.

        Until the first one is finished a snapshot may be taken: ``finishing`` is false.
        """
        while not self.drained:
            yield
        self.finishing = True
        for operator in self.operators:
            while not self.idle:
                yield
            operator.finish()
        while not self.idle:
            yield


def log_failed_close(log: structlog.typing.FilteringBoundLogger, error: Exception) -> None:
    """Tell people of an operator that could not be closed. log: bound to its subtask."""
    log.warning(
        "closing an operator failed", error=repr(error), also=getattr(error, "__notes__", [])
    )
