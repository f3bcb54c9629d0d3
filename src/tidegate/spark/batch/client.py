"""A handle on a job in batch, which runs on a thread of this process and in Spark."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final

from pyspark import InheritableThread

from tidegate.api.job import JobExecutionResult
from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.config.threads import thread_stacks
from tidegate.driver.telling.report import summary_of, tell_end
from tidegate.errors import ConfigError, JobCanceled, TidegateError
from tidegate.jobmaster.commands import StatusChanged
from tidegate.jobmaster.life import cancelled, failed_for_good
from tidegate.jobmaster.view import FailureView, JobView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, RowCounts, SubtaskFigures
from tidegate.model.ids import Epoch, JobId
from tidegate.model.logs import LogPage
from tidegate.slot.driver_link import as_ours
from tidegate.spark.batch.job import BatchJob, check
from tidegate.spark.batch.start import read_start
from tidegate.spark.batch.user_calls import UserCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from flinkformat.snapshots import MasterState
    from tidegate.api.results import ResultBuffer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import SubtaskId
    from tidegate.model.topology import Vertex
    from tidegate.spark.shipping import Shipment

_CANCEL_AGAIN_S: Final = 0.5


class BatchClient:
    """The `JobClient` of a job in batch. savepoints, shipment: as of `BatchJob`."""

    def __init__(
        self,
        graph: JobGraph,
        spark: SparkSession,
        savepoints: str | None = None,
        shipment: Shipment | None = None,
    ) -> None:
        check(graph)
        if graph.settings.rest is not None:
            process_log().warning(
                "a job in batch has no page of its own; Spark's shows its stages", job=graph.name
            )
        self._id = JobId(secrets.token_hex(16))
        self._graph, self._start = read_start(graph, self._id)
        self._clock = SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._status = JobStatus.INITIALIZING
        self._entered_ms = {self._status: self._clock.wall_ms()}
        self._failures: tuple[FailureView, ...] = ()
        self._figures: dict[SubtaskId, SubtaskFigures] = {}
        self._result: Future[JobExecutionResult] = Future()
        self._job = BatchJob(
            self._graph,
            self._id,
            spark,
            self._start,
            savepoints,
            shipment,
            self._hook_states,
        )
        self._thread = InheritableThread(target=self._run, session=spark)
        self._thread.daemon = True
        self._calls = UserCalls(self._graph, self._id)  # last, for it has a thread

    def _hook_states(self, wall_ms: int) -> tuple[MasterState, ...]:
        return self._calls.trigger_hooks(wall_ms)

    def start(self) -> BatchClient:
        self._thread.start()
        return self

    def __repr__(self) -> str:
        return f"<JobClient of job '{self._graph.name}', in batch, {self._status.value}>"

    def _run(self) -> None:
        self._enter(JobStatus.RUNNING)
        error: TidegateError | None = None
        try:
            self._calls.restore_hooks(self._start)
            said = self._job.run()
            self._figures = {each.task.subtask: each.figures for each in said if each.figures}
            self._enter(JobStatus.FINISHED)
        except JobCanceled:
            error = cancelled(self._graph.name, "").error
            self._enter(JobStatus.CANCELED, error)
        except Exception as raised:
            ours = isinstance(raised, TidegateError)
            error = self._failed(raised if ours else as_ours(raised, "the driver"))
            self._enter(JobStatus.FAILED, error)
        self._conclude(error)

    def _failed(self, cause: TidegateError) -> TidegateError:
        kind, labels = type(cause).__name__, self._calls.labels(cause)
        at_ms = self._clock.wall_ms()
        self._failures = (FailureView(at_ms, str(cause), cause.where, None, kind, labels),)
        return failed_for_good(self._graph.name, cause).error

    def _conclude(self, error: TidegateError | None) -> None:
        runtime_ms = self._clock.monotonic_ms() - self._began_ms
        summary = summary_of(self.view(), runtime_ms)
        tell_end(self._id, summary, self._graph.settings)
        self._job.coordinators.close(error)
        self._calls.close()
        if error is None:
            self._result.set_result(
                JobExecutionResult(self._id, runtime_ms, summary, self._job.savepoint)
            )
        else:
            self._result.set_exception(error)

    def _enter(self, status: JobStatus, error: TidegateError | None = None) -> None:
        former, self._status = self._status, status
        at_ms = self._entered_ms[status] = self._clock.wall_ms()
        self._calls.tell(StatusChanged(former, status, at_ms, error))

    # --- the job ---

    def get_job_id(self) -> JobId:
        return self._id

    def get_web_interface_url(self) -> None:
        """Spark's own page shows its stages."""

    def get_job_status(self) -> Future[JobStatus]:
        return _done(self._status)

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self._result

    def cancel(self) -> Future[None]:
        done: Future[None] = Future()
        self._result.add_done_callback(lambda _: done.set_result(None))
        threading.Thread(target=self._cancel, name="tidegate-cancel", daemon=True).start()
        return done

    def _cancel(self) -> None:
        """Again and again: what Spark is given later would run on."""
        while not self._result.done():
            self._job.cancel()
            wait((self._result,), _CANCEL_AGAIN_S)

    def suspend(self, reason: str = "somebody asked for it") -> Future[None]:
        return self.cancel()

    def view(self) -> JobView:
        return JobView(
            job=self._id,
            name=self._graph.name,
            epoch=Epoch(1),
            status=self._status,
            timestamps_ms=dict(self._entered_ms),
            restarts=0,
            restored=None,
            vertices=tuple(map(self._vertex, self._graph.topology.vertices)),
            edges=self._graph.topology.edges,
            failures=self._failures,
            slots=(),
            slots_wanted=0,
            checkpoints=StatisticsTracker(0).view(),
            settings=self._graph.settings,
            counts=sum((each.counts for each in self._figures.values()), RowCounts()),
        )

    def _vertex(self, vertex: Vertex) -> VertexView:
        subtasks: list[SubtaskView] = []
        for subtask in vertex.subtasks():
            figures = self._figures.get(subtask, SubtaskFigures())
            state = ExecutionState.FINISHED if subtask in self._figures else ExecutionState.RUNNING
            subtasks.append(SubtaskView(subtask.index, 0, state, None, {}, figures))
        return VertexView(
            vertex.id,
            vertex.name,
            vertex.parallelism,
            vertex.max_parallelism,
            tuple(subtasks),
            vertex.operators,
            vertex.parallelism_set,
        )

    def log(self, wanted: object = None, *, after: object = None, limit: int = 1_000) -> LogPage:
        """Executors keep what functions log."""
        return LogPage((), 0)

    def thread_dump(self, slot: object = None) -> Future[Any]:
        return _done(thread_stacks()) if slot is None else _refused("show the stacks of a task")

    # --- results ---

    def collected(self, name: str) -> Iterator[object]:
        return iter(self._buffer(name))

    def collected_waiting(self, name: str, count: int) -> list[object]:
        return self._buffer(name).waiting(count)

    def collected_chunks(self, name: str) -> Iterator[list[object] | pa.RecordBatch]:
        return self._buffer(name).chunks()

    def _buffer(self, name: str) -> ResultBuffer:
        return self._job.coordinators.results(name)

    # --- what there is only of streams ---

    def trigger_checkpoint(self, *, full: bool = False) -> Future[Any]:
        return _refused("take a checkpoint")

    def trigger_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return _refused("take a savepoint")

    def stop_with_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return _refused("stop with a savepoint")

    def cancel_with_savepoint(self, *_: Any, **__: Any) -> Future[str]:
        return _refused("take a savepoint")

    def rescale(self, parallelism: int) -> Future[None]:
        return _refused("change the parallelism")

    def call_samples(self, slot: object, vertex: object) -> Future[Any]:
        return _refused("sample calls")


def _done(result: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(result)
    return done


def _refused(what: str) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_exception(
        ConfigError(
            f"A job in batch cannot {what}",
            where="JobClient",
            remedy="Run it with execution.runtime-mode: STREAMING.",
        )
    )
    return done
