"""A million keys in the HashMap backend, a checkpoint each second: what it costs the stream.

Local runtime, two slots; each contender runs with checkpoints and without in the same session.
Guards: a synchronous part of 5 ms in the median; of the rate lost and gap added, 25 % and 40 ms
where all keys are rewritten between two checkpoints, 8 % and 15 ms where 1 % are, 6 % and 15 ms for
batches.
Pickled state stands beside, and is held to the synchronous part alone. Where 1 % are rewritten,
checkpoints are incremental, and time is taken once the first ones have written all.

Sketch: freezing marks 64 key groups a slot; encoding half a million entries takes 30 to 60 ms of
each second, and an entry's first write after a barrier 150 ns more.
"""

import statistics
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, interleaved, keep, medians, whole

SYNC_MAX_MS = 5
CASES = {
    "records, all rewritten": (6_000_000, (), 0.25, 40.0),
    "records, 1 % rewritten": (
        12_000_000,
        ("--hot", "10000", "--incremental", "--settle", "4000000"),
        0.08,
        15.0,
    ),
    "batches, all rewritten": (120_000_000, ("--api", "batches"), 0.06, 15.0),
    "records, all rewritten, pickled": (6_000_000, ("--untyped",), None, None),
}
"""Records beside those that load, further arguments, and the floors of loss and added gap."""


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether all floors hold."""
    results = interleaved([one for one in contenders(scale) if only in one.name], rounds, console)
    rates = medians(results, "records_per_s")
    table = Table(
        "state, writes",
        "without",
        "loss",
        "added gap ms",
        "sync ms (longest)",
        "floor",
        title="1 M keys",
    )
    figures: dict[str, dict[str, float]] = {}
    held: list[bool] = []
    for case, (_, _, loss_max, gap_max) in CASES.items():
        if f"{case}: with" not in rates or f"{case}: without" not in rates:
            continue
        with_, without = results[f"{case}: with"], results[f"{case}: without"]
        loss = 1 - rates[f"{case}: with"] / rates[f"{case}: without"]
        gap = median(with_, "gap_ms") - median(without, "gap_ms")
        sync, longest = median(with_, "sync_ms"), max(line["sync_ms_max"] for line in with_)
        figures[case] = {"loss": loss, "gap_ms": gap, "sync_ms": sync, "sync_ms_max": longest}
        held.append(sync <= SYNC_MAX_MS)
        floor = f"{SYNC_MAX_MS} ms"
        if loss_max is not None:
            held += [loss <= loss_max, gap <= gap_max]
            floor = f"{loss_max:.0%}, {gap_max:.0f} ms, {floor}"
        rate = f"{rates[f'{case}: without']:,.0f}"
        table.add_row(case, rate, f"{loss:.1%}", f"{gap:.0f}", f"{sync:.0f} ({longest})", floor)
    console.print(table)
    if whole(only, scale):
        keep("million-keys.jsonl", {"rounds": rounds, "figures": figures, "runs": results})
    return bool(held) and all(held)


def median(lines: list[dict], figure: str) -> float:
    return statistics.median(line[figure] for line in lines)


def contenders(scale: float) -> list[Contender]:
    """Each case with a checkpoint each second and with none."""
    program = (sys.executable, "-m", "benchmarks.million_keys_tidegate")
    return [
        Contender(
            f"{case}: {name}",
            (*program, "--records", str(int(records * scale)), *more, "--checkpoint-ms", every),
        )
        for case, (records, more, _, _) in CASES.items()
        for name, every in (("with", "1000"), ("without", "0"))
    ]
