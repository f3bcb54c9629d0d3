"""`make features` counts what was shown on this very tree, and nothing else."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts import features
from scripts.features import Evidence
from scripts.trees import changed_since, tree_hash

ROWS = [{"id": "F001"}, {"id": "F002"}]


def test_a_row_counts_by_the_outcomes_of_its_tests() -> None:
    marks = {"a": ["F001"], "b": ["F002"], "c": ["F002"], "d": ["F003"]}
    evidence = features.of_tests(marks, {"a": "passed", "b": "passed", "c": "failed"})
    states = {row: found.state for row, found in evidence.items()}
    assert states == {"F001": "shown", "F002": "failing", "F003": "not run"}


def test_a_test_that_was_never_run_shows_nothing() -> None:
    assert features.of_tests({"a": ["F001"]}, {})["F001"].state == "not run"


def test_a_row_whose_test_asks_for_less_is_thin_until_it_fails() -> None:
    assert Evidence(shown_by=["a"], missing="HTTP").state == "thin"
    assert Evidence(failed=["a"], missing="HTTP").state == "failing"


def test_outcomes_of_another_tree_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "OUTCOMES", tmp_path / "results.json")
    assert features.last_outcomes("this") == {}
    record = {"tree": "this", "outcomes": {"a": "passed"}}
    (tmp_path / "results.json").write_text(json.dumps(record))
    assert features.last_outcomes("this") == {"a": "passed"}
    assert features.last_outcomes("another") == {}


@pytest.mark.parametrize(
    ("evidence", "may_be_stale", "status"),
    [
        ({"F001": Evidence(["a"]), "F002": Evidence(["b"])}, True, 0),
        ({"F001": Evidence(["a"])}, True, 1),
        ({"F001": Evidence(["a"]), "F002": Evidence(not_run=["b"])}, True, 1),
        ({"F001": Evidence(["a"]), "F002": Evidence(["b"], failed=["c"])}, True, 1),
        ({"F001": Evidence(["a"]), "F002": Evidence(stale=["b"])}, True, 0),
        ({"F001": Evidence(["a"]), "F002": Evidence(stale=["b"])}, False, 1),
        ({"F001": Evidence(["a"]), "F002": Evidence(["b"]), "F999": Evidence(["c"])}, True, 1),
    ],
    ids=["all shown", "no test", "not run", "failing", "stale", "stale at a release", "no row"],
)
def test_the_exit_status_is_0_only_where_every_row_is_shown(
    evidence: dict[str, Evidence], may_be_stale: bool, status: int
) -> None:
    assert features.verdict(ROWS, evidence, may_be_stale=may_be_stale) == status


def test_each_thin_row_is_a_row_of_the_table() -> None:
    assert features.read_thin().keys() <= {row["id"] for row in features.read_rows()}


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (None, "not yet"),
        ({"shares": {}}, "not yet"),
        ({"features": {"F217": True}, "commit": "HEAD"}, "shown"),
        ({"features": {"F217": True}, "commit": "0000000"}, "stale"),
        ({"features": {"F217": True}, "commit": "HEAD+"}, "stale"),
        ({"features": {"F217": False}, "commit": "HEAD"}, "failing"),
    ],
)
def test_a_benchmark_counts_by_its_last_stored_result(
    stored: dict[str, object] | None, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'FEATURES = {"F217": "loss.jsonl"}\nMEASURES = ("LICENSE",)\n'
    (tmp_path / "loss.py").write_text(text)
    if stored is not None:
        (tmp_path / "results").mkdir()
        older = json.dumps({"features": {"F217": True}, "commit": "HEAD"})
        (tmp_path / "results" / "loss.jsonl").write_text(f"{older}\n{json.dumps(stored)}\n")
    monkeypatch.setattr(features, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(features, "ROOT", tmp_path)
    assert features.of_benchmarks()["F217"].state == state


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text("one")
    (tmp_path / ".gitignore").write_text("build\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    git(tmp_path, *who, "commit", "-q", "-m", "first")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def test_the_name_of_a_tree_follows_its_content_also_before_a_commit(checkout: Path) -> None:
    before = tree_hash(checkout)
    (checkout / "build").write_text("ignored")
    assert tree_hash(checkout) == before
    (checkout / "new.py").write_text("not added yet")
    assert tree_hash(checkout) != before
    (checkout / "new.py").unlink()
    assert tree_hash(checkout) == before
    (checkout / "code.py").write_text("two")
    assert tree_hash(checkout) != before


def test_code_has_changed_since_a_commit_where_its_files_differ(checkout: Path) -> None:
    assert not changed_since("HEAD", ("code.py",), checkout)
    (checkout / "code.py").write_text("two")
    assert changed_since("HEAD", ("code.py",), checkout)
    assert not changed_since("HEAD", (".gitignore",), checkout)
    assert changed_since("no-such-commit", (".gitignore",), checkout)
