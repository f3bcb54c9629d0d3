"""The way to Spark through Spark Connect: this process is a client, and Spark's driver a server.

The driver of our jobs still lives here. So executors dial this process, and what they import is
what the server gives them.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from tidegate.clock import SystemClock
from tidegate.driver.address import DriverAddress, is_here
from tidegate.errors import ConfigError
from tidegate.model.addresses import is_loopback
from tidegate.spark.access.access import JobNames, cores_of, lent_of, refuse_settings
from tidegate.spark.access.asking import ask, within_limit
from tidegate.spark.access.python_files import ready
from tidegate.spark.access.waiting import WaitingAfar

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import structlog

_WHERE: Final = "the session of Spark Connect"
_PROBED: Final = "tidegate-probe"
_ANY_PORT: Final = 9
_FIRST_ANSWER_S: Final = 120.0
"""How long the first answer may take, of a server that is still starting."""

_SILENT_S: Final = 4.0
_CLUSTER: Final = (
    "submit the program to the cluster, where no firewall is between: "
    "spark-submit --deploy-mode cluster"
)
_TELL: Final = (
    "Set tidegate.net.driver-address to an address that executors reach, and, where that is not "
    "this machine's own, tidegate.net.driver-bind-address to one that is."
)


class ConnectAccess:
    """The `SparkAccess` of a session of Spark Connect."""

    one_machine = False
    """A server on this machine may be anybody's, with another Python."""

    query = None
    tells_requests = False
    page = None
    when_unreachable = (
        "Executors dial this program, where the job's driver is: set tidegate.net.driver-address "
        "to an address that they reach, tidegate.net.driver-bind-address to where the driver is to "
        "listen for it, and let them through to the ports of tidegate.net.port-range. Where they "
        f"can reach none, {_CLUSTER}."
    )

    def __init__(self, session: Any) -> None:
        self.session: Final = session
        self._in_flight: dict[int, int] = {}
        self._clock = SystemClock()
        self._question: threading.Thread | None = None
        self._asked_s = 0.0

    @property
    def application(self) -> object:
        return self.session

    @property
    def master(self) -> str:
        return self._master

    @functools.cached_property
    def _master(self) -> str:
        return self.setting("spark.master", "")

    @property
    def cores(self) -> int | None:
        return cores_of(self.master)

    def refuse_unfit(self) -> None:
        if self.session.is_stopped:
            raise ConfigError(
                "the SparkSession has been stopped",
                where="StreamExecutionEnvironment.on_spark",
                remedy="Build a new session, and make the environment with it.",
            )
        problems: list[Exception] = []
        if not within_limit(
            lambda: self.session.interruptTag(_PROBED), problems, limit_s=_FIRST_ANSWER_S
        ):
            raise ConfigError(
                f"Spark Connect's server has not answered for {_FIRST_ANSWER_S:.0f} s",
                where=_WHERE,
                remedy="See that it runs and can be reached; make a new session once it does.",
            )
        if problems:
            raise ConfigError(
                "this server of Spark Connect does not end queries by their tag: "
                f"{_line(problems[0])}",
                where=_WHERE,
                remedy="A job that is cancelled would keep its cores. See that the server can be "
                f"reached and is one of Spark 4, or {_CLUSTER}.",
            ) from problems[0]
        refuse_settings(self)

    def setting(self, key: str, default: str) -> str:
        try:
            return str(self.session.conf.get(key, default))
        except PySparkException:  # a host may keep its settings to itself
            return default

    def driver_address(self) -> DriverAddress:
        """Address at which executors find the driver: the one from which the server is reached.

        From a server on this machine only its executors on this machine find us there. Where others
        have, too, they find it as they find the server's driver. Raises ConfigError if neither is.
        """
        host = self._route()
        if is_loopback(host) and not self.master.startswith("local"):
            host = self.setting("spark.driver.host", "")
            if not is_here(host):
                raise ConfigError(
                    "the server of Spark Connect is reached through this machine's own loopback, "
                    "where its executors cannot find the driver",
                    where=_WHERE,
                    remedy=f"{_TELL} If there is none, {_CLUSTER}.",
                )
        return DriverAddress(host, host)

    def _route(self) -> str:
        """The local address from which the server is reached. Raises ConfigError."""
        server = ""
        try:
            server = str(self.session.client.host).strip("[]")
            found = socket.getaddrinfo(server, _ANY_PORT, type=socket.SOCK_DGRAM)
            family, kind, _, _, address = found[0]
            with socket.socket(family, kind) as probe:
                probe.connect(address)  # which sends nothing
                return str(probe.getsockname()[0])
        except (OSError, NotImplementedError) as error:
            raise ConfigError(
                f"there is no route to Spark Connect's server {server}: {_line(error)}",
                where=_WHERE,
                remedy=_TELL,
            ) from error

    @contextlib.contextmanager
    def with_settings(self, settings: Mapping[str, str]) -> Generator[Any]:
        """The session itself, for the time being.

        One of its own would have Python workers of its own, whose daemon the server never ends.
        """
        conf = self.session.conf

        def read() -> dict[str, str | None]:
            return {key: conf.get(key, None) for key in settings}

        def write(wanted: Mapping[str, str | None]) -> None:
            for key, value in wanted.items():
                if value is None:
                    conf.unset(key)
                else:
                    conf.set(key, value)

        def restore(before: dict[str, str | None]) -> None:
            within_limit(lambda: write(before))

        with lent_of(self.session).taken(read, lambda: write(settings), restore):
            yield self.session

    @contextlib.contextmanager
    def named(self, names: JobNames) -> Generator[None]:
        """Connect has no descriptions: its tags are on the server's page."""
        thread = threading.get_ident()

        def heed(*, inflight_tasks: int, done: bool, **_: object) -> None:
            if threading.get_ident() == thread:  # the session's other queries are told, too
                self._in_flight[thread] = 0 if done else inflight_tasks

        self._in_flight[thread] = 0
        self.session.registerProgressHandler(heed)
        for tag in names.tags:
            self.session.addTag(tag)
        try:
            yield
        finally:
            for tag in names.tags:
                self.session.removeTag(tag)
            self.session.removeProgressHandler(heed)
            self._in_flight.pop(thread, None)

    def cancel(self, tag: str) -> bool:
        return not self._silent() and within_limit(lambda: self.session.interruptTag(tag))

    def gone(self, error: Exception) -> bool:
        return False  # its errors say so themselves: see tidegate.spark.session

    def waiting(self, tag: str, asked: int) -> str:
        if self._silent():
            return (
                "Spark Connect's server does not answer: it has ended, or the network is down. "
                "A job needs a new session after a server has ended"
            )
        given = sum(map(bool, tuple(self._in_flight.values())))
        return str(WaitingAfar(asked, given, self.cores))

    def _silent(self) -> bool:
        """True if the server leaves a question unanswered; asks without waiting."""
        now_s = self._clock.precise_s()
        if self._question is not None and self._question.is_alive():
            return now_s - self._asked_s > _SILENT_S
        self._question, self._asked_s = ask(lambda: self.session.interruptTag(_PROBED), []), now_s
        return False

    def python(self) -> contextlib.AbstractContextManager[None]:
        """Workers run the server's Python."""
        return contextlib.nullcontext()

    def give_python_file(self, path: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            self._give(str(ready(path, Path(folder), self.application)), pyfile=True)

    def give_archive(self, path: str, folder: str) -> None:
        self._give(f"{path}#{folder}", archive=True)

    def _give(self, path: str, **kind: bool) -> None:
        try:
            self.session.addArtifacts(path, **kind)
        except Exception as error:  # Connect's, gRPC's: they have no kind in common
            raise ConfigError(
                f"Spark Connect does not take a file for its executors: {_line(error)}",
                where=path,
                remedy="A file that has changed needs a new session. Where the server takes no "
                f"files at all, have them installed for its Python, or {_CLUSTER}.",
            ) from error

    def keep_slots_at_signals(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Leaves a server that lives in this process alone at Ctrl-C; no other hears of it."""
        if threading.current_thread() is threading.main_thread():
            installed: Any = signal.getsignal(signal.SIGINT)
            if getattr(installed, "__module__", "").startswith("pyspark."):
                signal.signal(signal.SIGINT, signal.default_int_handler)


def _line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
