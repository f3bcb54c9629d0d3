"""W1: running count and sum per key, 10,000 keys, a checkpoint each 500 ms, parallelism 2.

Guards, against Flink on the JVM: records at least 0.5 times its rate, Arrow batches at least 6
times; against the faster of PyFlink's two process-mode settings: records at least 60 times. On
Spark; the local runtime stands beside it.

Sketch: a record costs a core some 0.8 µs in Python (map 0.1, hash and partition 0.15, pickling
half of the records 0.07, process and state 0.47), so two cores pass about 2.5 M/s. A batch row
costs five passes of 8 bytes over three columns and a radix sort, some 50 ns: about 40 M/s.
"""

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import HERE, Contender, interleaved, keep, median_rates, whole

KEYS, PARALLELISM, CHECKPOINT_MS = 10_000, 2, 500
FLINK, PYFLINK, PYFLINK_20K = "flink-jvm", "pyflink", "pyflink bundle 20,000"
OURS = {
    f"tidegate-{runtime} {api}": (runtime, api)
    for runtime in ("spark", "local")
    for api in ("records", "batches")
}
# About ten seconds of measured time each, at the rates of two shared cores. A bundle of 20,000
# needs ten bundles a worker before its rate means anything.
RECORDS = {
    "records": 25_000_000,
    "batches": 300_000_000,
    FLINK: 25_000_000,
    PYFLINK: 20_000,
    PYFLINK_20K: 400_000,
}
FLOORS = [
    ("tidegate-spark records", "Flink on the JVM", 0.5),
    ("tidegate-spark batches", "Flink on the JVM", 6.0),
    ("tidegate-spark records", "PyFlink, the faster", 60.0),
]


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether every floor that was measured holds."""
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [one for one in contenders(Path(scratch), scale) if only in one.name]
        results = interleaved(chosen, rounds, console)
    rates = median_rates(results)
    held = {f"{name} / {base}": ratio >= floor for name, base, floor, ratio in measured(rates)}
    console.print(table(rates))
    for name, base, floor, ratio in measured(rates):
        verdict = "[green]holds[/]" if ratio >= floor else "[red]falls short[/]"
        console.print(f"{name}: {ratio:.2f} times {base}, at least {floor:g}: {verdict}")
    if whole(only, scale):
        keep("w1.jsonl", {"rounds": rounds, "medians": rates, "held": held, "runs": results})
    return all(held.values())


def contenders(scratch: Path, scale: float) -> list[Contender]:
    """Ours, then the peers; the order within a round."""
    size = {name: str(int(records * scale)) for name, records in RECORDS.items()}
    shape = ("--keys", str(KEYS), "--parallelism", str(PARALLELISM))
    shape += ("--checkpoint-ms", str(CHECKPOINT_MS))
    program = (sys.executable, str(HERE / "w1_tidegate.py"), *shape)
    ours = [
        Contender(name, (*program, "--runtime", runtime, "--api", api, "--records", size[api]))
        for name, (runtime, api) in OURS.items()
    ]
    jvm = (sys.executable, str(HERE / "peers/flink_jvm/run.py"), "--workload", "w1", *shape)
    python = (str(peers_cache() / "flink/bin/python"), str(HERE / "peers/pyflink/bench.py"))
    python += ("--workload", "w1", "--mode", "process", *shape)
    out = [("--out", str(scratch / name)) for name in ("flink", "pyflink", "pyflink20k")]
    return [
        *ours,
        Contender(FLINK, (*jvm, "--records", size[FLINK], *out[0])),
        Contender(PYFLINK, (*python, "--records", size[PYFLINK], *out[1])),
        Contender(
            PYFLINK_20K,
            (*python, "--bundle-size", "20000", "--records", size[PYFLINK_20K], *out[2]),
        ),
    ]


def peers_cache() -> Path:
    """Where the peers' environments are: as in peers/common/cache.sh."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PEERS_CACHE") or f"{base}/tidegate-peers")


def bases(rates: dict[str, float]) -> dict[str, float]:
    """What ours are compared with, of what was measured."""
    pyflink = [rates[name] for name in (PYFLINK, PYFLINK_20K) if name in rates]
    found = {"Flink on the JVM": rates[FLINK]} if FLINK in rates else {}
    return found | ({"PyFlink, the faster": max(pyflink)} if pyflink else {})


def measured(rates: dict[str, float]) -> list[tuple[str, str, float, float]]:
    """Of the floors, those whose two sides were measured: name, base, floor, ratio."""
    base_rates = bases(rates)
    return [
        (name, base, floor, rates[name] / base_rates[base])
        for name, base, floor in FLOORS
        if name in rates and base in base_rates
    ]


def table(rates: dict[str, float]) -> Table:
    """Medians, and each one's ratio to what it is compared with."""
    base_rates = bases(rates)
    result = Table(title="W1: medians")
    result.add_column("system")
    result.add_column("records/s", justify="right")
    for base in base_rates:
        result.add_column(f"× {base}", justify="right")
    for name, rate in rates.items():
        ratios = [f"{rate / base:.3g}" for base in base_rates.values()]
        result.add_row(name, f"{rate:,.0f}", *ratios)
    return result
