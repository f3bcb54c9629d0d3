"""What is told when the process ends: steps that never ran, jobs that end with it."""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import TYPE_CHECKING

from tidegate.config.warnings import Warn, process_warnings
from tidegate.graph.transformations import NodeKind

if TYPE_CHECKING:
    from tidegate.api.client import JobClient
    from tidegate.config.configuration import Configuration
    from tidegate.datastream.program import Program


def tell_of_unexecuted(program: Program, configuration: Configuration) -> None:
    """Warn at the end of the process if the program has a sink and was never executed."""
    # Held weakly: what a process makes and drops meanwhile is nobody's oversight.
    kept = weakref.ref(program, lambda _: atexit.unregister(tell))

    def tell() -> None:
        left = kept()
        if left is None or left.shown or hasattr(sys, "last_value"):
            return
        sinks = [each.name for each in left.operators if each.kind is NodeKind.SINK]
        if sinks:
            process_warnings(configuration).warn(
                Warn.NOT_EXECUTED,
                "the program ends, and these steps have never run; call env.execute()",
                sinks=sinks,
            )

    atexit.register(tell)


def tell_of_running(client: JobClient, configuration: Configuration) -> None:
    """Warn at the end of the process if the job still runs, for it ends with the process."""
    kept = weakref.ref(client, lambda _: atexit.unregister(tell))  # the driver holds it meanwhile

    def tell() -> None:
        running = kept()
        if running is not None and not running.get_job_execution_result().done():
            process_warnings(configuration).warn(
                Warn.JOB_CUT_OFF,
                "the job still runs and ends with this process; to wait for its end call "
                "get_job_execution_result().result()",
                job=str(running.get_job_id()),
            )

    atexit.register(tell)
