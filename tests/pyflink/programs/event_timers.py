"""Timers of event time, in order over the keys."""

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

CLICKS = [("a", 1_000), ("b", 1_500), ("a", 4_000), ("c", 9_000), ("b", 2_500)]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Quiet(KeyedProcessFunction):
    """Tells of a key that has not been seen for three seconds."""

    def open(self, runtime_context: RuntimeContext):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        before = self.last.value()
        if before is not None:
            ctx.timer_service().delete_event_time_timer(before + 3_000)
        self.last.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 3_000)
        yield f"{value[0]} at {ctx.timestamp()}"

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        yield f"{ctx.get_current_key()} quiet at {timestamp}, {ctx.time_domain().name}"
        if timestamp < 6_000:
            ctx.timer_service().register_event_time_timer(timestamp + 10_000)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
(
    env.from_collection(CLICKS, Types.TUPLE([Types.STRING(), Types.LONG()]))
    .assign_timestamps_and_watermarks(strategy)
    .key_by(lambda click: click[0], key_type=Types.STRING())
    .process(Quiet(), Types.STRING())
    .print()
)
env.execute("timers")
