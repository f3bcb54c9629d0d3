"""Metrics and spans as values: what a slot tells its driver, and what reporters show."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from tidegate.model.ids import OperatorId


class MetricKind(Enum):
    """Flink's four kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"


Group = str | tuple[str, str]
"""A part of a metric's scope: a name, or a key and its value."""


@frozen
class MetricKey:
    """Names a metric within a subtask or a slot.

    operator: None for a metric of the whole subtask, or of a slot. groups: outermost first.
    """

    name: str
    kind: MetricKind
    operator: OperatorId | None = None
    groups: tuple[Group, ...] = ()


@frozen
class Metered:
    """Value of a meter. rate: events a second."""

    count: int
    rate: float


QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_QUANTILE_NAMES: Final = ("median", "p75", "p95", "p98", "p99", "p999")


@frozen
class Spread:
    """Value of a histogram. quantiles: at `QUANTILES`, of the latest values; () if not kept."""

    count: int = 0
    least: float = 0
    greatest: float = 0
    mean: float = 0.0
    deviation: float = 0.0
    quantiles: tuple[float, ...] = ()

    def parts(self) -> dict[str, float]:
        """Numbers by the name that Flink's REST gives them, without its ``_``."""
        whole = {
            "count": self.count,
            "min": self.least,
            "max": self.greatest,
            "mean": self.mean,
            "stddev": self.deviation,
        }
        return {**whole, **dict(zip(_QUANTILE_NAMES, self.quantiles, strict=False))}


MetricValue = int | float | str | Metered | Spread
"""A counter's value is a whole number, a gauge's a number or a short text."""

Metrics = Mapping[MetricKey, MetricValue]


@frozen
class Span:
    """Something that took its time; wall clock milliseconds. job: its id."""

    name: str
    job: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, int | str]
