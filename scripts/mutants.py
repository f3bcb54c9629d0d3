"""Plants each fault of tests/mutants and lets the simulator, or quick tests, look for it.

python -m scripts.mutants [SEEDS [TEXT]]: at most so many seeds a fault, only those whose name or
file has the text. The last line says how many were caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[1]
FORMAT = "packages/flinkformat"
SEEDS = 2_000
LIMIT_S = 900
LEAST_CAUGHT = 0.9

ENDED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


def main() -> int:
    """Exit status 1 where fewer than nine in ten are caught, or the list misfits the source."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    for tests in sorted({mutant.tests for mutant in MUTANTS if mutant.tests}):
        subprocess.run([sys.executable, "-m", *quick(tests, "src")], cwd=ROOT, check=True)
    chosen = [mutant for mutant in MUTANTS if text in mutant.name or text in mutant.file]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda mutant: hunt(mutant, seeds), chosen))
    Console(width=150).print(shown(chosen, found))
    rooms = Counter(mutant.file.partition("/")[0] for mutant in chosen)
    missed = [mutant for mutant, (by, _, _) in zip(chosen, found, strict=True) if not by]
    for room, count in sorted(rooms.items()):
        left = sum(mutant.file.startswith(f"{room}/") for mutant in missed)
        print(f"{room}: {count - left} of {count}")
    caught = len(chosen) - len(missed)
    print(f"{caught} of {len(chosen)} caught ({caught / len(chosen):.0%})")
    return 0 if caught >= LEAST_CAUGHT * len(chosen) else 1


def shown(chosen: Sequence[Mutant], found: Sequence[tuple[str, float, str]]) -> Table:
    """The table of what was found; names of tests are no markup."""
    table = Table("planted fault", "caught by", "seconds", "as")
    for mutant, (by, seconds, how) in zip(chosen, found, strict=True):
        table.add_row(*map(escape, (mutant.name, by or "–", f"{seconds:.0f}", how)))
    return table


def hunt(mutant: Mutant, seeds: int) -> tuple[str, float, str]:
    """The first seed or the test that finds the fault, the seconds it took, and what was found."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-mutant-") as folder:
        package = Path(folder) / "tidegate"
        shutil.copytree(ROOT / "src" / "tidegate", package)
        source = package / mutant.file
        source.write_text(mutated(mutant, source.read_text(encoding="utf-8")), encoding="utf-8")
        try:
            run = subprocess.run(
                [sys.executable, "-m", *hunter(mutant, seeds, folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": folder},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return "", LIMIT_S, "not found in time"
    seconds = time.monotonic() - began_s
    if mutant.tests:
        by, how = of_tests(run.stdout, run.returncode)
    else:
        by, how = of_seeds(run.stdout or run.stderr)
    print(f"{mutant.name}: {by or 'not caught'} {how[:100]}", file=sys.stderr, flush=True)
    return by, seconds, how[:90]


def hunter(mutant: Mutant, seeds: int, folder: str) -> list[str]:
    """The module that looks for the fault, and what it is given."""
    if not mutant.tests:
        return ["scripts.hunt", str(seeds), *mutant.kinds]
    return quick(mutant.tests, folder)


def quick(tests: str, source: str) -> list[str]:
    """The quick tests of a room, over this source; they have to pass where nothing is planted."""
    chosen = ["-m", "not slow and not spark", "-p", "no:cacheprovider", "--tb=no"]
    return [
        "pytest",
        "-qx",
        *chosen,
        "-o",
        f"pythonpath={source} {FORMAT}/src {FORMAT}/tests .",
        tests,
    ]


def of_seeds(output: str) -> tuple[str, str]:
    seed, _, how = output.strip().splitlines()[-1].partition(" ")
    return (f"seed {seed}", how) if seed.isdigit() else ("", how)


def of_tests(output: str, status: int) -> tuple[str, str]:
    """The test that has fallen, or has ended them all."""
    fallen = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if fallen:
        name, _, how = fallen[0].partition(" ")[2].partition(" - ")
        return name.rpartition("::")[2], how
    return ("the end of the tests" if status in ENDED else ""), output[-90:].replace("\n", " ")


def mutated(mutant: Mutant, text: str) -> str:
    """The source with the fault in it."""
    count = text.count(mutant.old)
    if count != 1:
        sys.exit(f"'{mutant.name}': its piece is {count} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


if __name__ == "__main__":
    sys.exit(main())
