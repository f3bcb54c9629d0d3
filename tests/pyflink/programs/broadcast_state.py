"""Rules that every subtask is told, kept as broadcast state."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx: BroadcastProcessFunction.ReadOnlyContext):
        ctx.get_broadcast_state(RULES).contains("limit")
        yield f"plain {value[0]}"

    def process_broadcast_element(self, value, ctx: BroadcastProcessFunction.Context):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        yield f"rules {sorted(ctx.get_broadcast_state(RULES).items())}"


class KeyedRules(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(RULES)[value[0]] = value[1]
        yield f"told {value[0]}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
pair = Types.TUPLE([Types.STRING(), Types.INT()])
events = env.from_collection([("a", 1), ("b", 2), ("a", 3)], pair)
rules = env.from_collection([("limit", 2), ("speed", 9)], pair).broadcast(RULES)
events.connect(rules).process(Rules(), Types.STRING()).print("any")
events.key_by(lambda event: event[0], Types.STRING()).connect(rules).process(
    KeyedRules(), Types.STRING()
).print("keyed")
env.execute("broadcast")
