"""State of a job as frozen values: the only source of pages, command line and clients."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.control import RowCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.coordinator.statistics import StatisticsView
    from tidegate.model.control import ExecutionState, JobStatus, LongCall, SubtaskFigures
    from tidegate.model.ids import CheckpointId, Epoch, JobId, SlotId, VertexId
    from tidegate.model.metrics import Metrics
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Edge, OperatorInfo


@frozen
class SubtaskView:
    """One subtask. timestamps_ms: wall clock at which it entered each state of this attempt.

    guest: it runs in the slot of another index until one of its own has come. metrics: of this
    attempt, as its slot told them last.
    """

    index: int
    attempt: int
    state: ExecutionState
    slot: SlotId | None
    timestamps_ms: Mapping[ExecutionState, int]
    figures: SubtaskFigures
    restore_ms: int = 0
    guest: bool = False
    metrics: Metrics = field(default_factory=dict)


@frozen
class StageView:
    """The stage of Spark that runs a vertex of a batch. page: its URL, "" where Spark has none."""

    number: int
    page: str = ""


@frozen
class VertexView:
    """One vertex, its subtasks and the operators of its chain.

    parallelism_set: it keeps its parallelism when the job's changes. stage: None unless the job is
    in stages, and this one has begun.
    """

    id: VertexId
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: tuple[SubtaskView, ...]
    operators: tuple[OperatorInfo, ...] = ()
    parallelism_set: bool = False
    stage: StageView | None = None

    def task(self, index: int) -> str:
        """Name of a subtask, such as ``counts (2/4)``."""
        return f"{self.name} ({index + 1}/{self.parallelism})"


@frozen
class FailureView:
    """A failure and those that happened while it was handled. task: where, "" for the job.

    kind: the name of the error's class. labels: what the job's failure enrichers say about it.
    """

    wall_ms: int
    error: str
    task: str
    slot: SlotId | None
    kind: str = "TidegateError"
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrent: tuple[FailureView, ...] = ()


@frozen
class WaitView:
    """A subtask that is waited for. task: its step and number. call_ms: since its call began.

    call_ms is 0 outside of any call. function: the user's that has been in it for more than 10 s.
    """

    task: str
    slot: SlotId
    call_ms: int = 0
    function: str = ""

    def __str__(self) -> str:
        call = f" of {self.function}" if self.function else ""
        since = f", in one call{call} for {self.call_ms / 1000:.1f} s" if self.call_ms else ""
        return f"{self.task} on slot {self.slot}{since}"


@frozen
class StopView:
    """The job is to end with a savepoint. for_ms: since that was asked for.

    savepoint: its path once it is complete. waits_for: subtasks that have still to take their share
    of it; once it is complete, subtasks that have still to end.
    """

    for_ms: int
    savepoint: str | None
    waits_for: tuple[WaitView, ...]

    def __str__(self) -> str:
        until = "to end" if self.savepoint else "to take their share of the savepoint"
        who = "; ".join(map(str, self.waits_for))
        return f"waits for subtasks {until}: {who}" if who else "waits for files to be written"


@frozen
class SlotView:
    """One slot. pulse_age_ms: since its last sign of life; batch_age_ms: of its running batch.

    calling: the subtask whose batch that is. long_call: the user's function that has been in one
    call for more than 10 s, with its stack. metrics: of its process.
    """

    id: SlotId
    host: str
    pid: int
    pulse_age_ms: int
    batch_age_ms: int
    long_call: LongCall | None = None
    calling: str = ""
    metrics: Metrics = field(default_factory=dict)


@frozen(repr=False)
class JobView:
    """One job. timestamps_ms: wall clock at which it last entered each status.

    rescales: how often it was given another parallelism. restored: the checkpoint that subtasks
    were restored from last. slots_wanted: slots that the job needs, or is about to need.
    settings: those in force. counts: rows of all attempts, those that were repeated each time.
    stopping: None unless the job is to end with a savepoint. in_stages: a batch whose steps run one
    after another, as tasks that come and go: each is a slot while it runs, and none is waited for.
    """

    job: JobId
    name: str
    epoch: Epoch
    status: JobStatus
    timestamps_ms: Mapping[JobStatus, int]
    restarts: int
    restored: CheckpointId | None
    vertices: tuple[VertexView, ...]
    edges: tuple[Edge, ...]
    failures: tuple[FailureView, ...]
    slots: tuple[SlotView, ...]
    slots_wanted: int
    checkpoints: StatisticsView
    settings: JobSettings
    rescales: int = 0
    counts: RowCounts = field(default_factory=RowCounts)
    stopping: StopView | None = None
    in_stages: bool = False

    def __repr__(self) -> str:
        counts = (
            (len(self.vertices), "vertices"),
            (len(self.slots), "slots"),
            (self.restarts, "restarts"),
            (self.counts.read, "rows read"),
            (self.counts.written, "rows written"),
        )
        told = ", ".join(f"{count} {what}" for count, what in counts)
        return f"<JobView of job '{self.name}', {self.status.value}: {told}>"

    def failures_labelled(self, key: str, value: str) -> tuple[FailureView, ...]:
        """The failures that have this label, or happened with one that has it."""
        return tuple(
            failure
            for failure in self.failures
            if any(one.labels.get(key) == value for one in (failure, *failure.concurrent))
        )
