"""A job that fails three times, and writes each row once all the same.

Running sums go to files while a step breaks at 50, at 120 and at 200, once each. The job may
restart three times; with ``--attempts 2`` it fails with the third error, and what is committed by
then is the beginning of each key's sums.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tidegate import Configuration, JobFailed, MapFunction, StreamExecutionEnvironment, Types
from tidegate.connectors import FileSink

NUMBERS = 300
KEYS = 11
BREAKS_AT = [50, 120, 200]
"""At which number the first attempt breaks, the second, and the third."""


class Fragile(MapFunction):
    """Makes a pair of each number, for a sum to begin with, and breaks at one of them."""

    def open(self, runtime_context):
        attempt = runtime_context.get_attempt_number()
        self.breaks_at = BREAKS_AT[attempt] if attempt < len(BREAKS_AT) else None

    def map(self, value):
        if value == self.breaks_at:
            raise ValueError(f"broken at {value}")
        return value, value


def settings(attempts):
    """A restart 100 ms after a failure, so many times."""
    return Configuration.from_dict(
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": attempts,
            "restart-strategy.fixed-delay.delay": "100 ms",
        }
    )


def sums_to_files(env, folder, rate=100.0):
    """A row for each number from 1 on: it, and the sum of its key so far."""
    env.enable_checkpointing(300)
    numbers = env.generate(lambda n: n + 1, NUMBERS, rate, Types.LONG()).set_parallelism(1)
    sums = (
        numbers.uid("numbers")
        .map(Fragile())
        .set_parallelism(1)
        .key_by(lambda pair: pair[0] % KEYS, Types.LONG())
        .reduce(lambda sum_before, pair: (pair[0], sum_before[1] + pair[1]))
        .uid("sums")
    )
    sums.sink_to(FileSink.json(str(folder))).uid("files")


def committed(folder):
    """The rows of all files that are not hidden."""
    files = sorted(folder.glob("[!.]*"))
    return [tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=3, help="how often the job may restart")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = StreamExecutionEnvironment.get_execution_environment(settings(arguments.attempts))
        sums_to_files(env, Path(folder))
        try:
            env.execute("crash loop")
        except JobFailed as error:
            print(error)
        rows = committed(Path(folder))
        print(f"{len(rows)} rows, {len(set(rows))} of them different")
        for key in range(KEYS):
            print(key, max((row for row in rows if row[0] % KEYS == key), default=None))


if __name__ == "__main__":
    main()
