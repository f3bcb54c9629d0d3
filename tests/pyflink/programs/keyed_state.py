"""Every kind of keyed state, and a reduce function with state of its own."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import (
    AggregateFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
)
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

EVENTS = [("a", 1), ("b", 20), ("a", 3), ("b", 10), ("a", 2)]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Everything(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.INT()))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.INT()))
        self.by = runtime_context.get_map_state(
            MapStateDescriptor("by", Types.INT(), Types.STRING())
        )
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda one, other: one + other, Types.INT())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.INT(), Types.INT()]))
        )

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        before = self.last.value()
        self.last.update(value[1])
        self.all.add(value[1])
        self.by.put(value[1], f"{value[0]}{value[1]}")
        self.total.add(value[1])
        self.mean.add(value[1])
        named = sorted(self.by.items())
        yield ctx.get_current_key(), before, list(self.all.get()), named, self.total.get()
        yield f"{value[0]} mean {self.mean.get()}"
        if value[1] == 3:
            self.all.clear()
            self.by.remove(1)
            yield f"{value[0]} has {list(self.all)}, {self.by.contains(1)}, {3 in self.by}"


class Numbered(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def map(self, value):
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        return f"{value[0]}#{number}"


class Longest(ReduceFunction):
    def open(self, runtime_context: RuntimeContext):
        self.calls = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def reduce(self, value1, value2):
        calls = (self.calls.value() or 0) + 1
        self.calls.update(calls)
        return value1[0], value1[1] + value2[1] + 100 * calls


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
events = env.from_collection(EVENTS, Types.TUPLE([Types.STRING(), Types.INT()]))
by_name = events.key_by(lambda event: event[0], key_type=Types.STRING())
by_name.process(Everything()).print("state")
by_name.map(Numbered(), Types.STRING()).print("numbered")
by_name.reduce(Longest()).print("reduced")
env.execute("state")
