"""W1 on Tidegate: running count and sum per key, an output per record, to a sink that counts.

The same work as in peers/: numbers i = 0..N-1, key = (i * 2654435761 mod 2^32) mod K, value = i.
Time is taken at the sink, from the end of its warm-up (a tenth of its share) to the last output,
and the last line printed is the result. Run as a program of its own, so that nothing is left over
from the run before.
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

from tidegate import (
    ColumnStateDescriptor,
    Configuration,
    KeyedBatchFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.api.sink import Prepared
from tidegate.connectors import NumberSequenceSource

PEERS = Path(__file__).resolve().parent / "peers" / "common"
MULT, MASK = 2654435761, 0xFFFFFFFF
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
KEYED = pa.schema([("key", pa.int64()), ("value", pa.int64())])
COUNTED = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("sum", pa.int64())])


def main() -> int:
    """Run once and print the result line; 1 where --verify finds a difference."""
    args = arguments()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-w1-"))
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
    parser.add_argument("--api", choices=["records", "reduce", "batches"], default="records")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--checkpoint-ms", type=int, default=500, help="0: no checkpoints")
    parser.add_argument("--warmup-frac", type=float, default=0.1)
    parser.add_argument("--verify", action="store_true", help="compare with plain Python")
    return parser.parse_args()


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job from start to end; the result as the peers report theirs."""
    unit = 1000 * args.parallelism
    records = math.ceil(args.records / unit) * unit
    warm = int(records // args.parallelism * args.warmup_frac)
    stats = folder / "stats"
    stats.mkdir()
    env = environment(args, folder / "checkpoints")
    sink = CountingSink(str(stats), warm, args.verify)
    build = {"records": record_job, "reduce": reduce_job, "batches": batch_job}[args.api]
    build(env, records, args.keys, sink)
    began = time.monotonic()
    env.execute(f"w1 {args.api}")
    total_s = time.monotonic() - began
    shares = [json.loads(path.read_text()) for path in stats.glob("*.json")]
    start_ns = min(share["warm_at_ns"] for share in shares if share["warm_at_ns"])
    seconds = (max(share["last_at_ns"] for share in shares) - start_ns) / 1e9
    counted = sum(share["counted"] for share in shares)
    result: dict[str, object] = {
        "system": f"tidegate-{args.runtime}-{args.api}",
        "workload": "w1",
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


def environment(args: argparse.Namespace, checkpoints: Path) -> StreamExecutionEnvironment:
    """The environment of the chosen runtime, in a session of its own where that is Spark."""
    if args.runtime == "spark":
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master(f"local[{args.parallelism}]")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        env = StreamExecutionEnvironment.on_spark(session)
    else:
        env = StreamExecutionEnvironment.local()
    env.set_parallelism(args.parallelism)
    if args.checkpoint_ms:
        env.enable_checkpointing(args.checkpoint_ms)
        folder = Configuration().set_string("execution.checkpointing.dir", str(checkpoints))
        folder.set_string("restart-strategy.type", "none")
        env.configure(folder)
    return env


def record_job(
    env: StreamExecutionEnvironment, records: int, keys: int, sink: "CountingSink"
) -> None:
    """The program as it is written for PyFlink."""
    env.from_sequence(0, records - 1).map(
        lambda i: ((i * MULT & MASK) % keys, i), output_type=PAIR
    ).key_by(lambda pair: pair[0], key_type=Types.LONG()).process(
        RunningCount(), output_type=TRIPLE
    ).sink_to(sink)


class RunningCount(KeyedProcessFunction):
    """Count and sum so far of the record's key."""

    def open(self, runtime_context) -> None:
        """Ask for the state."""
        self.acc = runtime_context.get_state(ValueStateDescriptor("acc", PAIR))

    def process_element(self, value, ctx):
        """One output a record."""
        acc = self.acc.value()
        if acc is None:
            count, total = 1, value[1]
        else:
            count, total = acc[0] + 1, acc[1] + value[1]
        self.acc.update((count, total))
        yield value[0], count, total


def reduce_job(
    env: StreamExecutionEnvironment, records: int, keys: int, sink: "CountingSink"
) -> None:
    """The same with the state in the engine's hands."""
    env.from_sequence(0, records - 1).map(
        lambda i: ((i * MULT & MASK) % keys, 1, i), output_type=TRIPLE
    ).key_by(lambda row: row[0], key_type=Types.LONG()).reduce(
        lambda old, new: (old[0], old[1] + new[1], old[2] + new[2])
    ).sink_to(sink)


def batch_job(
    env: StreamExecutionEnvironment, records: int, keys: int, sink: "CountingSink"
) -> None:
    """The same on Arrow batches."""

    def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column(0).to_numpy()
        hashed = numbers.astype(np.uint32) * np.uint32(MULT)
        # NumPy divides by a scalar some eight times faster than its % takes the remainder.
        hashed -= hashed // np.uint32(keys) * np.uint32(keys)
        return pa.record_batch([pa.array(hashed.astype(np.int64)), batch.column(0)], KEYED)

    numbers = env.from_source(
        NumberSequenceSource(0, records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    numbers.map_batches(keyed, KEYED).key_by("key").process_batches(
        RunningCountOfBatches(), COUNTED
    ).sink_to(sink)


class RunningCountOfBatches(KeyedBatchFunction):
    """Count and sum so far, vectorised: the rows of a batch come out grouped by key."""

    def process_batch(self, batch: pa.RecordBatch, ctx) -> pa.RecordBatch:
        """One output a record; in a key the order is that of the input."""
        counts = ctx.column_state(ColumnStateDescriptor("count", pa.int64()))
        sums = ctx.column_state(ColumnStateDescriptor("sum", pa.int64()))
        index = ctx.key_index
        # NumPy sorts 16-bit numbers by radix, several times faster than wider ones.
        narrow = index.astype(np.uint16) if ctx.keys_total <= 1 << 16 else index
        order = np.argsort(narrow, kind="stable")
        index = index[order]
        firsts = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
        lengths = np.diff(np.append(firsts, len(index)))
        seen = index[firsts]
        values = batch.column(1).to_numpy()[order]
        totals = np.cumsum(values)
        before = totals[firsts] - values[firsts]
        count = np.arange(1, len(index) + 1) + np.repeat(counts.get(seen) - firsts, lengths)
        total = totals + np.repeat(sums.get(seen) - before, lengths)
        lasts = firsts + lengths - 1
        counts.put(seen, count[lasts])
        sums.put(seen, total[lasts])
        key = batch.column(0).to_numpy()[order]
        return pa.record_batch([pa.array(key), pa.array(count), pa.array(total)], COUNTED)


class CountingSink:
    """Counts and discards; each writer leaves what it measured in a file."""

    def __init__(self, folder: str, warm: int, verify: bool) -> None:
        self._folder, self._warm, self._verify = folder, warm, verify

    def writer(self, context, restored: Sequence[bytes]) -> "CountingWriter":
        """A subtask's writer."""
        return CountingWriter(
            Path(self._folder) / f"{context.subtask}.json", self._warm, self._verify
        )

    def committer(self) -> None:
        """Nothing is kept, so nothing is committed."""


class CountingWriter:
    """One subtask's share of the sink."""

    def __init__(self, path: Path, warm: int, verify: bool) -> None:
        self._path, self._warm, self._verify = path, warm, verify
        self._outputs = self._counted_from = 0
        self._warm_at_ns = self._last_at_ns = 0
        self._snapshots = 0
        self._checksum = 0
        self._final: dict[int, tuple[int, int]] = {}

    def write(self, batch) -> None:
        """Count a batch."""
        self._outputs += len(batch)
        self._last_at_ns = time.monotonic_ns()
        if not self._warm_at_ns and self._outputs >= self._warm:
            self._warm_at_ns, self._counted_from = self._last_at_ns, self._outputs
        if self._verify:
            self._keep(batch)

    def _keep(self, batch) -> None:
        if isinstance(getattr(batch, "batch", None), pa.RecordBatch):
            rows = zip(*(column.to_pylist() for column in batch.batch.columns), strict=True)
        else:
            rows = batch.values
        for key, count, total in rows:
            self._checksum += count
            if count > self._final.get(key, (0, 0))[0]:
                self._final[key] = (count, total)

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
            "counted": self._outputs - self._counted_from,
            "warm_at_ns": self._warm_at_ns,
            "last_at_ns": self._last_at_ns,
            "checkpoints": self._snapshots,
            "checksum": self._checksum,
            "final": [[key, *state] for key, state in self._final.items()],
        }
        self._path.write_text(json.dumps(measured))


def agrees(shares: list[dict], records: int, keys: int) -> bool:
    """Whether the outputs are those of plain Python, by the peers' own definitions."""
    sys.path.insert(0, str(PEERS))
    import peerlib

    rows = [tuple(row) for share in shares for row in share["final"]]
    wrong = peerlib.verify_rows("w1", records, keys, rows)
    checksum = sum(share["checksum"] for share in shares)
    if not wrong and checksum != peerlib.checksum_w1(records, keys):
        wrong = "checksum of the emitted counts"
    if wrong:
        print("WRONG:", wrong, file=sys.stderr)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
