"""A trigger and an assigner of a program's own, as PyFlink has them written."""

from pyflink.common import Types
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import ProcessWindowFunction
from pyflink.datastream.state import ReducingStateDescriptor
from pyflink.datastream.window import (
    EventTimeTrigger,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    WindowAssigner,
)


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Decades(WindowAssigner[tuple, TimeWindow]):
    def assign_windows(
        self, element, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ):
        start = TimeWindow.get_window_start_with_offset(timestamp, 0, 10)
        return [TimeWindow(start, start + 10)]

    def get_default_trigger(self, env) -> Trigger[tuple, TimeWindow]:
        return EventTimeTrigger()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class EverySecond(Trigger[tuple, TimeWindow]):
    def __init__(self):
        self._count = ReducingStateDescriptor("count", lambda x, y: x + y, Types.LONG())

    def on_element(
        self, element, timestamp: int, window: TimeWindow, ctx: "Trigger.TriggerContext"
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() >= 2:
            count.clear()
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx: "Trigger.TriggerContext") -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx: "Trigger.TriggerContext") -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window, ctx: "Trigger.OnMergeContext") -> None:
        pass

    def clear(self, window, ctx: "Trigger.TriggerContext") -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self._count).clear()


class Listed(ProcessWindowFunction[tuple, str, str, TimeWindow]):
    def process(self, key, context: ProcessWindowFunction.Context[TimeWindow], elements):
        stamps = sorted(each[1] for each in elements)
        yield f"{key} {context.window().start}: {stamps}"


EVENTS = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", 12), ("b", 15), ("b", 16), ("b", 17)]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
by_name = (
    env.from_collection(EVENTS, Types.TUPLE([Types.STRING(), Types.INT()]))
    .assign_timestamps_and_watermarks(strategy)
    .key_by(lambda event: event[0], key_type=Types.STRING())
)
by_name.window(Decades()).process(Listed(), Types.STRING()).print("ended")
by_name.window(Decades()).trigger(EverySecond()).process(Listed(), Types.STRING()).print("early")
env.execute("own windows")
