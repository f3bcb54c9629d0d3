"""Commands, errors and exit codes of the command line."""

import errno
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tidegate import __version__
from tidegate.cli.main import SECTIONS, Commands, commands
from tidegate.errors import ConfigError, JobFailed

TIDEGATE = [sys.executable, "-m", "tidegate"]


def command_that_raises(error: BaseException) -> Callable[..., Result]:
    class OneCommand(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            def fail() -> None:
                raise error

            return click.Command(cmd_name, callback=fail)

    group = OneCommand(params=commands.params, callback=commands.callback)
    return lambda *args: CliRunner().invoke(group, [*args, "fail"])


def test_help_lists_every_command_with_a_line() -> None:
    result = CliRunner().invoke(commands, ["--help"], terminal_width=80)
    assert result.exit_code == 0
    assert "run" in result.output
    assert "Run the program SCRIPT" in result.output
    lines = result.output.partition("Running:")[2].splitlines()
    assert not any(line.endswith("...") for line in lines), "a line that is cut off says little"


def test_the_lines_of_the_help_are_those_of_the_commands() -> None:
    context = click.Context(commands)
    listed = {name: line for section in SECTIONS.values() for name, (_, line) in section.items()}
    assert sorted(listed) == commands.list_commands(context)
    for name, line in listed.items():
        command = commands.get_command(context, name)
        assert command is not None and command.get_short_help_str(limit=200) == line


LOADED = """
import sys
from click.testing import CliRunner
from tidegate.cli.main import commands
assert CliRunner().invoke(commands, ["-h"]).exit_code == 0
print(sorted(name for name in sys.modules if name.startswith("tidegate.")))
"""


def test_the_help_loads_no_command() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOADED], stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout.strip() == "['tidegate.cli', 'tidegate.cli.main', 'tidegate.errors']"


def test_h_is_short_for_help_of_each_command() -> None:
    for name in commands.list_commands(click.Context(commands)):
        result = CliRunner().invoke(commands, [name, "-h"])
        assert (result.exit_code, result.output[:6]) == (0, "Usage:"), name


def test_the_package_is_the_command_line_too() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tidegate", "--version"], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout == f"tidegate {__version__}\n"


def test_a_misspelt_command_is_told_with_the_nearest() -> None:
    result = CliRunner().invoke(commands, ["inpsect"])
    assert result.exit_code == 2
    assert "No such command 'inpsect'. Did you mean 'inspect'?" in result.output


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(commands, ["--version"])
    assert result.output == f"tidegate {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(commands, ["sing"])
    assert result.exit_code == 2
    assert "No such command 'sing'" in result.output


def test_an_error_of_the_caller_says_what_where_and_what_to_do_and_exits_with_2() -> None:
    error = ConfigError("It is blue", where="line 4", remedy="Paint it red.")
    result = command_that_raises(error)()
    assert result.exit_code == 2
    assert result.stderr == ("error: It is blue\n  where: line 4\n  what to do: Paint it red.\n")


def test_any_other_error_of_ours_exits_with_1_and_shows_its_cause() -> None:
    result = command_that_raises(JobFailed("It failed", cause_text="Traceback: a division"))()
    assert result.exit_code == 1
    assert "It failed" in result.stderr
    assert "Traceback: a division" in result.stderr


def test_debug_lets_an_error_through_with_its_traceback() -> None:
    error = ConfigError("It is blue")
    result = command_that_raises(error)("--debug")
    assert result.exception is error


def test_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """As to a full disk."""
    command = f"ulimit -f 0; {shlex.join([*TIDEGATE, 'options'])} > {tmp_path}/options"
    ran = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert "The system has refused a call: File too large" in ran.stderr
    assert "Traceback" not in ran.stderr and "ignored" not in ran.stderr


@pytest.mark.parametrize(
    ("error", "told", "where"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
            "Connection refused",
            "",
        ),
        (TimeoutError(), "TimeoutError", ""),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known", ""),
        (OSError(errno.ENOSPC, "No space"), "No space", "standard output, or a file"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a/b"), "No such file", "a/b"),
    ],
)
def test_only_errors_of_files_are_told_with_a_place_and_room(
    error: OSError, told: str, where: str
) -> None:
    result = command_that_raises(error)()
    assert result.exit_code == 1
    assert f"The system has refused a call: {told}\n" in result.stderr
    assert (f"where: {where}\n" in result.stderr) if where else "where" not in result.stderr
    assert ("there is room" in result.stderr) is bool(where)


def test_a_closed_output_is_no_error() -> None:
    command = shlex.join([*TIDEGATE, "options"])
    ran = subprocess.run(["sh", "-c", f"{command} >&-"], stderr=subprocess.PIPE, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_ctrl_c_exits_with_130() -> None:
    assert command_that_raises(KeyboardInterrupt())().exit_code == 130


@pytest.mark.parametrize("command", ["run", "fork"])
def test_each_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(commands, [command, "--help"])
    assert result.exit_code == 0
    assert "--runtime" in result.output


def test_the_module_runs_as_a_program() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", "--version"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.stdout.strip() == f"tidegate {__version__}"


@pytest.mark.parametrize(
    ("args", "what", "where"),
    [
        (["--loud"], "No such option --loud", "tidegate"),
        (["run", "--paralelism", "2"], "No such option --paralelism", "tidegate run"),
        (["inspect"], "Missing argument PATH", "tidegate inspect"),
        (["completion", "csh"], "csh is not one of", "tidegate completion"),
        (["config"], "Missing command", "tidegate config"),
    ],
)
def test_a_wrong_call_is_told_in_the_voice_of_all_errors(
    args: list[str], what: str, where: str
) -> None:
    result = CliRunner().invoke(commands, args, prog_name="tidegate")
    assert result.exit_code == 2
    first, second, third = result.stderr.splitlines()
    assert first.startswith("error: ") and what in first.replace("option: ", "option ").replace(
        "'", ""
    )
    assert second == f"  where: command line, {where}"
    assert third.startswith(f"  what to do: Write '{where} ") and f"'{where} -h'" in third


def test_without_a_command_there_is_help() -> None:
    result = CliRunner().invoke(commands, [])
    assert (result.exit_code, result.stdout[:6]) == (0, "Usage:")
