"""`tidegate check`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli.main import commands

PROGRAM = """
import sys
from tests.upgrade.programs import Plan, build
from tidegate import StreamExecutionEnvironment

print("a word of the program's own")
if sys.argv[1] == "fail":
    raise OSError("no such table")
if sys.argv[1] == "exit":
    sys.exit("no input given")
if sys.argv[1] != "nothing":
    env = StreamExecutionEnvironment.{make}()
    build(env, Plan(keeper=sys.argv[1], folder="nowhere"))
    try:
        env.execute("orders")
    except Exception:
        print("no failure of the job's")
"""

TRUSTED = "--unsafe-unpickle"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "orders.py"
    path.write_text(PROGRAM.format(make="get_execution_environment"))
    return path


def check(*args: object) -> Result:
    return CliRunner().invoke(commands, ["check", *map(str, args)])


def test_a_program_that_fits_ends_with_0(script: Path, savepoint: str) -> None:
    result = check("--from", savepoint, TRUSTED, script, "keeper")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("The program fits.\n")
    assert "a word of the program's own" in result.stderr
    assert "a word of the program's own" not in result.stdout


def test_classes_of_the_program_are_unpickled_only_where_that_is_asked_for(
    script: Path, savepoint: str
) -> None:
    result = check("--from", savepoint, script, "keeper")
    assert result.exit_code == 1
    assert "names tests.upgrade.programs.Note, which is code" in result.stdout
    assert result.stdout.count("refused:") == 1, "plain data are judged"
    assert TRUSTED in result.stdout


def test_a_program_that_does_not_fit_ends_with_1(script: Path, savepoint: str) -> None:
    result = check("--from", savepoint, script, "keepers")
    assert result.exit_code == 1, result.output
    assert "operator lost" in result.stdout and "uid('keeper')" in result.stdout
    allowed = check("--from", savepoint, "-n", TRUSTED, script, "keepers")
    assert allowed.exit_code == 0, allowed.output
    assert "warning: operator lost" in allowed.stdout


def test_the_report_is_json_where_that_is_asked_for(script: Path, savepoint: str) -> None:
    result = check("--json", "--from", savepoint, script, "keepers")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["fits"] is False
    assert [each["operator"] for each in report["findings"]] == ["keeper"]


def test_a_program_that_chooses_its_runtime_is_not_started_either(
    script: Path, savepoint: str
) -> None:
    script.write_text(PROGRAM.format(make="local"))
    result = check("--from", savepoint, TRUSTED, "-D", "parallelism.default=2", script, "keeper")
    assert result.exit_code == 0, result.output
    assert "parallelism 1 of 128 -> 2 of 128" in result.stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nothing"], "has executed no job"),
        (["exit"], "has executed no job before it called sys.exit('no input given')"),
        (["fail"], "no such table"),
    ],
)
def test_a_program_without_a_job_ends_with_2(
    script: Path, savepoint: str, args: list[str], text: str
) -> None:
    result = check("--from", savepoint, script, *args)
    assert result.exit_code == 2
    assert text in result.output


def test_a_snapshot_that_is_not_there_ends_with_2(script: Path, tmp_path: Path) -> None:
    result = check("--from", tmp_path / "nowhere", script, "keeper")
    assert result.exit_code == 2
    assert "Cannot find checkpoint or savepoint" in result.output
    assert check(script, "keeper").exit_code == 2  # and neither is one that is not named
