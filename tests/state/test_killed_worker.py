"""A worker with state is killed while it goes on working; the next one starts at the barrier."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100.0


@pytest.mark.slow
@pytest.mark.feature("F104", "F108")
def test_after_a_kill_state_is_what_it_was_at_the_barrier(tmp_path: Path) -> None:
    with start("take", tmp_path) as worker:
        assert worker.stdout is not None
        at_barrier = json.loads(worker.stdout.readline())
        worker.kill()
        worker.wait(LIMIT_S)
    with start("restore", tmp_path) as worker:
        found, _ = worker.communicate(timeout=LIMIT_S)
    assert worker.returncode == 0
    assert json.loads(found) == at_barrier
    assert len(at_barrier["count"]) == 1000 and at_barrier["split"] == [0]


def start(command: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.state.worker", command, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
