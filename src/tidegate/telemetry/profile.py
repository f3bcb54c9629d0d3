"""Where the time of a run went: shares of operators and of lines, from samples of its slots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.metrics import MetricKey, MetricKind, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidegate.jobmaster.view import JobView, VertexView
    from tidegate.model.control import FrameCount
    from tidegate.model.ids import OperatorId, VertexId


@frozen
class StepShare:
    """Share of one operator in the time at work. row_micros: mean of a row, None if not known.

    operator: its name, or what the subtask does between operators.
    """

    vertex: str
    operator: str
    share: float
    row_micros: float | None


@frozen
class LineShare:
    """Share of a line in the time at work. itself: outside of what it calls."""

    line: str
    operator: str
    itself: float
    total: float


@frozen
class Wait:
    """Share of its time in which a vertex does not work, by what it waits for."""

    vertex: str
    waits_for: str
    share: float


@frozen
class RunProfile:
    """Where the time of a run went; largest shares first. samples: of subtasks at work."""

    samples: int
    steps: tuple[StepShare, ...]
    lines: tuple[LineShare, ...]
    waits: tuple[Wait, ...]


def profile_of(job: JobView, samples: Mapping[VertexId, Sequence[FrameCount]]) -> RunProfile:
    """The profile of a job. samples: of each vertex."""
    found = [(vertex, samples.get(vertex.id, ())) for vertex in job.vertices]
    worked = sum(each.samples for _, counts in found for each in counts if each.on_cpu)
    return RunProfile(
        worked,
        _sorted(step for vertex, counts in found for step in _steps(vertex, counts, worked)),
        _lines([each for _, counts in found for each in counts if each.on_cpu], worked),
        tuple(wait for vertex, counts in found for wait in _waits(vertex, counts)),
    )


def collapsed(samples: Mapping[VertexId, Sequence[FrameCount]]) -> Iterator[str]:
    """A line for each stack, ``frame;frame 12``, as drawers of flame graphs read them."""
    for counts in samples.values():
        for each in counts:
            if each.on_cpu:
                yield f"{';'.join(frame.replace(';', ',') for frame in each.frames)} {each.samples}"


def _steps(vertex: VertexView, counts: Sequence[FrameCount], worked: int) -> Iterator[StepShare]:
    by_name = Counter[str]()
    for each in counts:
        if each.on_cpu:
            by_name[each.frames[0]] += each.samples
    ids = {operator.name: operator.id for operator in vertex.operators}
    for name, number in by_name.items():
        micros = _row_micros(vertex, ids[name]) if name in ids else None
        yield StepShare(vertex.name, name, number / worked, micros)


def _row_micros(vertex: VertexView, operator: OperatorId) -> float | None:
    key = MetricKey("timePerRecordMicros", MetricKind.HISTOGRAM, operator)
    spreads = [
        value
        for subtask in vertex.subtasks
        if isinstance(value := subtask.metrics.get(key), Spread) and value.count
    ]
    calls = sum(each.count for each in spreads)
    return sum(each.mean * each.count for each in spreads) / calls if calls else None


def _sorted(steps: Iterator[StepShare]) -> tuple[StepShare, ...]:
    return tuple(sorted(steps, key=lambda each: -each.share))


def _lines(counts: Sequence[FrameCount], worked: int) -> tuple[LineShare, ...]:
    itself, total = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in counts:
        operator, *lines = each.frames
        itself[lines[-1] if lines else "", operator] += each.samples
        for line in set(lines):
            total[line, operator] += each.samples
    return tuple(
        LineShare(line, operator, number / worked, total[line, operator] / worked)
        for (line, operator), number in itself.most_common()
        if line
    )


def _waits(vertex: VertexView, counts: Sequence[FrameCount]) -> Iterator[Wait]:
    seen = sum(each.samples for each in counts)
    by_cause = Counter[str]()
    for each in counts:
        if not each.on_cpu:
            by_cause[each.frames[0]] += each.samples
    for cause, number in by_cause.most_common():
        yield Wait(vertex.name, cause, number / seen)
