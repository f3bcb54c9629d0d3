"""Backfill, then live: sales of the past from files, those of today from a stream, in one job.

History ends where the live stream begins, at MIDDAY. It gives no watermarks before its end, so
event time stands still until all of it has been read, then goes on with the live stream; the
window that MIDDAY falls into has sales of both.
"""

import json
import tempfile
from pathlib import Path

from tidegate import (
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowFunction,
)
from tidegate.connectors import FileSource

MIDDAY = 12 * 3_600_000
STEP_MS = 7_000
SHOPS = ["north", "south", "west"]
HISTORY, LIVE = 2_000, 1_000
"""Numbers of sales before MIDDAY and from then on."""


def sale(number):
    """The sales of a day; number 0 is the first one at or after MIDDAY."""
    return {
        "shop": SHOPS[number % len(SHOPS)],
        "cents": number * number % 997,
        "time": MIDDAY + number * STEP_MS,
    }


class WithBounds(WindowFunction):
    """A shop's sum in a window, with the window's start."""

    def apply(self, key, window, inputs):
        for total in inputs:
            yield key, window.start, total["cents"]


def totals_by_hour(history, live):
    """Each shop's sum an hour, from two streams of sales."""
    by_time = WatermarkStrategy.no_watermarks().with_timestamp_assigner("time")
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    past = history.assign_timestamps_and_watermarks(by_time)
    present = live.assign_timestamps_and_watermarks(in_order).set_parallelism(1)
    return (
        past.union(present)
        .key_by("shop")
        .window(TumblingEventTimeWindows.of(Time.hours(1), Time.minutes(30)))
        .reduce(lambda one, other: {**one, "cents": one["cents"] + other["cents"]}, WithBounds())
        .uid("totals")
    )


def write_history(folder, files=5):
    """The sales before MIDDAY, in files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        with (folder / f"history-{file}.jsonl").open("w") as output:
            for number in range(file - HISTORY, 0, files):
                print(json.dumps(sale(number)), file=output)


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    with tempfile.TemporaryDirectory() as folder:
        write_history(Path(folder))
        history = env.from_source(FileSource.json(folder), None, "history").uid("history")
        live = env.generate(sale, LIVE, rate=1_000).set_parallelism(1).uid("live")
        with totals_by_hour(history, live).execute_and_collect("backfill") as results:
            for shop, start, cents in sorted(results, key=lambda row: (row[1], row[0])):
                clock = f"{start // 3_600_000:02}:{start // 60_000 % 60:02}"
                print(f"{clock} {shop}: {cents} cents")


if __name__ == "__main__":
    main()
