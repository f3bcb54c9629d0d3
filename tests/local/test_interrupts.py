"""Programs that are told to stop: by Ctrl-C, SIGTERM, or a reader of their output that goes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.watch import until

pytestmark = pytest.mark.slow

END_S = 120.0

PROGRAM = """
from tidegate import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.generate(lambda n: n, rate=200).uid("numbers")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("sums")
"""


class Program:
    """A program that never ends by itself."""

    def __init__(self, folder: Path) -> None:
        self.checkpoints = folder / "checkpoints"
        self._script = folder / "sums.py"
        self._script.write_text(PROGRAM)

    @contextmanager
    def running(self, parallelism: int, *more: str) -> Iterator[subprocess.Popen[str]]:
        """Its process, which leads a group as the processes of a terminal do."""
        settings = {
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.dir": str(self.checkpoints),
        }
        options = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
        command = [sys.executable, "-m", "tidegate.cli.main", "run", "--runtime", "local"]
        command += ["-p", str(parallelism), *options, *more, str(self._script)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": "src"},
            # Whoever runs the tests may ignore Ctrl-C, and a program inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def newest(self) -> int:
        found = self.checkpoints.glob("*/chk-*/_metadata")
        return max((int(path.parent.name[4:]) for path in found), default=0)

    def wait_above(self, number: int) -> None:
        until(lambda: self.newest() > number, f"a checkpoint above {number}", END_S)


def drained(process: subprocess.Popen[str]) -> str:
    """Wait for the end of the process; what it wrote to its standard error."""
    return process.communicate(timeout=END_S)[1]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_ctrl_c_and_sigterm_suspend_the_job_and_latest_goes_on(
    tmp_path: Path, parallelism: int
) -> None:
    program = Program(tmp_path)
    with program.running(parallelism) as process:
        program.wait_above(0)
        os.killpg(process.pid, signal.SIGINT)
        told = drained(process)
        assert process.returncode == 130, told
        assert "job 'sums' was suspended: Ctrl-C" in told and "--from latest" in told
    before = program.newest()
    with program.running(parallelism, "--from", "latest") as process:
        program.wait_above(before)
        process.send_signal(signal.SIGTERM)
        told = drained(process)
        assert process.returncode == 143, told
        assert "job 'sums' was suspended: SIGTERM" in told
    assert program.newest() > before


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_program_whose_reader_has_gone_ends_like_any_filter(
    tmp_path: Path, parallelism: int
) -> None:
    program = Program(tmp_path)
    with program.running(parallelism) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
        assert process.wait(END_S) == 141, told
        assert "Traceback" not in told and "restarts" not in told
