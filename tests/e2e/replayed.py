"""Steps that fail on one row or timer, for the bundles that are kept of them."""

from collections.abc import Callable, Iterable
from typing import Any

from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs, failure_of
from tests.e2e.watch import until
from tidegate import (
    AsyncDataStream,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    Types,
    WatermarkStrategy,
)
from tidegate.errors import UserCodeFailed
from tidegate.functions import AggregateFunction
from tidegate.state import ValueStateDescriptor
from tidegate.testing import ReplayBundle

BAD = 7
DELAY_MS = 50


def checked(number: int) -> int:
    if number == BAD:
        raise ValueError(f"{number} is bad")
    return number


async def checked_later(number: int) -> int:
    return checked(number)


def several(number: int) -> Iterable[int]:
    yield number
    yield checked(number)


def positive(number: int) -> bool:
    return checked(number) > 0


class Sums(KeyedProcessFunction):
    """Sums by parity; a bad number fails, or its timer does."""

    def __init__(self, *, by_timer: str = "") -> None:
        self._by_timer = by_timer

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[object]:
        if not self._by_timer:
            checked(value)
        self._sum.update((self._sum.value() or 0) + value)
        timers = ctx.timer_service()
        if self._by_timer == "processing" and value == BAD:
            timers.register_processing_time_timer(timers.current_processing_time() + DELAY_MS)
        if self._by_timer == "event" and value == BAD:
            timers.register_event_time_timer(BAD + 1)
        yield ctx.get_current_key(), self._sum.value()

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[object]:
        now_ms = ctx.timer_service().current_processing_time()
        raise ValueError(f"timer {timestamp} of {ctx.get_current_key()} at {now_ms >= timestamp}")


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + min(checked(value), 1)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def parity(number: int) -> int:
    return number % 2


def larger(before: int, number: int) -> int:
    return max(before, checked(number))


def timed(numbers: DataStream[Any]) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    return numbers.assign_timestamps_and_watermarks(strategy)


class MendedSums(Sums):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[object]:
        return super().process_element(0 if value == BAD else value, ctx)


Step = Callable[[DataStream[Any]], DataStream[Any]]
STEPS: dict[str, Step] = {
    "map": lambda numbers: numbers.map(checked),
    "filter": lambda numbers: numbers.filter(positive),
    "flat_map": lambda numbers: numbers.flat_map(several),
    "keyed": lambda numbers: numbers.key_by(parity).process(Sums()),
    "processing timer": lambda n: n.key_by(parity).process(Sums(by_timer="processing")),
    "event timer": lambda n: timed(n).key_by(parity).process(Sums(by_timer="event")),
    "reduce": lambda numbers: numbers.key_by(parity).reduce(larger),
    "aggregate": lambda n: n.key_by(parity).count_window(3).aggregate(Count()),
    "async": lambda n: AsyncDataStream.unordered_wait(n, checked_later, 20_000),
}


def check_step_fails_again(jobs: Jobs, name: str) -> ReplayBundle:
    """Run a job whose step fails, and the step from its bundle, which is given back."""
    folder = jobs.folder / "bundles"
    env = jobs.env(1, **{"tidegate.replay.dir": str(folder)}, **WITHOUT_CHECKPOINTS)
    numbers = env.generate(int, None, 1_000) if "timer" in name else env.from_sequence(1, 9)
    STEPS[name](numbers).name("step").uid("step").print()
    failed = failure_of(jobs.start(env, f"replayed {name}"))
    assert failed is not None
    until(lambda: folder.is_dir() and any(folder.glob("*.replay")), "there is a bundle")
    [path] = folder.glob("*.replay")
    bundle = ReplayBundle.read(path)
    error = bundle.run().error
    assert isinstance(error, UserCodeFailed)
    what = "ValueError: timer" if "timer" in name else f"ValueError: {BAD} is bad"
    assert what in error.what and what in str(failed)
    if "timer" in name:
        assert error.what.endswith("of 1 at True") or "event" in name
        assert bundle.facts["timer_ms"] is not None and bundle.facts["key"] == "1"
    else:
        assert bundle.facts["row"] == str(BAD)
    if name in ("keyed", "event timer", "processing timer"):
        assert bundle.facts["state"]["sum"], "the state of the key is there"
    return bundle
