"""From a killed slot to the first record at a sink, with a restart delay of 0.

Guards with 10,000 keys: 0.7 s on Spark, 0.4 s with `spark.python.daemon.module`, 0.25 s on the
local runtime; 150 ms where slots that live take over, as nothing is started. With a million
keys: 2 s.

Sketch, with 10,000 keys: the broken connection is seen within 10 ms, Spark gives the core to
another task and forks a process after some 80 ms, which imports for 300 ms unless its daemon has
done so; the offer and the deployment take 40 ms, reading the state 2 ms. A million keys are 6 MB,
decoded in some 300 ms.
"""

import itertools
import statistics
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import HERE, Contender, keep, run_once, whole

LIMITS_MS = {
    "spark": 700,
    "spark-daemon": 400,
    "local": 250,
    "spark on survivors": 150,
    "local on survivors": 150,
}
"""By runtime, with the fewest keys."""

MILLION_LIMIT_MS = 2_000
RATES = {10_000: 20_000, 1_000_000: 200_000}


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Kill as often as there are rounds; True if the median of each session holds."""
    medians: dict[str, float] = {}
    longest: dict[str, float] = {}
    held: dict[str, bool] = {}
    table = Table("runtime, keys", "median", "longest", "limit", title="Kill to first record")
    for runtime, keys in itertools.product(LIMITS_MS, RATES):
        limit = LIMITS_MS[runtime] if keys < 1_000_000 else MILLION_LIMIT_MS
        name = f"{runtime} {keys:,} keys"
        if only not in name:
            continue
        with console.status(f"{name}: {rounds} kills"):
            result = run_once(contender(name, runtime, int(keys * scale), rounds), console)
        if result is not None:
            medians[name] = statistics.median(result["recovery_ms"])
            held[name] = medians[name] <= limit
            longest[name] = max(result["recovery_ms"])
            figures = (f"{ms:,.0f} ms" for ms in (medians[name], longest[name], limit))
            table.add_row(name, *figures)
    console.print(table)
    if whole(only, scale):
        record = {"rounds": rounds, "medians_ms": medians, "longest_ms": longest, "held": held}
        keep("recovery.jsonl", record)
    return all(held.values()) and bool(held)


def contender(name: str, runtime: str, keys: int, kills: int) -> Contender:
    rate = next(rate for most, rate in RATES.items() if keys <= most)
    runtime, _, on_survivors = runtime.partition(" ")
    arguments = ["--runtime", runtime, "--keys", str(keys), "--rate", str(rate)]
    arguments += ["--on-survivors"] if on_survivors else []
    program = str(HERE / "recovery_tidegate.py")
    return Contender(name, (sys.executable, program, *arguments, "--kills", str(kills)))
