"""Sessions of the visitors of a web shop: visits with less than 20 ms between them.

Visits come up to 100 ms late. One that falls between two sessions makes one of them, and the
counts of both are merged.
"""

from tidegate import (
    AggregateFunction,
    Duration,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    WatermarkStrategy,
)

VISITS = [("u1", 0), ("u1", 10), ("u2", 12), ("u1", 25), ("u1", 100)]
"""Visitor and time in milliseconds."""

LATER = [("u1", 60), ("u1", 45)]
"""With these two all of u1's visits are one session."""


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithBounds(ProcessWindowFunction):
    """A session's visitor, bounds and number of visits."""

    def process(self, key, context, elements):
        window = context.window()
        for count in elements:
            yield key, window.start, window.end, count


def sessions(visits):
    """visits: a stream as VISITS is."""
    up_to_100_late = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(100)
    ).with_timestamp_assigner(lambda visit, before: visit[1])
    return (
        visits.assign_timestamps_and_watermarks(up_to_100_late)
        .set_parallelism(1)
        .key_by(lambda visit: visit[0])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(20)))
        .aggregate(Count(), WithBounds())
        .uid("sessions")
    )


def main():
    for visits in (VISITS, VISITS + LATER):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(500)
        found = sessions(env.from_collection(visits).uid("visits"))
        print(f"{len(visits)} visits:")
        with found.execute_and_collect("web sessions") as results:
            for visitor, start, end, count in sorted(results):
                print(f"  {visitor} from {start} to {end} ms: {count} visits")


if __name__ == "__main__":
    main()
