"""A job in batch as others see it: its status, its failures, and how far its tasks are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.requests import Request
from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.config.warnings import Warnings
from tidegate.driver.telling.watching import Remarks
from tidegate.jobmaster.commands import StatusChanged
from tidegate.jobmaster.failures import KNOWN_MAX, Failure, FailureHistory
from tidegate.jobmaster.view import JobView, StageView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, RowCounts, SubtaskFigures
from tidegate.spark.batch.watch import TaskWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flinkformat.snapshots import CheckpointProperties
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.driver.telling.job_log import JobLog
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import CheckpointAcknowledged, Logged
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import CheckpointId, Epoch, JobId, SlotId, SubtaskId, VertexId
    from tidegate.model.topology import Vertex
    from tidegate.spark.batch.shuffle import Said


class BatchProgress:
    """Any thread may ask for the view. log: of the job. page: URL of Spark's own, if it has one.

    failed: is told of an error that ends the job, while other tasks still run.
    """

    def __init__(
        self,
        graph: JobGraph,
        job: JobId,
        epoch: Epoch,
        log: JobLog,
        page: str | None,
        failed: Callable[[TidegateError], None],
    ) -> None:
        self._graph = graph
        self._ids = job, epoch
        self._log = log
        self._page = page
        self._failed = failed
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._status = JobStatus.INITIALIZING
        self._entered_ms = {self._status: self._clock.wall_ms()}
        self._failures = FailureHistory(graph.settings.exception_history_max)
        self._known: dict[str, int | None] = {}
        self._figures: dict[SubtaskId, SubtaskFigures] = {}
        self._checkpoints = StatisticsTracker(1)
        self._restored: CheckpointId | None = None
        self.watch: Final = TaskWatch(self._clock, self)

    # --- its life ---

    @property
    def status(self) -> JobStatus:
        return self._status

    def enter(self, status: JobStatus, error: TidegateError | None = None) -> StatusChanged | None:
        """The change, for whoever listens; None where the job is over, or has that status."""
        with self._lock:
            former = self._status
            if former.is_terminal or former is status:
                return None
            self._status = status
            at_ms = self._entered_ms[status] = self._clock.wall_ms()
        return StatusChanged(former, status, at_ms, error)

    def add_failure(self, error: TidegateError, task: str = "", slot: SlotId | None = None) -> None:
        """Note a failure, unless it is known."""
        with self._lock:
            if (text := str(error)) not in self._known:
                while len(self._known) >= KNOWN_MAX:
                    del self._known[next(iter(self._known))]
                failure = Failure(error, task, slot)
                self._known[text] = self._failures.add(failure, self._clock.wall_ms(), root=True)

    def label_failure(self, error: TidegateError, labels: Mapping[str, str]) -> None:
        with self._lock:
            if (number := self._known.get(str(error))) is not None:
                self._failures.label(number, labels)

    def ended(self, said: Sequence[Said]) -> None:
        """All tasks have ended; what they say with their rows is right."""
        with self._lock:
            self._figures = {each.task.subtask: each.figures for each in said if each.figures}
        unheard = sum(self.watch.task(subtask) is None for subtask in self._figures)
        if unheard:
            self._log.log.warning(
                "tasks could not reach the driver while they ran, so their figures came at the end "
                "alone; executors reach spark.driver.host at the ports of tidegate.net.port-range",
                tasks=unheard,
            )
        silenced = self._graph.settings.silenced
        Remarks(Warnings(process_log().bind(job=self._graph.name), silenced)).tell(self.view())

    def saved(
        self,
        path: str,
        barrier: Barrier,
        properties: CheckpointProperties,
        shares: Sequence[CheckpointAcknowledged],
    ) -> None:
        """The snapshot at its end is complete."""
        number, triggered_ms = barrier.checkpoint, barrier.triggered_ms
        kind, now_ms = barrier.options.kind, self._clock.wall_ms()
        with self._lock:
            self._checkpoints.triggered(
                number,
                Request(triggered_ms, kind, properties, 1),
                self._graph.topology,
                triggered_ms=triggered_ms,
                begun_ms=triggered_ms,
            )
            for each in shares:
                self._checkpoints.acknowledged(each, now_ms)
            written = sum(each.figures.bytes_written for each in shares)
            self._checkpoints.completed(number, path, written, 0)

    def restored(self, snapshot: CompletedCheckpoint) -> None:
        """The batch starts from a snapshot."""
        with self._lock:
            self._restored = snapshot.checkpoint
            self._checkpoints.restored(snapshot, self._clock.wall_ms())

    # --- TaskListener ---

    @property
    def is_ending(self) -> bool:
        return self._status is not JobStatus.RUNNING

    def logged(self, message: Logged) -> None:
        self._log.heard(message)

    def task_failed(
        self, subtask: SubtaskId, slot: SlotId, error: TidegateError, *, again: bool
    ) -> None:
        if self.is_ending:
            return
        task = self._graph.topology.name_of(subtask)
        self.add_failure(error, task, slot)
        if again:
            self._log.log.warning("a task was lost; Spark runs it again", task=task, slot=slot)
        else:
            self._failed(error)

    # --- the view ---

    def view(self) -> JobView:
        with self._lock:
            vertices: dict[VertexId, VertexView] = {}
            for vertex in self._graph.topology.vertices:
                vertices[vertex.id] = self._vertex(vertex, vertices)
            slots = self.watch.slots() if not self._status.is_terminal else ()
            job, epoch = self._ids
            figures = (each.figures for one in vertices.values() for each in one.subtasks)
            return JobView(
                job=job,
                name=self._graph.name,
                epoch=epoch,
                status=self._status,
                timestamps_ms=dict(self._entered_ms),
                restarts=0,
                restored=self._restored,
                vertices=tuple(vertices.values()),
                edges=self._graph.topology.edges,
                failures=self._failures.view(),
                slots=slots,
                slots_wanted=len(slots),
                checkpoints=self._checkpoints.view(),
                settings=self._graph.settings,
                counts=sum((each.counts for each in figures), RowCounts()),
                in_stages=True,
            )

    def _vertex(self, vertex: Vertex, before: Mapping[VertexId, VertexView]) -> VertexView:
        topology = self._graph.topology
        sources = [before[topology.edges[edge].source] for edge in topology.inputs(vertex.id)]
        due_ms = self._due_ms([each for one in sources for each in one.subtasks])
        number = self.watch.stage(vertex.id)
        return VertexView(
            vertex.id,
            vertex.name,
            vertex.parallelism,
            vertex.max_parallelism,
            tuple(self._subtask(each, due_ms) for each in vertex.subtasks()),
            vertex.operators,
            vertex.parallelism_set,
            None if number is None else StageView(number, self._page_of(number)),
        )

    def _due_ms(self, before: Sequence[SubtaskView]) -> int | None:
        """When Spark could start a stage: all that it reads from had ended. None if not yet."""
        began_ms = self._entered_ms.get(JobStatus.RUNNING)
        finished = ExecutionState.FINISHED
        if began_ms is None or any(each.state is not finished for each in before):
            return None
        return max((each.timestamps_ms[finished] for each in before), default=began_ms)

    def _page_of(self, stage: int) -> str:
        return f"{self._page}/stages/stage/?id={stage}&attempt=0" if self._page else ""

    def _subtask(self, subtask: SubtaskId, due_ms: int | None) -> SubtaskView:
        task, final = self.watch.task(subtask), self._figures.get(subtask)
        entered = {ExecutionState.CREATED: self._entered_ms[JobStatus.INITIALIZING]}
        if due_ms is not None:
            entered[ExecutionState.SCHEDULED] = due_ms
        if task is not None:
            entered |= task.entered_ms
        state = task.state if task is not None else list(entered)[-1]
        if final is not None:
            state = ExecutionState.FINISHED
        elif self._status.is_terminal and not state.is_terminal:
            state = ExecutionState.CANCELED
        entered.setdefault(state, self._entered_ms[self._status])
        if task is None:
            return SubtaskView(subtask.index, 0, state, None, entered, final or SubtaskFigures())
        slot, figures = task.began.slot, final or task.figures
        return SubtaskView(
            subtask.index, task.number, state, slot, entered, figures, metrics=task.metrics
        )
