"""Programs that are told to stop: by Ctrl-C, SIGTERM, or a reader of their output that goes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.watch import until
from tidegate import StreamExecutionEnvironment
from tidegate.driver.client.driver_client import DriverClient

pytestmark = pytest.mark.slow

END_S = 120.0

PROGRAM = """
from tidegate import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.generate(lambda n: n, rate=200).uid("numbers")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("sums")
"""


WAITING = """
client = env.execute_async("sums")
client.get_job_execution_result().result()
"""

BUSY_WITH_SOMETHING_ELSE = """
import time
env.execute_async("sums")
while True:
    time.sleep(1_000)
"""

COLLECTING = """
def shown(n):
    print(n, flush=True)
    return n

for total in numbers.map(shown).uid("shown").execute_and_collect("sums"):
    pass  # nothing comes before a checkpoint is complete
"""

STUCK = """
import time
from pathlib import Path
from tidegate import StreamExecutionEnvironment

def never_returns(n):
    print("called", flush=True)
    time.sleep(100_000)

env = StreamExecutionEnvironment.get_execution_environment()
env.generate(lambda n: n, rate=1).uid("numbers").map(never_returns).print()
"""


class Program:
    """A program that never ends by itself."""

    def __init__(self, folder: Path, text: str = PROGRAM) -> None:
        self.checkpoints = folder / "checkpoints"
        self._script = folder / "sums.py"
        self._script.write_text(text)

    @contextmanager
    def running(
        self, parallelism: int, *more: str, interval: str = "100 ms"
    ) -> Iterator[subprocess.Popen[str]]:
        """Its process, which leads a group as the processes of a terminal do."""
        settings = {
            "execution.checkpointing.interval": interval,
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


@pytest.mark.parametrize(
    "ending", [WAITING, BUSY_WITH_SOMETHING_ELSE, COLLECTING], ids=["waits", "sleeps", "collects"]
)
@pytest.mark.parametrize(
    ("number", "reason", "status"),
    [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)],
)
def test_whatever_the_program_does_its_job_gets_a_last_checkpoint(
    tmp_path: Path, ending: str, number: int, reason: str, status: int
) -> None:
    """The whole group hears of it, as from a terminal, from ``timeout`` or from systemd."""
    text = PROGRAM.rpartition("env.execute(")[0]
    if ending is COLLECTING:
        text = text.rpartition("numbers.key_by")[0]
    program = Program(tmp_path, text + ending)
    with program.running(1, interval="1 h") as process:
        assert process.stdout is not None and process.stdout.readline()
        os.killpg(process.pid, number)
        told = drained(process)
        assert process.returncode == status, told
        assert f"job 'sums' was suspended: {reason}" in told, told
        assert "Checkpoint 1 is kept" in told, told
    assert program.newest() == 1


def test_sigterm_may_come_twice_as_from_the_command_timeout(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.running(1, interval="1 h") as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        os.killpg(process.pid, signal.SIGTERM)
        told = drained(process)
        assert process.returncode == 143, told
    assert program.newest() == 1, told


@pytest.mark.parametrize("ending", ['env.execute("stuck")', WAITING], ids=["execute", "waits"])
def test_a_second_ctrl_c_ends_the_program_at_once(tmp_path: Path, ending: str) -> None:
    """The last checkpoint is waited for as long as a test could never be."""
    program = Program(tmp_path, STUCK + ending)
    limit = ("-D", "tidegate.interrupt.checkpoint-timeout=10 d")
    with program.running(1, *limit, interval="1 h") as process:
        assert process.stdout is not None and process.stdout.readline() == "called\n"
        assert process.stderr is not None
        os.killpg(process.pid, signal.SIGINT)
        while "is being suspended" not in (line := process.stderr.readline()):
            assert line, "the program ended at the first"
        os.killpg(process.pid, signal.SIGINT)
        process.stderr.read()
        assert process.wait(END_S) == 130


def test_a_program_that_ends_by_itself_takes_its_job_along_behind_a_last_checkpoint(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, PROGRAM.replace("env.execute(", "env.execute_async("))
    with program.running(1, interval="1 h") as process:
        told = drained(process)
        assert process.returncode == 0
        assert "job-cut-off" in told and "was suspended: its program has ended" in told


def terminated(number: int) -> list[int | None]:
    """Ends a program and a forked process by SIGTERM; how they ended."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100_000)"])
    program.terminate()
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100_000,))
    forked.start()
    forked.terminate()
    forked.join()
    return [program.wait(), forked.exitcode]


def test_what_a_function_starts_can_be_terminated_though_its_slot_cannot() -> None:
    env = StreamExecutionEnvironment.local(1)
    rows = env.from_collection([1]).map(terminated).execute_and_collect()
    assert list(rows) == [[-signal.SIGTERM, -signal.SIGTERM]]


def test_ctrl_c_while_a_job_is_submitted_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    monkeypatch.setattr(DriverClient, "wait_accepted", pressed)
    env = StreamExecutionEnvironment.local(1)
    env.generate(lambda n: n, rate=10).filter(lambda n: n < 0).print()
    with pytest.raises(KeyboardInterrupt):
        env.execute_async("interrupted")
    until(
        lambda: not [t for t in set(threading.enumerate()) - before if t.name == "tidegate-driver"],
        "the job's driver to end",
    )
