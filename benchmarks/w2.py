"""W2: sum per key and window of 10 s, 1,000 keys, disordered by up to 1 s, parallelism 2.

Guards, against Flink on the JVM: declarative aggregates of Arrow batches at least 3 times its rate,
windows record by record at least 0.3 times. On Spark; the local runtime stands beside it.

Sketch: a batch row costs as much as in W1 up to the window (some 45 ns: making, hashing, parting);
there 5 ns to find its key, 15 ns to sort its batch by window, 5 ns to add it; a tenth of the rows
come out. So two cores pass about 25 M/s.
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import HERE, Contender, interleaved, keep, median_rates, whole

KEYS, PARALLELISM, CHECKPOINT_MS = 1_000, 2, 1_000
FLINK = "flink-jvm"
OURS = [(runtime, api) for api in ("batches", "records") for runtime in ("spark", "local")]
RECORDS = {"batches": 150_000_000, "records": 6_000_000, FLINK: 25_000_000}
"""About ten seconds of measured time each, at the rates of two shared cores."""

FLOORS = {"tidegate-spark batches": 3.0, "tidegate-spark records": 0.3}


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the floors hold that were measured."""
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [one for one in contenders(Path(scratch), scale) if only in one.name]
        results = interleaved(chosen, rounds, console)
    rates = median_rates(results)
    console.print(table(rates))
    held = True
    for guarded, floor in FLOORS.items():
        if guarded in rates and FLINK in rates:
            ratio = rates[guarded] / rates[FLINK]
            held &= ratio >= floor
            verdict = "[green]holds[/]" if ratio >= floor else "[red]falls short[/]"
            console.print(f"{guarded}: {ratio:.2f} times Flink, at least {floor:g}: {verdict}")
    if whole(only, scale):
        keep("w2.jsonl", {"rounds": rounds, "medians": rates, "held": held, "runs": results})
    return held


def contenders(scratch: Path, scale: float) -> list[Contender]:
    """Ours, then the peer; the order within a round."""
    size = {name: str(int(records * scale)) for name, records in RECORDS.items()}
    shape = ("--keys", str(KEYS), "--parallelism", str(PARALLELISM))
    shape += ("--checkpoint-ms", str(CHECKPOINT_MS))
    program = (sys.executable, "-m", "benchmarks.w2_tidegate", *shape)
    ours = [
        Contender(
            f"tidegate-{runtime} {api}",
            (*program, "--runtime", runtime, "--api", api, "--records", size[api]),
        )
        for runtime, api in OURS
    ]
    jvm = (sys.executable, str(HERE / "peers/flink_jvm/run.py"), "--workload", "w2", *shape)
    out = ("--out", str(scratch / "flink"))
    return [*ours, Contender(FLINK, (*jvm, "--records", size[FLINK], *out))]


def table(rates: dict[str, float]) -> Table:
    """Medians, and each one's ratio to Flink's."""
    result = Table(title="W2: medians")
    for column in ("system", "records/s", "× Flink on the JVM"):
        result.add_column(column, justify="left" if column == "system" else "right")
    for name, rate in rates.items():
        ratio = f"{rate / rates[FLINK]:.3g}" if FLINK in rates else ""
        result.add_row(name, f"{rate:,.0f}", ratio)
    return result
