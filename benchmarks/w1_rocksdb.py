"""W1 on RocksDB, records: at 10,000 keys, which the write-back cache holds, and at a million.

Guards, against Flink on the JVM with RocksDB: at least 1.5 times its rate at 10,000 keys, at least
half of it at a million; against PyFlink's process mode on RocksDB, at least 20 times. On Spark; the
local runtime stands beside it.

Sketch: at 10,000 keys a record costs what it costs on HashMap, 1 µs a core; at a million it adds
reading 2 to 3 µs, writing 0.5 µs and 1 µs of bytes, so two cores pass some 400 k/s.
"""

from rich.console import Console

from benchmarks.comparison import FLINK, JVM, PYFLINK, PYFLINK_20K, PYTHON, Comparison

SHAPE = ("--parallelism", "2", "--checkpoint-ms", "1000", "--backend", "rocksdb")
FEW = Comparison(
    "W1 on RocksDB, 10,000 keys",
    "w1",
    ("--keys", "10000", *SHAPE),
    {"records": 15_000_000, FLINK: 6_000_000, PYFLINK: 20_000, PYFLINK_20K: 300_000},
    (("records", JVM, 1.5), ("records", PYTHON, 20.0)),
)
MANY = Comparison(
    "W1 on RocksDB, 1,000,000 keys",
    "w1",
    ("--keys", "1000000", *SHAPE),
    {"records": 6_000_000, FLINK: 6_000_000},
    (("records", JVM, 0.5),),
)


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run both; whether all floors hold."""
    held = [each.main(console, rounds, only, scale) for each in (FEW, MANY)]
    return all(held)
