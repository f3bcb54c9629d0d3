"""Jobs of two streams, whose right answer is known. Slots import this module by its name."""

from collections.abc import Iterator

from tests.e2e.jobs import KEYS, Counted, key_of, same
from tests.e2e.ledger import Rows
from tests.e2e.verify import check_each_counted_once
from tidegate import (
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import DataGeneratorSource

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
AFTER_ALL = 10**15
WAIT = 40


def number_as_time(number: int, _: int) -> int:
    return number


def numbers(env: StreamExecutionEnvironment, name: str, rows: int, rate: float) -> DataStream[int]:
    """Numbers at a rate; each is its own event time."""
    source = DataGeneratorSource(same, rows, rate, Types.LONG())
    time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(number_as_time)
    return env.from_source(source, time, name, Types.LONG()).uid(name)


class Meeting(KeyedCoProcessFunction[int, int, Counted]):
    """A number that came on both streams is counted, a while of event time after the second."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._attempt = runtime_context.get_attempt_number()
        waiting = MapStateDescriptor("waiting", Types.LONG(), Types.LONG())
        self._waiting = runtime_context.get_map_state(waiting)
        self._met = runtime_context.get_list_state(ListStateDescriptor("met", Types.LONG()))
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        self._came(value, 1, ctx)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        self._came(value, 2, ctx)

    def _came(self, value: int, stream: int, ctx: KeyedCoProcessFunction.Context) -> None:
        before = self._waiting.get(value)
        if before is None:
            self._waiting.put(value, stream)
            return
        assert before != stream, f"{value} came twice on stream {stream}"
        self._waiting.remove(value)
        self._met.add(value)
        ctx.timer_service().register_event_time_timer(value + WAIT)

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[Counted]:
        for value in self._met.get():
            count = (self._count.value() or 0) + 1
            self._count.update(count)
            yield {
                "number": value,
                "key": value % KEYS,
                "count": count,
                "attempt": self._attempt,
                "emitted_ms": ctx.timer_service().current_processing_time(),
            }
        self._met.clear()


def meetings(env: StreamExecutionEnvironment, rows: int, rate: float) -> DataStream[Counted]:
    """The same numbers on two streams, one of which is slower."""
    one, other = numbers(env, "one", rows, rate), numbers(env, "other", rows, rate * 0.8)
    both = one.connect(other).key_by(key_of, key_of, Types.LONG())
    return both.process(Meeting()).uid("meetings")


class Ruled(KeyedBroadcastProcessFunction[int, int, int, Counted]):
    """Counts by key; after all, a row for each key tells how many rules there were, and their sum.

    Its number is below 0.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self._attempt = runtime_context.get_attempt_number()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Counted]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_event_time_timer(AFTER_ALL)
        yield {"number": value, "key": value % KEYS, "count": count, "attempt": self._attempt}

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rules.put("count", (rules.get("count") or 0) + 1)
        rules.put("sum", (rules.get("sum") or 0) + value)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[Counted]:
        rules, key = ctx.get_broadcast_state(RULES), ctx.get_current_key()
        assert isinstance(key, int)
        yield {"number": -1 - key, "rules": rules["count"], "sum": rules["sum"]}


def ruled(
    env: StreamExecutionEnvironment, rows: int, rate: float, *, rules: int
) -> DataStream[Counted]:
    """Numbers counted by key beside so many rules, which come in the same time."""
    told = numbers(env, "rules", rules, rate * rules / rows).broadcast(RULES)
    keyed = numbers(env, "numbers", rows, rate).key_by(key_of, Types.LONG())
    return keyed.connect(told).process(Ruled()).uid("ruled")


def check_ruled(rows: Rows, total: int, *, rules: int) -> None:
    """Each number counted once, and each key's subtask was told each rule once."""
    check_each_counted_once([row for row in rows if row["number"] >= 0], total)
    told = sorted(
        (-1 - row["number"], row["rules"], row["sum"]) for row in rows if row["number"] < 0
    )
    assert told == [(key, rules, sum(range(rules))) for key in range(KEYS)]
