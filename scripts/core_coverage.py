"""Prints how many branches of the whole and of its cores the last run of the tests has taken.

Exit status 1 where the whole or a core has less than its share: what decides about checkpoints,
restarts and leadership, and what performs barriers, is held to more than the rest. Reads the data
that `coverage` has combined.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
LEAST: Final = 95.0
LEAST_OF_ALL: Final = 93.0
WHOLE: Final = "the whole"
CORES: Final = {
    WHOLE: ("src/tidegate/", "packages/flinkformat/"),
    "checkpoint": ("src/tidegate/checkpoint/",),
    "format": ("packages/flinkformat/src/flinkformat/metadata/",),
    "jobmaster": ("src/tidegate/jobmaster/",),
    "transport": tuple(
        f"src/tidegate/transport/{module}.py" for module in ("protocol", "credit", "debloat")
    ),
    "slot": tuple(
        f"src/tidegate/slot/{module}.py"
        for module in (
            "subtask/subtask",
            "subtask/checkpointing",
            "subtask/ending",
            "subtask/hosted",
            "subtask/input",
            "subtask/snapshot",
            "in_flight",
            "channel_state",
        )
    ),
    "ha": ("src/tidegate/ha/chain.py", "src/tidegate/ha/leadership.py"),
}

Figures = dict[str, dict[str, int]]


def main() -> int:
    enough = True
    for core, share in shares_of(read()).items():
        least = LEAST_OF_ALL if core == WHOLE else LEAST
        enough = enough and share >= least
        verdict = "" if share >= least else f", less than {least:g} %"
        print(f"{core}: {share:.1f} % of the branches{verdict}")
    return 0 if enough else 1


def read() -> Figures:
    """The figures of each file, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
        subprocess.run(command, cwd=ROOT, check=True)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {path: file["summary"] for path, file in files.items()}


def shares_of(figures: Figures) -> dict[str, float]:
    """Percent of the branches taken, by core; one of which nothing was measured has 0."""
    shares = {}
    for core, places in CORES.items():
        measured = [figures[path] for path in figures if path.startswith(places)]
        branches = sum(file["num_branches"] for file in measured)
        taken = sum(file["covered_branches"] for file in measured)
        shares[core] = 100 * taken / branches if branches else 0.0
    return shares


if __name__ == "__main__":
    sys.exit(main())
