"""Page views per minute: tumbling windows of event time, counted as the views come.

A view at 59.999 s is in the first minute, one at 60.000 s in the second.
"""

from tidegate import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)

VIEWS = [("a", 0), ("a", 30_000), ("b", 59_999), ("a", 60_000), ("b", 61_000)]
"""Page and time in milliseconds."""


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithStart(ProcessWindowFunction):
    """A window's count with its page and its start."""

    def process(self, key, context, elements):
        for count in elements:
            yield key, context.window().start, count


def views_per_minute(views):
    """views: a stream as VIEWS is."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda view, before: view[1]
    )
    return (
        views.assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)
        .key_by(lambda view: view[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .aggregate(Count(), WithStart())
        .uid("views-per-minute")
    )


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    counts = views_per_minute(env.from_collection(VIEWS).uid("views"))
    with counts.execute_and_collect("page views") as results:
        for page, start, count in sorted(results, key=lambda row: (row[1], row[0])):
            print(f"minute {start // 60_000}: page {page} viewed {count} times")


if __name__ == "__main__":
    main()
