"""Windows over the results of windows, without new timestamps.

A window's result carries the last timestamp of the window, and the watermark follows the results;
so the second windows know which results are theirs, and when they have them all.
"""

from tidegate import (
    AggregateFunction,
    ProcessAllWindowFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkGenerator,
    WatermarkStrategy,
)

CLICKS = [0, 1, 3, 4, 7, 8, 15, 16]
"""When somebody clicked, in milliseconds."""


class EachRecord(WatermarkGenerator):
    """After each record a watermark at its time."""

    def on_event(self, value, timestamp, output):
        output.emit_watermark(timestamp)


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithBounds(ProcessAllWindowFunction):
    """What a window has gathered, with the window's bounds."""

    def process(self, context, elements):
        window = context.window()
        for gathered in elements:
            yield window.start, window.end, gathered


def clicks_of_eight(clicks):
    """clicks: a stream as CLICKS is."""
    each_record = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(
        lambda click, before: click
    )
    return (
        clicks.assign_timestamps_and_watermarks(each_record)
        .set_parallelism(1)
        .window_all(TumblingEventTimeWindows.of(Time.milliseconds(4)))
        .aggregate(Count())
        .uid("counts-of-four")
        .window_all(TumblingEventTimeWindows.of(Time.milliseconds(8)))
        .reduce(lambda count, more: count + more, WithBounds())
        .uid("sums-of-eight")
    )


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    sums = clicks_of_eight(env.from_collection(CLICKS).uid("clicks"))
    with sums.execute_and_collect("two-level windows") as results:
        for start, end, clicks in results:
            print(f"from {start} to {end} ms: {clicks} clicks")


if __name__ == "__main__":
    main()
