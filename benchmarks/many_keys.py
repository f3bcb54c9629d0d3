"""What a row of an Arrow batch costs with ten million keys, beside ten thousand: W1, declared.

Guards: at most 2.5 times as much processor time. Time is taken once half of the rows have passed,
so that all keys have come; there are no checkpoints, whose cost `million-keys` measures.

Sketch: a row of ten thousand keys costs some 60 ns, of which 25 in the aggregates; with ten million
the index and the keys beside it, and two columns of state, are four lines of memory that no cache
holds, 10 ns each where the next ones are asked for meanwhile, and the sort has a second pass.
"""

import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, interleaved, keep, medians, quiet_runs, whole

KEYS = {"10 k keys": 10_000, "10 M keys": 10_000_000}
RECORDS = 80_000_000
COST_MAX = 2.5


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run both, print the table, keep the result; whether the floor holds."""
    results = interleaved([one for one in contenders(scale) if only in one.name], rounds, console)
    costs = medians(results, "processor_ns")
    table = Table("keys", "processor ns a row", "cost", "floor", title="W1, declared, by keys")
    few = costs.get(next(iter(KEYS)))
    held = few is not None and len(costs) == len(KEYS)
    for name, cost in costs.items():
        table.add_row(name, f"{cost:.0f}", f"{cost / few:.2f}" if few else "", f"{COST_MAX}")
        held = held and few is not None and cost <= COST_MAX * few
    console.print(table)
    if whole(only, scale):
        record = {"rounds": rounds, "medians": {"processor_ns": costs}, "held": held}
        keep("many-keys.jsonl", record | {"quiet_runs": quiet_runs(results), "runs": results})
    return held


def contenders(scale: float) -> list[Contender]:
    """The same rows with few keys and with many."""
    program = (sys.executable, "-m", "benchmarks.w1_tidegate", "--api", "running")
    records = str(int(RECORDS * scale))
    return [
        Contender(
            name,
            (
                *(*program, "--records", records, "--keys", str(keys)),
                *("--checkpoint-ms", "0", "--warmup-frac", "0.5"),
            ),
        )
        for name, keys in KEYS.items()
    ]
