"""Serves the REST interface of one job, on a thread and a loop of its own.

The port is taken before the job is submitted, so that one that cannot be had is told before
anything starts. Results of operations that somebody waits for, such as the path of the savepoint
that has ended the job, can still be read when the job is over, within a limit.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.driver.telling.job_log import JobLog
from tidegate.rest.listening import Listener
from tidegate.rest.routes import (
    accumulators,
    applications,
    driver,
    flame_graphs,
    jobs,
    key_groups,
    login,
    logs,
    page,
    scaling,
    slots,
    snapshots,
)
from tidegate.rest.routes.dashboard import Dashboard
from tidegate.rest.served import Operations, ServedJob
from tidegate.snapshots.folders import dispose_savepoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import structlog

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Epoch
    from tidegate.model.settings import RestSettings

T = TypeVar("T")

_THREADS: Final = 4


class RestServer:
    """Serves one job. Binds its port at once; raises ConfigError if no port is free."""

    def __init__(
        self,
        settings: RestSettings,
        clock: Clock,
        chance: Chance,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._operations = Operations(clock, settings.store_ms)
        self._dashboard = None if settings.jar is None else Dashboard(settings.jar)
        self._job = lambda client: ServedJob(
            client,
            self._operations,
            clock,
            chance,
            self._run_blocking,
            flame_graphs=settings.flame_graphs,
        )
        self.job_log: Final = JobLog(clock, log)
        self._log = self.job_log.log
        self._listener = Listener(settings, clock)
        self.url: Final = self._listener.url
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidegate-rest-io")
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ending: Future[None] = Future()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    def open(self, client: JobClient, epoch: Epoch) -> None:
        served = self._job(client)
        with self._lock:
            if self._ended:
                return
            thread = threading.Thread(
                target=self._live, args=(served,), name="tidegate-rest", daemon=True
            )
            thread.start()
            self._thread = thread
            self._ready.result()
        self._log.info("rest endpoint listens", url=self.url, epoch=epoch)

    def shut(self) -> None:
        """Ends with the job, or as soon as the last results were read. Blocking."""
        with self._lock:
            self._ended = True
        if self._thread is None or self._ready.exception() is not None:
            self._release()
            return
        loop, over = self._ready.result()
        awaited = self._operations.awaited
        loop.call_soon_threadsafe(over.set)
        self._ending.result()
        if not awaited:
            self._thread.join()

    def _live(self, served: ServedJob) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve(served))
        except BaseException as error:
            for awaited in (self._ready, self._ending):
                if not awaited.done():
                    awaited.set_exception(error)
            raise

    async def _serve(self, served: ServedJob) -> None:
        # Paths that end in a word stand before those that end in an id: accumulators before jobs,
        # whose metrics of all slots stand before a slot.
        routes = (
            *accumulators.routes(served),
            *applications.routes(served),
            *driver.routes(served),
            *scaling.routes(served),
            *snapshots.routes(served, self._dispose),
            *logs.driver_routes(served.client.log),
            *logs.routes(served),
            *jobs.routes(served),
            *key_groups.routes(served, self._pool.submit),
            *slots.routes(served),
            *flame_graphs.routes(served),
            *login.routes(self._listener.guard),
            *page.routes(served),
            *(() if self._dashboard is None else self._dashboard.routes(served.apart)),
        )
        async with self._listener.answering(routes, self._log):
            over = asyncio.Event()
            self._ready.set_result((asyncio.get_running_loop(), over))
            await over.wait()
            # The process waits for this thread if the program ends meanwhile.
            read = asyncio.get_running_loop().run_in_executor(
                self._pool, self._operations.wait_until_read
            )
            self._ending.set_result(None)
            await read
        self._release()

    def _release(self) -> None:
        self._pool.shutdown(wait=False)
        self._listener.close()

    def _dispose(self, path: str) -> Future[None]:
        return self._pool.submit(partial(dispose_savepoint, path))

    def _run_blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, call)
