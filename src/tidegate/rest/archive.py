"""Leaves what a job has last shown in a folder: now and then while it runs, and at its end.

So a job is still seen when its driver has ended, or was killed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tidegate.errors import TidegateError
from tidegate.storage.store import write_new
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    import structlog

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.model.ids import Epoch

FIRST_S: Final = 1.0
"""A job that ends sooner writes its archive once; then each wait is twice the one before."""

EVERY_S: Final = 30.0
_END_S: Final = 30.0


class Archive:
    """The archive of one job. directory: absolute; the file has the job's id as its name."""

    def __init__(
        self, directory: str, clock: Clock, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._log = log
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failed = False

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """Writes from now on, unless the job is over already."""
        with self._lock:
            if self._over.is_set():
                return
            self._thread = threading.Thread(
                target=self._live, args=(client,), name="tidegate-archive", daemon=True
            )
            self._thread.start()

    def shut(self) -> None:
        """Writes a last time. Blocking."""
        with self._lock:
            self._over.set()
        if self._thread is None:
            return
        self._thread.join(_END_S)
        if self._thread.is_alive():
            self._log.warning(
                "the job's last archive is still being written; if it is not finished, tidegate "
                "serve shows an older one",
                directory=self._directory,
                waited_s=_END_S,
            )

    def _live(self, client: JobClient) -> None:
        wait_s = FIRST_S
        while not self._over.wait(wait_s):
            self._write(client)
            wait_s = min(2 * wait_s, EVERY_S)
        self._write(client)

    def _write(self, client: JobClient) -> None:
        try:
            # It loads a lot, for which no start of a job is to wait.
            from tidegate.rest.shapes.archive_shapes import archived
            from tidegate.rest.shapes.log_shapes import to_leave

            view = client.view()
            log = to_leave(client.log, over=self._over.is_set())
            store, file, new = Stores().open(self._directory), view.job, f"{view.job}.part"
            store.delete([new])  # of a driver that was killed over it
            write_new(store, new, archived(view, self._clock.wall_ms(), log))
            store.rename(new, file)
        except Exception as error:  # whatever it is, the next one may be written
            if not self._failed:
                self._log.warning(
                    "the job's archive could not be written; tidegate serve shows an older one",
                    directory=self._directory,
                    error=str(error) or repr(error),
                    exc_info=not isinstance(error, TidegateError),
                )
            self._failed = True
        else:
            self._failed = False
