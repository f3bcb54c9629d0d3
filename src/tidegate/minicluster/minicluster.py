"""The local runtime: a driver on a thread of this process, its slots in processes of their own.

With ``tidegate.local.in-process`` the slots share the driver's loop. The code is the same either
way.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.config import execution
from tidegate.driver.address import LOCALHOST, DriverAddress, told_address
from tidegate.driver.thread import start_driver
from tidegate.graph.runtime import refuse_savepoint_at_end
from tidegate.minicluster.forking import forking
from tidegate.minicluster.processes import ProcessProvider
from tidegate.rest.serve import archive, rest_server
from tidegate.transport.security import LinkSecurity

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.driver.client.driver_client import DriverClient
    from tidegate.graph.job_graph import JobGraph

REPEATS_MAX: Final = 3
"""The same failure so many times ends a job that nobody has given a restart strategy."""


class LocalRuntime:
    """Runs jobs on this machine."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def submit(self, graph: JobGraph) -> DriverClient:
        """Start a job; returns once its driver leads it.

        Raises what stands in its way: ConfigError, StorageFailed, RestoreRefused.
        """
        refuse_savepoint_at_end(self._configuration)
        if not any(key.startswith("restart-strategy") for key in self._configuration.key_set()):
            graph = replace(graph, settings=replace(graph.settings, repeats_max=REPEATS_MAX))
        rest, kept = rest_server(graph), archive(graph)
        if self._configuration.get(execution.LOCAL_IN_PROCESS):
            from tidegate.minicluster.in_process import LoopProvider
            from tidegate.transport.memory import MemoryNetwork

            within = MemoryNetwork()
            return start_driver(graph, LoopProvider(within), within, rest=rest, archive=kept)
        _flush()
        address = told_address(
            self._configuration, lambda: DriverAddress(LOCALHOST, LOCALHOST), one_machine=True
        )
        security = LinkSecurity(graph.settings.links, address.bind, announce=address.announce)
        provider = ProcessProvider(forking(), security)
        network = security.network(ports=address.ports or (0, 0))
        secret = security.secret
        return start_driver(graph, provider, network, secret=secret, rest=rest, archive=kept)


def _flush() -> None:
    """Flushes the program's output, so that it stands before the output of its slots."""
    for output in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            output.flush()
