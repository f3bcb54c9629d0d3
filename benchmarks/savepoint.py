"""A savepoint of a gigabyte: how fast it is written and restored, and in how much memory.

Ten million keys of one operator in one subtask, without a job around it, in memory and on disk, in
canonical and in native form. Guards: at least 60 % of what the disk, or what makes the bytes, does
by itself, whichever is slower, each in a process of its own and the median of three; beside the
state itself no more memory than 200 MB, and on disk what RocksDB is given.

What makes the bytes is MessagePack for state in memory, and RocksDB's own scan of its entries, or
its writer of files, for the canonical form of state on disk; its native form is nothing but files.
Disk bounds are of as many bytes, into files of their own: pages of memory that were just in use are
quicker to fill than those a savepoint gets.
Sketch: an entry has 89 bytes in a savepoint; MessagePack takes 130 ns to write and 240 ns to read
it; RocksDB 200 ns to give and 250 to take it, and we 150 beside; the disk takes 45 to 150.
"""

import sys

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, keep, run_once, whole

SHARE = 0.6
ENTRIES = 10_000_000
CONTENDERS = ("hashmap canonical", "rocksdb canonical", "rocksdb native")


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run each once, print the table, keep the result; whether the floors hold."""
    entries = int(ENTRIES * scale)
    table = Table(
        "", "MB", "written MB/s", "of", "share", "restored MB/s", "of", "share", "more MB",
        title=f"A savepoint of {entries:,} entries",
    )  # fmt: skip
    results: dict[str, dict] = {}
    for name in CONTENDERS:
        if only not in name:
            continue
        program = (sys.executable, "-m", "benchmarks.savepoint_tidegate", *name.split())
        with console.status(name):
            result = run_once(Contender(name, (*program, str(entries))), console)
        if result is None:
            return False
        results[name] = result
        row = [f"{result['megabytes']:,.0f}"]
        for act in ("written", "restored"):
            rate, bound = result[act], result[f"{act} bound"]
            row += [f"{rate:,.0f}", f"{bound:,.0f}", f"{rate / bound:.2f}"]
        table.add_row(name, *row, f"{max(result['writing MB'], result['restoring MB']):,.0f}")
    console.print(table)
    held = all(map(holds, results.values()))
    if whole(only, scale):
        keep("savepoint.jsonl", {"held": held, "figures": results})
    return held


def holds(result: dict) -> bool:
    quick = all(result[act] >= SHARE * result[f"{act} bound"] for act in ("written", "restored"))
    more = max(result["writing MB"], result["restoring MB"])
    return quick and more <= result["allowed MB"]
