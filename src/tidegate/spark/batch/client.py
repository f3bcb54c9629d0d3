"""A handle on a job in batch, which runs on a thread of this process and in Spark."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import InheritableThread

from tidegate.api.job import NOT_OF_A_JOB, JobExecutionResult
from tidegate.clock import SystemClock
from tidegate.config.threads import thread_stacks
from tidegate.driver.client.onlookers import Onlookers
from tidegate.driver.telling.report import summary_of, tell_end
from tidegate.errors import (
    ConfigError,
    Guiding,
    JobCanceled,
    JobFailed,
    TidegateError,
    as_error,
)
from tidegate.jobmaster.life import cancelled, failed_for_good
from tidegate.model.control import JobStatus
from tidegate.rest.serve import archive, rest_server
from tidegate.slot.driver_link import as_ours
from tidegate.spark.batch.driver import BatchDriver
from tidegate.spark.batch.job import BatchJob
from tidegate.spark.batch.start import read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tidegate.api.results import ResultBuffer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import Samples, ThreadStack
    from tidegate.model.ids import JobId, SlotId, VertexId
    from tidegate.model.logs import LogFilter, LogPage
    from tidegate.spark.access.access import SparkAccess
    from tidegate.spark.batch.final_snapshot import Ending
    from tidegate.spark.batch.listening import DriverPlace
    from tidegate.spark.shipping import Shipment

T = TypeVar("T")

_CANCEL_AGAIN_S: Final = 0.5
_ENDS_WITH_ONE: Final = ", or have it end with one (end_with_savepoint)"


def start_batch(
    graph: JobGraph,
    access: SparkAccess,
    place: DriverPlace,
    ending: Ending | None = None,
    shipment: Shipment | None = None,
) -> BatchClient:
    """Start a job in batch; returns once it is led. ending, shipment: as of `BatchJob`.

    Raises what stands in its way: ConfigError, GraphError, StorageFailed, RestoreRefused.
    """
    onlookers = Onlookers(graph, rest_server(graph), archive(graph))
    try:
        client = BatchClient(graph, access, place, ending, shipment, onlookers)
    except BaseException:
        onlookers.shut()
        raise
    client.start()
    return client


class BatchClient(Guiding):
    """The `JobClient` of a job in batch. ending, shipment: as of `BatchJob`."""

    _instead = NOT_OF_A_JOB

    def __init__(
        self,
        graph: JobGraph,
        access: SparkAccess,
        place: DriverPlace,
        ending: Ending | None,
        shipment: Shipment | None,
        onlookers: Onlookers,
    ) -> None:
        self._graph, start = read_start(graph)
        self._onlookers = onlookers
        self._clock = SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._result: Future[JobExecutionResult] = Future()
        driver = BatchDriver(self._graph, place, start, onlookers.job_log, self._stop)
        self._driver = driver
        try:
            job = driver.lead.job
            self._job = BatchJob(self._graph, job, access, start, ending, shipment, driver)
        except BaseException as error:
            driver.lead.end(JobStatus.FAILED)
            driver.close()
            raise error
        self._thread = InheritableThread(target=self._run, session=access.session)
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()
        self._onlookers.open(self, self._driver.lead.epoch)

    def __repr__(self) -> str:
        status = self._driver.progress.status.value
        return f"<JobClient of job '{self._graph.name}', in batch, {status}>"

    def _ipython_display_(self) -> None:
        """The job with its figures, in a notebook; anew each second until it has ended."""
        from tidegate.driver.client.drawing import show_job

        show_job(self, repr(self))

    def _run(self) -> None:
        driver, error = self._driver, None
        driver.enter(JobStatus.RUNNING)
        try:
            driver.begin()
            driver.heard(self._job.run())
            status = JobStatus.FINISHED
        except JobCanceled as raised:
            driver.wait_for_ends()
            status, error = JobStatus.CANCELED, cancelled(self._graph.name, "").error
            error.remedy = raised.remedy
        except BaseException as raised:  # code of the user's may leave its program
            error = as_error(raised)
            cause = error if isinstance(error, TidegateError) else as_ours(error, "the driver")
            driver.failed(cause)
            status, error = JobStatus.FAILED, failed_for_good(self._graph.name, cause).error
        if error is not None:
            self._job.discard()
        driver.enter(status, error)
        self._conclude(status, error)

    def _conclude(self, status: JobStatus, error: TidegateError | None) -> None:
        runtime_ms = self._clock.monotonic_ms() - self._began_ms
        summary = summary_of(self.view(), runtime_ms)
        try:
            with contextlib.ExitStack() as last_first:
                last_first.callback(self._driver.close)
                last_first.callback(self._job.close)
                last_first.callback(tell_end, self.get_job_id(), summary, self._graph.settings)
                last_first.callback(self._onlookers.shut)
                last_first.callback(self._driver.lead.end, status)
        finally:
            self._job.coordinators.results.end(error)
            if error is None:
                job, savepoint = self.get_job_id(), self._job.savepoint
                self._result.set_result(JobExecutionResult(job, runtime_ms, summary, savepoint))
            else:
                self._result.set_exception(error)
        self._onlookers.close()

    # --- the job ---

    def get_job_id(self) -> JobId:
        return self._driver.lead.job

    def get_web_interface_url(self) -> str | None:
        return self._onlookers.url

    def get_job_status(self) -> Future[JobStatus]:
        return _done(self._driver.progress.status)

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self._result

    def cancel(self) -> Future[None]:
        done: Future[None] = Future()
        self._result.add_done_callback(lambda _: done.set_result(None))
        if not self._result.done():
            self._driver.enter(JobStatus.CANCELLING)
            self._stop(JobCanceled(f"job '{self._graph.name}' was cancelled"))
        return done

    def _stop(self, error: TidegateError) -> None:
        threading.Thread(
            target=self._cancel, args=(error,), name="tidegate-cancel", daemon=True
        ).start()

    def _cancel(self, error: TidegateError) -> None:
        """Again and again: what Spark is given later would run on."""
        while not self._result.done():
            self._job.cancel(error)
            wait((self._result,), _CANCEL_AGAIN_S)

    def suspend(self, reason: str = "somebody asked for it") -> Future[None]:
        return self.cancel()

    def view(self) -> JobView:
        return self._driver.progress.view()

    def log(
        self, wanted: LogFilter | None = None, *, after: int | None = None, limit: int = 1_000
    ) -> LogPage:
        from tidegate.model.logs import LogFilter  # few jobs are asked for it

        log = self._onlookers.job_log
        return log.read(wanted or LogFilter(), after=after, limit=limit)

    def thread_dump(self, slot: SlotId | None = None) -> Future[tuple[ThreadStack, ...]]:
        if slot is None:
            return _done(thread_stacks())
        return self._told(lambda: self._driver.threads(slot))

    def call_samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        return self._told(lambda: self._driver.samples(slot, vertex))

    def _told(self, ask: Callable[[], Future[T]]) -> Future[T]:
        try:
            return ask()
        except RuntimeError:  # the driver is closed
            over: Future[T] = Future()
            over.set_exception(JobFailed("the job has ended: its tasks are gone"))
            return over

    # --- results ---

    def collected(self, name: str) -> Iterator[object]:
        return iter(self._buffer(name))

    def collected_waiting(self, name: str, count: int) -> list[object]:
        return self._buffer(name).waiting(count)

    def collected_chunks(self, name: str) -> Iterator[list[object] | pa.RecordBatch]:
        return self._buffer(name).chunks()

    def _buffer(self, name: str) -> ResultBuffer:
        return self._job.coordinators.results.of(name)

    # --- what there is only of streams ---

    def trigger_checkpoint(self, *, full: bool = False) -> Future[Any]:
        return self._refused("take a checkpoint")

    def trigger_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return self._refused("take a savepoint", _ENDS_WITH_ONE)

    def stop_with_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return self._refused("stop with a savepoint", _ENDS_WITH_ONE)

    def cancel_with_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return self._refused("take a savepoint", _ENDS_WITH_ONE)

    def rescale(self, parallelism: int) -> Future[None]:
        return self._refused("change the parallelism")

    def _refused(self, what: str, else_: str = "") -> Future[Any]:
        done: Future[Any] = Future()
        done.set_exception(
            ConfigError(
                f"A job in batch cannot {what}",
                where=f"job '{self._graph.name}'",
                remedy=f"Run it with execution.runtime-mode: STREAMING{else_}.",
            )
        )
        return done


def _done(result: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(result)
    return done
