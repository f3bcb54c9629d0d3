"""Plants each fault of tests/mutants and lets the simulator look for it.

python -m scripts.mutants [SEEDS [TEXT]]: at most so many seeds a fault, only those whose name has
the text. The last line says how many were caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
SEEDS = 2_000
LIMIT_S = 900
LEAST_CAUGHT = 0.9


def main() -> int:
    """Exit status 1 where fewer than nine in ten are caught, or the list misfits the source."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    chosen = [mutant for mutant in MUTANTS if text in mutant.name]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda mutant: hunt(mutant, seeds), chosen))
    table = Table("planted fault", "caught by seed", "seconds", "as")
    for mutant, (seed, seconds, how) in zip(chosen, found, strict=True):
        table.add_row(mutant.name, str(seed or "–"), f"{seconds:.0f}", how)
    Console(width=150).print(table)
    caught = sum(seed is not None for seed, _, _ in found)
    print(f"{caught} of {len(chosen)} caught")
    return 0 if caught >= LEAST_CAUGHT * len(chosen) else 1


def hunt(mutant: Mutant, seeds: int) -> tuple[int | None, float, str]:
    """The first seed that finds the fault, the seconds it took, and what was found."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-mutant-") as folder:
        package = Path(folder) / "tidegate"
        shutil.copytree(ROOT / "src" / "tidegate", package)
        source = package / mutant.file
        source.write_text(mutated(mutant, source.read_text(encoding="utf-8")), encoding="utf-8")
        try:
            run = subprocess.run(
                [sys.executable, "-m", "scripts.hunt", str(seeds)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": folder},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return None, LIMIT_S, "not found in time"
    seconds = time.monotonic() - began_s
    line = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-200:]
    print(f"{mutant.name}: {line[:100]}", file=sys.stderr, flush=True)
    seed, _, how = line.partition(" ")
    return (int(seed) if seed.isdigit() else None), seconds, how[:90]


def mutated(mutant: Mutant, text: str) -> str:
    """The source with the fault in it."""
    count = text.count(mutant.old)
    if count != 1:
        sys.exit(f"'{mutant.name}': its piece is {count} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


if __name__ == "__main__":
    sys.exit(main())
