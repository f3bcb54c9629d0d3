"""Prints every row of docs/features.tsv with the tests that show it.

A row is shown by a test that carries its marker and passed in the last `make test`, if that was of
this very tree (build/test-results.json), or by a benchmark whose module declares
`FEATURES = {"F217": "checkpoint-loss.jsonl"}` and whose stored result, the last line of that file
in benchmarks/results/, says `"features": {"F217": true}`. States of a row:

    shown     each of its tests passed
    thin      likewise, but they ask for less than the row's check: docs/features-thin.tsv says what
    stale     a benchmark's result is of another state of the code that it measures
    not run   a test was not run on this tree
    failing   a test failed, or a benchmark's figure misses its floor
    not yet   there is neither test nor result

Exit status 1 where a row is not run, failing or not yet, or a mark names no row; with --release
also where one is stale. 2 where the tests cannot be collected.
"""

import argparse
import ast
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.trees import changed_since, tree_hash

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "features.tsv"
THIN = ROOT / "docs" / "features-thin.tsv"
OUTCOMES = ROOT / "build" / "test-results.json"
BENCHMARKS = ROOT / "benchmarks"
PRODUCT = ("src/tidegate",)
SATISFIED = ("shown", "thin", "stale")


@dataclass
class Evidence:
    """Evidence for a row: its tests and benchmarks, by outcome."""

    shown_by: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    missing: str = ""

    @property
    def state(self) -> str:
        """The word in the table's first column; the worst outcome counts."""
        if self.failed:
            return "failing"
        if self.not_run:
            return "not run"
        if self.stale:
            return "stale"
        if not self.shown_by:
            return "not yet"
        return "thin" if self.missing else "shown"


def main() -> int:
    """Print the table, or with --brief its last line and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brief", action="store_true", help="the last line and faults only")
    parser.add_argument("--release", action="store_true", help="stale results are faults too")
    args = parser.parse_args()
    rows = read_rows()
    evidence = of_tests(collected_marks(), last_outcomes(tree_hash()))
    for row, found in of_benchmarks().items():
        seen = evidence[row]
        seen.shown_by += found.shown_by
        seen.failed += found.failed
        seen.stale += found.stale
    for row, missing in read_thin().items():
        evidence[row].missing = missing
    if not args.brief:
        print_rows(rows, evidence)
    return verdict(rows, evidence, may_be_stale=not args.release)


def verdict(
    rows: list[dict[str, str]], evidence: Mapping[str, Evidence], *, may_be_stale: bool
) -> int:
    """Print how many rows are in which state, and those that are not as they have to be."""
    names = [row["id"] for row in rows]
    unknown = sorted(set(evidence) - set(names))
    for name in unknown:
        found = evidence[name]
        told = found.shown_by + found.failed + found.not_run + found.stale
        print(f"features: '{name}' is no row of docs/features.tsv: {told or found.missing}")
    states = {name: evidence.get(name, Evidence()).state for name in names}
    enough = [state for state in SATISFIED if may_be_stale or state != "stale"]
    wrong = [name for name, state in states.items() if state not in enough]
    for name in wrong[:20]:
        print(f"features: {name} is {states[name]}")
    if len(wrong) > 20:
        print(f"features: and {len(wrong) - 20} more; `make test` runs the tests of this tree")
    counts = Counter(states.values())
    others = ", ".join(f"{count} {state}" for state, count in counts.items() if state != "shown")
    print(f"{counts['shown']} of {len(rows)} shown{f'; {others}' if others else ''}")
    return 1 if unknown or wrong else 0


def read_rows() -> list[dict[str, str]]:
    """The feature table: id, chapter, feature, what a user sees, check."""
    with TABLE.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_thin() -> dict[str, str]:
    """The rows whose tests ask for less than their check, with what is missing."""
    with THIN.open(newline="", encoding="utf-8") as table:
        lines = csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {line["id"]: line["missing"] for line in lines}


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


def last_outcomes(tree: str) -> dict[str, str]:
    """How each test ended in the last `make test`; empty where that was of another tree."""
    record = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    return record["outcomes"] if record and record["tree"] == tree != "unknown" else {}


def of_tests(marks: dict[str, list[str]], outcomes: dict[str, str]) -> dict[str, Evidence]:
    """The rows that tests carry, by how these tests ended."""
    evidence: dict[str, Evidence] = defaultdict(Evidence)
    for test, rows in marks.items():
        for row in rows:
            found = evidence[row]
            match outcomes.get(test):
                case "passed":
                    found.shown_by.append(test)
                case None:
                    found.not_run.append(test)
                case _:
                    found.failed.append(test)
    return evidence


def of_benchmarks() -> dict[str, Evidence]:
    """The rows that benchmarks declare, by what their stored results say."""
    evidence: dict[str, Evidence] = defaultdict(Evidence)
    for module in sorted(BENCHMARKS.glob("*.py")):
        for row, file in declared(module, "FEATURES", {}).items():
            found = evidence[row]
            name = module.relative_to(ROOT).as_posix()
            result = last_result(BENCHMARKS / "results" / file)
            holds = result.get("features", {}).get(row)
            if holds is None:
                continue
            if not holds:
                found.failed.append(name)
            elif changed_since(result["commit"], declared(module, "MEASURES", PRODUCT)):
                found.stale.append(f"{name} at {result['commit']}")
            else:
                found.shown_by.append(name)
    return evidence


def declared(module: Path, name: str, otherwise: Any) -> Any:
    """The literal that a module gives to a name, read without importing it."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [name]:
            return ast.literal_eval(node.value)
    return otherwise


def last_result(path: Path) -> dict[str, Any]:
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
        for sign, names in (
            ("+", found.shown_by),
            ("-", found.failed),
            ("?", found.not_run),
            ("<", found.stale),
        ):
            for name in names:
                print(f"        {sign} {name}")
        if found.missing:
            print(f"        thin: {found.missing}")
    print()


if __name__ == "__main__":
    sys.exit(main())
