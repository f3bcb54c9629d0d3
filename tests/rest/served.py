"""A REST server over a client whose answers a test gives."""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import structlog

from tests.datastream.fakes import Client
from tests.rest.world import EMPTY, JOB
from tidegate.clock import SystemClock
from tidegate.driver.telling.job_log import JobLog
from tidegate.model.chance import SeededChance
from tidegate.model.ids import JobId
from tidegate.model.logs import PAGE_MAX, LogFilter, LogPage
from tidegate.model.settings import RestSettings
from tidegate.rest.server import RestServer
from tidegate.testing.clock import ManualClock

if TYPE_CHECKING:
    from tidegate.jobmaster.view import JobView


class Served(Client):
    """A client whose view and savepoints are what a test says."""

    def __init__(self) -> None:
        super().__init__([])
        self.shown: JobView | None = EMPTY
        self.saved: Future[str] = Future()
        self.logged = JobLog(ManualClock(), structlog.get_logger())

    def get_job_id(self) -> JobId:
        return JOB

    def view(self) -> object:
        assert self.shown is not None, "told to break"
        return self.shown

    def log(
        self, wanted: LogFilter | None = None, *, after: int | None = None, limit: int = PAGE_MAX
    ) -> LogPage:
        return self.logged.read(wanted or LogFilter(), after=after, limit=limit)

    def trigger_savepoint(self, *args: Any, **settings: Any) -> Future[str]:
        return self.saved


def made(**settings: Any) -> RestServer:
    return RestServer(
        RestSettings((0, 0), **settings), SystemClock(), SeededChance(1), structlog.get_logger()
    )
