"""Says in words what is slow or in trouble in a job, and why, from its view alone.

The page and ``tidegate doctor`` tell the same. Each finding rests on figures that it names, so that
whoever reads it can judge.
"""

from __future__ import annotations

import statistics
from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.errors import UserCodeFailed
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Spread
from tidegate.telemetry.units import size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import FailureView, JobView, SubtaskView, VertexView
    from tidegate.model.ids import OperatorId, VertexId
    from tidegate.model.topology import OperatorInfo

HELD_BACK: Final = 0.5
"""A step that waits for its readers for more of its time is held back; Flink's HIGH."""
WORKS: Final = 0.5
"""A step that works for more of its time may be what holds others back."""
LONG_CALL_MS: Final = 2_000
"""A task that works on the same rows for longer is in a call that lasts."""
_CALL_REMEDY: Final = (
    "Give the call a time limit of its own, or make it with AsyncDataStream, which lets other rows "
    "go on."
)
SATURATED: Final = 0.9
"""A source whose chain works for more of its time reads no faster."""
SLOW_MICROS: Final = 1_000
"""A row that takes longer in one operator is slow."""
SKEWED: Final = 3.0
"""A task that gets so many times as many rows as the middle one of its step has a hot key."""
GROWING_MIN: Final = 8
"""Checkpoints over which state has to grow."""
GROWING_MIN_BYTES: Final = 1_000_000
"""Less state is no trouble, however it grows."""
DOUBLES_WITHIN_MS: Final = 43_200_000
"""State that grows more slowly is not told, for load that rises over a day makes it grow too."""
CROWDED: Final = 0.5
"""A checkpoint that takes more of its interval leaves little time between two of them."""
EVENT_TIME_BEHIND_MS: Final = 60_000
"""Inputs of a step may be so far apart in event time before it is said."""
SILENT_BEHIND_MS: Final = 30_000
"""The same for inputs that give no rows."""
_UNBEGUN_MS: Final = 2**62
"""Nothing is so far behind that has begun."""
RESTARTS: Final = 2
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


@frozen
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
    # More parallelism, which a slow step is told to have, does not help a hot key or a long call.
    explained = {each.step for each in skewed} | _steps_in_calls(job)
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
    if len(late) >= RESTARTS and job.in_stages:
        yield Finding(
            Subject.FAILURE,
            late[0].task,
            f"{len(late)} tasks have failed within ten minutes, the last{_cause(late[0])}",
            "Spark runs again what has died, spark.task.maxFailures times at most for each task. "
            "See the executors' logs; if they ran out of memory, give them more "
            "(spark.executor.memoryOverhead), or run fewer tasks at once in each.",
        )
    elif len(late) >= RESTARTS:
        yield Finding(
            Subject.FAILURE,
            late[0].task,
            f"The job has failed {len(late)} times within ten minutes, the last time"
            f"{_cause(late[0])}",
            "The page under Failures says at which rows. If it is always the same row, put it "
            "aside with dead letters; if a service fails, call it by AsyncDataStream with a retry "
            "strategy.",
        )
    elif job.status is JobStatus.RESTARTING:
        missing = job.slots_wanted - len(job.slots)
        yield Finding(
            Subject.FAILURE,
            late[0].task if late else "",
            f"The job restarts after a failure{_cause(late[0])}" if late else "The job restarts.",
            f"It waits for {missing} of {job.slots_wanted} slots."
            if missing > 0
            else "It goes on by itself, from its newest checkpoint.",
        )


def _cause(failure: FailureView) -> str:
    """Where it failed, and with what. The class of a user's error stands in its text."""
    kind = "" if failure.kind == UserCodeFailed.__name__ else f"{failure.kind}: "
    at = f" in '{failure.task}'" if failure.task else ""
    return f"{at}: {kind}{failure.error.splitlines()[0]}"


def _calls(job: JobView) -> Iterator[Finding]:
    for slot in job.slots:
        if slot.long_call is not None:
            yield Finding(
                Subject.CALL,
                slot.calling,
                f"{slot.calling} has been in one call of {slot.long_call.function} for "
                f"{slot.batch_age_ms / 1000:.0f} s.",
                _CALL_REMEDY,
            )


def _steps_in_calls(job: JobView) -> set[str]:
    called = {slot.calling for slot in job.slots if slot.long_call is not None}
    return {
        vertex.name
        for vertex in job.vertices
        if any(vertex.task(each.index) in called for each in vertex.subtasks)
    }


def _bottlenecks(job: JobView) -> Iterator[Finding]:
    """Steps that work while those before them wait for room, or that read too slowly themselves."""
    fed = {edge.target for edge in job.edges}
    ages_ms = {slot.calling: slot.batch_age_ms for slot in job.slots}
    for vertex in job.vertices:
        busiest = max(vertex.subtasks, key=lambda each: share_of(each, BUSY), default=None)
        if busiest is None or _share(vertex, BLOCKED) >= HELD_BACK:
            continue
        busy = share_of(busiest, BUSY)
        age_ms = ages_ms.get(vertex.task(busiest.index), 0)
        # What an operator needs for a row is not known before the call has ended.
        operator = _slowest(vertex, busiest) if age_ms < LONG_CALL_MS else None
        micros = 0.0 if operator is None else _micros(busiest, operator)
        works = f"its busiest task works {_percent(busy)} of the time"
        held = _held_by(job, vertex)
        if held and busy >= WORKS:
            what = (
                f"'{vertex.name}' is what the job waits for: {works}, while '{held[0].name}' is "
                f"backpressured {_percent(_share(held[0], BLOCKED))} of it."
            )
        elif vertex.id not in fed and busy >= SATURATED and micros >= SLOW_MICROS:
            what = f"'{vertex.name}' can read no faster: {works}."
        else:
            continue
        remedy = "Give the step more parallelism, or do less for each row."
        if age_ms >= LONG_CALL_MS:
            what += f" It has worked on the same rows for {age_ms / 1000:.0f} s."
            remedy = _CALL_REMEDY
        elif operator is not None:
            took = f", {time_text(micros)} a row" if micros else ""
            what += f" Most of it goes to '{operator.name}'{took}."
            if operator.sink:
                remedy = "The sink is slow: write more rows at once, or give it more parallelism."
            elif micros >= SLOW_MICROS:
                remedy = (
                    "If a row waits for something outside, make the call with AsyncDataStream; "
                    "else give the step more parallelism."
                )
        yield Finding(Subject.BOTTLENECK, vertex.name, what, remedy)


def _held_by(job: JobView, vertex: VertexView) -> list[VertexView]:
    """Steps before this one that wait for room, the nearest first.

    A step in between that does little waits for its turn in a slot that this one keeps busy.
    """
    vertices = {each.id: each for each in job.vertices}
    held, seen, look_at = [], {vertex.id}, [vertex.id]
    for target in look_at:
        for source in [edge.source for edge in job.edges if edge.target == target]:
            if source in seen:
                continue
            seen.add(source)
            if _share(vertices[source], BLOCKED) >= HELD_BACK:
                held.append(vertices[source])
            elif _share(vertices[source], BUSY) < WORKS:
                look_at.append(source)
    return held


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
                f"{_percent(busy)} of the time; {_others(vertex, index)} of it.",
                "Few keys have most of the rows; the page shows them under State, Hottest keys. "
                "Aggregate by the key and a number from 0 to some n first, then by the key.",
            )


def _others(vertex: VertexView, index: int) -> str:
    """How much the tasks work at most that are not the one of this index."""
    others = [each for each in vertex.subtasks if each.index != index]
    most = _percent(max(share_of(each, BUSY) for each in others))
    return f"the other works {most}" if len(others) == 1 else f"the others work at most {most}"


def _event_time(job: JobView) -> Iterator[Finding]:
    vertices = {vertex.id: vertex for vertex in job.vertices}
    for vertex in job.vertices:
        behind: dict[VertexId, int] = {}
        tasks: dict[VertexId, set[int]] = {}
        for subtask in vertex.subtasks:
            at_ms, furthest_ms = subtask.figures.watermark_ms, subtask.figures.furthest_ms
            if at_ms is None or furthest_ms is None or furthest_ms == MIN_TIMESTAMP_MS:
                continue
            for channel in subtask.figures.held_by:
                source = job.edges[channel.edge].source
                behind[source] = max(behind.get(source, 0), furthest_ms - at_ms)
                tasks.setdefault(source, set()).add(channel.producer)
        for source, by_ms in behind.items():
            given = sum(
                rate_of(each, "numRecordsOutPerSecond")
                for each in vertices[source].subtasks
                if each.index in tasks[source]
            )
            if by_ms < (EVENT_TIME_BEHIND_MS if given else SILENT_BEHIND_MS):
                continue
            how = "has given none yet"
            if by_ms < _UNBEGUN_MS:
                how = f"is {time_text(by_ms * 1000)} behind the one that has come furthest"
            yield Finding(
                Subject.EVENT_TIME,
                vertex.name,
                f"'{vertex.name}' waits for event time of {_some(vertices[source], tasks[source])}:"
                f" this input {how}, and gives {given:,.3g} rows a second. Until its event time "
                f"goes on, windows and timers wait.",
                "Its rows come too slowly, or their timestamps are wrong."
                if given
                else "A partition is silent, or there are fewer partitions than tasks. "
                "WatermarkStrategy.with_idleness passes over an input without rows.",
            )


def _some(vertex: VertexView, tasks: set[int]) -> str:
    """A step, with its tasks where not all of them are meant."""
    if len(tasks) == vertex.parallelism:
        return f"'{vertex.name}'"
    numbers = ", ".join(str(index + 1) for index in sorted(tasks))
    return f"task{'s' if len(tasks) > 1 else ''} {numbers} of '{vertex.name}'"


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
    passed_ms = complete[-1].trigger_ms - complete[0].trigger_ms
    age_ms = complete[-1].trigger_ms - job.timestamps_ms.get(JobStatus.INITIALIZING, 0)
    for vertex in job.vertices:
        sizes = [
            found.total(lambda share: share.state_size)
            for one in complete
            if (found := one.vertex(vertex.id)) is not None
        ]
        if len(sizes) < GROWING_MIN or sizes[-1] < GROWING_MIN_BYTES or not _grows(sizes):
            continue
        doubles_ms = passed_ms * sizes[-1] / (sizes[-1] - sizes[0])
        # What fills up slows down: it would take far longer than it has taken so far.
        if doubles_ms <= min(2 * age_ms, DOUBLES_WITHIN_MS):
            yield Finding(
                Subject.STATE,
                vertex.name,
                f"State of '{vertex.name}' keeps growing: from {size_text(sizes[0])} to "
                f"{size_text(sizes[-1])} in {time_text(passed_ms * 1000)}. At this rate it doubles "
                f"in {time_text(doubles_ms * 1000)}.",
                "If keys come and go, let their state expire with StateTtlConfig, or clear it with "
                "a timer. The page under State, and `tidegate inspect`, show which state it is.",
            )


def _grows(sizes: list[int]) -> bool:
    """True if all later sizes are above all earlier ones; files that are merged make small dips."""
    half = len(sizes) // 2
    return min(sizes[half:]) > max(sizes[:half])


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
