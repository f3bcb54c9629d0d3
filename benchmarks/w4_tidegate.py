"""W4 on Tidegate: 10,000 records/s with a time stamp, a running count per key, how late each is.

The same work as in peers/: a record's stamp is taken as it is made, and compared with the clock at
the sink; on one machine all processes read the same monotonic clock. The last line printed is the
result.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.workload import (
    MASK,
    MULT,
    PAIR,
    CountingSink,
    CountingWriter,
    environment,
    job_arguments,
    printed,
)
from tidegate import KeyedProcessFunction, Types, ValueStateDescriptor


def main() -> int:
    parser = job_arguments(__doc__ or "", checkpoint_ms=1000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    return printed("w4", lambda folder: measure(args, folder))


def measure(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job, and the latencies of all records that came after its warm-up."""
    keys, count = args.keys, int(args.rate * args.seconds)
    stats = folder / "stats"
    stats.mkdir()
    env = environment(args, folder / "checkpoints")
    env.generate(
        lambda i: ((i * MULT & MASK) % keys, time.monotonic_ns()), count, args.rate, PAIR
    ).key_by(lambda pair: pair[0], key_type=Types.LONG()).process(
        StampCount(), output_type=Types.LONG()
    ).sink_to(CountingSink(str(stats), Latencies))
    env.execute("w4")
    parts = [np.load(path) for path in stats.glob("*.npy")]
    sinks = [json.loads(path.read_text()) for path in stats.glob("*.json")]
    arrived, waited = np.concatenate(parts, axis=1)
    warm_at_ns = arrived.min() + int(args.seconds * args.warmup_frac * 1e9)
    ms = np.sort(waited[arrived >= warm_at_ns]) / 1e6
    found = {f"p{p:g}_ms": round(float(np.percentile(ms, p)), 3) for p in (50, 90, 99, 99.9)}
    return {
        "system": f"tidegate-{args.runtime}",
        "workload": "w4",
        "rate": args.rate,
        "keys": keys,
        "parallelism": args.parallelism,
        "checkpoint_ms": args.checkpoint_ms,
        "seconds": args.seconds,
        "records_per_s": round(count / args.seconds, 1),
        "latencies": len(ms),
        "checkpoints": max(sink["checkpoints"] for sink in sinks),
        **found,
        "max_ms": round(float(ms[-1]), 3),
    }


class StampCount(KeyedProcessFunction):
    """A running count of the record's key; its stamp is passed on."""

    def open(self, runtime_context) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value, ctx):
        self._count.update((self._count.value() or 0) + 1)
        yield value[1]


class Latencies(CountingWriter):
    """Keeps when each record arrived and how long it took, in nanoseconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, verify=True)
        self._arrays = path.with_suffix(".npy")
        self._kept: list[np.ndarray] = [np.empty((2, 0), np.int64)]

    def keep(self, batch) -> None:
        stamps = np.array(batch.values, np.int64)
        self._kept.append(
            np.stack([np.full_like(stamps, self.last_at_ns), self.last_at_ns - stamps])
        )

    def measured(self) -> dict[str, object]:
        np.save(self._arrays, np.concatenate(self._kept, axis=1))
        return {}


if __name__ == "__main__":
    sys.exit(main())
