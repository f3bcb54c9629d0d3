"""Each example is a whole program: it runs as it stands, anywhere, and prints what it found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_TESTS_LOCAL = ("kafka_to_kafka.py", "parcel_metrics.py")
"""The one needs a broker, the other runs until Ctrl-C."""
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if path.name not in IN_TESTS_LOCAL
)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", "run", "--runtime", "local", str(example)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert list(tmp_path.iterdir()) == []
