"""`make features` counts what is shown, and nothing else."""

import json
from pathlib import Path

import pytest

from scripts import features


def test_a_test_that_passed_or_was_never_run_shows_its_rows() -> None:
    marks = {"tests/a.py::test_one": ["F001", "F002"], "tests/a.py::test_two": []}
    evidence = features.of_tests(marks, {})
    assert {row: found.state for row, found in evidence.items()} == {
        "F001": "shown",
        "F002": "shown",
    }


def test_a_row_with_a_failed_test_is_not_shown() -> None:
    marks = {"tests/a.py::test_one": ["F001"], "tests/a.py::test_two": ["F001"]}
    evidence = features.of_tests(marks, {"tests/a.py::test_one": "failed"})
    assert evidence["F001"].state == "failing"


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (None, "not yet"),
        ({"shares": {}}, "not yet"),
        ({"features": {"F217": True}}, "shown"),
        ({"features": {"F217": False}}, "failing"),
    ],
)
def test_a_benchmark_counts_by_its_last_stored_result(
    stored: dict[str, object] | None, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loss.py").write_text('FEATURES = {"F217": "loss.jsonl"}\n')
    if stored is not None:
        (tmp_path / "results").mkdir()
        older = json.dumps({"features": {"F217": True}})
        (tmp_path / "results" / "loss.jsonl").write_text(f"{older}\n{json.dumps(stored)}\n")
    monkeypatch.setattr(features, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(features, "ROOT", tmp_path)
    assert features.of_benchmarks()["F217"].state == state
