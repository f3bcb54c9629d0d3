"""The Spark session that a job runs in: found, built or refused, and what a job does with it.

It finds the address of the driver that executors can reach, ships Python files to them, says why
slots do not come, and warns where Spark does not encrypt what it ships, such as the keys of our
links.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import flinkformat
from tidegate.errors import ConfigError, SlotLost
from tidegate.spark import daemon

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    import structlog

LOCALHOST = "127.0.0.1"
_SETTINGS: Final = (
    "See spark.cores.max, spark.executor.instances, spark.executor.cores and "
    "spark.dynamicAllocation.maxExecutors"
)
_ENCRYPTS: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def session_for(spark: object | None, slots: int, tries: int = 1) -> SparkSession:
    """The session handed in, else a new local one with room for this many slots.

    tries: how often a task may be run that dies; of a slot, the driver asks for another one.
    Raises ConfigError for a session that jobs cannot run in, and where Spark does not start.
    """
    if spark is None:
        return _build(slots, tries)
    if not isinstance(spark, SparkSession) or type(spark).__module__.startswith(
        "pyspark.sql.connect"
    ):
        raise ConfigError(
            f"{type(spark).__module__}.{type(spark).__name__} is not a classic SparkSession",
            where="StreamExecutionEnvironment.on_spark",
            remedy="Spark Connect is not supported yet: build a session with "
            "SparkSession.builder.master(...), or use StreamExecutionEnvironment.local().",
        )
    _refuse_unfit(spark)
    return spark


def _build(slots: int, tries: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    threads = max(slots, os.cpu_count() or 1)  # slots mostly wait; they may outnumber the cores
    builder = SparkSession.builder.master(f"local[{threads},{tries}]").appName("tidegate")
    for key, value in session_settings(os.environ["PYSPARK_PYTHON"]).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark does not start: {error}",
            where="StreamExecutionEnvironment.on_spark",
            remedy="Spark needs Java 17 or newer: install a runtime or set JAVA_HOME. "
            "StreamExecutionEnvironment.local() runs the same job without Spark and Java.",
        ) from error


def session_settings(python: str) -> dict[str, str]:
    """Settings of a session of our own. python: of its workers."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # a slot is a stage without progress
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.pyspark.python": python,
    }
    if python == sys.executable:  # another may have no tidegate, and Spark no daemon then
        settings["spark.python.daemon.module"] = daemon.MODULE
        if path := _path_to_tidegate():
            settings["spark.executorEnv.PYTHONPATH"] = path
    return settings


def _path_to_tidegate() -> str:
    """Import path that leads this interpreter to Tidegate; empty if it finds it by itself."""
    assert flinkformat.__file__ is not None, "it is a package with an __init__"
    folders = [Path(__file__).resolve().parents[2], Path(flinkformat.__file__).resolve().parents[1]]
    installed = set(sysconfig.get_paths().values())
    told = [str(folder) for folder in folders if str(folder) not in installed]
    former = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*told, *former]))) if told else ""


def _refuse_unfit(spark: SparkSession) -> None:
    if getattr(spark.sparkContext, "_jsc", None) is None:  # PySpark has no public word for it
        raise ConfigError(
            "the SparkSession has been stopped",
            where="StreamExecutionEnvironment.on_spark",
            remedy="Build a new session, and make the environment with it.",
        )
    conf = spark.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise ConfigError(
            "spark.speculation is true: Spark would run a slot twice",
            where="the SparkSession",
            remedy="Set spark.speculation=false before the session is built.",
        )
    if conf.get("spark.python.worker.killOnIdleTimeout", "false") == "true":
        raise ConfigError(
            "spark.python.worker.killOnIdleTimeout is true: Spark would kill healthy slots",
            where="the SparkSession",
            remedy="Set spark.python.worker.killOnIdleTimeout=false before the session is built.",
        )


@contextmanager
def workers_python(spark: SparkSession) -> Generator[None]:
    """Lets Spark's workers run the right Python within the block.

    PySpark looks at PYSPARK_PYTHON alone, which ``spark-submit`` makes of ``spark.pyspark.python``;
    in a session that the program has built itself that setting would do nothing. If nobody has
    chosen, workers on this machine run this interpreter. Spark would take the ``python3`` of the
    PATH, which for a driver in a virtual environment is another one, without its packages.
    Elsewhere the driver's path means nothing.
    """
    context = spark.sparkContext
    chosen = context.getConf().get("spark.pyspark.python")
    if chosen is None and str(context.master).startswith("local"):
        chosen = sys.executable
    if chosen is None or os.environ.get("PYSPARK_PYTHON"):
        yield
        return
    before, context.pythonExec = context.pythonExec, chosen
    try:
        yield
    finally:
        context.pythonExec = before


def cores_of(spark: SparkSession) -> int | None:
    """Number of tasks that can run at once, if known: on a local master."""
    master = spark.sparkContext.master or ""
    if not master.startswith("local["):
        return 1 if master == "local" else None
    threads = master.removeprefix("local[").split("]")[0].split(",")[0]
    return os.cpu_count() if threads == "*" else int(threads)


def cores_of_executors(spark: SparkSession, executors: int) -> int | None:
    """Number of tasks that so many executors run at once; None if the setting leaves it open."""
    conf = spark.sparkContext.getConf()
    each = conf.get("spark.executor.cores")
    return (
        None if each is None else executors * (int(each) // int(conf.get("spark.task.cpus", "1")))
    )


def check_cores(spark: SparkSession, slots: int) -> None:
    """Refuses at once a number of slots for which Spark would wait silently for ever."""
    cores = cores_of(spark)
    per_task = int(spark.sparkContext.getConf().get("spark.task.cpus", "1"))
    if cores is not None and slots * per_task > cores:
        raise ConfigError(
            f"the job needs {slots} slots of {per_task} core(s), and Spark has {cores} cores",
            where=f"master {spark.sparkContext.master}",
            remedy=f"Use master local[{slots * per_task}] or more, or lower the job's parallelism "
            "(env.set_parallelism).",
        )


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """bind: the address to listen on. announce: the one that executors dial."""

    bind: str
    announce: str


def driver_address(spark: SparkSession) -> DriverAddress:
    """Address at which this session's executors find the driver.

    A local master's executors are on this machine. Elsewhere it is ``spark.driver.host``, to which
    the executors have connected already, bound at ``spark.driver.bindAddress`` where that is set.
    """
    if is_local(spark):
        return DriverAddress(LOCALHOST, LOCALHOST)
    conf = spark.sparkContext.getConf()
    announce = conf.get("spark.driver.host") or LOCALHOST
    bind = conf.get("spark.driver.bindAddress") or announce
    return DriverAddress(bind, announce)


def stages_page(spark: SparkSession) -> str | None:
    """URL of Spark's own page, which shows its stages; None where it has none."""
    try:
        return spark.sparkContext.uiWebUrl
    except AttributeError:  # a session that is a client of a server alone
        return None


def is_local(spark: SparkSession) -> bool:
    """True if driver and executors are on one machine."""
    return (spark.sparkContext.master or "").startswith("local")


def tell_of_plain_rpc(spark: SparkSession, log: structlog.typing.FilteringBoundLogger) -> None:
    """Warns if an eavesdropper between driver and executors could read the keys."""
    conf = spark.sparkContext.getConf()
    if not any((conf.get(key) or "false").lower() == "true" for key in _ENCRYPTS):
        log.warning(
            "Spark's own connections are not encrypted, and carry the keys of the job's links; "
            "set spark.network.crypto.enabled with spark.authenticate if others can read that "
            "traffic"
        )


def ship_python_files(spark: SparkSession, files: Iterable[str]) -> None:
    """Gives modules and archives to all executors of a session; a folder goes as an archive.

    files: absolute paths. They stay with the session, as what ``addPyFile`` was given does.
    """
    from pyspark import SparkFiles

    for file in map(Path, files):
        if not file.is_dir():
            spark.sparkContext.addPyFile(str(file))
            continue
        # Executors fetch it later; the session deletes this folder when it stops.
        folder = Path(SparkFiles.getRootDirectory()) / "tidegate"
        folder.mkdir(exist_ok=True)
        archive = shutil.make_archive(str(folder / file.name), "zip", file)
        spark.sparkContext.addPyFile(archive)


@dataclass(frozen=True, slots=True)
class Waiting:
    """asked: slots asked for and not ended. given: those that Spark has given a core.

    executors: that have registered; None if driver and executors are one process. others: tasks
    of other jobs of this application. cores: of Spark, where that is known.
    """

    asked: int
    given: int
    executors: int | None
    others: int
    cores: int | None

    def __str__(self) -> str:
        if self.executors == 0:
            return (
                "no executor has registered with Spark yet: its cluster has no room, or they "
                f"cannot reach the driver. {_SETTINGS}"
            )
        missing = self.asked - self.given
        free = (self.cores or 0) - self.given - self.others
        if 0 < missing <= free:
            return (
                f"Spark has {free} free cores, and has not started the tasks of {missing} of "
                f"{self.asked} slots yet; its machine may be busy"
            )
        if missing > 0:
            room = f"has {self.cores} cores" if self.cores else f"has {self.executors} executor(s)"
            return (
                f"{missing} of {self.asked} slots wait for a core: Spark {room}, "
                f"and runs {self.others} task(s) of other jobs. {_SETTINGS}"
            )
        return (
            "each slot has its core: Python workers are starting and importing what the job needs; "
            "the machines may be busy"
        )


def look(spark: SparkSession, tag: str, asked: int) -> Waiting:
    """Asks Spark. tag: of the Spark jobs that host slots; asked: how many of them there are.

    Raises Py4JError if the JVM does not answer, AttributeError if the session is stopped.
    """
    context: Any = spark.sparkContext
    tracker = context.statusTracker()
    executors = tracker.getExecutorInfos()
    given = 0
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
        given += sum(stage.numActiveTasks for stage in stages if stage)
    running = sum(each.numRunningTasks for each in executors)
    # The driver is listed among executors; elsewhere than on one machine it runs no tasks.
    registered = None if is_local(spark) else len(executors) - 1
    cores = cores_of(spark) if registered is None else cores_of_executors(spark, registered)
    return Waiting(asked, given, registered, max(0, running - given), cores)


def lost(what: str, text: str) -> SlotLost:
    """The loss of a task. what: it means for the job. text: Spark's account of it."""
    if lacks_tidegate(text):
        return SlotLost(
            "the executors' Python has no tidegate",
            remedy="Install it there, or ship it: spark.archives with an environment, or "
            "addPyFile with the wheel.",
        )
    reason = next((line for line in reversed(text.splitlines()) if line.strip()), text)
    return SlotLost(f"{what}: {reason.strip()[:500]}")


def lacks_tidegate(text: str) -> bool:
    """True if a task was lost since its Python cannot import Tidegate."""
    return "No module named 'tidegate'" in text
