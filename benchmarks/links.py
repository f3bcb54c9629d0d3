"""Cost of TLS between driver and slots: W1 with it forced on, and with it off.

Guards: at most 10 % more processor time for records. Arrow batches pass more bytes for the time
that they take; they aim at 20 %, and are only told of. Processor time and not rates, for what else
the machine does slows the two halves of a pair unequally; pairs alternate in their order.

Sketch: AES-GCM takes a core 0.3 ns a byte at each end. A record of W1 is some 20 bytes on the
wire and takes 2 µs of both cores; a row of a batch is 16 bytes and takes 80 ns.
"""

import statistics
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, keep, run_once, whole

RECORDS = {"records": 6_000_000, "batches": 100_000_000}
AT_MOST, AIM = {"records": 0.1}, {"batches": 0.2}


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    costs = {
        api: pairs(console, api, int(records * scale), rounds)
        for api, records in RECORDS.items()
        if only in api
    }
    table = Table("api", "pairs", "median", "least", "most", "at most", "", title="Cost of TLS")
    for api, found in costs.items():
        limit = AT_MOST.get(api, AIM.get(api, 0.0))
        held = bool(found) and statistics.median(found) <= limit
        verdict = "held" if held else "[red]missed[/]" if api in AT_MOST else "above the aim"
        spread = (statistics.median(found), min(found), max(found)) if found else ()
        table.add_row(
            api, str(len(found)), *(f"{one:+.1%}" for one in spread), f"{limit:.0%}", verdict
        )
    console.print(table)
    if whole(only, scale):
        keep("links.jsonl", {"rounds": rounds, "costs": costs})
    return all(
        bool(found) and statistics.median(found) <= AT_MOST.get(api, float("inf"))
        for api, found in costs.items()
    )


def pairs(console: Console, api: str, records: int, rounds: int) -> list[float]:
    costs: list[float] = []
    for number in range(rounds):
        spent: dict[str, float] = {}
        for links in ("on", "off") if number % 2 else ("off", "on"):
            with console.status(f"pair {number + 1} of {rounds}: {api}, links {links}"):
                result = run_once(contender(api, records, links), console)
            if result is not None:
                spent[links] = result["processor_s"]
        if len(spent) == 2:
            costs.append(spent["on"] / spent["off"] - 1)
            seconds = f"{spent['on']:.2f} s against {spent['off']:.2f} s"
            console.print(f"pair {number + 1}  {api:8} {seconds}: {costs[-1]:+.1%}")
    return costs


def contender(api: str, records: int, links: str) -> Contender:
    """W1 on the local runtime."""
    program = (sys.executable, "-m", "benchmarks.w1_tidegate", "--links", links)
    return Contender(f"{api}, links {links}", (*program, "--api", api, "--records", str(records)))
