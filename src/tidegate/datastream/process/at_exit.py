"""Warnings at the end of the process: steps that never ran."""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import TYPE_CHECKING

from tidegate.config.warnings import Warn, process_warnings
from tidegate.graph.transformations import NodeKind

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.datastream.program import Program


def tell_of_unexecuted(program: Program, configuration: Configuration) -> None:
    """Warn at the end of the process if the program has sinks, or all its steps, left to run."""
    # Held weakly: programs that were dropped on purpose need no warning.
    kept = weakref.ref(program, lambda _: atexit.unregister(tell))

    def tell() -> None:
        left = kept()
        if left is None or left.shown or hasattr(sys, "last_value"):
            return
        steps = left.operators
        sinks = [each.name for each in steps if each.kind is NodeKind.SINK]
        if sinks:
            facts = {"sinks": sinks}
        elif steps and not left.executed and not hasattr(sys, "ps1"):
            facts = {"steps": [each.name for each in steps]}
        else:
            return
        process_warnings(configuration).warn(
            Warn.NOT_EXECUTED,
            "the program ends, and these steps have never run; call env.execute()",
            **facts,
        )

    atexit.register(tell)
