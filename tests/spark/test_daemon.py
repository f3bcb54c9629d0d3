"""The daemon that forks Spark's workers with everything loaded, and what it does without that."""

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil

from tests.e2e.watch import until
from tests.house.source import ROOT
from tidegate.spark.daemon import MODULE, SPARKS_MODULE
from tidegate.spark.session import session_settings

END_S = 200.0
SECRET = "known to both"

PROGRAM = """
import os
import sys
from pathlib import Path

from tidegate import StreamExecutionEnvironment

folder = Path(sys.argv[1])
settings = {
    "execution.checkpointing.dir": str(folder / "checkpoints"),
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 ms",
}
env = StreamExecutionEnvironment.on_spark(parallelism=1, configuration=settings)
env.enable_checkpointing(100)


def tell(n):
    if n % 100 == 0:
        (folder / f"slot-{os.getpid()}-{os.getppid()}").touch()
    return n


env.generate(lambda n: n, rate=1_000).map(tell).filter(lambda n: False).print()
env.execute("numbers")
"""


def environment(folder: Path) -> dict[str, str]:
    """Environment of a program that finds Tidegate; what lies in the folder comes first."""
    path = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT / "packages/flinkformat/src")])
    return {**os.environ, "PYTHONPATH": path, "PYTHON_WORKER_FACTORY_SECRET": SECRET}


def test_a_session_of_our_own_forks_a_slot_for_a_killed_one_and_ends_with_its_program(
    tmp_path: Path,
) -> None:
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(PROGRAM)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            stdout=output,
            stderr=output,
            env={**environment(tmp_path), "PYSPARK_PYTHON": sys.executable},
        )

    def slots() -> dict[int, int]:
        """Each slot that has worked so far, with the process that forked it."""
        assert process.poll() is None, log.read_text()
        names = [found.name.split("-") for found in tmp_path.glob("slot-*")]
        return {int(slot): int(daemon) for _, slot, daemon in names}

    try:
        until(slots, "the first slot works", END_S)
        ((first, daemon),) = slots().items()
        assert MODULE in psutil.Process(daemon).cmdline()
        os.kill(first, signal.SIGKILL)
        until(lambda: len(slots()) == 2, "a second slot works", END_S)
        assert set(slots().values()) == {daemon}
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(started, timeout=END_S)
    assert not alive


class Daemon:
    """A daemon, started as Spark starts one."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(folder),
        )
        assert self.process.stdout is not None
        (self.port,) = struct.unpack("!i", self.process.stdout.read(4))

    @property
    def command(self) -> list[str]:
        return psutil.Process(self.process.pid).cmdline()

    def worker(self) -> tuple[socket.socket, int]:
        """A connection to a new worker, and its process."""
        link = socket.create_connection(("127.0.0.1", self.port), timeout=END_S)
        (pid,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
        return link, pid

    def end(self) -> str:
        """Ends it as Spark does; what it has told."""
        _, told = self.process.communicate(timeout=END_S)
        return told.decode()


def test_workers_are_forks_of_a_process_with_one_thread_that_has_loaded_what_slots_need(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    link, pid = daemon.worker()
    with link:
        assert MODULE in daemon.command
        assert psutil.Process(pid).ppid() == daemon.process.pid
        # OpenBLAS ends its threads before a fork; any other would still be there.
        assert psutil.Process(daemon.process.pid).num_threads() == 1
        libraries = [each.path for each in psutil.Process(pid).memory_maps()]
        for package in ("numpy", "pyarrow", "uvloop"):
            assert any(f"/{package}/" in library for library in libraries)
    assert "more slowly" not in daemon.end()


def test_it_becomes_sparks_daemon_where_something_is_missing(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('there is no msgspec')")
    daemon = Daemon(tmp_path)
    link, pid = daemon.worker()
    with link:
        assert SPARKS_MODULE in daemon.command and "pyspark.worker" in daemon.command
        assert psutil.Process(pid).ppid() == daemon.process.pid
    told = daemon.end()
    assert "slots start more slowly" in told and "there is no msgspec" in told


FORKS = """
import os

import numpy as np

from tidegate.spark import daemon

np.random.seed(7)
daemon.load()
for _ in range(2):
    if os.fork() == 0:
        print("worker", np.random.random(), flush=True)
        np.random.seed(7)
        if os.fork() == 0:
            print("fork", np.random.random(), flush=True)
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
"""


def test_workers_draw_different_numbers_and_their_forks_keep_what_they_have_seeded(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FORKS]
    output = subprocess.run(
        command, env=environment(tmp_path), check=True, capture_output=True, text=True
    ).stdout
    drawn = [line.split() for line in output.splitlines()]
    workers = {number for who, number in drawn if who == "worker"}
    forks = {number for who, number in drawn if who == "fork"}
    assert (len(drawn), len(workers), len(forks)) == (4, 2, 1)


def test_workers_of_another_python_are_forked_by_sparks_daemon() -> None:
    assert session_settings(sys.executable)["spark.python.daemon.module"] == MODULE
    assert "spark.python.daemon.module" not in session_settings("/opt/python")
