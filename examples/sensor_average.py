"""Sliding average of a sensor: the last ten seconds, every five seconds.

A reading belongs to two windows; the first one begins before time zero.
"""

from tidegate import (
    AggregateFunction,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    WatermarkStrategy,
)

READINGS = [("s", 10.0, 1_000), ("s", 20.0, 6_000), ("s", 60.0, 11_000)]
"""Sensor, what it read, and when, in milliseconds."""


class Average(AggregateFunction):
    """Gathers sum and count."""

    def create_accumulator(self):
        return 0.0, 0

    def add(self, value, accumulator):
        total, count = accumulator
        return total + value[1], count + 1

    def get_result(self, accumulator):
        total, count = accumulator
        return total / count

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithBounds(ProcessWindowFunction):
    """A window's average with its sensor and its bounds."""

    def process(self, key, context, elements):
        window = context.window()
        for average in elements:
            yield key, window.start, window.end, average


def sliding_averages(readings):
    """readings: a stream as READINGS is."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda reading, before: reading[2]
    )
    return (
        readings.assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)
        .key_by(lambda reading: reading[0])
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
        .aggregate(Average(), WithBounds())
        .uid("averages")
    )


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    averages = sliding_averages(env.from_collection(READINGS).uid("readings"))
    with averages.execute_and_collect("sensor average") as results:
        for sensor, start, end, average in sorted(results):
            print(f"{sensor} from {start:>6} to {end:>6} ms: {average}")


if __name__ == "__main__":
    main()
