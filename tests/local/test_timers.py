"""Timers and side outputs of a job, as its user sees them."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.backpressure import UNALIGNED
from tests.e2e.jobs import same
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import END_S, RETAIN, Jobs, finished
from tests.e2e.watch import until
from tidegate import (
    JobClient,
    JobFailed,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    TimeDomain,
    Types,
    ValueStateDescriptor,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

pytestmark = pytest.mark.slow

DUE = 8_000
"""Numbers whose event time comes at once."""

NUMBERS = 9_000

ODD = OutputTag[int]("odd")
UNUSED = OutputTag[int]("unused")


class Reminder(KeyedProcessFunction[tuple[str, int], tuple[object, ...]]):
    """Reminds ten later, but for what is taken back by a negative number."""

    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[object, ...]]:
        timers = ctx.timer_service()
        if value[1] < 0:
            timers.delete_event_time_timer(10 - value[1])
        else:
            timers.register_event_time_timer(value[1] + 10)
            timers.register_event_time_timer(value[1] + 10)
        return iter(())

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[object, ...]]:
        assert ctx.timestamp() == timestamp
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield timestamp, ctx.get_current_key()


@pytest.mark.feature("F263")
def test_timers_are_due_once_in_order_at_the_end_of_input(jobs: Jobs) -> None:
    given = [("a", 5), ("b", 3), ("a", 1), ("a", 5), ("c", 2), ("c", -2)]
    stream = jobs.env().from_collection(given).key_by(lambda pair: pair[0]).process(Reminder())
    assert list(stream.execute_and_collect()) == [(11, "a"), (13, "b"), (15, "a")]


class Silence(KeyedProcessFunction[int, tuple[object, ...]]):
    """Says so when nothing more comes for a key; the job's source stands still meanwhile."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        due = self.due.value()
        if due is not None:
            timers.delete_processing_time_timer(due)
        due = timers.current_processing_time() + 300
        self.due.update(due)
        timers.register_processing_time_timer(due)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[object, ...]]:
        assert ctx.timer_service().current_processing_time() >= timestamp == self.due.value()
        yield ctx.get_current_key(), ctx.time_domain().name


def test_timers_of_the_wall_clock_are_due_while_the_input_is_silent(jobs: Jobs) -> None:
    numbers = jobs.env().generate(same, None, 200, Types.LONG())
    first = numbers.map(lambda number: number if number < 20 else 20).key_by(str)
    with first.process(Silence()).execute_and_collect() as said:
        found = [next(said) for _ in range(20)]
    assert sorted(found) == sorted((str(n), "PROCESSING_TIME") for n in range(20))


class Split(ProcessFunction[int, int]):
    def process_element(
        self, value: int, ctx: ProcessFunction.Context
    ) -> Iterator[int | tuple[OutputTag[int], int]]:
        if value % 2:
            yield ODD, value
        else:
            yield value


@pytest.mark.parametrize("chained", [True, False])
def test_side_outputs_go_their_own_way(jobs: Jobs, chained: bool) -> None:
    env = jobs.env()
    if not chained:
        env.disable_operator_chaining()
    split = env.from_collection(list(range(10))).process(Split())
    odd = split.get_side_output(ODD).map(lambda n: f"odd {n}")
    unused = split.get_side_output(UNUSED).map(lambda n: f"unused {n}")
    collected = split.map(lambda n: f"even {n}").union(odd, unused).execute_and_collect()
    assert sorted(collected) == sorted(f"{'odd' if n % 2 else 'even'} {n}" for n in range(10))


def test_what_nobody_reads_of_a_side_output_is_dropped(jobs: Jobs) -> None:
    split = jobs.env().from_collection(list(range(10))).process(Split())
    assert list(split.execute_and_collect()) == [0, 2, 4, 6, 8]


class Timing(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1)


def test_a_timer_without_keys_is_refused_by_name(jobs: Jobs) -> None:
    stream = jobs.env().from_collection([1]).process(Timing()).name("timing")
    with pytest.raises(JobFailed, match=r"(?s)only supported on a keyed stream.*'timing'"):
        list(stream.execute_and_collect())


def test_an_output_tag_has_a_name() -> None:
    with pytest.raises(Exception, match="cannot have the id ''"):
        OutputTag("")
    assert OutputTag("a") == OutputTag("a", Types.INT()) != OutputTag("b")


class UpToDue(WatermarkGenerator[int]):
    """Event time comes so far when that number has come, not before."""

    def on_event(self, value: int, timestamp: int, output: WatermarkOutput) -> None:
        if value == DUE:
            output.emit_watermark(DUE)


class Busy(KeyedProcessFunction[int, dict[str, int]]):
    """Passes each number on when its event time comes, which takes its time."""

    def __init__(self, began: Latch) -> None:
        self._began = began

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[dict[str, int]]:
        self._began.set()
        time.sleep(0.001)
        yield {"number": timestamp}


def start_busy(jobs: Jobs, began: Latch, interval_ms: int, **settings: object) -> JobClient:
    env = jobs.checkpointed(1, interval_ms, **RETAIN, **UNALIGNED, **settings)
    strategy = WatermarkStrategy.for_generator(UpToDue).with_timestamp_assigner(lambda n, _: n)
    numbers = env.generate(same, NUMBERS, None, Types.LONG()).uid("numbers")
    timed = numbers.assign_timestamps_and_watermarks(strategy).key_by(lambda number: number % 7)
    timed.process(Busy(began)).uid("busy").sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "busy")


@pytest.mark.slow
@pytest.mark.feature("F247")
@pytest.mark.feature("F263")
def test_many_timers_at_once_do_not_delay_a_checkpoint(jobs: Jobs) -> None:
    """A job that goes on from the midst of them calls each of the others just once."""
    began = Latch(jobs.folder / "began")
    client = start_busy(jobs, began, 3_600_000)
    until(lambda: began.is_set, "the first timer is called", END_S)
    asked_s = time.monotonic()
    done = client.trigger_checkpoint().result(timeout=END_S)
    took_s = time.monotonic() - asked_s
    client.cancel().result(timeout=END_S)
    called = len(ledger_rows(jobs.folder / "out"))
    assert called < DUE / 2 and took_s < DUE * 0.001 / 2
    finished(start_busy(jobs, began, 100, **{RESTORE_PATH: done.pointer}))
    rows = ledger_rows(jobs.folder / "out")
    assert sorted(row["number"] for row in rows) == list(range(NUMBERS))
