"""Windows of ten seconds, by a process function with a typed context, and of the whole stream."""

from collections.abc import Iterable

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import TimeWindow, TumblingEventTimeWindows

READINGS = [("a", 1, 1_000), ("a", 2, 9_999), ("b", 3, 2_000), ("a", 4, 10_000), ("b", 5, 31_000)]


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Spans(ProcessWindowFunction[tuple, str, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple],
    ) -> Iterable[str]:
        number = context.global_state().get_state(ValueStateDescriptor("number", Types.INT()))
        number.update((number.value() or 0) + 1)
        window = context.window()
        values = sorted(each[1] for each in elements)
        yield f"{key} {number.value()} [{window.start}, {window.end}): {values}"

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        pass


class All(ProcessAllWindowFunction[tuple, str, TimeWindow]):
    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[tuple]
    ) -> Iterable[str]:
        yield f"all until {context.window().max_timestamp()}: {len(list(elements))}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
readings = env.from_collection(
    READINGS, Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
).assign_timestamps_and_watermarks(strategy)
windows = TumblingEventTimeWindows.of(Time.seconds(10))
by_name = readings.key_by(lambda reading: reading[0], key_type=Types.STRING())
by_name.window(windows).process(Spans(), Types.STRING()).print()
readings.window_all(windows).process(All(), Types.STRING()).print()
by_name.window(windows).reduce(lambda x, y: (x[0], x[1] + y[1], y[2])).print("reduced")
env.execute("tumbling")
