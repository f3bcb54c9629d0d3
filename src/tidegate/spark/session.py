"""The Spark session that a job runs in: found, built or refused; and what its errors mean."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

import flinkformat
from tidegate.datastream.process.outside import is_submitted
from tidegate.errors import ConfigError, NodeUnfit, SlotLost
from tidegate.spark import daemon
from tidegate.spark.access.access import access_to, is_connect

if TYPE_CHECKING:
    from tidegate.spark.access.access import SparkAccess

_LACKS_TIDEGATE: Final = "No module named 'tidegate'"
_OTHER_TIDEGATE: Final = re.compile(
    r"(No module named|cannot import name \S+ from|Can't get attribute \S+ on <module) "
    r"'(tidegate|flinkformat)\b[^']*'"
)
_VERSIONS: Final = "PYTHON_VERSION_MISMATCH"
_SHIPPED: Final = "the shipped packages are for"
"""Part of what `tidegate.spark.unpacking` says of a node; its remedy is in it."""

_C_LIBRARY: Final = "version `GLIBC"
_GONE: Final = ("INVALID_HANDLE.SESSION_", "NO_ACTIVE_SESSION", "StatusCode.UNAVAILABLE")
"""What Spark Connect says of a server that was started anew, or has not answered for long."""

_STOPPED: Final = (
    "cancelled because SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
    "Locally cancelled by application!",  # gRPC's word for a session of Connect that was stopped
)
"""Spark says so too where nobody has asked for it, as when a master removes the application."""

_CRASHED: Final = "Python worker exited unexpectedly"
"""Spark says so of a worker that a signal or a call to exit has ended."""

_NO_MEMORY: Final = "java.lang.OutOfMemoryError"
MORE_MEMORY: Final = (
    "Start Spark with more memory for its JVM, which has 1 GB where nothing else is said: "
    "spark.driver.memory on one machine, spark.executor.memory on a cluster. Or run fewer tasks at "
    "once in it."
)
_OF_JVM: Final = "JVM stacktrace:"
_NO_REASONS: Final = ("SQLSTATE: ", "at ", "... ", ")")
"""How lines begin that tell a reader nothing: of a stack of Java's, or behind one."""

_TASK_TRIES: Final = 4
"""How often Spark runs a task of a batch that dies; its own number for clusters."""


def session_for(spark: object | None, slots: int | None) -> SparkSession:
    """The session handed in, else one where Spark has a master, else a new one on this machine.

    slots: that there has to be room for; None for a batch, whose tasks come in waves. Raises
    ConfigError for a session that jobs cannot run in, and where Spark does not start.
    """
    if spark is None:
        spark = _build(slots)
    elif not isinstance(spark, SparkSession) and not is_connect(spark):
        raise ConfigError(
            f"{type(spark).__module__}.{type(spark).__name__} is not a SparkSession",
            where="StreamExecutionEnvironment.on_spark",
            remedy="Build one with SparkSession.builder, or use "
            "StreamExecutionEnvironment.local().",
        )
    session = cast("SparkSession", spark)
    access_to(session).refuse_unfit()
    return session


def _build(slots: int | None) -> SparkSession:
    try:
        # Settings of ours would overrule those of spark-submit.
        return SparkSession.builder.getOrCreate() if has_master() else _build_here(slots)
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark does not start: {error}",
            where="StreamExecutionEnvironment.on_spark",
            remedy="Spark needs Java 17 or newer: install a runtime or set JAVA_HOME. "
            "StreamExecutionEnvironment.local() runs the same job without Spark and Java.",
        ) from error


def _build_here(slots: int | None) -> SparkSession:
    master = local_master(slots, os.cpu_count() or 1)
    builder = SparkSession.builder.master(master).appName("tidegate")
    chosen = os.environ.get("PYSPARK_PYTHON")
    python = chosen or sys.executable
    for key, value in session_settings(python).items():
        builder = builder.config(key, value)
    os.environ["PYSPARK_PYTHON"] = python
    try:
        return builder.getOrCreate()
    finally:
        if not chosen:  # a later session may be one on a cluster
            del os.environ["PYSPARK_PYTHON"]


def has_master() -> bool:
    """True if spark-submit, or the environment, says where Spark is."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    told = any(each in arguments for each in ("--master", "--remote", "spark.master"))
    return told or is_submitted() or "SPARK_REMOTE" in os.environ


def check_can_shuffle() -> None:
    """Raises ConfigError if this PySpark cannot send rows to the tasks that batches choose."""
    if not hasattr(DataFrame, "repartitionById"):
        raise ConfigError(
            "A batch over Spark's shuffle needs PySpark 4.1 or newer, "
            f"and this is {pyspark.__version__}",
            where="execution.batch-shuffle-mode",
            remedy="Upgrade PySpark and its cluster, or set ALL_EXCHANGES_PIPELINED: the batch "
            "then runs in slots.",
        )


def local_master(slots: int | None, cores: int) -> str:
    """The master of a session on this machine. slots: None for a batch."""
    if slots is None:
        return f"local[{cores},{_TASK_TRIES}]"  # tasks at once share the memory of one JVM
    # Slots mostly wait, so they may outnumber the cores. The driver itself replaces one that dies.
    return f"local[{max(slots, cores)},1]"


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


def lost(what: str, text: str) -> SlotLost:
    """The loss of a task. what: it means for the job. text: Spark's account of it.

    NodeUnfit where it is about the Python of the task's node.
    """
    lines = [line.strip() for line in text.partition(_OF_JVM)[0].splitlines()]
    if _LACKS_TIDEGATE in text:
        return NodeUnfit(
            "the executors' Python has no tidegate",
            remedy="Bring it along with `tidegate run --ship` (tidegate.spark.ship: true), install "
            "it there, or ship an environment with spark.archives.",
        )
    if found := _OTHER_TIDEGATE.search(text):
        return NodeUnfit(
            f"the executors' Python has tidegate in another version than this: {found[0]}",
            remedy="Install the driver's version there, of tidegate and of flinkformat, or bring "
            "both along with `tidegate run --ship` (tidegate.spark.ship: true).",
        )
    if _VERSIONS in text:
        told = next(line for line in text.splitlines() if _VERSIONS in line)
        return NodeUnfit(
            f"the executors' Python is another one than this: {told.partition(_VERSIONS)[2][2:]}",
            remedy="Have them run one of the same minor version: spark.pyspark.python, or "
            "PYSPARK_PYTHON in the environment of Spark Connect's server.",
        )
    if _CRASHED in text:
        return SlotLost(
            f"{what}: the Python of a task died each time Spark ran it, without a word",
            remedy="See the executor's log: code outside of Python may have crashed it, or the "
            "machine had no memory left and its system killed it. Then run fewer tasks at once.",
        )
    for line in lines:
        if _SHIPPED in line:
            return NodeUnfit(line.removeprefix("RuntimeError: "))
        if _C_LIBRARY in line:
            return NodeUnfit(
                f"the executors' C library is older than what a package needs: {line}",
                remedy="Install the packages on such a node, or ship an environment that was made "
                "on one with spark.archives.",
            )
    reasons = [line for line in lines if line and not line.startswith(_NO_REASONS)]
    remedy = MORE_MEMORY if _NO_MEMORY in text else ""
    return SlotLost(f"{what}: {(reasons or lines or [''])[-1][:500]}", remedy=remedy)


def has_gone(access: SparkAccess, error: Exception) -> bool:
    """True if a call of Spark has failed since its JVM, or its session, is there no more."""
    text = str(error)
    return access.gone(error) or any(sign in text for sign in (*_STOPPED, *_GONE))


def gone(remedy: str) -> SlotLost:
    """The end of all that Spark ran, with its JVM or its session. remedy: for who needs another."""
    return SlotLost(
        "Spark's JVM is gone, or its session was stopped",
        remedy=f"See why it ended, such as for lack of memory. {remedy}",
    )
