"""Operators that call each other, whole or in pieces."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.subtask import Into
from tidegate.api.operator import Operator, Output, Steps
from tidegate.model.elements import Batch, Element, RowBatch, Watermark, WatermarkStatus
from tidegate.model.ids import ChannelId
from tidegate.model.settings import SlotSettings
from tidegate.slot.channels.output import ChannelOutput, Room
from tidegate.slot.channels.routes import WayOut
from tidegate.slot.subtask.chain import Chain, ChainedOperator, ChainOutput
from tidegate.slot.subtask.turns import Turns
from tidegate.testing.clock import ManualClock
from tidegate.transport.credit import credit_for


class Stateless:
    """The backend of an operator that asks for nothing."""

    def __init__(self, before_batch: Callable[[Batch], None] | None = None) -> None:
        self.before_batch = before_batch


WITHOUT_STATE: Any = Stateless()
UNOPENED: Any = None
"""The context is given to operators as they are opened, and no test here opens one."""


class Waiting:
    """What steps wait for; `done` ends the oldest wait."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()

    def wait(self, awaited: Awaitable[object], waiting: ChainedOperator) -> None:
        self.calls.append(waiting.awaited_done)

    def done(self) -> None:
        self.calls.popleft()()


class Instant:
    """Something to wait for; the test says when it is done."""

    def __await__(self) -> Iterator[None]:
        yield


class Plain(Operator):
    """Passes batches on, each value with the operator's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def named(self, batch: Batch) -> RowBatch:
        assert isinstance(batch, RowBatch)
        return RowBatch([f"{value}{self.name}" for value in batch.values])

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        out.emit(self.named(batch))
        return None

    def finish(self, out: Output) -> Steps | None:
        out.emit(RowBatch([f"end{self.name}"]))
        return None


class InPieces(Plain):
    """Emits row by row, and asks for room, or waits, before each."""

    def __init__(self, name: str, *, waits: bool = False) -> None:
        super().__init__(name)
        self._waits = waits
        self.emitted = 0

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        return self._pieces(self.named(batch), out)

    def finish(self, out: Output) -> Steps | None:
        return self._pieces(RowBatch([f"end{self.name}"]), out)

    def _pieces(self, batch: RowBatch, out: Output) -> Steps:
        for value in batch.values:
            yield Instant() if self._waits else None
            self.emitted += 1
            out.emit(RowBatch([value]))


class Line:
    """A chain of operators, one after the other, in front of one channel."""

    def __init__(
        self, *operators: Operator, credit: int = 1_000, backend: Any = WITHOUT_STATE
    ) -> None:
        self.sent: list[Element] = []
        self.waiting = Waiting()
        self.granted = 0
        room, clock = Room(), ManualClock()
        self.turn = Turns(clock)
        waiting: Any = self.waiting
        self.channel = ChannelOutput(
            ChannelId(0, 0, 0), SlotSettings(rows=1, credit=credit), Into(self.sent), room
        )
        self.channel.granted(credit - credit_for(1, credit))
        chained = [
            ChainedOperator(
                operator,
                UNOPENED,
                backend,
                ChainOutput(room, clock, share=False),
                self.turn,
                waiting,
            )
            for operator in operators
        ]
        for one, following in pairwise(chained):
            one.out.add_operator(following, None)
        way = WayOut(_ToChannel(self.channel), clock)
        chained[-1].out.add_way_out(way, [self.channel], None)
        self.chain = Chain(chained)

    @property
    def values(self) -> list[object]:
        return [v for e in self.sent if isinstance(e, RowBatch) for v in e.values]

    @property
    def in_flight(self) -> int:
        return sum(isinstance(element, RowBatch) for element in self.sent) - self.granted

    def grant(self) -> None:
        self.granted += 1
        self.channel.granted(1)

    def accept(self, *values: object) -> None:
        self.chain.head.accept(RowBatch(list(values)))


class _ToChannel:
    def __init__(self, channel: ChannelOutput) -> None:
        self._channel = channel

    def batch(self, batch: Batch, now_ms: int) -> None:
        assert isinstance(batch, RowBatch)
        self._channel.rows(batch, now_ms)


def test_plain_operators_are_done_when_the_call_returns() -> None:
    line = Line(Plain("a"), Plain("b"))
    line.accept(1, 2)
    assert line.values == ["1ab", "2ab"] and line.chain.idle


def test_steps_go_on_while_there_is_room() -> None:
    line = Line(InPieces("a"))
    line.accept(1, 2, 3)
    assert line.values == ["1a", "2a", "3a"] and line.chain.idle


def test_steps_pause_without_room_and_go_on_with_it() -> None:
    line = Line(InPieces("a"), credit=1)
    line.accept(1, 2, 3, 4)
    assert line.values == ["1a"]
    assert not line.chain.idle and not line.chain.can_go_on
    line.channel.granted(1)  # the second row, which waited, leaves
    assert line.chain.can_go_on
    line.chain.advance()
    assert line.values == ["1a", "2a"] and not line.chain.can_go_on
    for _ in range(3):
        line.channel.granted(1)
        line.chain.advance()
    assert line.values == ["1a", "2a", "3a", "4a"] and line.chain.idle


def test_steps_that_wait_go_on_only_when_it_is_done() -> None:
    line = Line(InPieces("a", waits=True))
    line.accept(1, 2)
    assert line.values == [] and not line.chain.can_go_on
    line.waiting.done()
    assert line.chain.can_go_on
    line.chain.advance()
    assert line.values == ["1a"]
    line.waiting.done()
    line.chain.advance()
    assert line.values == ["1a", "2a"] and line.chain.idle


def test_what_comes_behind_steps_waits_for_them_watermarks_included() -> None:
    line = Line(Plain("a"), InPieces("b", waits=True))
    line.accept(1)
    line.chain.head.accept_watermark(Watermark(5))
    line.chain.head.accept_watermark(WatermarkStatus(idle=True))
    assert line.sent == []
    line.waiting.done()
    line.chain.advance()
    assert line.sent == [RowBatch(["1ab"]), Watermark(5), WatermarkStatus(idle=True)]


def test_an_operator_may_keep_to_itself_that_its_input_is_idle() -> None:
    class Awake(Plain):
        def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
            pass

    line = Line(Awake("a"))
    line.chain.head.accept_watermark(WatermarkStatus(idle=True))
    line.chain.head.accept_watermark(Watermark(5))
    assert line.sent == [Watermark(5)]


def test_an_operator_does_not_run_ahead_of_one_behind_it_that_waits() -> None:
    """Else the queue between them would grow without bound."""
    ahead = InPieces("a")
    line = Line(ahead, Plain("b"), InPieces("c", waits=True))
    line.accept(*range(100))
    assert ahead.emitted == 1
    assert not line.chain.head.out.has_room
    for done in range(1, 101):
        line.waiting.done()
        line.chain.advance()
        assert ahead.emitted == min(done + 1, 100)
    assert line.chain.idle
    assert line.values == [f"{n}abc" for n in range(100)]


def test_a_long_queue_is_worked_off_without_deep_recursion() -> None:
    class Burst(Plain):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            for value in self.named(batch).values:
                out.emit(RowBatch([value]))
            return None

    line = Line(Burst("a"), InPieces("b", waits=True), credit=10_000)
    line.accept(*range(3_000))
    while line.waiting.calls:
        line.waiting.done()
        line.chain.advance()
    assert line.values == [f"{n}ab" for n in range(3_000)]


def test_operators_finish_head_to_tail_each_after_the_work_before_it() -> None:
    line = Line(InPieces("a", waits=True), InPieces("b", waits=True))
    ending = line.chain.finish()
    turns = 0
    for _ in ending:
        turns += 1
        if line.waiting.calls:
            line.waiting.done()
        line.chain.advance()
    assert line.values == ["endab", "endb"]
    assert turns == 3


def test_a_side_output_reaches_its_consumer_and_no_other() -> None:
    class Splitting(Plain):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit_side("odd", RowBatch(["odd"]))
            out.emit_side("nobody reads it", RowBatch(["lost"]))
            out.emit(RowBatch([]))
            return None

    line = Line(Splitting("a"), Plain("b"))
    tagged = Line(Plain("c"))
    line.chain.head.out.add_operator(tagged.chain.head, "odd")
    line.accept(1)
    assert tagged.values == ["oddc"] and line.values == []


def test_event_time_reaches_every_consumer_side_outputs_included() -> None:
    line, tagged = Line(Plain("a"), Plain("b")), Line(Plain("c"))
    line.chain.head.out.add_operator(tagged.chain.head, "odd")
    line.chain.head.accept_watermark(Watermark(7))
    assert line.sent == tagged.sent == [Watermark(7)]


def test_of_two_consumers_each_gets_values_of_its_own() -> None:
    class Changing(Plain):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch)
            for value in batch.values:
                assert isinstance(value, list)
                value.append(self.name)
            out.emit(batch)
            return None

    class Same(Plain):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit(batch)
            return None

    line, second = Line(Same("a"), Changing("b")), Line(Changing("c"))
    line.chain.head.out.add_operator(second.chain.head, None)
    line.accept([0])
    assert line.values == [[0, "b"]] and second.values == [[0, "c"]]


def test_the_rows_an_operator_emitted_are_counted() -> None:
    line = Line(Plain("a"))
    line.accept(1, 2)
    line.accept(3)
    assert line.chain.head.out.rows == 3


@given(data=st.data())
def test_order_is_kept_whatever_waits_and_whenever_there_is_room(data: st.DataObject) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from(["plain", "pieces", "waits"]), min_size=1, max_size=4)
    )
    operators = [
        Plain(str(n)) if kind == "plain" else InPieces(str(n), waits=kind == "waits")
        for n, kind in enumerate(kinds)
    ]
    line = Line(*operators, credit=2)
    given_in: list[object] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["accept", "watermark", "grant", "done", "advance"]))
        if action == "accept" and line.chain.idle and line.chain.head.out.has_room:
            size = data.draw(st.integers(1, 3))
            line.accept(*range(number, number + size))
            given_in += range(number, number + size)
            number += size
        elif action == "watermark" and line.chain.idle and line.chain.head.out.has_room:
            line.chain.head.accept_watermark(Watermark(number))
            given_in.append(Watermark(number))
        elif action == "grant" and line.in_flight:
            line.grant()
        elif action == "done" and line.waiting.calls:
            line.waiting.done()
        elif action == "advance":
            line.chain.advance()
    for _ in range(1_000):
        if line.waiting.calls:
            line.waiting.done()
        elif line.in_flight:
            line.grant()
        line.chain.advance()
    assert line.chain.idle
    names = "".join(str(n) for n in range(len(kinds)))
    expected = [e if isinstance(e, Watermark) else f"{e}{names}" for e in given_in]
    arrived = [
        value
        for element in line.sent
        for value in (element.values if isinstance(element, RowBatch) else [element])
    ]
    assert arrived == expected


class Woken(Plain):
    """Gives a row each time it has its turn."""

    def on_ready(self, out: Output) -> None:
        out.emit(RowBatch([f"woken {self.name}"]))


def test_operators_behind_one_at_work_are_woken_and_those_before_it_later() -> None:
    line = Line(Woken("a"), InPieces("b", waits=True), Woken("c"))
    assert line.chain.ready()
    assert line.values == ["woken c"] and not line.chain.idle
    assert not line.chain.ready(), "the second one is at work"
    assert line.values == ["woken c", "woken c"]
    line.waiting.done()
    line.chain.advance()
    assert line.values == ["woken c", "woken c", "woken abc"] and line.chain.idle


def test_an_operator_that_is_woken_at_work_hears_of_it_behind_its_work() -> None:
    class Slow(Woken):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            return InPieces(self.name, waits=True).process(batch, port, out)

    line = Line(Slow("a"))
    line.accept(1)
    line.chain.head.ready()
    assert line.values == []
    line.waiting.done()
    line.chain.advance()
    assert line.values == ["1a", "woken a"] and line.chain.idle


def test_a_chain_is_finished_only_once_its_operators_have_drained() -> None:
    class Waits(Plain):
        drained = False

    last = Waits("b")
    line = Line(Plain("a"), last)
    ending = line.chain.finish()
    next(ending)
    assert not line.chain.finishing and line.values == []
    last.drained = True
    assert list(ending) == [] and line.chain.finishing
    assert line.values == ["endab", "endb"]


def test_results_are_brought_to_their_declared_types_also_those_of_side_outputs() -> None:
    class Splitting(Plain):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit_side("odd", RowBatch([]))
            out.emit_side("odd", batch)
            out.emit(batch)
            return None

    def texts(batch: Batch) -> Batch:
        assert isinstance(batch, RowBatch)
        return RowBatch([str(value) for value in batch.values])

    def halves(batch: Batch) -> Batch:
        assert isinstance(batch, RowBatch)
        return RowBatch([value / 2 for value in batch.values])

    line = Line(Splitting("a"))
    given_to: list[RowBatch] = []
    convert = {None: texts, "odd": halves}
    line.chain.head.out = out = ChainOutput(Room(), ManualClock(), share=True, convert=convert)
    out.takers(None).append(Kept(given_to))
    out.takers("odd").append(Kept(given_to))
    line.accept(3)
    assert given_to == [RowBatch([1.5]), RowBatch(["3"])]
    assert (out.rows, out.beside.rows, out.unread) == (1, 1, {})


class Kept:
    """Keeps what it is given."""

    def __init__(self, batches: list[RowBatch]) -> None:
        self._batches = batches

    def accept(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._batches.append(batch)


def test_all_operators_are_told_though_one_raises_and_the_first_error_is_raised() -> None:
    told: list[Operator] = []

    def tell(operator: Operator) -> None:
        told.append(operator)
        raise ValueError(f"{len(told)}")

    first, second = Plain("a"), Plain("b")
    with pytest.raises(ValueError, match="1"):
        Line(first, second).chain.tell(tell)
    assert told == [second, first]


def test_the_backend_prepares_for_each_batch_before_its_operator_has_it() -> None:
    prepared: list[Batch] = []
    line = Line(Plain("a"), backend=Stateless(prepared.append))
    line.accept(1)
    line.accept(2)
    assert prepared == [RowBatch([1]), RowBatch([2])] and line.values == ["1a", "2a"]
