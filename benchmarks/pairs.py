"""Processor time of two trees beside each other: python benchmarks/pairs.py BEFORE AFTER.

Each work runs in both trees, one right after the other, and the order alternates from pair to pair;
the figure of a pair is the processor time of the tree before, divided by that of the tree after. A
figure counts the program and all processes that it started, slots and guards and the fork server.
Processor time and not rates, for what else the machine does slows the halves of a pair unequally.
The floor holds where the median of the pairs is at least 0.98.

The programs are those of the tree after, so that the trees differ in `src` alone; the savepoint's
uses what is inside `tidegate` and is each tree's own. Each finished pair is kept in a file, and a
call with the same file and the same two commits goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FLOOR = 0.98
LIMIT_S = 600
LEFT_S = 20.0
"""How long processes that outlive their program may take to end."""

PR_SET_CHILD_SUBREAPER = 36

Command = tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """Commands of one program, run in turn. own: the program is that of the tree itself.

    A command's FOLDER is replaced by an empty folder, which the commands of a work share.
    """

    commands: tuple[Command, ...]
    own: bool = False


def program(name: str, arguments: str) -> Command:
    return ("-m", f"benchmarks.{name}_tidegate", *arguments.split())


def savepoint(arguments: str) -> Work:
    acts = ("written", "restored")
    commands = tuple(program("savepoint", f"{arguments} {act} FOLDER") for act in acts)
    return Work(commands, own=True)


WORKS: dict[str, Work] = {
    "start": Work((program("w1", "--records 20000 --checkpoint-ms 0"),) * 3),
    "w1-records": Work((program("w1", "--records 8000000"),)),
    "w1-text": Work((program("w1", "--api text --records 4000000"),)),
    "w1-dicts": Work((program("w1", "--api dicts --records 4000000"),)),
    "w1-dataclasses": Work((program("w1", "--api dataclasses --records 3000000"),)),
    "w1-batches": Work((program("w1", "--api batches --records 120000000"),)),
    "w2-records": Work((program("w2", "--api records --records 6000000"),)),
    "w2-batches": Work((program("w2", "--records 100000000"),)),
    "rocksdb": Work((program("w1", "--backend rocksdb --checkpoint-ms 1000 --records 8000000"),)),
    "savepoint": savepoint("hashmap canonical 1500000"),
    "savepoint-rocksdb": savepoint("rocksdb canonical 1500000"),
    "million-keys": Work((program("million_keys", "--records 3000000"),)),
    "recovery": Work((program("recovery", "--kills 3"),)),
}
"""One pair of each takes at most 25 s on two quiet cores; all eleven rounds take an hour."""


@dataclass(frozen=True)
class Tree:
    """A checkout. commit: with a digest of what differs from it, if anything does."""

    folder: Path
    commit: str

    def environment(self, programs: Path) -> dict[str, str]:
        folders = (self.folder / "src", self.folder / "packages/flinkformat/src", programs)
        path = os.pathsep.join(str(each) for each in folders if each.is_dir())
        return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}


@dataclass(frozen=True)
class Pair:
    """Processor seconds of one work in both trees."""

    before_s: float
    after_s: float

    @property
    def ratio(self) -> float:
        return self.before_s / self.after_s


class Kept:
    """Pairs of two commits in a file of JSON lines, among those of others."""

    def __init__(self, file: Path, before: Tree, after: Tree) -> None:
        self._file = file
        self._commits = {"before": before.commit, "after": after.commit}

    def pairs(self, name: str) -> list[Pair]:
        if not self._file.exists():
            return []
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        wanted = self._commits | self._work(name)
        return [
            Pair(line["before_s"], line["after_s"])
            for line in lines
            if wanted.items() <= line.items()
        ]

    def add(self, name: str, pair: Pair) -> None:
        measured = {"before_s": round(pair.before_s, 3), "after_s": round(pair.after_s, 3)}
        load = {"load_1m": round(os.getloadavg()[0], 1)}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._commits | self._work(name) | measured | load) + "\n")

    @staticmethod
    def _work(name: str) -> dict[str, str]:
        # Pairs of another size are other figures.
        return {"work": name, "commands": " · ".join(map(" ".join, WORKS[name].commands))}


def main() -> int:
    """Measure the pairs that are still missing, print the table; 1 where a median falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="a checkout")
    parser.add_argument("--rounds", type=int, default=11, help="pairs of each, with those kept")
    parser.add_argument("--only", nargs="+", choices=list(WORKS), metavar="NAME", default=[*WORKS])
    parser.add_argument("--keep", type=Path, default=Path("/tmp/tidegate-pairs.jsonl"))
    args = parser.parse_args()
    before, after = checkout(args.before), checkout(args.after)
    kept = Kept(args.keep, before, after)
    print(f"before: {before.commit}, after: {after.commit}, kept in {args.keep}", flush=True)
    # Orphans are adopted, so that their time is counted as well.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        measure(before, after, kept, args.only, args.rounds)
    except KeyboardInterrupt:
        print("\ninterrupted; the same call goes on from here")
    return 0 if table(kept, args.only) else 1


def measure(before: Tree, after: Tree, kept: Kept, names: list[str], rounds: int) -> None:
    for number in range(rounds):
        for name in names:
            if len(kept.pairs(name)) > number:
                continue
            spent: dict[Tree, float] = {}
            for tree in (before, after) if number % 2 else (after, before):
                programs = tree if WORKS[name].own else after
                spent[tree] = processor_s(WORKS[name], tree, programs.folder)
            pair = Pair(spent[before], spent[after])
            kept.add(name, pair)
            seconds = f"{pair.before_s:6.2f} s ÷ {pair.after_s:6.2f} s"
            print(f"pair {number + 1:2}  {name:18} {seconds} = {pair.ratio:.3f}", flush=True)


def table(kept: Kept, names: list[str]) -> bool:
    """Print medians with their spread; true if all reach the floor."""
    held = True
    print(f"\n{'work':18} pairs  median  quartiles      least–most     before s  after s")
    for name in names:
        pairs = kept.pairs(name)
        if not pairs:
            held = False
            continue
        ratios = sorted(pair.ratio for pair in pairs)
        median = statistics.median(ratios)
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        before_s = statistics.median(pair.before_s for pair in pairs)
        after_s = statistics.median(pair.after_s for pair in pairs)
        held &= median >= FLOOR
        print(
            f"{name:18} {len(pairs):5}   {median:.3f}  {low:.3f}–{high:.3f}"
            f"    {ratios[0]:.3f}–{ratios[-1]:.3f}    {before_s:8.2f} {after_s:8.2f}"
            f"{'' if median >= FLOOR else f'   below {FLOOR}'}"
        )
    return held


def checkout(folder: Path) -> Tree:
    """A tree with its modules compiled. Raises SystemExit if another one would be imported."""

    def git(*arguments: str) -> str:
        command = ("git", "-C", str(folder), *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    commit = git("rev-parse", "--short=10", "HEAD").strip()
    if changed := git("diff", "HEAD", "--", "src", "packages", "benchmarks"):
        commit += "+" + hashlib.sha256(changed.encode()).hexdigest()[:8]
    tree = Tree(folder.resolve(), commit)
    found = subprocess.run(
        [sys.executable, "-c", "import tidegate; print(tidegate.__file__)"],
        env=tree.environment(tree.folder),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(found).is_relative_to(tree.folder):
        sys.exit(f"{folder} imports {found}")
    # Each process would otherwise compile what it imports, half a second of it, if Python may not
    # write (PYTHONDONTWRITEBYTECODE), and the first one if it may.
    for part in (tree.folder / "src", tree.folder / "packages", tree.folder / "benchmarks"):
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(part)], capture_output=True)
    return tree


def processor_s(work: Work, tree: Tree, programs: Path) -> float:
    """Processor time of the commands and of all processes that came of them."""
    with tempfile.TemporaryDirectory(prefix="tidegate-pairs-") as folder:
        before = children_s()
        for command in work.commands:
            arguments = [folder if word == "FOLDER" else word for word in command]
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=programs,
                env=tree.environment(programs),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            if done.returncode:
                sys.exit(
                    f"{tree.folder}: {' '.join(command)}\n{(done.stdout + done.stderr)[-3000:]}"
                )
        reap_orphans()
        return children_s() - before


def children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def reap_orphans() -> None:
    """Wait for what programs have left behind. Raises SystemExit if it does not end."""
    deadline = time.monotonic() + LEFT_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            if time.monotonic() > deadline:
                sys.exit(f"a process that a program left behind still runs after {LEFT_S:.0f} s")
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
