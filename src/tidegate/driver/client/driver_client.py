"""A handle on a job whose driver runs in this process; safe to use from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from flinkformat.snapshots import SavepointFormatType
from tidegate.api.job import NOT_OF_A_JOB
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.config.log import process_log
from tidegate.config.threads import thread_stacks
from tidegate.driver.client.requests import (
    SavepointRequests,
    interruption,
    savepoint_asked,
    suspend,
)
from tidegate.driver.telling.watching import why_waiting
from tidegate.errors import (
    Guiding,
    JobCanceled,
    JobFailed,
    PeerLost,
    RescaleRefused,
    StorageFailed,
    TidegateError,
    UserCodeFailed,
)
from tidegate.jobmaster.events import CancelRequested, RescaleRequested
from tidegate.model.elements import SnapshotKind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from os import PathLike

    import pyarrow as pa

    from tidegate.api.job import CheckpointDone, JobExecutionResult, JobSummary
    from tidegate.api.results import ResultBuffer
    from tidegate.driver.running import RunningJob
    from tidegate.driver.telling.job_log import JobLog
    from tidegate.jobmaster.events import JobEvent
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import JobStatus, Samples, ThreadStack
    from tidegate.model.ids import Epoch, JobId, SlotId, VertexId
    from tidegate.model.logs import LogFilter, LogPage

T = TypeVar("T")

VIEW_TIMEOUT_S = 10.0
JOIN_TIMEOUT_S = 10.0


class DriverClient(Guiding):
    """The `JobClient` of a driver. accepted: the job, once it is. ended: how it has ended, then.

    loop: the driver's.
    """

    _instead = NOT_OF_A_JOB

    def __init__(
        self,
        name: str,
        accepted: Future[RunningJob],
        ended: Future[JobExecutionResult],
        loop: asyncio.AbstractEventLoop,
        job_log: JobLog,
    ) -> None:
        self._name = name
        self._accepted = accepted
        self._ended = ended
        self._loop = loop
        self._log = job_log
        self._thread: threading.Thread | None = None
        self._result: Future[JobExecutionResult] = Future()
        self._savepoints = SavepointRequests(
            lambda asked: self._request(asked.request, "no savepoint can be taken"),
            self._result,
            lambda: why_waiting(self.view()),
        )
        self._url: str | None = None
        self._buffers: dict[str, ResultBuffer] = {}

    def __repr__(self) -> str:
        state = "has ended" if self._ended.done() else "has not ended"
        return f"<JobClient of job '{self._name}', which {state}>"

    def _ipython_display_(self) -> None:
        """The job with its figures, in a notebook; anew each second until it has ended."""
        from tidegate.driver.client.drawing import show_job  # what only it needs

        show_job(self, repr(self))

    @property
    def _job(self) -> RunningJob:
        return self._accepted.result(timeout=0)

    def belongs_to(self, thread: threading.Thread) -> None:
        self._thread = thread

    def served_at(self, url: str | None) -> None:
        self._url = url

    @property
    def summary(self) -> JobSummary | None:
        """Summary of the job, once it has ended; None if it never ran, or nobody reads output."""
        error = self._ended.exception() if self._ended.done() else None
        unread = isinstance(error, JobCanceled) and error.output_closed
        started = self._accepted.done() and self._accepted.exception() is None
        return self._job.summary if started and not unread else None

    def conclude(self, failure: BaseException | None) -> None:
        """The driver's loop has ended and nothing of it is left: give the result out.

        failure: what ended the loop, where that was not the job's end.
        """
        if failure is not None and self._ended.done():
            # The job was over by then, and its result stands.
            log = process_log().bind(job=self._name)
            log.warning("the driver did not end in order", error=repr(failure))
        if not self._ended.done():
            lost = UserCodeFailed(f"the driver's loop ended: {failure!r}")
            lost.__cause__ = failure
            self._result.set_exception(lost)
            return
        error = self._ended.exception()
        if error is not None:
            self._result.set_exception(error)
        else:
            self._result.set_result(self._ended.result())

    def wait_accepted(self, timeout_s: float) -> None:
        """Wait until the job is led. Raises what stands in its way, in the caller's thread."""
        try:
            self._accepted.result(timeout_s)
        except TimeoutError as error:
            raise StorageFailed(
                f"the job was not accepted within {timeout_s:g} s",
                remedy="Check that the checkpoint folder answers, and ZooKeeper where it is used.",
            ) from error
        except TidegateError:
            self._join()
            raise

    def _join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_TIMEOUT_S)

    def get_job_id(self) -> JobId:
        return self._job.id

    @property
    def epoch(self) -> Epoch:
        """Number of this run of the job; known once the job is accepted."""
        return self._job.epoch

    def get_web_interface_url(self) -> str | None:
        return self._url

    def get_job_status(self) -> Future[JobStatus]:
        return self._ask(lambda: self._job.view().status)

    def cancel(self) -> Future[None]:
        return self._end(lambda: self._when_led(lambda job: job.inbox.post(CancelRequested())))

    def suspend(self, reason: str = "somebody asked for it") -> Future[None]:

        def ask() -> None:
            job = self._job
            job.inbox.spawn(suspend(job.inbox, job.answers, job.settings, reason))

        return self._end(ask)

    def break_off(self, reason: str) -> None:
        """The job's start is given up: suspend it as soon as it is led, as it was before."""

        def ask() -> None:
            self._when_led(lambda job: job.inbox.post(interruption(job.settings, reason)))

        self._end(ask)

    def _when_led(self, act: Callable[[RunningJob], object]) -> None:
        """Calls with the job; if it does not run yet, as soon as it does."""
        self._accepted.add_done_callback(
            lambda accepted: accepted.exception() or act(accepted.result())
        )

    def _end(self, ask: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        if self._result.done():
            done.set_result(None)
            return done

        def ended(result: Future[JobExecutionResult]) -> None:
            error = result.exception()
            if isinstance(error, JobFailed):
                done.set_exception(error)
            else:
                done.set_result(None)

        self._result.add_done_callback(ended)
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the job with it
            self._loop.call_soon_threadsafe(ask)
        return done

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self._result

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointDone]:
        kind = SnapshotKind.FULL_CHECKPOINT if full else SnapshotKind.CHECKPOINT
        too_late = "no checkpoint can be taken"
        return self._request(lambda number: CheckpointRequested(number, kind), too_late)

    def trigger_savepoint(
        self,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        return self._savepoint(SnapshotKind.SAVEPOINT, savepoint_directory, format, trigger_id)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        kind = SnapshotKind.TERMINATE if advance_to_end_of_event_time else SnapshotKind.SUSPEND
        return self._savepoint(kind, savepoint_directory, format, trigger_id)

    def cancel_with_savepoint(
        self,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        kind = SnapshotKind.SAVEPOINT
        return self._savepoint(kind, savepoint_directory, format, trigger_id, cancels=True)

    def _savepoint(
        self,
        kind: SnapshotKind,
        directory: str | PathLike[str] | None,
        format: SavepointFormatType,
        trigger_id: str | None,
        *,
        cancels: bool = False,
    ) -> Future[str]:
        default = self._job.settings.checkpoints.savepoint_directory
        asked = savepoint_asked(kind, directory, format, default=default, cancels=cancels)
        return self._savepoints.ask(asked, trigger_id)

    def rescale(self, parallelism: int) -> Future[None]:
        try:
            wanted = index(parallelism)
        except TypeError:
            done: Future[None] = Future()
            refused = RescaleRefused(
                f"The parallelism {parallelism!r} is not a whole number",
                where="rescale",
                remedy="Ask for 1 or more.",
            )
            done.set_exception(refused)
            return done

        too_late = "it cannot be rescaled"
        return self._request(lambda number: RescaleRequested(number, wanted), too_late)

    def _request(self, event: Callable[[int], JobEvent], too_late: str) -> Future[Any]:
        """Posts a request on the driver's loop; its number says which answer belongs to it."""
        done: Future[Any] = Future()
        ended = JobFailed(f"the job has ended: {too_late}")

        def ask() -> None:
            if self._ended.done():
                done.set_exception(ended)
            else:
                self._job.inbox.post(event(self._job.answers.expect(done)))

        try:
            self._loop.call_soon_threadsafe(ask)
        except RuntimeError:  # the loop has ended, and the job with it
            done.set_exception(ended)
        return done

    def thread_dump(self, slot: SlotId | None = None) -> Future[tuple[ThreadStack, ...]]:
        if slot is None:
            here: Future[tuple[ThreadStack, ...]] = Future()
            here.set_result(thread_stacks())
            return here
        return self._told(self._job.threads(slot))

    def call_samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        return self._told(self._job.samples(slot, vertex))

    def _told(self, told: Coroutine[Any, Any, T]) -> Future[T]:
        """Asks a slot on the driver's loop."""
        try:
            return asyncio.run_coroutine_threadsafe(told, self._loop)
        except RuntimeError:
            told.close()
            over: Future[T] = Future()
            over.set_exception(JobFailed("the job has ended: its slots are gone"))
            return over

    def log(
        self,
        wanted: LogFilter | None = None,
        *,
        after: int | None = None,
        limit: int = 1_000,
    ) -> LogPage:
        from tidegate.model.logs import LogFilter  # few jobs are asked for it

        return self._log.read(wanted or LogFilter(), after=after, limit=limit)

    def view(self) -> JobView:
        return self._answered(self._ask(self._job.view), "what the job is doing")

    def _answered(self, asked: Future[T], what: str) -> T:
        try:
            return asked.result(VIEW_TIMEOUT_S)
        except TimeoutError as error:
            raise PeerLost(
                f"the driver has not said within {VIEW_TIMEOUT_S:g} s {what}",
                remedy="Look for a call that holds this process's interpreter, and for a machine "
                "with more work than it can do.",
            ) from error

    def collected(self, name: str) -> Iterator[object]:
        return iter(self._buffer(name))

    def collected_waiting(self, name: str, count: int) -> list[object]:
        return self._buffer(name).waiting(count)

    def collected_chunks(self, name: str) -> Iterator[list[object] | pa.RecordBatch]:
        return self._buffer(name).chunks()

    def _buffer(self, name: str) -> ResultBuffer:
        if name in self._buffers:
            return self._buffers[name]
        asked = self._ask(lambda: self._job.results(name))
        buffer = self._answered(asked, f"where the records of '{name}' are")

        def ended(result: Future[JobExecutionResult]) -> None:
            error = result.exception()
            buffer.end(error if isinstance(error, TidegateError) else None)

        # The driver ends its buffers itself, unless its loop was ended.
        self._result.add_done_callback(ended)
        self._buffers[name] = buffer
        return buffer

    def _ask(self, question: Callable[[], T]) -> Future[T]:
        """Calls a function on the driver's loop; here, once that has ended."""
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(ask)
        except RuntimeError:
            ask()
        return answer
