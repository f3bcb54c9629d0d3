"""W4: latency from source to sink at 10,000 records/s, a checkpoint each second, parallelism 2.

Guards, from a record made to the sink: p50 and p99 at most 0.8 and 5 ms on the local runtime, 1.5
and 8 ms on Spark. Flink on the JVM stands beside it, with its buffer timeout at 100 ms, which is
its default, and at 1 ms.

Sketch: the paced source gives ten records every two milliseconds, stamped as they are made; two
turns of the loop and two hops are some 0.2 ms. The tail is the scheduler's, with two slots and a
driver on two cores, and the synchronous part of a checkpoint.
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparison import set_up_peers
from benchmarks.measure import (
    HERE,
    Contender,
    conditions,
    interleaved,
    keep,
    medians,
    quiet_runs,
    whole,
)

SECONDS = 10
SHAPE = ("--keys", "10000", "--parallelism", "2", "--checkpoint-ms", "1000", "--rate", "10000")
LIMITS_MS = {"tidegate-local": (0.8, 5.0), "tidegate-spark": (1.5, 8.0)}
FIGURES = ("p50_ms", "p99_ms", "p99.9_ms", "max_ms")


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the limits hold."""
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [one for one in contenders(Path(scratch), scale) if only in one.name]
        if any(one.name.startswith("flink") for one in chosen):
            set_up_peers()
        results = interleaved(chosen, rounds, console)
    found = {figure: medians(results, figure) for figure in FIGURES}
    table = Table("system", *FIGURES, "at most", title="W4, latency: medians")
    for name in found["p50_ms"]:
        limits = " / ".join(f"{limit:g}" for limit in LIMITS_MS.get(name, ()))
        table.add_row(name, *(f"{found[figure][name]:.2f}" for figure in FIGURES), limits)
    console.print(table)
    console.print(conditions(results))
    held = {
        name: found["p50_ms"][name] <= p50 and found["p99_ms"][name] <= p99
        for name, (p50, p99) in LIMITS_MS.items()
        if name in found["p50_ms"]
    }
    if whole(only, scale):
        record = {"rounds": rounds, "medians": found, "held": held}
        keep("w4.jsonl", record | {"quiet_runs": quiet_runs(results), "runs": results})
    return all(held.values())


def contenders(scratch: Path, scale: float) -> list[Contender]:
    shape = (*SHAPE, "--seconds", str(SECONDS * scale))
    program = (sys.executable, "-m", "benchmarks.w4_tidegate", *shape)
    ours = [Contender(name, (*program, "--runtime", name[9:])) for name in LIMITS_MS]
    peer = (sys.executable, str(HERE / "peers/flink_jvm/run.py"), "--workload", "w4", *shape)
    theirs = [
        Contender(
            f"flink-jvm, buffers of {timeout} ms",
            (*peer, "--buffer-timeout-ms", timeout, "--out", str(scratch / timeout)),
        )
        for timeout in ("100", "1")
    ]
    return [*ours, *theirs]
