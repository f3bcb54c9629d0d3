"""Ctrl-C and SIGTERM on Spark: the job's slots are there for its last checkpoint.

By itself PySpark cancels all of Spark's jobs at Ctrl-C, the job's slots among them, and the JVM
stops Spark at SIGTERM, which it gets with its group, or alone where it is `spark-submit`.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started

from tidegate.datastream.process.outside import is_submitted
from tidegate.spark.access.access import SLOT_TAG

if TYPE_CHECKING:
    import structlog
    from pyspark import SparkContext


def keep_slots_at_signals(
    context: SparkContext, log: structlog.typing.FilteringBoundLogger
) -> None:
    """Keeps slots alive when a signal tells the program to stop; may be called repeatedly."""
    if threading.current_thread() is threading.main_thread():
        installed: Any = signal.getsignal(signal.SIGINT)
        if getattr(installed, "__module__", "").startswith("pyspark."):
            signal.signal(signal.SIGINT, lambda *_: _take_ctrl_c(context))
    try:
        _keep_jvm_at_sigterm(context)
    except (Py4JError, TypeError, OSError) as error:  # a JVM without sun.misc.Signal
        log.info("the JVM stops Spark at SIGTERM, before a last checkpoint", error=str(error))


def _take_ctrl_c(context: Any) -> None:
    """Handles Ctrl-C as PySpark does, but leaves slots alone."""
    try:
        active = context.statusTracker().getActiveJobsIds()
        spark = context._jsc.sc()  # PySpark has no word of its own for what follows
        slots = set(spark.statusTracker().getJobIdsForTag(SLOT_TAG))
        for job in active:
            if job not in slots:
                spark.cancelJob(job)
    finally:
        raise KeyboardInterrupt


def _keep_jvm_at_sigterm(context: Any) -> None:
    jvm = context._gateway.jvm
    misc, jvm_takes = jvm.sun.misc, jvm.sun.misc.Signal.handle
    if not is_submitted():
        # This process started Spark, which therefore ends with it in any case.
        jvm_takes(misc.Signal("TERM"), misc.SignalHandler.SIG_IGN)
    elif "deploy.SparkSubmit" in (jvm.System.getProperty("sun.java.command") or ""):
        # Spark started this process and ends after it. Ctrl-C reaches this process as well.
        ensure_callback_server_started(context._gateway)
        jvm_takes(misc.Signal("TERM"), _PassedOn())
        jvm_takes(misc.Signal("INT"), misc.SignalHandler.SIG_IGN)


class _PassedOn:
    """Passes a signal of the JVM on to this process."""

    def handle(self, taken: Any) -> None:
        """Receives a signal. taken: a ``sun.misc.Signal``."""
        os.kill(os.getpid(), taken.getNumber())

    class Java:
        """Names the Java interface, as Py4J requires."""

        implements = ("sun.misc.SignalHandler",)
