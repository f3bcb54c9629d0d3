"""Side outputs of a process function, and records that come too late for their window."""

from pyflink.common import Time, Types
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import OutputTag, StreamExecutionEnvironment
from pyflink.datastream.functions import ProcessFunction
from pyflink.datastream.window import TumblingEventTimeWindows

odd = OutputTag("odd", Types.INT())
words = OutputTag("words", Types.STRING())
late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG()]))


class Split(ProcessFunction):
    def process_element(self, value, ctx: "ProcessFunction.Context"):
        yield value
        if value % 2:
            yield odd, value
        yield words, f"number {value}"


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
split = env.from_collection([1, 2, 3], Types.INT()).process(Split(), Types.INT())
split.print("main")
split.get_side_output(odd).print("odd")
split.get_side_output(words).print("words")

strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
windowed = (
    env.from_collection(
        [("a", 1_000), ("b", 2_000), ("a", 12_000)], Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    .assign_timestamps_and_watermarks(strategy)
    .key_by(lambda row: row[0], Types.STRING())
    .window(TumblingEventTimeWindows.of(Time.seconds(5)))
    .allowed_lateness(0)
    .side_output_late_data(late)
    .reduce(lambda x, y: (x[0], x[1] + y[1]))
)
windowed.print("window")
windowed.get_side_output(late).print("late")
env.execute("side outputs")
