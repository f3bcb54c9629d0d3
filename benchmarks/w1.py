"""W1: running count and sum per key, 10,000 keys, a checkpoint each 500 ms, parallelism 2.

Guards, against Flink on the JVM: records at least 0.5 times its rate, records with declared
aggregates 2 times, Arrow batches 7 times, with declared aggregates 9 times; against the faster of
PyFlink's two process-mode settings: records at least 60 times. On Spark; the local runtime stands
beside it.

Sketch: a record costs a core some 0.8 µs in Python (map 0.1, hash and partition 0.15, pickling
half of the records 0.07, process and state 0.47), so two cores pass about 2.5 M/s. A batch row
costs five passes of 8 bytes over three columns and a radix sort, some 50 ns: about 40 M/s.
"""

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
        "reduce": 8_000_000,
        "declared": 25_000_000,
        "batches": 100_000_000,
        "running": 120_000_000,
        FLINK: 25_000_000,
        PYFLINK: 20_000,
        PYFLINK_20K: 400_000,
    },
    (
        ("records", JVM, 0.5),
        ("declared", JVM, 2.0),
        ("batches", JVM, 7.0),
        ("running", JVM, 9.0),
        ("records", PYTHON, 60.0),
    ),
)
