"""Metrics of a job, for tests of what is made of them."""

from tidegate.model.metrics import Group, MetricKind, MetricValue
from tidegate.telemetry.metrics import Metric, Scope

PLACE = {"job_name": "orders", "task_name": "Source: a -> b", "operator_name": "b"}


def metric(
    name: str,
    value: MetricValue,
    kind: MetricKind = MetricKind.GAUGE,
    scope: Scope = Scope.OPERATOR,
    groups: tuple[Group, ...] = (),
) -> Metric:
    """One metric at a place."""
    return Metric(scope, PLACE, groups, name, kind, value)
