"""Programs that are only looked at: `tidegate plan` and `tidegate config show`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli.main import commands

PROGRAM = """
import sys
from tidegate import StreamExecutionEnvironment

print("the program speaks")
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(1_000)
pairs = env.from_collection(["a", "b"]).map(lambda word: (word, 1)).uid("pairs")
pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: b).print()
if sys.argv[1:] != ["--dry"]:
    env.execute("words")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "words.py"
    path.write_text(PROGRAM)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(commands, [*map(str, args)])


def held(*args: object) -> dict[str, dict[str, str]]:
    result = run("config", "show", "--json", *args)
    assert result.exit_code == 0, result.output
    return {entry["option"]: entry for entry in json.loads(result.stdout)}


def test_the_plan_of_a_program_is_shown_and_nothing_is_started(script: Path) -> None:
    result = run("plan", "-p", 3, script)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Job 'words': 3 vertices, 3 slots, checkpoints each 1000 ms")
    assert "uid 'pairs'" in result.stdout
    assert result.stderr == "the program speaks\n"


def test_the_plan_comes_as_json_in_flinks_form_and_as_a_diagram(script: Path) -> None:
    plan = json.loads(run("plan", "--json", script).stdout)
    assert [node["type"] for node in plan["nodes"]][1:3] == ["Map", "Reduce"]
    assert run("plan", "--mermaid", script).stdout.startswith("flowchart LR\n")


@pytest.mark.parametrize("command", [["plan"], ["config", "show"]], ids=" ".join)
def test_a_program_that_exits_before_its_job_has_no_plan(
    tmp_path: Path, command: list[str]
) -> None:
    script = tmp_path / "quits.py"
    script.write_text("import sys\nsys.exit(0)\n")
    result = run(*command, script)
    assert result.exit_code == 2
    assert "executed no job before it called sys.exit(0)" in result.stderr


def test_a_program_without_a_job_has_no_plan(script: Path) -> None:
    result = run("plan", script, "--dry")
    assert result.exit_code == 2
    assert "The program has executed no job" in result.stderr


def test_each_setting_is_shown_with_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text("parallelism.default: 3\nstate.backend.type: hashmap\n")
    settings = held("-c", file, "-D", "parallelism.default=4", "-D", "state.checkpoints.dir=ck")
    assert {key: (each["value"], each["source"]) for key, each in settings.items()} == {
        "parallelism.default": ("4", "command line"),
        "state.backend.type": ("hashmap", f"{file}, line 2"),
        "execution.checkpointing.dir": ("ck", "command line, -D state.checkpoints.dir"),
    }


def test_the_file_of_the_environment_counts_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, parallelism in (("ours", 5), ("other", 6)):
        (tmp_path / name).write_text(f"parallelism.default: {parallelism}\n")
    monkeypatch.setenv("TIDEGATE_CONF", str(tmp_path / "ours"))
    assert held()["parallelism.default"]["value"] == "5"
    assert held("-c", tmp_path / "other")["parallelism.default"]["value"] == "6"


def test_what_a_program_sets_is_told_as_the_programs(script: Path) -> None:
    settings = held("-D", "parallelism.default=2", script)
    assert settings["execution.checkpointing.interval"]["source"] == "the program"
    assert settings["parallelism.default"]["source"] == "command line"


def test_secrets_are_masked_wherever_they_would_stand() -> None:
    result = run("config", "show", "-D", "s3.secret-key=hidden", "-D", "parallelism.default=2")
    assert result.exit_code == 0
    assert "******" in result.stdout and "hidden" not in result.output


def test_a_key_without_effect_says_why() -> None:
    settings = held("-D", "rest.profiling.enabled=true", "-D", "mine=1")
    assert settings["rest.profiling.enabled"]["note"] == "Flink reads it, Tidegate does not"
    assert settings["mine"]["note"] == "not an option of Tidegate"


def test_defaults_are_shown_on_demand() -> None:
    assert held("--all")["heartbeat.interval"]["value"] == "1 s"
    assert "nothing is set" in run("config", "show").stderr


def test_settings_of_reporters_are_options() -> None:
    key = "metrics.reporter.mine.factory.class"
    assert held("-D", f"{key}=prometheus")[key]["note"] == ""
    assert held("-D", "metrics.reporter.mine=x")["metrics.reporter.mine"]["note"] != ""
