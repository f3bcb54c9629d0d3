"""`tidegate run`: what a program finds, and how it ends."""

import json
import os
import sys
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from tidegate.cli.main import commands
from tidegate.datastream.process.outside import (
    CONFIGURATION_VARIABLE,
    RUNTIME_VARIABLE,
    SETTINGS_VARIABLE,
)

SHOW = f"""
import json, os, sys
print(json.dumps({{
    "argv": sys.argv,
    "name": __name__,
    "settings": json.loads(os.environ["{SETTINGS_VARIABLE}"]),
    "runtime": os.environ.get("{RUNTIME_VARIABLE}"),
    "file": os.environ.get("{CONFIGURATION_VARIABLE}"),
    "found beside": __import__("helper").ANSWER,
}}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("ANSWER = 42\n")
    path = tmp_path / "show.py"
    path.write_text(SHOW)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(commands, ["run", *map(str, args)])


def shown(result: Result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_script_runs_as_main_with_its_arguments_and_the_modules_beside_it(script: Path) -> None:
    seen = shown(run(script, "orders", "--fast", "-p", "9"))
    assert seen["argv"] == [str(script), "orders", "--fast", "-p", "9"]
    assert seen["name"] == "__main__"
    assert seen["found beside"] == 42
    assert seen["settings"] == {}


def test_a_link_to_a_script_finds_the_modules_beside_the_script(tmp_path: Path) -> None:
    """As with Python."""
    (tmp_path / "beside_the_script.py").write_text("ANSWER = 43\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside_the_script as b\nprint(b.ANSWER, *sys.argv)\n")
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(script)
    assert run(link).stdout == f"43 {link}\n"


def test_options_become_the_settings_of_every_environment(script: Path) -> None:
    seen = shown(
        run(
            "--runtime",
            "spark",
            "-p",
            3,
            "-Dpipeline.name=orders",
            "-n",
            "--from",
            "latest",
            script,
        )
    )
    assert seen["runtime"] == "spark"
    assert seen["settings"] == {
        "pipeline.name": "orders",
        "parallelism.default": "3",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.path": "latest",
    }


def test_s_is_short_for_from(script: Path) -> None:
    seen = shown(run("-s", "/tmp/checkpoints/chk-7", script))
    assert seen["settings"] == {"execution.state-recovery.path": "/tmp/checkpoints/chk-7"}


def test_a_configuration_file_is_handed_on_by_its_full_path(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text("parallelism.default: 2\n")
    assert shown(run("-c", file, script))["file"] == str(file)


def test_what_is_given_holds_in_the_environment_that_the_script_gets(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "from tidegate import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "print(env.get_parallelism(), env.get_checkpoint_interval())\n"
    )
    file = tmp_path / "conf.yaml"
    file.write_text("parallelism.default: 2\nexecution.checkpointing.interval: 1 s\n")
    result = run("--runtime", "local", "-c", file, "-p", 5, script)
    assert result.output == "5 1000\n"


def test_a_runtime_that_the_script_passes_over_is_warned_about(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "from tidegate import StreamExecutionEnvironment\nStreamExecutionEnvironment.local()\n"
    )
    with structlog.testing.capture_logs() as logs:
        run("--runtime", "spark", script)
        run("--runtime", "local", script)
    assert [(log["warning"], log["asked"], log["taken"]) for log in logs] == [
        ("runtime-ignored", "spark", "local")
    ]


def test_nothing_of_the_script_stays_behind_in_the_process(script: Path) -> None:
    before = dict(os.environ), list(sys.argv), list(sys.path)
    shown(run("-p", 3, script, "x"))
    assert (dict(os.environ), sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["-D", "parallelism.default=many"], "parallelism.default"),
        (["-D", "sets nothing"], "sets nothing"),
        (["-p", "0"], "parallelism"),
        (["-c", "missing.yaml"], "missing.yaml"),
        (["--runtime", "mesos"], "There is no runtime 'mesos'"),
        (["--json", "nowhere/told.json"], "The summary cannot be written"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_script_starts(
    script: Path, args: list[str], named: str
) -> None:
    result = run(*args, script)
    assert result.exit_code == 2
    assert named in result.stderr
    assert result.stdout == ""


def test_a_missing_script_is_named() -> None:
    result = run("nowhere/job.py")
    assert result.exit_code == 2
    assert "nowhere/job.py" in result.stderr


def test_a_scripts_own_exception_shows_its_lines_and_none_of_ours(tmp_path: Path) -> None:
    script = tmp_path / "faulty.py"
    script.write_text("def divide():\n    return 1 / 0\n\ndivide()\n")
    result = run(script)
    assert result.exit_code == 1
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert f'File "{script}", line 4' in result.stderr
    assert "runpy" not in result.stderr


def test_a_scripts_exit_code_is_the_commands(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text("raise SystemExit(7)\n")
    assert run(script).exit_code == 7


def test_a_script_that_is_no_python_is_told_as_python_does(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("def x(:\n")
    result = CliRunner().invoke(commands, ["run", str(script)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f'  File "{script}", line 1') and "SyntaxError" in result.stderr


def test_an_error_of_ours_in_a_script_is_told_without_a_traceback(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "from tidegate import StreamExecutionEnvironment\n"
        "StreamExecutionEnvironment.get_execution_environment().explain(format='song')\n"
    )
    result = run("--runtime", "local", script)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
