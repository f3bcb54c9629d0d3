"""Says in words what is slow or in trouble in a job, and why, from its view alone.

The page and ``tidegate doctor`` tell the same. Each finding rests on figures that it names, so that
whoever reads it can judge.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Spread
from tidegate.telemetry.units import size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import OperatorInfo

HELD_BACK: Final = 0.5
"""A step that waits for its readers for more of its time is held back; Flink's HIGH."""
WORKS: Final = 0.5
"""A step that works for more of its time may be what holds others back."""
SKEWED: Final = 3.0
"""A task that gets so many times as many rows as the middle one of its step has a hot key."""
GROWN: Final = 2.0
"""State that has grown so many times within the checkpoints that are remembered leaks."""
GROWING_MIN: Final = 8
"""Checkpoints of which each has to be larger than the one before."""
CROWDED: Final = 0.5
"""A checkpoint that takes more of its interval leaves little time between two of them."""
EVENT_TIME_BEHIND_MS: Final = 60_000
"""Inputs of a step may be so far apart in event time before it is said."""
_UNBEGUN_MS: Final = 2**62
"""Nothing is so far behind that has begun."""
RESTARTS: Final = 3
RESTARTS_WITHIN_MS: Final = 600_000
FAILED_IN_A_ROW: Final = 2


class Subject(Enum):
    """Subjects of findings."""

    FAILURE = "failure"
    CALL = "call"
    BOTTLENECK = "bottleneck"
    SKEW = "skew"
    EVENT_TIME = "event time"
    CHECKPOINTS = "checkpoints"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know. step: the vertex it is about; "" for the job."""

    subject: Subject
    step: str
    what: str
    remedy: str


def findings_of(job: JobView, now_ms: int) -> list[Finding]:
    """The findings, those first that explain others. now_ms: wall clock."""
    if job.status.is_terminal:
        return []
    skewed = list(_skew(job))
    # More parallelism, which a slow step is told to have, does not help a hot key.
    explained = {each.step for each in skewed}
    return [
        *_failures(job, now_ms),
        *_calls(job),
        *skewed,
        *(each for each in _bottlenecks(job) if each.step not in explained),
        *_event_time(job),
        *_checkpoints(job),
        *_state(job),
    ]


def _failures(job: JobView, now_ms: int) -> Iterator[Finding]:
    late = [one for one in job.failures if now_ms - one.wall_ms < RESTARTS_WITHIN_MS]
    if len(late) >= RESTARTS:
        newest = late[0]
        yield Finding(
            Subject.FAILURE,
            newest.task,
            f"The job has failed {len(late)} times within ten minutes, the last time with "
            f"{newest.kind}: {newest.error.splitlines()[0]}",
            "The failures say at which row. A row that always fails can be put aside with dead "
            "letters.",
        )
    elif job.status is JobStatus.RESTARTING:
        yield Finding(
            Subject.FAILURE,
            "",
            f"The job restarts: {len(job.slots)} of {job.slots_wanted} slots are there.",
            "It goes on by itself; the failures say why it restarts.",
        )


def _calls(job: JobView) -> Iterator[Finding]:
    for slot in job.slots:
        if slot.long_call is not None:
            yield Finding(
                Subject.CALL,
                slot.calling,
                f"{slot.calling} has been in one call of {slot.long_call.function} for "
                f"{slot.batch_age_ms / 1000:.0f} s.",
                "Give the call a time limit of its own, or make it with AsyncDataStream, which "
                "lets other rows go on.",
            )


def _bottlenecks(job: JobView) -> Iterator[Finding]:
    """Steps that work while those before them wait for room."""
    vertices = {vertex.id: vertex for vertex in job.vertices}
    for vertex in job.vertices:
        before = [vertices[edge.source] for edge in job.edges if edge.target == vertex.id]
        held = [one for one in before if _share(one, BLOCKED) >= HELD_BACK]
        if not held or _share(vertex, BLOCKED) >= HELD_BACK:
            continue
        busiest = max(vertex.subtasks, key=lambda each: share_of(each, BUSY), default=None)
        if busiest is None or share_of(busiest, BUSY) < WORKS:
            continue
        operator = _slowest(vertex, busiest)
        what = (
            f"'{vertex.name}' is what the job waits for: its busiest task works "
            f"{_percent(share_of(busiest, BUSY))} of the time, while '{held[0].name}' is "
            f"backpressured {_percent(_share(held[0], BLOCKED))} of it."
        )
        remedy = "Give the step more parallelism, or do less for each row."
        if operator is not None:
            micros = _micros(busiest, operator)
            took = f", {time_text(micros)} a row" if micros else ""
            what += f" Most of it goes to '{operator.name}'{took}."
            if operator.sink:
                remedy = "The sink is slow: write more rows at once, or give it more parallelism."
            elif micros and micros >= 1000:
                remedy = (
                    "If a row waits for something outside, make the call with AsyncDataStream; "
                    "else give the step more parallelism."
                )
        yield Finding(Subject.BOTTLENECK, vertex.name, what, remedy)


def _skew(job: JobView) -> Iterator[Finding]:
    for vertex in job.vertices:
        rates = {each.index: rate_of(each, "numRecordsInPerSecond") for each in vertex.subtasks}
        if len(rates) < 2 or not any(operator.keyed for operator in vertex.operators):
            continue
        index, most = max(rates.items(), key=lambda each: each[1])
        middle = statistics.median(rate for at, rate in rates.items() if at != index)
        busy = share_of(vertex.subtasks[index], BUSY)
        if busy >= WORKS and most >= SKEWED * max(middle, 1):
            share = most / sum(rates.values())
            yield Finding(
                Subject.SKEW,
                vertex.name,
                f"Task {index + 1} of '{vertex.name}' gets {_percent(share)} of all rows and works "
                f"{_percent(busy)} of the time; the other {len(rates) - 1} wait.",
                "Few keys have most of the rows. Aggregate by the key and a number from 0 to some "
                "n first, then by the key.",
            )


def _event_time(job: JobView) -> Iterator[Finding]:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    for vertex in job.vertices:
        behind: dict[str, int] = {}
        for subtask in vertex.subtasks:
            at_ms, furthest_ms = subtask.figures.watermark_ms, subtask.figures.furthest_ms
            if at_ms is None or furthest_ms is None or furthest_ms == MIN_TIMESTAMP_MS:
                continue
            for channel in subtask.figures.held_by:
                name = names[job.edges[channel.edge].source]
                behind[name] = max(behind.get(name, 0), furthest_ms - at_ms)
        for name, by_ms in behind.items():
            if by_ms < EVENT_TIME_BEHIND_MS:
                continue
            begun = by_ms < _UNBEGUN_MS
            how = f"is {time_text(by_ms * 1000)} behind" if begun else "has given none, unlike"
            yield Finding(
                Subject.EVENT_TIME,
                vertex.name,
                f"Event time of '{vertex.name}' waits for '{name}', which {how} its other inputs.",
                "An input without rows is passed over with WatermarkStrategy.with_idleness; one "
                "that has rows is slow, or its times are wrong.",
            )


def _checkpoints(job: JobView) -> Iterator[Finding]:
    history = sorted(job.checkpoints.history, key=lambda one: -one.checkpoint)
    ended = [one for one in history if one.status is not CheckpointStatus.IN_PROGRESS]
    failed = [one for one in ended[:FAILED_IN_A_ROW] if one.status is CheckpointStatus.FAILED]
    if len(failed) == FAILED_IN_A_ROW:
        newest = failed[0]
        at = f" at {newest.failed_at}" if newest.failed_at else ""
        yield Finding(
            Subject.CHECKPOINTS,
            newest.failed_at,
            f"The last {len(failed)} checkpoints have failed{at}: {newest.failure}",
            (newest.reason and newest.reason.remedy) or "Their failures say why.",
        )
        return
    interval_ms = job.settings.checkpoints.interval_ms
    complete = [one for one in ended if one.status is CheckpointStatus.COMPLETED]
    if interval_ms is None or not complete:
        return
    took_ms = statistics.median(one.duration_ms for one in complete)
    if took_ms > CROWDED * interval_ms:
        yield Finding(
            Subject.CHECKPOINTS,
            "",
            f"A checkpoint takes {time_text(took_ms * 1000)}, and there is one each "
            f"{time_text(interval_ms * 1000)}.{_latest(job, complete[0])}",
            "Take them less often, or see what makes them slow: "
            "execution.checkpointing.unaligned.enabled where they wait for barriers, "
            "increments or a changelog where they write.",
        )


def _latest(job: JobView, one: CheckpointStatistics) -> str:
    if one.last_share is None:
        return ""
    vertex, share = one.last_share
    found = next((each for each in job.vertices if each.id == vertex), None)
    if found is None:
        return ""
    return f" Last comes '{found.name}' ({share.index + 1}/{found.parallelism})."


def _state(job: JobView) -> Iterator[Finding]:
    """Steps whose state has only grown, and much."""
    complete = sorted(
        (
            one
            for one in job.checkpoints.history
            if one.status is CheckpointStatus.COMPLETED and not one.properties.is_savepoint
        ),
        key=lambda one: one.checkpoint,
    )
    if len(complete) < GROWING_MIN:
        return
    for vertex in job.vertices:
        sizes = [
            found.total(lambda share: share.state_size)
            for one in complete
            if (found := one.vertex(vertex.id)) is not None
        ]
        grows = all(later > earlier for earlier, later in pairwise(sizes))
        if len(sizes) >= GROWING_MIN and grows and sizes[-1] >= GROWN * max(sizes[0], 1):
            since_ms = complete[-1].trigger_ms - complete[0].trigger_ms
            yield Finding(
                Subject.STATE,
                vertex.name,
                f"State of '{vertex.name}' grows with each checkpoint: from "
                f"{size_text(sizes[0])} to {size_text(sizes[-1])} in {time_text(since_ms * 1000)}.",
                "If keys come and go, let their state expire with StateTtlConfig, or clear it with "
                "a timer. `tidegate inspect` shows which state it is.",
            )


BUSY: Final = "busyTimeMsPerSecond"
BLOCKED: Final = "backPressuredTimeMsPerSecond"


def share_of(subtask: SubtaskView, name: str, operator: OperatorId | None = None) -> float:
    """A share of time, from 0 to 1; 0 of a task that does not run."""
    if subtask.state is not ExecutionState.RUNNING:
        return 0.0
    value = subtask.metrics.get(MetricKey(name, MetricKind.GAUGE, operator))
    return value / 1_000 if isinstance(value, int | float) else 0.0


def _share(vertex: VertexView, name: str) -> float:
    return max((share_of(each, name) for each in vertex.subtasks), default=0.0)


def rate_of(subtask: SubtaskView, name: str, operator: OperatorId | None = None) -> float:
    """Rate of a meter of a subtask, or of one of its operators; 0 while it is not known."""
    value = subtask.metrics.get(MetricKey(name, MetricKind.METER, operator))
    return value.rate if isinstance(value, Metered) else 0.0


def _slowest(vertex: VertexView, subtask: SubtaskView) -> OperatorInfo | None:
    """The operator that takes most of the task's time, where that is most of it."""
    if len(vertex.operators) < 2:
        return next(iter(vertex.operators), None)
    found = max(vertex.operators, key=lambda each: share_of(subtask, BUSY, each.id))
    share = share_of(subtask, BUSY, found.id)
    return found if share >= 0.5 * share_of(subtask, BUSY) else None


def _micros(subtask: SubtaskView, operator: OperatorInfo) -> float:
    """Mean time of a row in an operator, in microseconds; 0 if it is not known."""
    key = MetricKey("timePerRecordMicros", MetricKind.HISTOGRAM, operator.id)
    value = subtask.metrics.get(key)
    return value.mean if isinstance(value, Spread) else 0.0


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
