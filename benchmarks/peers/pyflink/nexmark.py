#!/usr/bin/env python3
"""Queries of Nexmark on PyFlink, as benchmarks/nexmark/queries has them; the events come from Java.

Run with the interpreter of the environment that setup.sh made; --query q0, or q0,q5 for one after another. The settings are the quicker ones: bundles of
20,000 records and a state cache that holds all keys (Flink's own: 100,000 a bundle but 1 s, and 1000 keys).
"""
import os
import pickle
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "common"))
sys.path.insert(0, ROOT)
import peerlib  # noqa: E402

BASE_MS = 1_436_918_400_000

ap = peerlib.parser(["nexmark"], workload="nexmark", records=200_000)
ap.add_argument("--query", required=True)
ap.add_argument("--bundle-size", type=int, default=20_000)
ap.add_argument("--state-cache", type=int, default=1_000_000)
a = ap.parse_args()
out = peerlib.fresh_dir(a.out)

os.environ["_python_worker_execution_mode"] = "process"
os.environ["FLINK_LOG_DIR"] = out
PATHS = [os.path.abspath(ROOT), sysconfig.get_paths()["purelib"]]
os.environ["PYTHONPATH"] = os.pathsep.join(PATHS)

import pyflink.version  # noqa: E402
from pyflink.common import Configuration, Types, WatermarkStrategy  # noqa: E402
from pyflink.datastream import CheckpointingMode, StreamExecutionEnvironment  # noqa: E402
from pyflink.datastream.connectors.base import Sink, Source  # noqa: E402
from pyflink.java_gateway import get_gateway  # noqa: E402

from benchmarks.nexmark.queries.catalogue import QUERIES  # noqa: E402
from benchmarks.nexmark.queries.shared import Settings  # noqa: E402
from benchmarks.nexmark.queries.stateless import files, write_side_input  # noqa: E402

LONG, TEXT = Types.LONG(), Types.STRING()
EVENT = Types.ROW_NAMED(["event_type", "person", "auction", "bid"], [
    Types.INT(),
    Types.ROW_NAMED(["id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"],
                    [LONG, TEXT, TEXT, TEXT, TEXT, TEXT, LONG, TEXT]),
    Types.ROW_NAMED(["id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller",
                     "category", "extra"], [LONG, TEXT, TEXT, LONG, LONG, LONG, LONG, LONG, LONG, TEXT]),
    Types.ROW_NAMED(["auction", "bidder", "price", "channel", "url", "dateTime", "extra"],
                    [LONG, LONG, LONG, TEXT, TEXT, LONG, TEXT])])


def processor_s():
    """Processor time of this process and all below it, of those that live."""
    kids, times = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                parts = f.read().rsplit(")", 1)[1].split()
            kids.setdefault(int(parts[1]), []).append(int(pid))
            times[int(pid)] = int(parts[11]) + int(parts[12])
        except OSError:
            pass
    todo, total = [os.getpid()], 0
    while todo:
        pid = todo.pop()
        total += times.get(pid, 0)
        todo += kids.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def verify(query, results):
    """Compares with plain Python; 1 where something differs."""
    with results.execute_and_collect() as found:
        rows = [tuple(row) if not isinstance(row, str) else (row,) for row in found]
    file = os.path.join(out, "results.pickle")
    with open(file, "wb") as f:
        pickle.dump(rows, f)
    # In the project's own environment: the generator in Python needs a newer Arrow than PyFlink has.
    check = [os.path.join(ROOT, ".venv", "bin", "python"), "-m", "benchmarks.nexmark.check", file, query]
    check += map(str, (a.records, a.rate, BASE_MS))
    wrong = subprocess.run(check, cwd=ROOT, env={"PYTHONPATH": ROOT}).returncode
    peerlib.emit(system="pyflink", query=query, verified=not wrong, outputs=len(rows))
    return wrong


def main():
    status = 0
    for query in a.query.split(","):
        status |= run(query)
    os._exit(status)


def run(query):
    """One job; 1 where --verify finds a difference."""
    p = a.parallelism
    n = peerlib.round_records(a.records, p, 50)
    conf = Configuration()
    settings = {
        "python.execution-mode": "process",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.pythonpath": ",".join(PATHS),
        "python.fn-execution.bundle.size": str(a.bundle_size),
        "python.state.cache-size": str(a.state_cache),
        "python.map-state.read-cache-size": str(a.state_cache),
        "python.map-state.write-cache-size": str(a.state_cache),
        "restart-strategy.type": "none",
        "state.backend.type": "hashmap",
        "execution.checkpointing.dir": "file://" + out + "/checkpoints",
        "taskmanager.numberOfTaskSlots": str(p),
        "taskmanager.memory.managed.size": "512m",
        "rest.port": "0",
        "io.tmp.dirs": out + "/tmp",
    }
    for k, v in settings.items():
        conf.set_string(k, v)
    os.makedirs(out + "/tmp", exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment(conf)
    env.set_parallelism(p)
    if a.checkpoint_ms:
        env.enable_checkpointing(a.checkpoint_ms, CheckpointingMode.EXACTLY_ONCE)
    peer = get_gateway().jvm.tidegate.peer
    peer.Stats.reset()
    warm = int(n // p * a.warmup_frac)
    source = peer.NexmarkSource.rows(n, p, a.rate, BASE_MS, warm)
    events = env.from_source(Source(source), WatermarkStrategy.no_watermarks(), "events", type_info=EVENT)
    side = os.path.join(out, "side-input.csv")
    write_side_input(Path(side))
    results = QUERIES[query](events, Settings(side))
    if a.verify:
        return verify(query, results)

    if query == "q10":
        results.sink_to(files("file://" + out + "/files"))
    results.sink_to(Sink(peer.NexmarkSink()))
    samples, done = [], threading.Event()

    def watch():
        while not done.wait(0.2):
            samples.append((time.monotonic_ns(), processor_s()))
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    env.execute(f"nexmark {query}")
    done.set()
    watcher.join()
    stats = peer.Stats
    seconds, counted = stats.steadyNanos() / 1e9, stats.steadyRecords()
    # System.nanoTime and Python's monotonic clock are one clock on Linux.
    ended = stats.lastNanos()
    inside = [cpu for at, cpu in samples if ended - seconds * 1e9 <= at <= ended + 0.2e9]
    peerlib.emit(system="pyflink-process", version=pyflink.version.__version__, workload="nexmark", query=query,
                 records=n, rate=a.rate, parallelism=p, checkpoint_ms=a.checkpoint_ms, seconds=seconds,
                 records_counted=counted, records_per_s=counted / seconds if seconds else 0,
                 processor_ns=(max(inside) - min(inside)) * 1e9 / counted if len(inside) > 1 else 0.0,
                 outputs=stats.outCount(), bundle_size=a.bundle_size)
    return 0


if __name__ == "__main__":
    main()
