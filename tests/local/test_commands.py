"""Each command that Flink has, against a job that lives: its exit code, and what it does."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.runtimes import RETAIN, Jobs
from tests.e2e.savepoints import END_S, committed
from tests.e2e.watch import until
from tests.house.source import ROOT
from tidegate import list_savepoints
from tidegate.cli.main import commands

pytestmark = pytest.mark.slow

PROGRAM = """
    import sys
    from tidegate import StreamExecutionEnvironment, Types
    from tidegate.connectors import FileSink
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.generate(lambda n: (n % 3, 1, env.get_parallelism()), None, 500).uid("numbers")
    counts = numbers.key_by(lambda row: row[0], Types.LONG())
    counted = counts.reduce(lambda a, b: (b[0], a[1] + 1, b[2])).uid("counts")
    counted.sink_to(FileSink.json(sys.argv[1])).uid("files")
    env.execute("live")
"""


class Shell:
    """Runs commands over the checkpoint folder of a test."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._script = jobs.folder / "live.py"
        self._script.write_text(textwrap.dedent(PROGRAM))

    def said(self, *args: str, exit_code: int = 0) -> str:
        """Run a command; what it prints."""
        given = [*args] if "--dispose" in args else [*args, "-d", str(self._jobs.checkpoints)]
        result = CliRunner().invoke(commands, given)
        assert result.exit_code == exit_code, result.output
        return result.stdout.strip()

    def examine(self, job: str) -> None:
        """`tidegate doctor JOB`, which may find something: the machine may be busy."""
        given = ["doctor", job, "--json", "-d", str(self._jobs.checkpoints)]
        result = CliRunner().invoke(commands, given)
        assert result.exit_code == (1 if json.loads(result.stdout) else 0), result.output

    def run(self, out: Path, *args: str) -> subprocess.Popen[bytes]:
        """`tidegate run` in a process of its own, until it has committed a row of key 0."""
        settings = {
            "execution.checkpointing.dir": str(self._jobs.checkpoints),
            "execution.checkpointing.interval": "100 ms",
            **RETAIN,
        }
        given = [f"-D{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "tidegate.cli.main", "run", *given, *args]
        process = subprocess.Popen([*command, self._script, out], cwd=ROOT / "src")
        try:
            until(lambda: counts(committed(out)) or process.poll() is not None, "a row of key 0")
        except BaseException:
            process.kill()
            raise
        assert process.poll() is None
        return process


def counts(rows: Sequence[Sequence[int]]) -> list[int]:
    """The counts of key 0, in order."""
    return sorted(row[1] for row in rows if row[0] == 0)


@pytest.mark.feature("F294")
def test_every_command_does_what_it_says_to_a_live_job(jobs: Jobs) -> None:
    shell, savepoints = Shell(jobs), jobs.folder / "savepoints"
    first, second = jobs.folder / "first", jobs.folder / "second"
    with shell.run(first, "-p", "2") as process:
        assert "live" in shell.said("list", "-r") and "RUNNING" in shell.said("list")
        assert "live" not in shell.said("list", "-s")
        (listed,) = json.loads(shell.said("list", "--json"))
        assert (listed["job"], listed["status"]) == ("live", "RUNNING")
        shown = shell.said("top", "live")
        assert "live  RUNNING for" in shown and "Source: " in shown
        shell.examine("live")
        taken = Path(shell.said("checkpoint", "live"))
        full = Path(json.loads(shell.said("checkpoint", "live", "--full", "--json"))["path"])
        assert taken.parent == full.parent
        assert int(taken.name.removeprefix("chk-")) < int(full.name.removeprefix("chk-"))
        kept = shell.said("savepoint", "live", str(savepoints), "--type", "native")
        assert Path(kept, "_metadata").is_file() and process.poll() is None
        stop = ["stop", "--type", "canonical", "-p", str(savepoints), "live", "--json"]
        stopped = json.loads(shell.said(*stop))["savepoint"]
        assert process.wait(END_S) == 0
    assert "live" not in shell.said("list", "-r") and "FINISHED" in shell.said("list", "-a")
    before = committed(first)
    assert {row[2] for row in before} == {2}
    assert counts(before) == list(range(1, len(counts(before)) + 1))
    from_there = ["-s", stopped, "-n", "--claimMode", "NO_CLAIM", "-p", "1"]
    with shell.run(second, *from_there) as process:
        cancelled = shell.said("cancel", "-s", str(savepoints), "live")
        assert process.wait(END_S) == 1
    assert "CANCELED" in shell.said("list", "-a")
    after = committed(second)
    assert counts(after)[0] == counts(before)[-1] + 1 and {row[2] for row in after} == {1}
    saved = {info.path: (info.kind, info.format.value) for info in list_savepoints(savepoints)}
    assert saved == {
        kept: ("Savepoint", "NATIVE"),
        stopped: ("Suspend Savepoint", "CANONICAL"),
        cancelled: ("Savepoint", "CANONICAL"),
    }
    for path in saved:
        shell.said("savepoint", "--dispose", path)
    assert list_savepoints(savepoints) == []
    for gone in (["checkpoint", "live"], ["cancel", "live"], ["savepoint", "--dispose", kept]):
        shell.said(*gone, exit_code=2)
