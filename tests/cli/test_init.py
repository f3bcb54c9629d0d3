"""`tidegate init`: projects that work as they come."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.house.source import ROOT
from tidegate.cli.main import commands

LIMIT_S = 200


def init(*args: object) -> Result:
    return CliRunner().invoke(commands, ["init", *map(str, args)])


def test_a_project_has_a_job_a_test_settings_and_a_readme(tmp_path: Path) -> None:
    result = init(tmp_path / "orders")
    assert result.exit_code == 0, result.output
    written = {path.name for path in (tmp_path / "orders").iterdir()}
    assert written == {"job.py", "test_job.py", "conf.yaml", "README.md", ".gitignore"}
    assert 'env.execute("orders")' in (tmp_path / "orders" / "job.py").read_text()


def test_a_name_with_quotes_makes_a_job_that_compiles(tmp_path: Path) -> None:
    for name in ('my "j', "back\\slash", "grün"):
        assert init(tmp_path / name).exit_code == 0
        program = (tmp_path / name / "job.py").read_text(encoding="utf-8")
        executed = next(
            node.args[0]
            for node in ast.walk(ast.parse(program))
            if isinstance(node, ast.Call) and "execute" in ast.unparse(node.func)
        )
        assert ast.literal_eval(executed) == name


def test_what_was_written_comes_as_json(tmp_path: Path) -> None:
    result = init("--json", "--source", tmp_path / "orders")
    said = json.loads(result.stdout)
    assert said["folder"] == str(tmp_path / "orders")
    assert sorted(said["files"]) == sorted(path.name for path in (tmp_path / "orders").iterdir())
    assert "go on with: cd " in result.stderr


def test_no_file_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("mine")
    result = init(tmp_path)
    assert result.exit_code == 2
    assert "There is a project already: conf.yaml" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["conf.yaml"]


@pytest.mark.parametrize("place", ["file/orders", "x" * 300])
def test_a_folder_that_cannot_be_made_or_looked_into_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    result = init(tmp_path / place)
    assert result.exit_code == 2
    assert "The project cannot be written" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--source"]])
def test_a_project_passes_its_tests_and_runs(options: list[str], tmp_path: Path) -> None:
    project = tmp_path / "orders"
    assert init(*options, project).exit_code == 0
    for arguments in (
        ["pytest", "-q", "-p", "no:cacheprovider"],
        ["tidegate", "run", "-c", "conf.yaml", "job.py"],
    ):
        run = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert run.returncode == 0, run.stdout + run.stderr
    parts = [part.read_text() for part in (project / "totals").glob("*.jsonl")]
    assert len("".join(parts).splitlines()) == 90, "three shops, thirty windows each"
    assert any((project / "checkpoints").iterdir())
