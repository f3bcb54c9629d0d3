"""W2 on Tidegate: sum per key and window of 10 s, disordered by up to 1 s, to a sink that counts.

The same work as in peers/: record i = 0..N-1 has event time i ms, key (i * 2654435761 mod 2^32)
mod K and value i, and the records come shuffled in blocks of 1000. Time is taken from when a source
has passed on a tenth of its share to the last output, and the last line printed is the result.
"""

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.w1_tidegate import MASK, MULT, PAIR, PEERS, TRIPLE, environment
from tidegate import (
    AggregateFunction,
    Duration,
    MapFunction,
    StreamExecutionEnvironment,
    Sum,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.api.sink import Prepared
from tidegate.connectors import NumberSequenceSource
from tidegate.model.elements import RowBatch

BLOCK, SHUF_A, SHUF_B = 1000, 617, 331
WITHIN = (np.arange(BLOCK) * SHUF_A + SHUF_B) % BLOCK
PLACES = WITHIN.tolist()
KEYED = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def main() -> int:
    """Run once and print the result line; 1 where --verify finds a difference."""
    args = arguments()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-w2-"))
    try:
        result = run(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    return 0 if result.get("verified", True) else 1


def arguments() -> argparse.Namespace:
    """Named as those of the peers' scripts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", choices=["spark", "local"], default="local")
    parser.add_argument("--api", choices=["records", "batches"], default="batches")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--checkpoint-ms", type=int, default=1000, help="0: no checkpoints")
    parser.add_argument("--warmup-frac", type=float, default=0.1)
    parser.add_argument("--verify", action="store_true", help="compare with plain Python")
    return parser.parse_args()


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job from start to end; the result as the peers report theirs."""
    unit = BLOCK * args.parallelism
    records = math.ceil(args.records / unit) * unit
    stats = folder / "stats"
    stats.mkdir()
    env = environment(args, folder / "checkpoints")
    {"records": record_job, "batches": batch_job}[args.api](env, records, args, stats)
    began = time.monotonic()
    env.execute(f"w2 {args.api}")
    total_s = time.monotonic() - began
    sources = [json.loads(path.read_text()) for path in stats.glob("source-*.json")]
    shares = [json.loads(path.read_text()) for path in stats.glob("sink-*.json")]
    start_ns = min(source["warm_at_ns"] for source in sources)
    seconds = (max(share["last_at_ns"] for share in shares) - start_ns) / 1e9
    counted = sum(source["counted"] for source in sources)
    result: dict[str, object] = {
        "system": f"tidegate-{args.runtime}-{args.api}",
        "workload": "w2",
        "records": records,
        "keys": args.keys,
        "parallelism": args.parallelism,
        "checkpoint_ms": args.checkpoint_ms,
        "seconds": round(seconds, 4),
        "records_counted": counted,
        "records_per_s": round(counted / seconds, 1),
        "checkpoints": max(share["checkpoints"] for share in shares),
        "outputs": sum(share["outputs"] for share in shares),
        "total_s": round(total_s, 3),
    }
    if args.verify:
        result["verified"] = agrees(shares, records, args.keys)
    return result


def batch_job(
    env: StreamExecutionEnvironment, records: int, args: argparse.Namespace, stats: Path
) -> None:
    """Arrow batches all the way, the windows by declarative aggregates."""
    share = records // args.parallelism
    warm = int(share * args.warmup_frac)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    env.from_source(
        NumberSequenceSource(0, records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).map_batches(
        Shuffled(str(stats), share, args.parallelism, args.keys, warm), KEYED
    ).assign_timestamps_and_watermarks(strategy.with_timestamp_assigner("value")).key_by(
        "key"
    ).window(TumblingEventTimeWindows.of(Time.seconds(10))).aggregate_batches(Sum("value")).sink_to(
        CountingSink(str(stats), args.verify)
    )


def record_job(
    env: StreamExecutionEnvironment, records: int, args: argparse.Namespace, stats: Path
) -> None:
    """Record by record: the windows by an aggregate function and a window function."""
    share = records // args.parallelism
    warm = int(share * args.warmup_frac)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    env.from_source(
        NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(
        ShuffledRecord(str(stats), share, args.parallelism, args.keys, warm), PAIR
    ).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[1])
    ).key_by(lambda record: record[0], Types.LONG()).window(
        TumblingEventTimeWindows.of(Time.seconds(10))
    ).aggregate(
        Total(), lambda key, window, totals: [(window.start, key, *totals)], Types.LONG(), TRIPLE
    ).sink_to(CountingSink(str(stats), args.verify))


class Total(AggregateFunction):
    """The sum of the values."""

    def create_accumulator(self) -> int:
        """Nothing yet."""
        return 0

    def add(self, value: tuple[int, int], accumulator: int) -> int:
        """With one more."""
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        """The sum."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """Of two sums."""
        return acc_a + acc_b


class Measured(MapFunction):
    """The records in their order; measures when its share begins to count.

    Number x is the (x mod share)-th of reader x / share: the readers interleave over the stream.
    """

    def __init__(self, folder: str, share: int, readers: int, keys: int, warm: int) -> None:
        self._folder, self._share, self._readers = folder, share, readers
        self._keys, self._warm = keys, warm

    def open(self, runtime_context) -> None:
        """Begin to count."""
        index = runtime_context.get_index_of_this_subtask()
        self._path = Path(self._folder) / f"source-{index}.json"
        self._passed = self._warm_at_ns = self._counted_from = 0

    def close(self) -> None:
        """Leave the measurements."""
        counted = self._passed - self._counted_from
        self._path.write_text(json.dumps({"warm_at_ns": self._warm_at_ns, "counted": counted}))


class ShuffledRecord(Measured):
    """One record at a time."""

    def map(self, number: int) -> tuple[int, int]:
        """The record at a reader's number."""
        self._passed += 1
        if self._passed == self._warm:
            self._warm_at_ns, self._counted_from = time.monotonic_ns(), self._passed
        reader, at = divmod(number, self._share)
        position = at * self._readers + reader
        within = position % BLOCK
        record = position - within + PLACES[within]
        return (record * MULT & MASK) % self._keys, record


class Shuffled(Measured):
    """A batch at a time."""

    def map(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of one reader's numbers, which follow each other."""
        numbers = batch.column(0).to_numpy()
        self._passed += len(numbers)
        if not self._warm_at_ns and self._passed >= self._warm:
            self._warm_at_ns, self._counted_from = time.monotonic_ns(), self._passed
        reader = int(numbers[0]) // self._share
        positions = (numbers - reader * self._share) * self._readers + reader
        blocks = positions // BLOCK * BLOCK
        records = blocks + WITHIN.take(positions - blocks)
        hashed = records.astype(np.uint32) * np.uint32(MULT)
        # NumPy divides by a scalar some eight times faster than its % takes the remainder.
        hashed -= hashed // np.uint32(self._keys) * np.uint32(self._keys)
        return pa.record_batch([pa.array(hashed.astype(np.int64)), pa.array(records)], KEYED)


class CountingSink:
    """Counts and discards; each writer leaves what it measured in a file."""

    def __init__(self, folder: str, verify: bool) -> None:
        self._folder, self._verify = folder, verify

    def writer(self, context, restored: Sequence[bytes]) -> "CountingWriter":
        """A subtask's writer."""
        return CountingWriter(Path(self._folder) / f"sink-{context.subtask}.json", self._verify)

    def committer(self) -> None:
        """Nothing is kept, so nothing is committed."""


class CountingWriter:
    """One subtask's share of the sink."""

    def __init__(self, path: Path, verify: bool) -> None:
        self._path, self._verify = path, verify
        self._outputs = self._last_at_ns = self._snapshots = 0
        self._final: list[list[int]] = []

    def write(self, batch) -> None:
        """Count a batch."""
        self._outputs += len(batch)
        self._last_at_ns = time.monotonic_ns()
        if self._verify:
            if isinstance(batch, RowBatch):
                self._final += [list(row) for row in batch.values]
                return
            rows = batch.batch.to_pylist()
            self._final += [[row["window_start"], row["key"], row["value_sum"]] for row in rows]

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        """Nothing to commit; counts the checkpoints."""
        self._snapshots += 1
        return Prepared()

    def snapshot(self, checkpoint) -> Sequence[bytes]:
        """No state: the job is not restored."""
        return []

    def close(self) -> None:
        """Leave the measurements."""
        measured = {
            "outputs": self._outputs,
            "last_at_ns": self._last_at_ns,
            "checkpoints": self._snapshots,
            "final": self._final,
        }
        self._path.write_text(json.dumps(measured))


def agrees(shares: list[dict], records: int, keys: int) -> bool:
    """Whether the outputs are those of plain Python, by the peers' own definitions."""
    sys.path.insert(0, str(PEERS))
    import peerlib

    rows = [tuple(row) for share in shares for row in share["final"]]
    wrong = peerlib.verify_rows("w2", records, keys, rows)
    if wrong:
        print("WRONG:", wrong, file=sys.stderr)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
