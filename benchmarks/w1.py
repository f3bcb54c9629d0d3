"""W1: running count and sum per key, 10,000 keys, a checkpoint each 500 ms, parallelism 2.

Guards, against Flink on the JVM: records at least 0.55 times its rate, 0.6 times where a function
returns a list, 2 times with `reduce` and with declared aggregates, Arrow batches 7 times, with
declared aggregates 9 times; against the faster of PyFlink's two process-mode settings: records at
least 60 times. With a million keys, records at least 1.4 times Flink's rate. On Spark; the local
runtime stands beside it. Records of other kinds (text keys, dicts, dataclasses) have no peer:
`pairs.py` holds each against its own cost before.

Sketch: a record costs a core some 0.8 µs in Python (map 0.1, hash and partition 0.15, pickling
half of the records 0.07, process and state 0.47), so two cores pass about 2.5 M/s. A batch row
costs five passes of 8 bytes over three columns and a radix sort, some 50 ns: about 40 M/s.
"""

from rich.console import Console

from benchmarks.comparison import FLINK, JVM, PYFLINK, PYFLINK_20K, PYTHON, Comparison

W1 = Comparison(
    "W1",
    "w1",
    ("--keys", "10000", "--parallelism", "2", "--checkpoint-ms", "500"),
    # A few seconds of measured time each, so that contenders alternate within the machine's modes;
    # the JVM compiles in its first seconds, and a bundle of 20,000 needs ten bundles a worker
    # before its rate means anything.
    {
        "records": 6_000_000,
        "listed": 6_000_000,
        "text": 6_000_000,
        "dicts": 4_000_000,
        "dataclasses": 3_000_000,
        "reduce": 8_000_000,
        "declared": 25_000_000,
        "batches": 100_000_000,
        "running": 120_000_000,
        FLINK: 25_000_000,
        PYFLINK: 8_000,
        PYFLINK_20K: 400_000,
    },
    (
        ("records", JVM, 0.55),
        ("listed", JVM, 0.6),
        ("reduce", JVM, 2.0),
        ("declared", JVM, 2.0),
        ("batches", JVM, 7.0),
        ("running", JVM, 9.0),
        ("records", PYTHON, 60.0),
    ),
)
MANY = Comparison(
    "W1, 1,000,000 keys",
    "w1",
    ("--keys", "1000000", "--parallelism", "2", "--checkpoint-ms", "500"),
    {"records": 6_000_000, FLINK: 6_000_000},
    (("records", JVM, 1.4),),
)


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run both; whether all floors hold."""
    held = [each.main(console, rounds, only, scale) for each in (W1, MANY)]
    return all(held)
