"""Means over sliding windows, with a window function around an aggregate."""

from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from pyflink.datastream.window import SlidingEventTimeWindows, TimeWindow

READINGS = [("a", 1.5, 1_000), ("a", 2.5, 6_000), ("b", 3.0, 2_000), ("a", 4.0, 11_000)]


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0.0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Named(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context[TimeWindow], elements):
        (mean,) = elements
        yield key, context.window().start, mean


class Counted(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs):
        yield key, window.end, len(list(inputs))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_bounded_out_of_orderness(
    Duration.of_seconds(5)
).with_timestamp_assigner(Stamp())
by_name = (
    env.from_collection(READINGS, Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()]))
    .assign_timestamps_and_watermarks(strategy)
    .key_by(lambda reading: reading[0], key_type=Types.STRING())
)
windows = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5))
by_name.window(windows).aggregate(
    Mean(),
    window_function=Named(),
    accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.LONG()]),
    output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()]),
).print("mean")
by_name.window(windows).apply(
    Counted(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
).print("count")
env.execute("sliding")
