"""A job that is stopped with a savepoint and goes on from it.

continued.py                    all events in one run
continued.py begin PORT         the first events, until somebody stops it over REST
continued.py go-on SAVEPOINT    the other events
"""

import sys
import time

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import AggregateFunction, KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

FIRST = [("ada", 3), ("bob", 20), ("ada", 5), ("cem", 7), ("bob", 10), ("ada", 3)]
OTHERS = [("bob", 1), ("ada", 2), ("dil", 4), ("ada", 5), ("bob", 2)]
"""Only ada and bob are in both: what is known of cem is kept for nothing."""

EVENT = Types.TUPLE([Types.STRING(), Types.INT()])


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Known(KeyedProcessFunction):
    """What has been seen of a name, with each of its events, and once more at the end."""

    def open(self, runtime_context: RuntimeContext):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.INT()))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.INT()))
        self.times = runtime_context.get_map_state(
            MapStateDescriptor("times", Types.INT(), Types.LONG())
        )
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda one, other: one + other, Types.INT())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.INT(), Types.INT()]))
        )

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        name, amount = value
        before = self.last.value()
        self.last.update(amount)
        self.all.add(amount)
        self.times.put(amount, (self.times.get(amount) or 0) + 1)
        self.total.add(amount)
        self.mean.add(amount)
        ctx.timer_service().register_event_time_timer(1_000)
        times = sorted(self.times.items())
        yield f"{name}: {before}, {list(self.all.get())}, {times}, {self.total.get()}"

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        yield f"{ctx.get_current_key()} at {timestamp}: mean {self.mean.get()}"


class Endless:
    """The first events, and then none for ever."""

    def __call__(self, number):
        if number < len(FIRST):
            return [FIRST[number]]
        time.sleep(0.01)
        return []


act, place = (sys.argv[1], sys.argv[2]) if len(sys.argv) > 1 else ("", "")
settings = Configuration()
if act == "begin":
    settings.set_string("rest.port", place)
if act == "go-on":
    settings.set_string("execution.state-recovery.path", place)
    # The events come from elsewhere now, so nobody asks how far the first source was.
    settings.set_string("execution.state-recovery.ignore-unclaimed-state", "true")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.set_parallelism(1)
if act == "begin":
    numbers = NumberSequenceSource(0, 10**12)
    endless = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    events = endless.flat_map(Endless(), EVENT).uid("first events")
else:
    events = env.from_collection(OTHERS if act else FIRST + OTHERS, EVENT).uid("events")
known = events.key_by(lambda event: event[0], key_type=Types.STRING()).process(Known()).uid("known")
known.print().uid("printed")
env.execute("continued")
