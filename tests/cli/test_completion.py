"""What the shell completes."""

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tidegate.cli.main import commands


def completed(*words: str) -> list[str]:
    *before, begun = words
    shell = ShellComplete(commands, {}, "tidegate", "_TIDEGATE_COMPLETE")
    return [item.value for item in shell.get_completions(before, begun)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    result = CliRunner().invoke(commands, ["completion", shell])
    assert result.exit_code == 0
    assert "_TIDEGATE_COMPLETE" in result.stdout


def test_commands_options_keys_and_runtimes_are_completed() -> None:
    assert completed("sav") == ["savepoint"]
    assert "--parallelism" in completed("run", "--para")
    assert "execution.checkpointing.dir" in completed("run", "-D", "execution.checkpointing.d")
    assert completed("run", "--runtime", "sp") == ["spark"]
    assert completed("options", "heartbeat.t") == ["heartbeat.timeout"]
