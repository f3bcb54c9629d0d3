"""Sessions with a fixed gap, and with one that each record says."""

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import ProcessWindowFunction
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    TimeWindow,
)

VISITS = [("hi", 1), ("hi", 2), ("hi", 3), ("hi", 4), ("hi", 8), ("hi", 9), ("hi", 15), ("yo", 3)]


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element[1]


class Count(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key, context: ProcessWindowFunction.Context[TimeWindow], elements):
        window = context.window()
        return [(key, window.start, window.end, len(list(elements)))]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
by_name = (
    env.from_collection(VISITS, Types.TUPLE([Types.STRING(), Types.INT()]))
    .assign_timestamps_and_watermarks(strategy)
    .key_by(lambda visit: visit[0], key_type=Types.STRING())
)
out = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.INT()])
fixed = EventTimeSessionWindows.with_gap(Time.milliseconds(5))
dynamic = EventTimeSessionWindows.with_dynamic_gap(Gap())
by_name.window(fixed).process(Count(), out).print("fixed")
by_name.window(dynamic).process(Count(), out).print("dynamic")
env.execute("sessions")
