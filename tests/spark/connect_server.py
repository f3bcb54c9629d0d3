"""A server of Spark Connect in processes of its own, as users have it."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pyspark

from tests.conftest import LIVES_SHORT
from tests.e2e.watch import until
from tests.house.source import ROOT

START_S = 120.0
CORES = 4
IMPORTS = (ROOT / "src", ROOT / "packages/flinkformat/src", ROOT)


class ConnectServer:
    """Started when it is made. folder: for its log. python: of its workers; None for this one.

    Another Python finds nothing of ours.
    """

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as probe:
            self.port = int(probe.getsockname()[1])
        self.url = f"sc://localhost:{self.port}"
        self.log = folder / "connect-server.log"
        assert pyspark.__file__ is not None
        home = Path(pyspark.__file__).parent
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            "SPARK_HOME": str(home),
            "SPARK_SUBMIT_OPTS": LIVES_SHORT,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOG_DIR": str(folder),
            "SPARK_PID_DIR": str(folder),
            "PYSPARK_PYTHON": str(python or sys.executable),
            "PYTHONPATH": "" if python else os.pathsep.join(map(str, IMPORTS)),
        }
        settings = {
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        }
        command = [str(home / "sbin/start-connect-server.sh"), "--master", f"local[{CORES}]"]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )
        until(self._answers, f"Spark Connect listens, see {self.log}", START_S)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Ends all of its processes."""
        left = processes_of(self.process.pid)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(left, timeout=20)
        for process in alive:
            process.kill()
        self.process.wait()


def processes_of(pid: int) -> list[psutil.Process]:
    """A process and all that it has started; none if it has ended."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
