"""``tidegate run -d``: a program that outlives the command, or says at once why it does not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watch import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

LIMIT_S = 150
RUNS = """
    import sys
    from tidegate import StreamExecutionEnvironment
    env = StreamExecutionEnvironment.get_execution_environment()
    env.generate(str, rate=100).uid("numbers").print()
    env.execute("endless")
"""
FAILS = """
    from tidegate import StreamExecutionEnvironment
    def breaks(number):
        raise ValueError("no such number")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.generate(breaks, rate=100).print()
    env.execute("failing")
"""


class Shell:
    """Runs commands in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, text: str) -> str:
        (self.folder / "job.py").write_text(textwrap.dedent(text))
        return "job.py"

    def tidegate(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidegate", *args],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.feature("F296")
def test_a_detached_job_goes_on_and_is_reached_like_any_other(shell: Shell) -> None:
    set_to = ("-D", "execution.checkpointing.dir=checkpoints")
    started = shell.tidegate("run", "-d", *set_to, shell.program(RUNS))
    assert started.returncode == 0, started.stdout + started.stderr
    said = dict(re.findall(r"^  (job id|address|process|log) +(\S+)$", started.stdout, re.M))
    try:
        with urllib.request.urlopen(f"{said['address']}/jobs/overview", timeout=60) as answer:
            [job] = json.load(answer)["jobs"]
        assert (job["jid"], job["name"], job["state"]) == (said["job id"], "endless", "RUNNING")
        [listed] = json.loads(shell.tidegate("list", "--json", "-d", "checkpoints").stdout)
        assert (listed["id"], listed["rest"]) == (said["job id"], said["address"])
        cancelled = shell.tidegate("cancel", "endless", "-d", "checkpoints")
        assert cancelled.returncode == 0, cancelled.stderr
        until(lambda: not alive(int(said["process"])), "the process of a cancelled job ends")
    except BaseException:
        os.kill(int(said["process"]), signal.SIGKILL)
        raise
    log = (shell.folder / said["log"]).read_text()
    assert re.search(r"^(\d+> )?0$", log, re.M)
    assert "job 'endless' was cancelled" in log


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.feature("F296")
def test_a_job_that_fails_at_its_start_shows_why_and_its_code(shell: Shell) -> None:
    ended = shell.tidegate("run", "-d", "--log-file", "mine.log", shell.program(FAILS))
    assert ended.returncode == 1, ended.stdout
    assert "ValueError: no such number" in ended.stderr
    assert "mine.log" in ended.stderr.splitlines()[-1]
    assert "ValueError: no such number" in (shell.folder / "mine.log").read_text()


@pytest.mark.feature("F296")
@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("import sys; sys.exit(7)", 7, "ended with 7 before its job ran"),
        ("import os; os.kill(os.getpid(), 9)", 137, "ended with -9"),
        ("print('no job')", 0, "already ended"),
        ("import nothing_like_it", 1, "No module named 'nothing_like_it'"),
    ],
)
def test_a_program_that_ends_before_a_job_runs_is_told(
    shell: Shell, program: str, code: int, told: str
) -> None:
    ended = shell.tidegate("run", "-d", shell.program(program))
    assert ended.returncode == code, ended.stderr
    assert told in ended.stdout + ended.stderr


def test_what_cannot_be_used_is_refused_before_anything_starts(shell: Shell) -> None:
    script = shell.program(RUNS)
    for wrong, told in (
        (("--watch",), "--watch draws here"),
        (("-D", "execution.checkpointing.interval=soon"), "execution.checkpointing.interval"),
        (("--log-file", "nowhere/x.log"), "--log-file"),
    ):
        refused = shell.tidegate("run", "-d", *wrong, script)
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr
    assert [each.name for each in shell.folder.iterdir()] == [script]
