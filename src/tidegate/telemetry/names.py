"""Names of metrics in reporters, which are those of Flink's reporters, and which metrics they get.

A logical scope says what a metric is of without naming it: ``taskmanager.job.task.operator``. The
names of the place are variables, which Prometheus calls labels. Source: Flink's metrics page.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from tidegate.telemetry.metrics import Metric, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidegate.model.settings import MetricFilter, ReporterSettings

PREFIX: Final = "flink"
"""Begins each name, so that dashboards and alarms made for Flink go on working."""

_SCOPES: Final = {
    Scope.JOB: "jobmanager.job",
    Scope.TASK_MANAGER: "taskmanager",
    Scope.TASK: "taskmanager.job.task",
    Scope.OPERATOR: "taskmanager.job.task.operator",
}
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9:_]")


def logical_scope(metric: Metric) -> str:
    """Scope with the groups that functions have added; of a key and its value, the key alone."""
    groups = [group if isinstance(group, str) else group[0] for group in metric.groups]
    return ".".join((_SCOPES[metric.scope], *groups))


def prometheus_name(metric: Metric) -> str:
    """Name as Flink's reporter for Prometheus makes it."""
    return _NO_NAME.sub("_", f"{PREFIX}_{logical_scope(metric)}_{metric.name}")


def prometheus_labels(metric: Metric, *, filtered: bool) -> dict[str, str]:
    """Variables as labels. filtered: odd characters of values become ``_``, as in Flink."""
    return {
        _NO_NAME.sub("_", key): _NO_LABEL.sub("_", value) if filtered else value
        for key, value in variables_of(metric).items()
    }


def variables_of(metric: Metric) -> dict[str, str]:
    """Variables of the place, and those that functions have added."""
    own = {group[0]: group[1] for group in metric.groups if not isinstance(group, str)}
    return {**metric.variables, **own}


def chosen(metrics: Iterable[Metric], settings: ReporterSettings) -> Iterator[Metric]:
    """The metrics that a reporter gets, with the variables that it is to have."""
    includes, excludes, gone = settings.includes, settings.excludes, settings.excluded_variables
    for metric in metrics:
        if includes and not _matches(metric, includes):
            continue
        if _matches(metric, excludes):
            continue
        variables = {**metric.variables, **settings.additional_variables}
        kept = {key: value for key, value in variables.items() if key not in gone}
        yield replace(metric, variables=kept)


def _matches(metric: Metric, filters: Sequence[MetricFilter]) -> bool:
    return any(
        metric.kind.value in one.kinds
        and fnmatchcase(logical_scope(metric), one.scope)
        and any(fnmatchcase(metric.name, name) for name in one.names)
        for one in filters
    )
