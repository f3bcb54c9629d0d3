"""Runs the benchmarks and prints what they measured beside what they are compared with.

python -m benchmarks.run [NAME ...] [--rounds N] [--only TEXT] [--scale FACTOR] [--spark]
                         [--queries q0,q5] [--events N]
Exit status 1 where a figure falls short of the floor that its benchmark guards.
"""

import argparse
import sys
from functools import partial

from rich.console import Console

from benchmarks import (
    batch_on_spark,
    changelog,
    checkpoint_loss,
    faults,
    first_program,
    increments,
    links,
    many_keys,
    micro_batches,
    million_keys,
    recovery,
    rocksdb_state,
    savepoint,
    state_read,
    w1,
    w1_rocksdb,
    w2,
    w3,
    w4,
)
from benchmarks.kafka_latency import comparison as kafka_latency
from benchmarks.nexmark import NAMES as QUERIES
from benchmarks.nexmark import comparison as nexmark

BENCHMARKS = {
    "w1": w1.main,
    "w2": w2.W2.main,
    "w3": w3.main,
    "w4": w4.main,
    "checkpoint-loss": checkpoint_loss.main,
    "million-keys": million_keys.main,
    "many-keys": many_keys.main,
    "batch-on-spark": batch_on_spark.main,
    "micro-batches": micro_batches.main,
    "recovery": recovery.main,
    "first-program": first_program.main,
    "kafka-latency": kafka_latency.main,
    "w1-rocksdb": w1_rocksdb.main,
    "rocksdb-state": rocksdb_state.main,
    "changelog": changelog.main,
    "increments": increments.main,
    "savepoint": savepoint.main,
    "state-read": state_read.main,
    "faults": faults.main,
    "links": links.main,
    "nexmark": nexmark.main,
}


def main() -> int:
    """Run those that were named, else all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each")
    parser.add_argument("--only", default="", help="contenders whose name holds this text")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor on numbers of records and times of watching",
    )
    parser.add_argument("--spark", action="store_true", help="faults on Spark too, nexmark there")
    parser.add_argument("--queries", default="", help="nexmark's, such as q0,q5; all by default")
    parser.add_argument("--events", type=int, help="of nexmark, the same for all contenders")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    console = Console(width=110)
    queries = [query for query in args.queries.split(",") if query]
    unknown = sorted(set(queries) - set(QUERIES))
    if unknown:
        parser.error(f"there is no query {unknown[0]!r}; there are {', '.join(QUERIES)}")
    runtime = "spark" if args.spark else "local"
    benchmarks = BENCHMARKS | {
        "faults": partial(faults.main, spark=args.spark),
        "nexmark": partial(nexmark.main, queries=queries, events=args.events, runtime=runtime),
    }
    ok = True
    for name in args.names or benchmarks:
        ok &= benchmarks[name](console, args.rounds, args.only, args.scale)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
