"""The last lines of `make test` say what failed."""

import json
from pathlib import Path

import pytest

from scripts.failed_parts import report


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def test_each_failed_test_is_named(build: Path) -> None:
    outcomes = {"tests/b.py::test_x": "failed", "tests/a.py::test_y": "passed"}
    (build / "test-results.json").write_text(json.dumps({"tree": "one", "outcomes": outcomes}))
    lines = report(["tests"], build)
    assert "    tests/b.py::test_x" in lines
    assert not any("test_y" in line for line in lines)
    assert lines[-1] == "test: FAILED: tests"


def test_without_results_the_log_says_how_the_tests_ended(build: Path) -> None:
    (build / "logs" / "tests.log").write_text("collecting\nINTERNALERROR\n")
    assert report(["tests"], build)[-2] == "    INTERNALERROR"


def test_other_parts_show_the_end_of_their_logs(build: Path) -> None:
    (build / "logs" / "simulate.log").write_text("\n".join(f"seed {n}" for n in range(100)))
    lines = report(["simulate", "source"], build)
    assert "    seed 99" in lines
    assert "    seed 1" not in lines
    assert lines[-1] == "test: FAILED: simulate, source"
