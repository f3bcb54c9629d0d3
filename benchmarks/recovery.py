"""From a killed slot to the first record at a sink, with a restart delay of 0.

Guards: 2 s with 10,000 keys, 4 s with a million, on Spark; the local runtime stands beside it.
Where slots that live take over, 150 ms with 10,000 keys: nothing is started.

Sketch, with 10,000 keys on Spark: the broken connection is seen within 10 ms, Spark has another
process after some 300 ms (a fork, imports, its first task), the offer and the deployment take
20 ms, reading the state as much; a million keys are 6 MB, decoded in some 300 ms.
"""

import statistics
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import HERE, Contender, keep, run_once, whole

LIMITS_MS = {10_000: 2_000, 1_000_000: 4_000}
RATES = {10_000: 20_000, 1_000_000: 200_000}
SURVIVORS_LIMITS_MS = {10_000: 150, 1_000_000: 2_000}
RUNTIMES = ("spark", "local", "spark on survivors", "local on survivors")


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Kill as often as there are rounds; whether the median of each session on Spark holds."""
    medians: dict[str, float] = {}
    results: dict[str, list[dict]] = {}
    for keys in LIMITS_MS:
        for runtime in RUNTIMES:
            name = f"{runtime} {keys:,} keys"
            if only not in name:
                continue
            with console.status(f"{name}: {rounds} kills"):
                result = run_once(contender(name, runtime, int(keys * scale), rounds), console)
            if result is not None:
                results[name] = [result]
                medians[name] = statistics.median(result["recovery_ms"])
    table = Table("runtime, keys", "median", "longest", "limit", title="Kill to first record")
    held: dict[str, bool] = {}
    for name, median in medians.items():
        limits = SURVIVORS_LIMITS_MS if "on survivors" in name else LIMITS_MS
        limit = next(limit for keys, limit in limits.items() if f" {keys:,} " in name)
        held[name] = median <= limit
        longest = max(results[name][0]["recovery_ms"])
        table.add_row(name, f"{median:,.0f} ms", f"{longest:,} ms", f"{limit:,} ms")
    console.print(table)
    if whole(only, scale):
        keep("recovery.jsonl", {"rounds": rounds, "medians_ms": medians, "held": held})
    return all(held.values()) and bool(held)


def contender(name: str, runtime: str, keys: int, kills: int) -> Contender:
    rate = next(rate for most, rate in RATES.items() if keys <= most)
    runtime, _, on_survivors = runtime.partition(" ")
    arguments = ["--runtime", runtime, "--keys", str(keys), "--rate", str(rate)]
    arguments += ["--on-survivors"] if on_survivors else []
    program = str(HERE / "recovery_tidegate.py")
    return Contender(name, (sys.executable, program, *arguments, "--kills", str(kills)))
