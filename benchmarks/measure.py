"""Runs contenders in turn, takes medians, keeps the results.

Contenders are interleaved, round by round, so that whatever else the machine does falls on all of
them alike; only ratios of one session mean anything.
"""

import json
import os
import platform
import statistics
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
LIMIT_S = 300


@dataclass(frozen=True)
class Contender:
    """A program whose last line `{"system": …, "records_per_s": …}` is its result."""

    name: str
    command: tuple[str, ...]


def interleaved(
    contenders: list[Contender], rounds: int, console: Console
) -> dict[str, list[dict]]:
    """Every contender once a round; the result lines by contender."""
    results: dict[str, list[dict]] = {contender.name: [] for contender in contenders}
    for number in range(1, rounds + 1):
        for contender in contenders:
            with console.status(f"round {number} of {rounds}: {contender.name}"):
                result = run_once(contender, console)
            if result is not None:
                results[contender.name].append(result)
                rate = f"{result['records_per_s']:,.0f} records/s in {result['seconds']:.1f} s"
                console.print(f"round {number}  {contender.name:28} {rate:>34}")
    return results


def run_once(contender: Contender, console: Console) -> dict | None:
    """Its result line; None where it failed, which is said with the end of what it wrote."""
    try:
        run = subprocess.run(
            contender.command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        console.print(f"{contender.name}: no result within {LIMIT_S} s", style="red")
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"system"')]
    if run.returncode or not lines:
        console.print(f"{contender.name}: failed with {run.returncode}", style="red")
        console.print((run.stdout + run.stderr)[-2000:], markup=False, highlight=False)
        return None
    return json.loads(lines[-1])


def median_rates(results: dict[str, list[dict]]) -> dict[str, float]:
    """The median rate of each contender that gave any result."""
    return {
        name: statistics.median(line["records_per_s"] for line in lines)
        for name, lines in results.items()
        if lines
    }


def whole(only: str, scale: float) -> bool:
    return not only and scale == 1.0


def keep(file: str, record: dict[str, object]) -> None:
    """Append a record of this session to a file of results/, with its conditions."""
    RESULTS.mkdir(exist_ok=True)
    conditions = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    with (RESULTS / file).open("a", encoding="utf-8") as results:
        results.write(json.dumps(conditions | record) + "\n")


def commit() -> str:
    """The commit that was measured; with a plus where the checkout differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip()
