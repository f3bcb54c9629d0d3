"""`tidegate replay`, in this process, on bundles of small jobs."""

from __future__ import annotations

import io
import json
import sys
import textwrap
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.testing.bundles import failed_as
from tidegate.cli.main import commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.feature("F300")

PROGRAM = """
    from tidegate import OutputTag, KeyedProcessFunction, StreamExecutionEnvironment, Types

    class Mended(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value
            yield OutputTag("odd", Types.LONG()), value

    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_sequence(1, 9)
    numbers.key_by(lambda n: n % 2).process(Mended()).STEP.print()
    env.execute("numbers")
"""


def replayed(*args: object, exit_code: int = 0) -> str:
    ran = CliRunner().invoke(commands, ["replay", *map(str, args)])
    assert ran.exit_code == exit_code, ran.output
    return ran.output


def mended(folder: Path, step: str) -> Path:
    script = folder / "numbers.py"
    script.write_text(textwrap.dedent(PROGRAM).replace("STEP", step))
    return script


def with_facts(bundle: Path, **changed: Any) -> Path:
    """Another bundle, whose facts differ."""
    other = bundle.with_name("other")
    with zipfile.ZipFile(bundle) as read, zipfile.ZipFile(other, "w") as written:
        for name in read.namelist():
            content = read.read(name)
            if name == "facts.json":
                content = json.dumps({**json.loads(content), **changed}).encode()
            written.writestr(name, content)
    return other


def test_what_a_bundle_holds_is_shown_and_nothing_is_run(tmp_path: Path) -> None:
    bundle = failed_as("keyed", tmp_path)
    shown = replayed("--show", bundle)
    assert "step, uid 'step', in " in shown and "row            7\n" in shown
    assert "key            1\n" in shown and "state sum      9\n" in shown
    assert "ValueError: 7 is bad" in shown and "running it again" not in shown
    facts = json.loads(replayed("--show", "--json", bundle))
    assert (facts["row"], facts["state"]) == ("7", {"sum": ["9"]})


def test_facts_of_another_python_and_of_what_is_left_out_are_told(tmp_path: Path) -> None:
    bundle = failed_as("map", tmp_path)
    versions = {"python": "3.9.1"}
    other = with_facts(bundle, versions=versions, left_out=["columns"], uid=None, rows=4)
    shown = replayed("--show", other)
    assert "note: it failed with Python 3.9.1, here is " in shown
    assert "left out       columns\n" in shown and "row, of 4 given 7\n" in shown
    assert "uid" not in shown


def test_a_step_fails_again_and_the_exit_code_says_so(tmp_path: Path) -> None:
    told = replayed(failed_as("event timer", tmp_path), exit_code=1)
    assert "running it again, with the code of the bundle" in told
    assert "timer          " in told
    assert "it fails again\n" in told and "ValueError: timer" in told


@pytest.fixture
def traced() -> Iterator[None]:
    """A debugger that is left takes the tracing of this thread with it."""
    trace = sys.gettrace()
    yield
    sys.settrace(trace)


@pytest.mark.usefixtures("traced")
def test_a_debugger_stops_in_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = failed_as("map", tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("p number * 6\nq\n"))
    exit_code = commands.main(["replay", "--pdb", str(bundle)], "tidegate", standalone_mode=False)
    told = capsys.readouterr().out
    assert exit_code == 1 and "it fails again" in told and "(Pdb) 42" in told


def test_the_step_of_a_program_with_the_same_uid_passes(tmp_path: Path) -> None:
    bundle = failed_as("keyed", tmp_path / "bundles")
    script = mended(tmp_path, 'uid("step")')
    told = replayed("--program", script, bundle)
    assert f"with the code of {script}" in told and "it passes\n" in told
    assert "  result 7\n" in told and "  side output odd: 7\n" in told


def test_without_a_uid_the_name_tells_which_step_it_is(tmp_path: Path) -> None:
    bundle = with_facts(failed_as("keyed", tmp_path), uid=None)
    told = replayed("--program", mended(tmp_path, 'name("step")'), bundle)
    assert "it passes\n" in told
    refused = replayed("--program", mended(tmp_path, 'name("others")'), bundle, exit_code=2)
    assert "The program has no steps with the name 'step'" in refused


def test_a_program_without_that_uid_is_refused(tmp_path: Path) -> None:
    script = mended(tmp_path, 'uid("another")')
    told = replayed("--program", script, failed_as("keyed", tmp_path), exit_code=2)
    assert "The program has no steps with the uid 'step'" in told
    assert "it passes" not in told


WAITING = """
    import asyncio
    from tidegate import AsyncDataStream, StreamExecutionEnvironment

    async def never(number):
        await asyncio.get_running_loop().create_future()

    env = StreamExecutionEnvironment.get_execution_environment()
    AsyncDataStream.unordered_wait(env.from_sequence(1, 9), never, 20_000).uid("step").print()
    env.execute("numbers")
"""


def test_what_the_step_would_wait_for_is_not_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(textwrap.dedent(WAITING))
    bundle = failed_as("async", tmp_path / "bundles")
    told = replayed("--program", script, bundle, exit_code=2)
    assert "it has not failed so far\n" in told and "and waits for something outside" in told
    assert "it passes" not in told


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--json"], "--json prints what the bundle holds"),
        (["--show", "--pdb"], "--show runs nothing"),
        (["--show", "--program", __file__], "--show runs nothing"),
        (["more"], "go with --program"),
        (["-D", "parallelism.default=2"], "go with --program"),
        (["--config", __file__], "go with --program"),
    ],
)
def test_what_would_be_ignored_is_refused_and_nothing_is_run(
    tmp_path: Path, given: list[str], why: str
) -> None:
    told = replayed(tmp_path / "some.replay", *given, exit_code=2)
    assert why in told and "running it again" not in told
