"""Metrics under Flink's names, and how busy subtasks are.

Source: REST §3.3, §3.4, §3.6; checkpoint coordination §12.2.
"""

from __future__ import annotations

import re
from statistics import fmean
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.metrics import full_name
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Spread
from tidegate.rest.refusals import unresolved
from tidegate.rest.shapes.finite import finite
from tidegate.telemetry import metrics
from tidegate.telemetry.metrics import of_job_master

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.jobmaster.view import JobView, SlotView, SubtaskView, VertexView
    from tidegate.model.metrics import MetricValue

Metrics = dict[str, object]

_ODD: Final = re.compile(r"[^\w()-]")


def answer(known: Mapping[str, object], wanted: str | None) -> list[dict[str, str]]:
    """Names of all metrics, or names and values of the wanted ones. wanted: separated by commas."""
    if wanted is None:
        return [{"id": name} for name in known]
    names = [name for name in wanted.split(",") if name in known]
    return [{"id": name, "value": str(finite(known[name]))} for name in names]


def of_job(job: JobView, now_ms: int) -> Metrics:
    return dict(of_job_master(job, now_ms))


def of_subtask(job: JobView, vertex: VertexView, subtask: SubtaskView) -> Metrics:
    """Metrics of a subtask by name, those of operators behind the name of their operator."""
    operators = {operator.id: _plain(operator.name) for operator in vertex.operators}
    found: Metrics = {}
    for key, value in metrics.of_subtask(job, vertex, subtask).items():
        name = full_name(key)
        if key.operator is not None:
            name = f"{operators.get(key.operator, key.operator.hex())}.{name}"
        found |= _flat(name, value)
    return found


def of_slot(slot: SlotView) -> Metrics:
    found: Metrics = {}
    for key, value in slot.metrics.items():
        found |= _flat(full_name(key), value)
    return found


def _plain(name: str) -> str:
    """The name of an operator within that of a metric, as Flink writes it."""
    return _ODD.sub("_", name)


def _flat(name: str, value: MetricValue) -> Metrics:
    """A histogram is several metrics; a meter is its rate."""
    match value:
        case Metered():
            return {name: value.rate}
        case Spread():
            return {f"{name}_{part}": number for part, number in value.parts().items()}
        case _:
            return {name: value}


def aggregated(
    subtasks: Sequence[Metrics], wanted: str | None, how: str | None
) -> list[dict[str, object]]:
    """Metrics of several places as one. wanted, how: separated by commas; how None: in every way.

    A metric that no place has, or whose value is no number, is left out. Raises BadRequest for a
    way that there is none of.
    """
    if wanted is None:
        names = dict.fromkeys(name for metrics in subtasks for name in metrics)
        return [{"id": name} for name in names]
    ways = _WAYS if how is None else {way: _WAYS[way] for way in _known_ways(how)}
    found: list[dict[str, object]] = []
    for name in wanted.split(","):
        values = [metrics[name] for metrics in subtasks if name in metrics]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        if numbers:
            found.append({"id": name, **{way: of(numbers) for way, of in ways.items()}})
    return found


def _known_ways(how: str) -> list[str]:
    ways = how.lower().split(",")
    for way in ways:
        if way not in _WAYS:
            raise unresolved("query", "agg", how)
    return ways


def _skew(numbers: Sequence[float]) -> float:
    """Mean distance from the mean, as a percentage of the mean; at most 100. Source: Flink."""
    mean = fmean(numbers)
    if mean == 0:
        return 0.0
    distance = fmean(abs(number - mean) for number in numbers)
    return min(100.0, 100.0 * distance / mean)


_WAYS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "min": min,
    "max": max,
    "avg": fmean,
    "sum": sum,
    "skew": _skew,
}


Object = dict[str, object]

LOW_ABOVE: Final = 0.1
HIGH_ABOVE: Final = 0.5


def backpressure(vertex: VertexView, now_ms: int) -> Object:
    """``…/backpressure``; without figures until a slot has told them."""
    known = {subtask.index: shares_of(subtask) for subtask in vertex.subtasks}
    shares = {index: share for index, share in known.items() if share is not None}
    if not shares:
        level = dict.fromkeys(("backpressureLevel", "backpressure-level"))
        return {"status": "deprecated", **level, "end-timestamp": None, "subtasks": None}
    return {
        "status": "ok",
        **_level(max(share.blocked for share in shares.values())),
        "end-timestamp": now_ms,
        "subtasks": [
            {
                "subtask": index,
                **_level(share.blocked),
                "ratio": share.blocked,
                "idleRatio": share.idle,
                "busyRatio": share.busy,
            }
            for index, share in shares.items()
        ],
    }


def _level(ratio: float) -> Object:
    level = "ok" if ratio <= LOW_ABOVE else "low" if ratio <= HIGH_ABOVE else "high"
    return {"backpressureLevel": level, "backpressure-level": level}


def watermarks(vertex: VertexView) -> list[Object]:
    return [
        {
            "id": f"{subtask.index}.currentInputWatermark",
            "value": str(subtask.figures.watermark_ms),
        }
        for subtask in vertex.subtasks
        if subtask.figures.watermark_ms is not None
    ]


@frozen
class Shares:
    """Shares of time, each from 0 to 1: blocked by readers, busy, idle."""

    blocked: float
    busy: float

    @property
    def idle(self) -> float:
        return max(0.0, 1.0 - self.blocked - self.busy)


def shares_of(subtask: SubtaskView) -> Shares | None:
    """Shares of a subtask's time of late; None until its slot has told them."""
    blocked, busy = (subtask.metrics.get(key) for key in (_BLOCKED, _BUSY))
    if not isinstance(blocked, int) or not isinstance(busy, int):
        return None
    return Shares(blocked / 1_000, busy / 1_000)


_BLOCKED: Final = MetricKey("backPressuredTimeMsPerSecond", MetricKind.GAUGE)
_BUSY: Final = MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE)
