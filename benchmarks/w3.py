"""W3: lines of CSV to files, exactly once, parallelism 2, a checkpoint each second.

Compares: the same lines in Flink on the JVM. Records are rows of text, each split twice by the
user's own functions; most of the time is theirs.
"""

import subprocess
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

RECORDS = 2_000_000
SHAPE = ("--parallelism", "2", "--checkpoint-ms", "1000")


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; nothing is guarded."""
    records = str(int(RECORDS * scale))
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [one for one in contenders(Path(scratch), records) if only in one.name]
        if any(one.name.startswith("flink") for one in chosen):
            set_up_peers()
        generator = (sys.executable, str(HERE / "peers/common/gen_w3.py"), "--format", "csv")
        subprocess.run([*generator, "--records", records, "--out", scratch], check=True)
        results = interleaved(chosen, rounds, console)
    rates = medians(results, "records_per_s")
    table = Table("system", "rows/s", title="W3, files to files: medians")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}")
    console.print(table)
    console.print(conditions(results))
    if whole(only, scale):
        record = {"rounds": rounds, "medians": rates, "quiet_runs": quiet_runs(results)}
        keep("w3.jsonl", record | {"runs": results})
    return True


def contenders(scratch: Path, records: str) -> list[Contender]:
    given = (*SHAPE, "--input", str(scratch / "csv"))
    program = (sys.executable, "-m", "benchmarks.w3_tidegate", "--records", records, *given)
    ours = [
        Contender(f"tidegate-{runtime}", (*program, "--runtime", runtime))
        for runtime in ("spark", "local")
    ]
    peer = (sys.executable, str(HERE / "peers/flink_jvm/run.py"), "--workload", "w3")
    out = ("--records", records, "--out", str(scratch / "flink"))
    return [*ours, Contender("flink-jvm", (*peer, *given, *out))]
