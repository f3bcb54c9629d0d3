"""The seam between jobs and Spark: one interface, with a form for each kind of session.

DataFrames are the same in both. What is not is here: how Spark's jobs are named, found and ended,
where executors find the driver, which Python they run, and how they get files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager

    import structlog
    from pyspark.sql import SparkSession

    from tidegate.driver.address import DriverAddress

CONNECT: Final = "pyspark.sql.connect"
"""Package of Spark Connect, which is imported by whoever makes such a session."""

SLOT_TAG: Final = "tidegate-slot"
"""Tag of the Spark jobs that host slots, whichever job of ours they belong to."""

_FORMS: Final = {
    False: "tidegate.spark.access.classic:ClassicAccess",
    True: "tidegate.spark.access.connect:ConnectAccess",
}
ENCRYPTS: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


@frozen
class JobNames:
    """Names of Spark jobs: tags to find them by, a description for Spark's page.

    request: of a slot, for its task to read, where Spark carries such a name; else empty.
    """

    tags: tuple[str, ...]
    description: str
    request: str = ""


class SparkAccess(Protocol):
    """Tells a job of its Spark, names and ends its Spark jobs, and brings files to executors."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def application(self) -> object:
        """Object that files given to executors stay with."""
        ...

    @property
    def master(self) -> str:
        """Master of Spark, as error messages name it; empty if it is not known."""
        ...

    @property
    def page(self) -> str | None:
        """URL of Spark's own page, which shows its stages; None where it is not known."""
        ...

    @property
    def one_machine(self) -> bool:
        """True if executors run on this machine, and import what this process can."""
        ...

    @property
    def cores(self) -> int | None:
        """Number of tasks that can run at once, if known: on a local master."""
        ...

    @property
    def query(self) -> str | None:
        """Id of the streaming query whose micro-batch this thread runs, where Spark tells it."""
        ...

    @property
    def tells_requests(self) -> bool:
        """True if tasks can read `JobNames.request`, so that all slots share one plan."""
        ...

    @property
    def when_unreachable(self) -> str:
        """Remedy where executors cannot dial the driver, in a sentence for the user."""
        ...

    def refuse_unfit(self) -> None:
        """Raises ConfigError for a session that jobs cannot run in."""
        ...

    def setting(self, key: str, default: str) -> str:
        """A setting that the session was built with, of ``spark.sql`` as it is by now.

        The default where it is not known.
        """
        ...

    def driver_address(self) -> DriverAddress:
        """Address at which executors find a driver in this process. Raises ConfigError."""
        ...

    def with_settings(self, settings: Mapping[str, str]) -> AbstractContextManager[SparkSession]:
        """A session for queries that need such settings, for as long as the block lasts."""
        ...

    def named(self, names: JobNames) -> AbstractContextManager[None]:
        """Names the Spark jobs that this thread starts within the block."""
        ...

    def cancel(self, tag: str) -> bool:
        """Ends Spark jobs of a tag, within a limit; False if Spark does not answer."""
        ...

    def gone(self, error: Exception) -> bool:
        """True if a call of Spark has failed because its driver has ended."""
        ...

    def waiting(self, tag: str, asked: int) -> str:
        """Reason why slots do not come. asked: how many Spark jobs of the tag host slots.

        Raises OSError or AttributeError if Spark has gone.
        """
        ...

    def python(self) -> AbstractContextManager[None]:
        """Lets workers of DataFrames that are planned within the block run the right Python."""
        ...

    def give_python_file(self, path: str) -> None:
        """Lets tasks import a module, an archive or a folder. Raises ConfigError."""
        ...

    def give_archive(self, path: str, folder: str) -> None:
        """Unpacks an archive on all executors. folder: its name there. Raises ConfigError."""
        ...

    def keep_slots_at_signals(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Keeps slots alive when a signal tells the program to stop."""
        ...


class Lent:
    """A setting of the user's session or context that is another one while jobs need that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._takers = 0
        self._before: Any = None

    @contextlib.contextmanager
    def taken(
        self,
        read: Callable[[], object],
        write: Callable[[], object],
        restore: Callable[[Any], object],
    ) -> Generator[None]:
        """Has it written within the block. The first taker reads it, and the last restores it."""
        with self._lock:
            if not self._takers:
                self._before = read()
            self._takers += 1
        try:
            with self._lock:
                write()
            yield
        finally:
            with self._lock:
                self._takers -= 1
                if not self._takers:
                    restore(self._before)


@functools.lru_cache(maxsize=64)
def lent_of(owner: object) -> Lent:
    """The setting that is lent of a session or context, whichever job asks."""
    return Lent()


def is_connect(session: object) -> bool:
    """True for a session of Spark Connect."""
    return type(session).__module__.startswith(CONNECT)


def access_to(session: SparkSession) -> SparkAccess:
    """The way to a session's Spark. Neither kind of session loads what only the other needs."""
    module, _, name = _FORMS[is_connect(session)].partition(":")
    return cast("SparkAccess", getattr(importlib.import_module(module), name)(session))


def tell_of_plain_rpc(access: SparkAccess, log: structlog.typing.FilteringBoundLogger) -> None:
    """Warns if an eavesdropper between driver and executors could read the keys."""
    if not any(access.setting(key, "false").lower() == "true" for key in ENCRYPTS):
        log.warning(
            "Spark's own connections are not encrypted, and carry the keys of the job's links; "
            "set spark.network.crypto.enabled with spark.authenticate if others can read that "
            "traffic"
        )


def refuse_settings(access: SparkAccess) -> None:
    """Raises ConfigError for settings with which Spark would double slots, or kill them."""
    for key, why in (
        ("spark.speculation", "Spark would run a slot, or a task of a batch, twice at once"),
        ("spark.python.worker.killOnIdleTimeout", "Spark would kill healthy slots"),
        # Which follows the one above unless the session says otherwise.
        ("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "Spark would kill healthy slots"),
    ):
        if access.setting(key, "false").lower() == "true":
            raise ConfigError(
                f"{key} is true: {why}",
                where="the SparkSession",
                remedy=f"Set {key}=false before the session is built.",
            )


def cores_of(master: str) -> int | None:
    """Number of tasks that can run at once on a master, if it says so: a local one with a number.

    For ``*`` it is the number of cores that Spark's JVM sees.
    """
    threads, _ = _local(master) or ("*", 1)
    return None if threads == "*" else int(threads)


def tries_of(access: SparkAccess) -> int:
    """How often Spark runs a task that fails, in all; on a local master its second number."""
    local = _local(access.master)
    return int(access.setting("spark.task.maxFailures", "4")) if local is None else local[1]


def _local(master: str) -> tuple[str, int] | None:
    """Threads of a local master, and how often it runs a task; None for another one."""
    if master == "local":
        return "1", 1
    if not master.startswith("local["):
        return None
    threads, _, tries = master.removeprefix("local[").split("]")[0].partition(",")
    return threads, int(tries or 1)


def check_cores(access: SparkAccess, slots: int) -> None:
    """Refuses at once a number of slots for which Spark would wait silently for ever."""
    cores = access.cores
    per_task = int(access.setting("spark.task.cpus", "1"))
    if cores is not None and slots * per_task > cores:
        raise ConfigError(
            f"the job needs {slots} slots of {per_task} core(s), and Spark has {cores} cores",
            where=f"master {access.master}",
            remedy=f"Use master local[{slots * per_task}] or more, or lower the job's parallelism "
            "(env.set_parallelism).",
        )
