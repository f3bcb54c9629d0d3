"""A first program of ten lines, from the start of Python to its end, imports included.

Guards 0.6 s on two free cores: the program loads its half while the fork server loads that of the
slots, 0.3 s of processor time each, and the job itself takes 0.1 s. Beside the wall time stands the
processor time of all its processes, which other load changes less.
"""

import os
import resource
import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

from benchmarks.measure import ROOT, keep, whole

LIMIT_MS = 600
LIMIT_S = 60
PROGRAM = ROOT / "examples" / "first_program.py"
NAME = "first program"


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run it once unmeasured, then as often as there are rounds; True if the median holds."""
    if only not in NAME:
        return False
    run()
    runs = [run() for _ in range(rounds)]
    wall_ms = statistics.median(wall for wall, _ in runs)
    processor_ms = statistics.median(processor for _, processor in runs)
    table = Table("", "median", "limit", title="A first program")
    table.add_row("wall time", f"{wall_ms:,.0f} ms", f"{LIMIT_MS:,} ms")
    table.add_row("processor time of all processes", f"{processor_ms:,.0f} ms", "")
    console.print(table)
    held = wall_ms <= LIMIT_MS
    if whole(only, scale):
        medians = {"wall_ms": wall_ms, "processor_ms": processor_ms}
        keep("first-program.jsonl", {"rounds": rounds, **medians, "held": held})
    return held


def run() -> tuple[float, float]:
    """Milliseconds of one run: by the clock, and of processors in all its processes."""
    before, began = children_ms(), time.perf_counter()
    subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src:packages/flinkformat/src"},
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return (time.perf_counter() - began) * 1e3, children_ms() - before


def children_ms() -> float:
    """Processor time of all children that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e3


if __name__ == "__main__":
    sys.exit(0 if main(Console(), 5, "", 1.0) else 1)
