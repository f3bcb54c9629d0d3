"""Says which parts of `make test` failed: python scripts/failed_parts.py PART...

Of the part `tests` it names each test that failed (build/test-results.json), of the others it
repeats the last lines of their logs (build/logs). A log of thousands of lines ends with this.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TAIL_LINES = 12


def main() -> None:
    print("\n".join(report(sys.argv[1:], BUILD)))


def report(parts: list[str], build: Path) -> list[str]:
    """The lines to print; the last one has the names of all parts."""
    lines: list[str] = []
    for part in parts:
        log = build / "logs" / f"{part}.log"
        found = failed_tests(build / "test-results.json") if part == "tests" else []
        lines.append(f"test: {part} FAILED, {log}")
        lines += [f"    {line}" for line in found or last_lines(log)]
    return [*lines, f"test: FAILED: {', '.join(parts)}"]


def failed_tests(results: Path) -> list[str]:
    """The names of failed tests; none where pytest ended before it wrote its results."""
    if not results.exists():
        return []
    outcomes: dict[str, str] = json.loads(results.read_text())["outcomes"]
    return sorted(name for name, outcome in outcomes.items() if outcome == "failed")


def last_lines(log: Path) -> list[str]:
    """The end of a log that has one."""
    return log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if log.exists() else []


if __name__ == "__main__":
    main()
