"""Running count and sum per key over a million keys, all in state before time is taken.

The numbers 0 to K-1 are the keys once each; every later number i has the key (i * 2654435761 mod
2^32) mod H: H = K rewrites all keys, H = K / 100 one in a hundred. Time is taken at the sink from
the end of the loading on; so is the longest time between two of its batches. The synchronous parts
are those that the checkpoints' statistics have. Run as a program of its own.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.w1_tidegate import COUNTED, RunningCount, RunningCountOfBatches
from benchmarks.workload import KEYED, MASK, MULT, PAIR, TRIPLE, environment
from tidegate import Configuration, Types, ValueStateDescriptor, WatermarkStrategy
from tidegate.api.sink import Prepared
from tidegate.connectors import NumberSequenceSource


def main() -> int:
    """Run once and print the result line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", choices=["records", "batches"], default="records")
    parser.add_argument("--records", type=int, default=6_000_000, help="beside those that load")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--hot", type=int, default=0, help="keys that are rewritten; 0: all")
    parser.add_argument("--settle", type=int, default=0, help="records before time is taken")
    parser.add_argument("--incremental", action="store_true")
    parser.add_argument("--untyped", action="store_true", help="state without a declared type")
    parser.add_argument("--checkpoint-ms", type=int, default=1_000, help="0: no checkpoints")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.set_defaults(backend="hashmap", links="auto")
    args = parser.parse_args()
    args.runtime = "local"
    folder = Path(tempfile.mkdtemp(prefix="tidegate-keys-"))
    try:
        print(json.dumps(run(args, folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job from start to end."""
    stats = folder / "stats"
    stats.mkdir()
    env = environment(args, folder / "checkpoints")
    settings = Configuration().set_string("web.checkpoints.history", "1000")
    if args.incremental:
        settings.set_string("execution.checkpointing.incremental", "true")
    env.configure(settings)
    sink = GapSink(str(stats), (args.keys * 11 // 10 + args.settle) // args.parallelism)
    (batch_job if args.api == "batches" else record_job)(env, args, sink)
    client = env.execute_async(f"million keys {args.api}")
    client.get_job_execution_result().result(timeout=600)
    parts = [
        subtask.sync_ms
        for checkpoint in client.view().checkpoints.history
        for vertex in checkpoint.vertices
        for subtask in vertex.acknowledged
    ]
    shares = [json.loads(path.read_text()) for path in stats.glob("*.json")]
    began = min(share["warm_at_ns"] for share in shares)
    seconds = (max(share["last_at_ns"] for share in shares) - began) / 1e9
    counted = sum(share["counted"] for share in shares)
    return {
        "system": "tidegate-local",
        "records_per_s": round(counted / seconds, 1),
        "seconds": round(seconds, 3),
        "gap_ms": round(max(share["gap_ns"] for share in shares) / 1e6, 1),
        "checkpoints": len(client.view().checkpoints.history),
        "sync_ms": statistics.median(parts) if parts else 0,
        "sync_ms_max": max(parts, default=0),
    }


def record_job(env, args: argparse.Namespace, sink: "GapSink") -> None:
    keys, hot = args.keys, args.hot or args.keys
    numbers = env.from_sequence(0, keys + args.records - 1).map(
        lambda i: (i if i < keys else (i * MULT & MASK) % hot, i), output_type=PAIR
    )
    count = UntypedCount() if args.untyped else RunningCount()
    keyed = numbers.key_by(lambda pair: pair[0], key_type=Types.LONG())
    keyed.process(count, output_type=TRIPLE).sink_to(sink)


class UntypedCount(RunningCount):
    """Counts like the typed function, with pickled state."""

    def open(self, runtime_context) -> None:
        self.acc = runtime_context.get_state(ValueStateDescriptor("acc"))


def batch_job(env, args: argparse.Namespace, sink: "GapSink") -> None:
    keys, hot = args.keys, args.hot or args.keys

    def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column(0).to_numpy()
        hashed = numbers.astype(np.uint32) * np.uint32(MULT)
        hashed -= hashed // np.uint32(hot) * np.uint32(hot)
        key = np.where(numbers < keys, numbers, hashed.astype(np.int64))
        return pa.record_batch([pa.array(key), batch.column(0)], KEYED)

    numbers = env.from_source(
        NumberSequenceSource(0, keys + args.records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    numbers.map_batches(keyed, KEYED).key_by("key").process_batches(
        RunningCountOfBatches(), COUNTED
    ).sink_to(sink)


class GapSink:
    """Counts and discards, and notes the longest time between two batches."""

    def __init__(self, folder: str, warm: int) -> None:
        self._folder, self._warm = folder, warm

    def writer(self, context, restored: Sequence[bytes]) -> "GapWriter":
        return GapWriter(Path(self._folder) / f"{context.subtask}.json", self._warm)

    def committer(self) -> None:
        """Nothing is kept, so nothing is committed."""


class GapWriter:
    """One subtask's share of the sink."""

    def __init__(self, path: Path, warm: int) -> None:
        self._path, self._warm = path, warm
        self._outputs = self._warm_at_ns = self._last_at_ns = self._gap_ns = 0
        self._counted_from = 0

    def write(self, batch) -> None:
        now = time.monotonic_ns()
        self._outputs += len(batch)
        if self._warm_at_ns:
            self._gap_ns = max(self._gap_ns, now - self._last_at_ns)
        elif self._outputs >= self._warm:
            self._warm_at_ns, self._counted_from = now, self._outputs
        self._last_at_ns = now

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint) -> Sequence[bytes]:
        """No state: the job is not restored."""
        return []

    def close(self) -> None:
        """Leave the measurements."""
        measured = {
            "counted": self._outputs - self._counted_from,
            "warm_at_ns": self._warm_at_ns,
            "last_at_ns": self._last_at_ns,
            "gap_ns": self._gap_ns,
        }
        self._path.write_text(json.dumps(measured))


if __name__ == "__main__":
    sys.exit(main())
