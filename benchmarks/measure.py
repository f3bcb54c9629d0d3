"""Runs contenders in turn, takes medians, keeps the results.

Contenders alternate, each run a few seconds long, so that whatever else the machine does falls on
all of them alike; only ratios of one session mean anything, and only runs in the machine's quiet
mode are counted, where there are enough of them.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.machine import calibration_ms, python_build, quiet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
LIMIT_S = 300
ROUNDS_MORE = 2
"""Rounds are run until so many times as many as were asked for, while too few are quiet."""


@dataclass(frozen=True)
class Contender:
    """A program whose last line `{"system": …, "records_per_s": …}` is its result.

    rounds_max: of a program that takes long and is far from all others, so many runs are enough.
    limit_s: after which a run has failed.
    """

    name: str
    command: tuple[str, ...]
    rounds_max: int | None = None
    limit_s: float = LIMIT_S


Runs = dict[str, list[dict]]
"""Result lines by contender; each has the `calibration_ms` of before and after its run."""


def interleaved(
    contenders: list[Contender], rounds: int, console: Console, kept: Path | None = None
) -> Runs:
    """Every contender once a round, until each has so many quiet runs or the rounds are doubled.

    kept: a file of finished runs; the same call with it goes on after an interruption.
    """
    results: Runs = {contender.name: [] for contender in contenders}
    finished = runs_in(kept)
    for number in range(1, rounds * ROUNDS_MORE + 1):
        for contender in due(contenders, results, number, rounds):
            name = contender.name
            result = finished.get((number, name))
            if result is None:
                with console.status(f"round {number}: {name}"):
                    result = run_once(contender, console)
                if result is None:
                    continue
                console.print(f"round {number}  {name:28} {told(result):>34}")
                if kept is not None:
                    append(kept, {"round": number, "name": name, "result": result})
            results[name].append(result)
    return results


def runs_in(kept: Path | None) -> dict[tuple[int, str], dict]:
    """Result lines of an interrupted session, by round and contender."""
    if kept is None or not kept.exists():
        return {}
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    return {(line["round"], line["name"]): line["result"] for line in lines}


def append(file: Path, record: dict[str, object]) -> None:
    """A line more in a file, whose folder is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


def due(contenders: list[Contender], results: Runs, number: int, rounds: int) -> list[Contender]:
    """Who runs in a round: in those beyond what was asked for, who has too few quiet runs."""
    quiet_so_far = quiet_runs(results)
    return [
        one
        for one in contenders
        if number <= (one.rounds_max or number)
        # One that never gives a result is not waited for.
        and (number <= rounds or quiet_so_far.get(one.name, rounds) < rounds)
    ]


def run_once(contender: Contender, console: Console) -> dict | None:
    """Its result line; None where it failed, which is said with the end of what it wrote."""
    before_ms = calibration_ms()
    try:
        run = subprocess.run(
            contender.command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=contender.limit_s,
        )
    except subprocess.TimeoutExpired:
        console.print(f"{contender.name}: no result within {contender.limit_s:g} s", style="red")
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"system"')]
    if run.returncode or not lines:
        console.print(f"{contender.name}: failed with {run.returncode}", style="red")
        console.print((run.stdout + run.stderr)[-2000:], markup=False, highlight=False)
        return None
    calibrations = [round(each, 1) for each in (before_ms, calibration_ms())]
    return json.loads(lines[-1]) | {"calibration_ms": calibrations}


def told(result: dict) -> str:
    """One run in a line."""
    rate = f"{result['records_per_s']:,.0f} records/s in {result['seconds']:.1f} s"
    each = result.get("processor_ns")
    cost = f", {each:,.0f} ns each" if each else ""
    if "p99_ms" in result:
        cost += f", p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms"
    return f"{rate}{cost}, calibrated {max(result['calibration_ms']):.0f} ms"


def fastest_ms(results: Runs) -> float:
    """The calibration loop at its fastest in this session; 0 if nothing ran."""
    took = [ms for runs in results.values() for run in runs for ms in run["calibration_ms"]]
    return min(took, default=0.0)


def quiet_runs(results: Runs) -> dict[str, int]:
    """Number of runs in the quiet mode, of each contender."""
    least_ms = fastest_ms(results)
    return {name: len(counted(runs, least_ms)) for name, runs in results.items() if runs}


def counted(runs: Iterable[dict], least_ms: float) -> list[dict]:
    return [run for run in runs if quiet(run["calibration_ms"], least_ms)]


def medians(results: Runs, figure: str) -> dict[str, float]:
    """The median of a figure, of each contender that reported it.

    Taken over its quiet runs where they are half of all at least, else over all: a session on a
    machine that is never quiet still has its ratios, and `quiet_runs` says so.
    """
    least_ms = fastest_ms(results)
    found: dict[str, float] = {}
    for name, runs in results.items():
        still = counted(runs, least_ms)
        used = [
            run[figure] for run in (still if 2 * len(still) >= len(runs) else runs) if figure in run
        ]
        if used:
            found[name] = statistics.median(used)
    return found


def conditions(results: Runs) -> str:
    """Which Python ran, and how much of the session the machine was quiet."""
    runs, still = sum(map(len, results.values())), sum(quiet_runs(results).values())
    return (
        f"Python {python_build()}; {still} of {runs} runs in the machine's quiet mode"
        f" (its loop took {fastest_ms(results):.0f} ms at its fastest)"
    )


def whole(only: str, scale: float) -> bool:
    return not only and scale == 1.0


def keep(file: str, record: dict[str, object]) -> None:
    """Append a record of this session to a file of results/, with its conditions."""
    conditions = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
        "python": python_build(),
    }
    append(RESULTS / file, conditions | record)


def commit() -> str:
    """The commit that was measured; with a plus where the checkout differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip()
