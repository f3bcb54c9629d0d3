"""Nexmark, q0 to q22: by records and over batches, beside PyFlink and Flink's SQL.

Guards, as medians over the queries: by records at least 20 times PyFlink's rate, where the program
is the same; at least 0.2 times that of Flink's SQL, after the time that q0 takes has been taken off
each query's: q0 makes the events and projects them, which every query pays.

Sketch: an event by records costs some 1 µs to make and to filter, a keyed step with state 1 to 2 µs
more; SQL pays 2 to 3 µs for all of q0, of which the generator's texts are most.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparison import peers_cache, set_up_peers
from benchmarks.measure import (
    HERE,
    ROOT,
    Contender,
    commit,
    conditions,
    interleaved,
    keep,
    medians,
    quiet_runs,
    whole,
)
from benchmarks.nexmark import BATCHED, NAMES

EVENTS = {"records": 1_000_000, "batches": 4_000_000, "pyflink": 200_000, "flink-sql": 3_000_000}
"""Of each contender, for a few seconds of measured time."""
PYFLINK_ROUNDS = 3
"""Its runs take longest, and its rate is far from all others."""
SHAPE = ("--parallelism", "2", "--checkpoint-ms", "10000", "--rate", "10000")
TIMES_PYFLINK, TIMES_SQL = 20.0, 0.2
BASE = "q0"
NOISE = 0.1
"""A query that costs less than this share of q0 on top of it cannot be told from q0."""


def main(
    console: Console,
    rounds: int,
    only: str,
    scale: float,
    queries: Sequence[str] = (),
    events: int | None = None,
    runtime: str = "local",
) -> bool:
    """Run all, print the table, keep the result; whether what was measured holds.

    queries: some of them; none means all. events: of each contender, whatever its default is. A
    whole session that was interrupted goes on where it was, at the same commit.
    """
    sizes = {name: events or int(count * scale) for name, count in EVENTS.items()}
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [
            one
            for query in queries or NAMES
            for one in contenders(query, sizes, Path(scratch), runtime)
            if only in one.name
        ]
        if any(one.name.endswith(("pyflink", "flink-sql")) for one in chosen):
            set_up_peers()
        session = whole(only, scale) and not queries and events is None
        # Hours of runs: what is finished at an interruption need not run again.
        kept = ROOT / "build" / f"nexmark-{commit()}-{runtime}.jsonl" if session else None
        results = interleaved(chosen, rounds, console, kept)
    rates, costs = medians(results, "records_per_s"), medians(results, "processor_ns")
    console.print(table(rates, costs))
    console.print(conditions(results))
    held: dict[str, bool] = {}
    for base, ratios, floor in (
        ("PyFlink", beside(rates, "pyflink"), TIMES_PYFLINK),
        ("Flink SQL, q0 taken off", net_beside(rates, "flink-sql"), TIMES_SQL),
    ):
        if not ratios:
            continue
        ratio = statistics.median(ratios.values())
        held[base] = ratio >= floor
        verdict = "[green]holds[/]" if held[base] else "[red]falls short[/]"
        console.print(
            f"records: {ratio:.2f} times {base}, median of {len(ratios)} queries,"
            f" at least {floor:g}: {verdict}"
        )
    console.print(by_processor_time(costs))
    if kept is not None:
        record = {"rounds": rounds, "medians": rates, "processor_ns": costs, "held": held}
        record["quiet_runs"] = quiet_runs(results)
        record["runs"] = results
        keep("nexmark.jsonl", record | {"runtime": runtime})
        kept.unlink(missing_ok=True)
    return all(held.values())


def contenders(query: str, sizes: dict[str, int], scratch: Path, runtime: str) -> list[Contender]:
    """Those of one query, one right after the other."""
    ours = (sys.executable, "-m", "benchmarks.nexmark_tidegate", "--runtime", runtime)
    sql = (sys.executable, str(HERE / "peers/flink_jvm/nexmark.py"))
    python = (
        str(peers_cache() / "flink/bin/python"),
        str(HERE / "peers/pyflink/nexmark.py"),
    )
    programs = {
        "records": (*ours, "--api", "records", "--events"),
        "batches": (*ours, "--api", "batches", "--events"),
        "pyflink": (
            *python,
            "--workload",
            "nexmark",
            "--out",
            str(scratch / "pyflink"),
            "--records",
        ),
        "flink-sql": (*sql, "--workload", "nexmark", "--out", str(scratch / "sql"), "--records"),
    }
    return [
        Contender(
            f"{query} {name}",
            (*command, str(sizes[name]), "--query", query, *SHAPE),
            PYFLINK_ROUNDS if name == "pyflink" else None,
        )
        for name, command in programs.items()
        if name != "batches" or query in BATCHED
    ]


def by_processor_time(costs: dict[str, float]) -> str:
    """The same medians by processor time, which other work on the machine touches less."""
    rates = {name: 1 / cost for name, cost in costs.items() if cost}
    found = {
        "PyFlink": beside(rates, "pyflink"),
        "Flink SQL": beside(rates, "flink-sql"),
        "Flink SQL, q0 taken off": net_beside(rates, "flink-sql"),
    }
    told = [
        f"{statistics.median(ratios.values()):.2f} times {base} ({len(ratios)} queries)"
        for base, ratios in found.items()
        if ratios
    ]
    return f"by processor time: {', '.join(told) or 'nothing to compare'}"


def beside(rates: dict[str, float], base: str) -> dict[str, float]:
    """Rate by records in times of another contender's, by query."""
    return {
        query: rates[f"{query} records"] / rates[f"{query} {base}"]
        for query in NAMES
        if f"{query} records" in rates and f"{query} {base}" in rates
    }


def net_beside(
    rates: dict[str, float], base: str, form: str = "records", noise: float = NOISE
) -> dict[str, float]:
    """The same for the time that a query takes beyond q0, where both take any."""
    ours, theirs = (net(rates, contender, noise) for contender in (form, base))
    return {query: theirs[query] / ours[query] for query in ours if query in theirs}


def net(rates: dict[str, float], contender: str, noise: float) -> dict[str, float]:
    """Seconds an event beyond those of q0, by query; of those that are no noise."""
    if f"{BASE} {contender}" not in rates:
        return {}
    base_s = 1 / rates[f"{BASE} {contender}"]
    beyond = {
        query: 1 / rates[f"{query} {contender}"] - base_s
        for query in NAMES
        if f"{query} {contender}" in rates
    }
    return {query: seconds for query, seconds in beyond.items() if seconds > noise * base_s}


def table(rates: dict[str, float], costs: dict[str, float]) -> Table:
    """Medians by query, and what records are beside the peers."""
    result = Table(title="Nexmark: events/s, and processor ns each; medians")
    for column in ("query", *EVENTS, "× pyflink", "× sql", "× sql without q0"):
        result.add_column(column, justify="right")
    pyflink, sql, net_sql = (
        beside(rates, "pyflink"),
        beside(rates, "flink-sql"),
        net_beside(rates, "flink-sql"),
    )
    for query in NAMES:
        names = [f"{query} {contender}" for contender in EVENTS]
        if not any(name in rates for name in names):
            continue
        figures = [
            f"{rates[name] / 1000:,.0f} k, {costs.get(name, 0):,.0f}" if name in rates else ""
            for name in names
        ]
        ratios = [f"{each[query]:.2f}" if query in each else "" for each in (pyflink, sql, net_sql)]
        result.add_row(query, *figures, *ratios)
    return result
