"""Metrics that the functions of a program have added, put together over the subtasks of a step."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from tidegate.model.metrics import Metered, MetricKind, Spread
from tidegate.telemetry.catalogue import known
from tidegate.telemetry.metrics import metrics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.jobmaster.view import JobView
    from tidegate.model.metrics import MetricValue
    from tidegate.telemetry.metrics import Metric

Object = dict[str, object]


def own_metrics(job: JobView, now_ms: int) -> Object:
    """``/jobs/:jobid/own-metrics``: what the page shows of them as charts."""
    found: dict[tuple[object, ...], list[MetricValue]] = {}
    for metric in metrics_of(job, now_ms):
        if known(metric) is None:
            found.setdefault(_key(metric), []).append(metric.value)
    told = [_told(key, values) for key, values in found.items()]
    return {"now": now_ms, "metrics": [each for each in told if each["lines"]]}


def _key(metric: Metric) -> tuple[object, ...]:
    groups = [group if isinstance(group, str) else "=".join(group) for group in metric.groups]
    place = metric.variables
    step, operator = place.get("task_name", ""), place.get("operator_name", "")
    return step, operator, ".".join((*groups, metric.name)), metric.kind


def _told(key: tuple[object, ...], values: Sequence[MetricValue]) -> Object:
    step, operator, name, kind = key
    assert isinstance(kind, MetricKind), "a key ends in the kind"
    return {
        "step": step,
        "operator": operator,
        "name": name,
        "kind": kind.value,
        "subtasks": len(values),
        "lines": _lines(kind, values),
    }


def _lines(kind: MetricKind, values: Sequence[MetricValue]) -> dict[str, float]:
    """Numbers to draw, by name; none of texts. The page makes a rate of a sum."""
    rates = [value.rate for value in values if isinstance(value, Metered)]
    if rates:
        return {"a second": sum(rates)}
    spreads = [value for value in values if isinstance(value, Spread) and value.count]
    if spreads:
        count = sum(each.count for each in spreads)
        parts = [each.parts() for each in spreads]
        return {
            "mean": sum(each.mean * each.count for each in spreads) / count,
            "p99, largest": max(each.get("p99", each["max"]) for each in parts),
        }
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers:
        return {}
    if kind is MetricKind.COUNTER:
        return {"sum": sum(numbers)}
    if len(numbers) == 1:
        return {"value": numbers[0]}
    return {"mean": fmean(numbers), "least": min(numbers), "largest": max(numbers)}
