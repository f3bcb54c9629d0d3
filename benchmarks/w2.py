"""W2: sum per key and window of 10 s, 1,000 keys, disordered by up to 1 s, parallelism 2.

Guards, against Flink on the JVM: declarative aggregates of Arrow batches at least 7 times its rate,
windows record by record at least 0.42 times, with a traced function 1.5 times; against the faster
of PyFlink's two process-mode settings: records at least 30 times. On Spark; the local runtime
stands beside it.

Sketch: a batch row costs as much as in W1 up to the window (some 45 ns: making, hashing, parting);
there 5 ns to find its key, 15 ns to sort its batch by window, 5 ns to add it; a tenth of the rows
come out. So two cores pass about 25 M/s.
"""

from benchmarks.comparison import FLINK, JVM, PYFLINK, PYFLINK_20K, PYTHON, Comparison

W2 = Comparison(
    "W2",
    "w2",
    ("--keys", "1000", "--parallelism", "2", "--checkpoint-ms", "1000"),
    # A few seconds of measured time each, so that contenders alternate within the machine's modes.
    {
        "records": 5_000_000,
        "traced": 15_000_000,
        "batches": 80_000_000,
        FLINK: 25_000_000,
        PYFLINK: 30_000,
        PYFLINK_20K: 400_000,
    },
    (
        ("records", JVM, 0.42),
        ("traced", JVM, 1.5),
        ("batches", JVM, 7.0),
        ("records", PYTHON, 30.0),
    ),
)
