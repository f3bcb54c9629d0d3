"""Late data: a window that has fired fires again for what is a little late; the rest goes aside.

After each record the watermark is the greatest timestamp so far. Windows are 10 ms long and are
kept 5 ms longer; what comes for a window after that is a side output.
"""

from tidegate import (
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkGenerator,
    WatermarkStrategy,
)

EVENTS = [("k", 1), ("k", 12), ("k", 2), ("k", 14), ("k", 3), ("k", 30)]
"""Key and time in milliseconds."""

TOO_LATE = OutputTag("too late")


class EachRecord(WatermarkGenerator):
    """After each record a watermark at its time."""

    def on_event(self, value, timestamp, output):
        output.emit_watermark(timestamp)


class Counted(ProcessWindowFunction):
    """Key, bounds and number of records of a window, each time it fires."""

    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, len(list(elements))


def counts_and_late(events):
    """Two streams: the counts of windows, and the events that came too late.

    events: a stream as EVENTS is.
    """
    each_record = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(
        lambda event, before: event[1]
    )
    counts = (
        events.assign_timestamps_and_watermarks(each_record)
        .set_parallelism(1)
        .key_by(lambda event: event[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(5)
        .side_output_late_data(TOO_LATE)
        .process(Counted())
        .uid("counts")
    )
    return counts, counts.get_side_output(TOO_LATE)


def reports(events):
    """Both in one stream, each record with what it is."""
    counts, late = counts_and_late(events)
    return counts.map(lambda count: ("count", *count)).union(late.map(lambda e: ("late", *e)))


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    with reports(env.from_collection(EVENTS).uid("events")).execute_and_collect("late") as results:
        for report in results:
            match report:
                case "count", key, start, end, count:
                    print(f"{key} from {start} to {end} ms: {count} events")
                case "late", key, time:
                    print(f"{key} at {time} ms came too late")


if __name__ == "__main__":
    main()
