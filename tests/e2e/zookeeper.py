"""A ZooKeeper server: the one in PySpark's jars, in a Java process of its own."""

import os
import re
import shutil
import signal
import subprocess
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from tests.e2e.watch import until
from tidegate.model.settings import ZooKeeperSettings

START_S = 60.0
STOP_S = 30.0

LOGGING = """
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
"""

SMALL_AND_QUICK = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ZooKeeperServer:
    """One server on a free port of this machine, with its data in a folder.

    Its port stays the same when it is started again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._roots = count(1)

    @property
    def quorum(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._port}"

    def settings(
        self, *, quorum: str | None = None, answers_within_ms: int = 20_000
    ) -> ZooKeeperSettings:
        """For a client that keeps to a root of its own."""
        return ZooKeeperSettings(
            quorum=quorum or self.quorum,
            path=f"/test-{next(self._roots)}",
            session_timeout_ms=5_000,
            connection_timeout_ms=answers_within_ms,
        )

    def options(self) -> dict[str, str]:
        """For a job that keeps to a root of its own."""
        return {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": self.quorum,
            "high-availability.zookeeper.path.root": f"/jobs-{next(self._roots)}",
        }

    def start(self) -> None:
        """Returns once it takes connections."""
        assert self._process is None, "it runs"
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(LOGGING)
        (self._folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={self._folder}/data\nadmin.enableServer=false\n"
            f"clientPort={self._port}\nclientPortAddress=127.0.0.1\n"
        )
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    java(),
                    *SMALL_AND_QUICK,
                    "-Dzookeeper.forceSync=no",
                    f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
                    "-cp",
                    f"{jars()}/*",
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(self._folder / "zoo.cfg"),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        until(lambda: self._bound(log.read_text()), "ZooKeeper takes connections", START_S)

    def _bound(self, log: str) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ZooKeeper has ended:\n{log}"
        bound = re.search(r"bound to port \S*:(\d+)", log)
        if bound is not None and "PrepRequestProcessor" in log:
            self._port = int(bound[1])
        return self._port != 0 and "PrepRequestProcessor" in log

    def stop(self) -> None:
        """Ends it, as a crash does; what was answered stands."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_S)

    def hang(self) -> None:
        """Leaves its connections open and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Ends what `hang` began."""
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)


def java() -> str:
    """The Java runtime that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    assert found, "no Java: set JAVA_HOME"
    return found


def jars() -> Path:
    """PySpark's."""
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None, "PySpark is not installed"
    return Path(spark.origin).parent / "jars"
