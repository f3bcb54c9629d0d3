"""Snapshots must not stall the stream: the rate with a checkpoint each second against none.

W1 on the local runtime, records and batches, 10,000 keys. Guards: at least 90 % of the rate
without.
"""

import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, interleaved, keep, medians, whole

FEATURES = {"F217": "checkpoint-loss.jsonl"}
FLOOR = 0.9
RECORDS = {"records": 12_000_000, "batches": 150_000_000}


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the floor holds for both."""
    results = interleaved([one for one in contenders(scale) if only in one.name], rounds, console)
    rates = medians(results, "records_per_s")
    result = Table("api", "with", "without", "share", title="A checkpoint each second: medians")
    shares: dict[str, float] = {}
    for api in RECORDS:
        if f"{api} with" in rates and f"{api} without" in rates:
            with_, without = rates[f"{api} with"], rates[f"{api} without"]
            shares[api] = with_ / without
            result.add_row(api, f"{with_:,.0f}", f"{without:,.0f}", f"{shares[api]:.3f}")
    console.print(result)
    holds = len(shares) == len(RECORDS) and min(shares.values()) >= FLOOR
    if whole(only, scale):
        record = {"rounds": rounds, "shares": shares, "features": {"F217": holds}}
        keep(FEATURES["F217"], record | {"runs": results})
    return holds


def contenders(scale: float) -> list[Contender]:
    """Each API with a checkpoint each second and with none."""
    program = (sys.executable, "-m", "benchmarks.w1_tidegate", "--runtime", "local")
    return [
        Contender(
            f"{api} {name}",
            (*program, "--api", api, "--records", str(int(records * scale)), *checkpoints),
        )
        for api, records in RECORDS.items()
        for name, checkpoints in (
            ("with", ("--checkpoint-ms", "1000")),
            ("without", ("--checkpoint-ms", "0")),
        )
    ]
