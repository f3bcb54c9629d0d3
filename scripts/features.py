"""Prints every row of docs/features.tsv with the tests that show it.

A row is shown by a test that carries its marker and has not failed in the last `make test`
(build/test-results.json, where there is one), or by a benchmark whose module declares
`FEATURES = {"F217": "checkpoint-loss.jsonl"}` and whose stored result, the last line of that file
in benchmarks/results/, says `"features": {"F217": true}`.

Exit status 1 where a marker or a benchmark names no row, 2 where the tests cannot be collected.
"""

import argparse
import ast
import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "features.tsv"
OUTCOMES = ROOT / "build" / "test-results.json"
BENCHMARKS = ROOT / "benchmarks"


@dataclass
class Evidence:
    """What stands for a row: the tests and benchmarks that show it, and those that failed to."""

    shown_by: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The word in the table's first column."""
        if self.failed:
            return "failing"
        return "shown" if self.shown_by else "not yet"


def main() -> int:
    """Print the table, or with --brief its last line and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brief", action="store_true", help="the last line and faults only")
    brief = parser.parse_args().brief
    rows = read_rows()
    evidence = of_tests(collected_marks(), last_outcomes())
    for row, found in of_benchmarks().items():
        seen = evidence[row]
        seen.shown_by += found.shown_by
        seen.failed += found.failed
    if not brief:
        print_rows(rows, evidence)
    unknown = sorted(set(evidence) - {row["id"] for row in rows})
    for name in unknown:
        found = evidence[name]
        print(f"features: '{name}' is no row of docs/features.tsv: {found.shown_by + found.failed}")
    shown = sum(evidence.get(row["id"], Evidence()).state == "shown" for row in rows)
    print(f"{shown} of {len(rows)} shown")
    return 1 if unknown else 0


def read_rows() -> list[dict[str, str]]:
    """The feature table: id, chapter, feature, what a user sees, check."""
    with TABLE.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


def collected_marks() -> dict[str, list[str]]:
    """Which test carries which features, as pytest collects them."""
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "marks.json"
        command = ["--collect-only", "-q", "-p", "no:cacheprovider", "--feature-marks", str(marks)]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *command], cwd=ROOT, capture_output=True, text=True
        )
        if run.returncode not in (0, 5):
            print(run.stdout[-8000:], run.stderr[-2000:], sep="\n", file=sys.stderr)
            print("features: the tests cannot be collected", file=sys.stderr)
            raise SystemExit(2)
        return json.loads(marks.read_text())


def last_outcomes() -> dict[str, str]:
    """How each test ended in the last `make test`; empty where there was none."""
    return json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}


def of_tests(marks: dict[str, list[str]], outcomes: dict[str, str]) -> dict[str, Evidence]:
    """The rows that tests carry; one that is not in the last outcomes counts as it stands."""
    evidence: dict[str, Evidence] = defaultdict(Evidence)
    for test, rows in marks.items():
        passed = outcomes.get(test, "passed") == "passed"
        for row in rows:
            (evidence[row].shown_by if passed else evidence[row].failed).append(test)
    return evidence


def of_benchmarks() -> dict[str, Evidence]:
    """The rows that benchmarks declare, by what their stored results say."""
    evidence: dict[str, Evidence] = defaultdict(Evidence)
    for module in sorted(BENCHMARKS.glob("*.py")):
        for row, result in declared_features(module).items():
            name = module.relative_to(ROOT).as_posix()
            holds = last_result(BENCHMARKS / "results" / result).get("features", {}).get(row)
            if holds is not None:
                (evidence[row].shown_by if holds else evidence[row].failed).append(name)
            else:
                evidence[row]  # named, so that a row that does not exist is found
    return evidence


def declared_features(module: Path) -> dict[str, str]:
    """The module's FEATURES, read without importing it."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["FEATURES"]:
            return ast.literal_eval(node.value)
    return {}


def last_result(path: Path) -> dict[str, dict[str, bool]]:
    """The last line of a file of results; empty where it has none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return json.loads(lines[-1]) if lines else {}


def print_rows(rows: list[dict[str, str]], evidence: dict[str, Evidence]) -> None:
    """One line a row under its chapter, then its tests."""
    chapter = ""
    for row in rows:
        if row["chapter"] != chapter:
            chapter = row["chapter"]
            print(f"\n{chapter}")
        found = evidence.get(row["id"], Evidence())
        print(f"  {row['id']}  {found.state:8} {row['feature']}")
        for name in found.shown_by:
            print(f"        + {name}")
        for name in found.failed:
            print(f"        - {name}")
    print()


if __name__ == "__main__":
    sys.exit(main())
