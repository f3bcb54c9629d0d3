"""A ZooKeeper server: the one in PySpark's jars, in a Java process of its own."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psutil

from tests.e2e.certificates import Authority
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


USER, PASSWORD = "tide", "gate-of-a-test"
LOGINS = """
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required {users};
}};
"""


def sasl_only(folder: Path) -> Mapping[str, str]:
    """Settings of a server that lets users in who prove who they are: USER, and "other"."""
    logins = folder / "logins.conf"
    users = f'user_{USER}="{PASSWORD}" user_other="{PASSWORD}"'
    logins.write_text(LOGINS.format(users=users))
    return {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
        "-Djava.security.auth.login.config": str(logins),
    }


def tls_only(authority: Authority) -> Mapping[str, str]:
    """Settings of a server that speaks TLS, and asks clients for a certificate."""
    return {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": "0",
        # Under addresses that its certificate does not name, too.
        "secureClientPortAddress": "0.0.0.0",
        "ssl.keyStore.location": str(authority.issue("server.pem")),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.pem),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        # The driver's address has no name to be looked up.
        "ssl.clientHostnameVerification": "false",
    }


class ZooKeeperServer:
    """One server on a free port of this machine, with its data in a folder.

    Its port stays the same when it is started again. settings: of the server, and of its Java where
    they begin with -D.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._settings = dict(settings or {})
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
        port = "secureClientPort" if "secureClientPort" in self._settings else "clientPort"
        flags = [f"{k}={v}" for k, v in self._settings.items() if k.startswith("-D")]
        settings = {
            "tickTime": "500",
            "dataDir": f"{self._folder}/data",
            "admin.enableServer": "false",
            "clientPortAddress": "127.0.0.1",
            **{k: v for k, v in self._settings.items() if not k.startswith("-D")},
            port: str(self._port),
        }
        if port != "clientPort":
            del settings["clientPortAddress"]
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self._folder / "zoo.cfg").write_text("".join(lines))
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    java(),
                    *SMALL_AND_QUICK,
                    "-Dzookeeper.forceSync=no",
                    *flags,
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
        bound = re.search(r"bound to port (?:\S*:)?(\d+)", log)
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
        """Leaves its connections open and answers nothing. Waits until it stands still."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        until(lambda: process.status() == psutil.STATUS_STOPPED, "the server stands still")

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
