"""Two streams in one step: mapped side by side, and joined by state."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    RuntimeContext,
)
from pyflink.datastream.state import ListStateDescriptor


class Sides(CoMapFunction):
    def map1(self, value):
        return f"left {value[0]}"

    def map2(self, value):
        return f"right {value[1]}"


class Fields(CoFlatMapFunction):
    def flat_map1(self, value):
        yield from map(str, value)

    def flat_map2(self, value):
        if value[1] > 10:
            yield "high"


class Pairs(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.left = runtime_context.get_list_state(ListStateDescriptor("left", Types.INT()))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right", Types.INT()))

    def process_element1(self, value, ctx: "KeyedCoProcessFunction.Context"):
        self.left.add(value[1])
        for other in self.right:
            yield ctx.get_current_key(), value[1], other

    def process_element2(self, value, ctx: "KeyedCoProcessFunction.Context"):
        self.right.add(value[1])
        for other in self.left:
            yield ctx.get_current_key(), other, value[1]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
pair = Types.TUPLE([Types.STRING(), Types.INT()])
left = env.from_collection([("a", 1), ("b", 2), ("a", 3)], pair)
right = env.from_collection([("a", 10), ("c", 20), ("b", 30)], pair)
left.connect(right).map(Sides(), Types.STRING()).print("mapped")
left.connect(right).flat_map(Fields(), Types.STRING()).print("fields")
left.connect(right).key_by(lambda x: x[0], lambda x: x[0], Types.STRING()).process(
    Pairs(), Types.TUPLE([Types.STRING(), Types.INT(), Types.INT()])
).print("pair")
env.execute("two streams")
