"""Shared by the programs of W1 and W2: arguments, environment, a sink that counts, the result.

A subtask leaves what it has measured in a file: the sink's how much came and when the last of it,
whoever warms up when that was and how much was counted from there on.
"""

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate import Configuration, StreamExecutionEnvironment, Types
from tidegate.api.sink import Prepared

PEERS = Path(__file__).resolve().parent / "peers" / "common"
MULT, MASK = 2654435761, 0xFFFFFFFF
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
TEXT_PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
TEXT_TRIPLE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
KEYED = pa.schema([("key", pa.int64()), ("value", pa.int64())])
BLOCK = 1000
"""A reader has a multiple of so many records."""


@dataclass
class Numbered:
    """A record of W1 as a dataclass."""

    key: int
    value: int


@dataclass
class Counted:
    """A result of W1 as a dataclass."""

    key: int
    count: int
    total: int


@dataclass(frozen=True)
class Run:
    """Settings of a program. warm: number of records with which a subtask warms up."""

    args: argparse.Namespace
    records: int
    warm: int
    stats: str


Build = Callable[[StreamExecutionEnvironment, Run], None]


@dataclass(frozen=True)
class Workload:
    """One workload. programs: by the name of their API, the default one first."""

    name: str
    description: str
    programs: dict[str, Build]
    keys: int
    checkpoint_ms: int

    def main(self) -> int:
        args = self.arguments()
        return printed(self.name, lambda folder: self.run(args, folder))

    def arguments(self) -> argparse.Namespace:
        """Named as those of the peers' scripts."""
        apis = list(self.programs)
        parser = job_arguments(self.description, self.checkpoint_ms)
        parser.add_argument("--api", choices=apis, default=apis[0])
        parser.add_argument("--records", type=int, default=2_000_000)
        parser.add_argument("--keys", type=int, default=self.keys)
        parser.add_argument("--verify", action="store_true", help="compare with plain Python")
        return parser.parse_args()

    def run(self, args: argparse.Namespace, folder: Path) -> dict[str, object]:
        """One job from start to end; the result as the peers report theirs."""
        unit = BLOCK * args.parallelism
        records = math.ceil(args.records / unit) * unit
        warm = int(records // args.parallelism * args.warmup_frac)
        stats = folder / "stats"
        stats.mkdir()
        env = environment(args, folder / "checkpoints")
        self.programs[args.api](env, Run(args, records, warm, str(stats)))
        began = time.monotonic()
        env.execute(f"{self.name} {args.api}")
        total_s = time.monotonic() - began
        measured = [json.loads(path.read_text()) for path in stats.glob("*.json")]
        warmed = [each for each in measured if "counted" in each]
        sinks = [each for each in measured if "outputs" in each]
        start_ns = min(each["warm_at_ns"] for each in warmed if each["warm_at_ns"])
        seconds = (max(sink["last_at_ns"] for sink in sinks) - start_ns) / 1e9
        counted = sum(each["counted"] for each in warmed)
        # The sinks of one slot close one after another, and each gives what all of it has taken.
        slots: dict[int, float] = {}
        for sink in sinks:
            slots[sink["pid"]] = max(sink["processor_s"], slots.get(sink["pid"], 0.0))
        result: dict[str, object] = {
            "system": f"tidegate-{args.runtime}-{args.api}",
            "workload": self.name,
            "records": records,
            "keys": args.keys,
            "parallelism": args.parallelism,
            "checkpoint_ms": args.checkpoint_ms,
            "seconds": round(seconds, 4),
            "records_counted": counted,
            "records_per_s": round(counted / seconds, 1),
            "processor_ns": round(processor_ns(measured) / counted, 1),
            "checkpoints": max(sink["checkpoints"] for sink in sinks),
            "outputs": sum(sink["outputs"] for sink in sinks),
            "total_s": round(total_s, 3),
            "processor_s": round(sum(slots.values()) + time.process_time(), 3),
        }
        if args.verify:
            result["verified"] = self.agrees(sinks, records, args.keys)
        return result

    def agrees(self, sinks: list[dict], records: int, keys: int) -> bool:
        sys.path.insert(0, str(PEERS))
        import peerlib

        rows = [tuple(row) for sink in sinks for row in sink["final"]]
        wrong = peerlib.verify_rows(self.name, records, keys, rows)
        checksum = sum(sink.get("checksum", 0) for sink in sinks)
        if not wrong and self.name == "w1" and checksum != peerlib.checksum_w1(records, keys):
            wrong = "checksum of the emitted counts"
        if wrong:
            print("WRONG:", wrong, file=sys.stderr)
        return not wrong


def printed(name: str, run: Callable[[Path], dict[str, object]]) -> int:
    """Run in an empty folder and print the result line; 1 where --verify finds a difference."""
    folder = Path(tempfile.mkdtemp(prefix=f"tidegate-{name}-"))
    try:
        result = run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    return 0 if result.get("verified", True) else 1


def job_arguments(description: str, checkpoint_ms: int) -> argparse.ArgumentParser:
    """The arguments of each workload, for `environment`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runtime", choices=["spark", "local"], default="local")
    parser.add_argument("--backend", choices=["hashmap", "rocksdb"], default="hashmap")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument(
        "--checkpoint-ms", type=int, default=checkpoint_ms, help="0: no checkpoints"
    )
    parser.add_argument("--warmup-frac", type=float, default=0.1)
    parser.add_argument("--links", choices=["auto", "on", "off"], default="auto")
    return parser


def processor_ns(measured: Sequence[dict]) -> int:
    """Processor time of all slots from the end of their warm-up to their last output."""
    total = 0
    for pid in {each["pid"] for each in measured if each.get("last_at_ns")}:
        here = [each for each in measured if each["pid"] == pid]
        warm_ns = [each["warm_processor_ns"] for each in here if each.get("warm_at_ns")]
        if warm_ns:
            total += max(each.get("last_processor_ns", 0) for each in here) - min(warm_ns)
    return total


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
    settings = Configuration().set_string("state.backend.type", args.backend)
    settings.set_string("tidegate.security.internal", args.links)
    if args.checkpoint_ms:
        env.enable_checkpointing(args.checkpoint_ms)
        settings.set_string("execution.checkpointing.dir", str(checkpoints))
        settings.set_string("restart-strategy.type", "none")
    env.configure(settings)
    return env


def keyed(values: np.ndarray, keys: int) -> pa.RecordBatch:
    """Values with their keys."""
    hashed = values.astype(np.uint32) * np.uint32(MULT)
    # NumPy divides by a scalar some eight times faster than its % takes the remainder.
    hashed -= hashed // np.uint32(keys) * np.uint32(keys)
    return pa.record_batch([pa.array(hashed.astype(np.int64)), pa.array(values)], KEYED)


@dataclass(frozen=True)
class CountingSink:
    """Counts and discards. make: a subtask's writer, by the file for what it has measured."""

    folder: str
    make: "Callable[[Path], CountingWriter]"

    def writer(self, context, restored: Sequence[bytes]) -> "CountingWriter":
        return self.make(Path(self.folder) / f"sink-{context.subtask}.json")

    def committer(self) -> None:
        """Nothing is kept, so nothing is committed."""


class CountingWriter:
    """One subtask's share of the sink; ``keep`` gathers what --verify compares."""

    def __init__(self, path: Path, verify: bool) -> None:
        self._path, self._verify = path, verify
        self.outputs = self.last_at_ns = self._last_processor_ns = self._snapshots = 0

    def write(self, batch) -> None:
        self.outputs += len(batch)
        self.last_at_ns, self._last_processor_ns = time.monotonic_ns(), time.process_time_ns()
        if self._verify:
            self.keep(batch)

    def keep(self, batch) -> None:
        raise NotImplementedError

    def measured(self) -> dict[str, object]:
        raise NotImplementedError

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        """Nothing to commit; counts the checkpoints."""
        self._snapshots += 1
        return Prepared()

    def snapshot(self, checkpoint) -> Sequence[bytes]:
        """No state: the job is not restored."""
        return []

    def close(self) -> None:
        """Leave the measurements."""
        counts = {
            "outputs": self.outputs,
            "last_at_ns": self.last_at_ns,
            "last_processor_ns": self._last_processor_ns,
            "checkpoints": self._snapshots,
            "pid": os.getpid(),
            "processor_s": time.process_time(),
        }
        self._path.write_text(json.dumps(counts | self.measured()))
