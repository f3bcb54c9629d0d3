"""The way to Spark whose driver this process is, by its SparkContext."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from py4j.protocol import Py4JError, Py4JJavaError

from tidegate.driver.address import LOCALHOST, DriverAddress
from tidegate.errors import ConfigError
from tidegate.model.addresses import parted
from tidegate.spark.access.access import JobNames, cores_of, lent_of, refuse_settings
from tidegate.spark.access.asking import within_limit
from tidegate.spark.access.interrupts import keep_slots_at_signals
from tidegate.spark.access.python_files import ready
from tidegate.spark.access.waiting import Waiting
from tidegate.spark.slot_task import REQUEST_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import structlog
    from pyspark.sql import SparkSession


class ClassicAccess:
    """The `SparkAccess` of a session that was built in this process."""

    tells_requests = True
    when_unreachable = (
        "Executors must reach spark.driver.host, and the ports of tidegate.net.port-range; if they "
        "reach another address, set tidegate.net.driver-address to that, and "
        "tidegate.net.driver-bind-address to where the driver is to listen for it."
    )

    def __init__(self, session: SparkSession) -> None:
        self.session: Final = session

    @property
    def application(self) -> object:
        return self._context

    @property
    def _context(self) -> Any:
        return self.session.sparkContext

    @property
    def master(self) -> str:
        return str(self._context.master or "")

    @property
    def page(self) -> str | None:
        return self._context.uiWebUrl

    @property
    def query(self) -> str | None:
        return self._context.getLocalProperty("sql.streaming.queryId")

    @property
    def one_machine(self) -> bool:
        return self.master.startswith("local")

    @property
    def cores(self) -> int | None:
        if self.master.startswith("local[*"):
            return self._context._jvm.java.lang.Runtime.getRuntime().availableProcessors()
        return cores_of(self.master)

    def refuse_unfit(self) -> None:
        if self._stopped:
            raise ConfigError(
                "the SparkSession has been stopped",
                where="StreamExecutionEnvironment.on_spark",
                remedy="Build a new session, and make the environment with it.",
            )
        refuse_settings(self)

    def setting(self, key: str, default: str) -> str:
        if key.startswith("spark.sql."):
            return str(self.session.conf.get(key, default))
        return self._context.getConf().get(key) or default

    def driver_address(self) -> DriverAddress:
        """Address at which executors find the driver.

        A local master's executors are on this machine. Elsewhere it is ``spark.driver.host``, to
        which executors have connected already, bound at ``spark.driver.bindAddress`` if set.
        """
        if self.one_machine:
            return DriverAddress(LOCALHOST, LOCALHOST)
        announce, _ = parted(self.setting("spark.driver.host", LOCALHOST))  # IPv6 in brackets
        bind, _ = parted(self.setting("spark.driver.bindAddress", announce))
        return DriverAddress(bind, announce)

    @contextlib.contextmanager
    def with_settings(self, settings: Mapping[str, str]) -> Generator[SparkSession]:
        session = self.session.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        yield session

    @contextlib.contextmanager
    def named(self, names: JobNames) -> Generator[None]:
        context = self._context
        for tag in names.tags:
            context.addJobTag(tag)
        context.setJobDescription(names.description)
        if names.request:
            context.setLocalProperty(REQUEST_PROPERTY, names.request)
        try:
            yield
        finally:
            with contextlib.suppress(Py4JError, AttributeError, OSError):  # Spark is gone
                for tag in names.tags:
                    context.removeJobTag(tag)
                context.setJobDescription(cast("str", None))
                if names.request:
                    context.setLocalProperty(REQUEST_PROPERTY, cast("str", None))

    def cancel(self, tag: str) -> bool:
        problems: list[Exception] = []
        if not within_limit(lambda: self._context.cancelJobsWithTag(tag), problems):
            return False
        if problems and not self.gone(problems[0]):
            raise problems[0]
        return not problems

    def gone(self, error: Exception) -> bool:
        of_link = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
        return of_link or isinstance(error, ConnectionError) or self._stopped

    @property
    def _stopped(self) -> bool:
        return getattr(self._context, "_jsc", None) is None  # PySpark has no public word for it

    def waiting(self, tag: str, asked: int) -> str:
        try:
            return str(self.look(tag, asked))
        except Py4JError as error:
            raise OSError("Spark's JVM does not answer") from error

    def look(self, tag: str, asked: int) -> Waiting:
        """Asks Spark. Raises Py4JError if it does not answer, AttributeError if it is stopped."""
        context = self._context
        tracker = context.statusTracker()
        executors = tracker.getExecutorInfos()
        given = 0
        for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
            given += sum(stage.numActiveTasks for stage in stages if stage)
        running = sum(each.numRunningTasks for each in executors)
        # The driver is listed among executors; elsewhere than on one machine it runs no tasks.
        registered = None if self.one_machine else len(executors) - 1
        cores = self.cores if registered is None else self.cores_of_executors(registered)
        return Waiting(asked, given, registered, max(0, running - given), cores)

    def cores_of_executors(self, executors: int) -> int | None:
        """Number of tasks that so many executors run at once; None if the setting is not made."""
        each = self.setting("spark.executor.cores", "")
        per_task = int(self.setting("spark.task.cpus", "1"))
        return executors * (int(each) // per_task) if each else None

    @contextlib.contextmanager
    def python(self) -> Generator[None]:
        """Lets Spark's workers run the right Python within the block.

        PySpark looks at PYSPARK_PYTHON alone, which ``spark-submit`` makes of
        ``spark.pyspark.python``; in a session that the program has built itself that setting would
        do nothing. If nobody has chosen, workers on this machine run this interpreter. Spark would
        take the ``python3`` of the PATH, which for a driver in a virtual environment is another
        one, without its packages. Elsewhere the driver's path means nothing.
        """
        context = self._context
        chosen = self.setting("spark.pyspark.python", "")
        if not chosen and self.one_machine:
            chosen = sys.executable
        if not chosen or os.environ.get("PYSPARK_PYTHON"):
            yield
            return

        def run(python: str) -> None:
            context.pythonExec = python

        with lent_of(context).taken(lambda: context.pythonExec, lambda: run(chosen), run):
            yield

    def give_python_file(self, path: str) -> None:
        try:
            self._context.addPyFile(str(ready(path, _served_folder(), self.application)))
        except Py4JJavaError as error:
            raise ConfigError(
                f"Spark does not take a file for its executors: {error.java_exception}",
                where=path,
                remedy="Two files of one name need two sessions, or a folder around each.",
            ) from error

    def give_archive(self, path: str, folder: str) -> None:
        # Spark reads it again for each executor that comes later, when the cache may be tidied.
        served = _served_folder() / Path(path).name
        with tempfile.TemporaryDirectory(dir=served.parent) as aside:
            Path(shutil.copy(path, aside)).replace(served)
        self._context.addArchive(f"{served}#{folder}")

    def keep_slots_at_signals(self, log: structlog.typing.FilteringBoundLogger) -> None:
        keep_slots_at_signals(self._context, log)


def _served_folder() -> Path:
    """A folder for files that Spark serves to executors; it goes when the session stops."""
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory()) / "tidegate"
    folder.mkdir(exist_ok=True)
    return folder
