"""Serves many jobs in one process, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.config.rest import REST_STORES
from tidegate.driver.telling.job_log import JobLog
from tidegate.rest.cluster import cluster_routes
from tidegate.rest.cluster.asking import Asking
from tidegate.rest.cluster.known_jobs import KnownJobs
from tidegate.rest.listening import Listener
from tidegate.rest.routes import driver, login, logs, page
from tidegate.rest.routes.dashboard import Dashboard
from tidegate.transport.keys import read_keys, service_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import structlog

    from tidegate.clock import Clock
    from tidegate.model.settings import RestSettings, TlsStores
    from tidegate.rest.cluster.folders import JobFolders

T = TypeVar("T")

_THREADS: Final = 4


class ClusterServer:
    """Binds its port at once. Raises ConfigError if no port is free.

    given: the settings as text, for its page. stores: certificates that jobs are known by, and that
    this process shows them; those that this machine trusts where none are named.
    """

    def __init__(
        self,
        folders: JobFolders,
        settings: RestSettings,
        given: Mapping[str, str],
        stores: TlsStores,
        refresh_ms: int,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._dashboard = None if settings.jar is None else Dashboard(settings.jar)
        self._trusted = service_context(
            read_keys(stores, prefix=REST_STORES.prefix), check_names=True
        )
        self._listener = Listener(settings, clock)
        self.folders: Final = folders
        self._given = given
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._kept = JobLog(clock, log)
        self._log = self._kept.log
        self.url: Final = self._listener.url
        self.over: Final = asyncio.Event()

    def login_url(self) -> str | None:
        """A link that lets a browser in once; None where nobody is kept out."""
        if self._listener.token is None:
            return None
        return f"{self.url}{self._listener.guard.new_link()}"

    async def serve(self, ready: Callable[[], None]) -> None:
        """Answers until ``over`` is set, or the process is told to stop by Ctrl-C or SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.over.set)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="tidegate-serve-io") as pool:

            def run_blocking(call: Callable[[], T]) -> Awaitable[T]:
                return loop.run_in_executor(pool, call)

            async with Asking(self._listener.token, self._trusted) as asking:
                known = KnownJobs(
                    self.folders,
                    asking,
                    self._clock,
                    run_blocking,
                    self._refresh_ms,
                    self._log,
                )
                routes = (
                    *driver.process_routes(run_blocking),
                    *logs.driver_routes(self._kept.read),
                    *cluster_routes.routes(known, self._given),
                    *login.routes(self._listener.guard),
                    *page.file_routes(),
                    *(() if self._dashboard is None else self._dashboard.routes(run_blocking)),
                )
                async with self._listener.answering(routes, self._log):
                    ready()
                    await self.over.wait()
                await known.close()
        self._listener.close()
