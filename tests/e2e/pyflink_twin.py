"""The job of the fixtures `pyflink-*`, with the same uids and states: it goes on where that was."""

from __future__ import annotations

from typing import Any

from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Configuration,
    Duration,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

TIMERS = OutputTag("timers", Types.PICKLED_BYTE_ARRAY())


class Average(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


COUNT = ValueStateDescriptor("count", Types.LONG())
ANY = ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY())
WORDS = ListStateDescriptor("words", Types.STRING())
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.INT())
TOTAL = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
AVERAGE = AggregatingStateDescriptor("avg", Average(), Types.TUPLE([Types.LONG(), Types.LONG()]))
TIMES = ValueStateDescriptor("c", Types.INT())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())

STATES: dict[str, list[StateDescriptor]] = {
    "alpha-py-keyed": [COUNT, ANY, WORDS, SEEN, TOTAL, AVERAGE],
    "alpha-py-pickled": [TIMES],
    "alpha-py-bc": [RULES],
}


class Keyed(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.any = runtime_context.get_state(ANY)
        self.words = runtime_context.get_list_state(WORDS)
        self.seen = runtime_context.get_map_state(SEEN)
        self.total = runtime_context.get_reducing_state(TOTAL)
        self.average = runtime_context.get_aggregating_state(AVERAGE)

    def process_element(self, value: int, ctx: Any) -> Any:
        """What there is for the key, and then one number more."""
        yield (
            "keyed",
            ctx.get_current_key(),
            {
                "count": self.count.value(),
                "any": self.any.value(),
                "words": list(self.words.get()),
                "seen": dict(self.seen.items()),
                "total": self.total.get(),
                "avg": self.average.get(),
            },
        )
        self.count.update((self.count.value() or 0) + 1)
        self.words.add(f"w{value}")
        self.total.add(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield TIMERS, (ctx.get_current_key(), timestamp)


class Pickled(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.times = runtime_context.get_state(TIMES)

    def process_element(self, value: int, ctx: Any) -> Any:
        yield "pickled", ctx.get_current_key(), self.times.value()


class WithRules(KeyedBroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield "rules", ctx.get_current_key(), dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: tuple[str, int], ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)
        return ()


def run(parallelism: int, numbers: list[int], settings: dict[str, str]) -> list[Any]:
    """What the job gives of these numbers, and of all timers that end with its input."""
    env = StreamExecutionEnvironment.local(
        parallelism, configuration=Configuration.from_dict(settings)
    )
    read = env.from_collection(numbers, Types.LONG()).uid("numbers")
    keyed = (
        read.key_by(lambda n: f"alpha-k{n % 5}", key_type=Types.STRING())
        .process(Keyed())
        .uid("alpha-py-keyed")
    )
    pickled = read.key_by(lambda n: (f"alpha-k{n % 5}", n % 2)).process(Pickled())
    pickled.uid("alpha-py-pickled")
    rules = env.from_collection([("new", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    with_rules = (
        read.key_by(lambda n: n, key_type=Types.LONG())
        .connect(rules.uid("rules").broadcast(RULES))
        .process(WithRules())
        .uid("alpha-py-bc")
    )
    timers = keyed.get_side_output(TIMERS).map(lambda timer: ("timer", *timer))
    with keyed.union(pickled, with_rules, timers).execute_and_collect() as results:
        return list(results)


class OfJava(KeyedProcessFunction):
    """The states of the fixtures `keyed-heapfile-*`, which a job in Java has written."""

    def open(self, runtime_context: Any) -> None:
        average = Types.TUPLE([Types.LONG(), Types.LONG()])
        life = StateTtlConfig.new_builder(Duration.of_days(365_000)).build()
        expiring = ValueStateDescriptor("ttl-value", Types.STRING(), ttl=life)
        parity = MapStateDescriptor("per-parity", Types.STRING(), Types.LONG())
        self.count = runtime_context.get_state(COUNT)
        self.value = runtime_context.get_state(expiring)
        self.items = runtime_context.get_list_state(
            ListStateDescriptor("alpha-items", Types.STRING())
        )
        self.parity = runtime_context.get_map_state(parity)
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )
        self.average = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("avg", Average(), average)
        )

    def process_element(self, value: int, ctx: Any) -> Any:
        yield (
            ctx.get_current_key(),
            {
                "count": self.count.value(),
                "ttl-value": self.value.value(),
                "alpha-items": list(self.items.get()),
                "per-parity": dict(self.parity.items()),
                "sum": self.sum.get(),
                "avg": self.average.get(),
            },
        )


def run_of_java(keys: list[str], settings: dict[str, str]) -> dict[str, Any]:
    """What a job of the same uid finds under these keys."""
    env = StreamExecutionEnvironment.local(configuration=Configuration.from_dict(settings))
    keyed = env.from_collection(keys, Types.STRING()).key_by(lambda key: key, Types.STRING())
    with keyed.process(OfJava()).uid("alpha-keyed").execute_and_collect() as results:
        return dict(results)
