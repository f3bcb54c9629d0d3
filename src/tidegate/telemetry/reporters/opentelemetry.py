"""OpenTelemetry: metrics and spans over HTTP, in its own messages, by its own exporters.

A counter is a sum that may fall, since functions may count down. Histograms are gauges, a part
each, with the names that they have in REST: the exporter has no message for quantiles.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as Told
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from tidegate.errors import PeerLost
from tidegate.model.metrics import Metered, MetricKind, Spread
from tidegate.telemetry.catalogue import sentence_of, unit_of
from tidegate.telemetry.names import PREFIX, logical_scope, variables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.model.chance import Chance
    from tidegate.model.metrics import Span
    from tidegate.model.settings import OpenTelemetrySettings
    from tidegate.telemetry.metrics import Metric

_NANOS: Final = 1_000_000
_SCOPE: Final = InstrumentationScope("tidegate")


class OpenTelemetryReporter:
    """Sends all metrics as one message. began_ms: wall clock from which sums count."""

    def __init__(self, settings: OpenTelemetrySettings, began_ms: int) -> None:
        self._endpoint = settings.endpoint
        self._began_ns = began_ms * _NANOS
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint, timeout=settings.timeout_ms / 1_000
        )
        self._resource = _resource(settings)
        _quiet(OTLPMetricExporter)

    def report(self, metrics: Sequence[Metric], now_ms: int) -> None:
        told = _Message(self._began_ns, now_ms * _NANOS)
        for metric in metrics:
            told.add(metric)
        scopes = [ScopeMetrics(_SCOPE, told.metrics(), "")]
        data = MetricsData([ResourceMetrics(self._resource, scopes, "")])
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            raise PeerLost(f"metrics could not be sent to {self._endpoint}")

    def close(self) -> None:
        self._exporter.shutdown()


class _Message:
    """Metrics by name, each with a point for each place."""

    def __init__(self, began_ns: int, now_ns: int) -> None:
        self._began_ns = began_ns
        self._now_ns = now_ns
        self._points: dict[tuple[str, bool], list[NumberDataPoint]] = {}
        self._texts: dict[str, tuple[str, str]] = {}

    def add(self, metric: Metric) -> None:
        name = f"{PREFIX}.{logical_scope(metric)}.{metric.name}"
        match metric.value:
            case Metered(count, rate):
                self._add(f"{name}.count", metric, count, is_sum=True)
                self._add(f"{name}.rate", metric, rate)
            case Spread() as spread:
                for part, value in spread.parts().items():
                    self._add(f"{name}_{part}", metric, value)
            case int() | float() as number:
                self._add(name, metric, number, is_sum=metric.kind is MetricKind.COUNTER)
            case str():
                pass

    def _add(self, name: str, metric: Metric, value: float, *, is_sum: bool = False) -> None:
        began_ns = self._began_ns if is_sum else 0
        point = NumberDataPoint(variables_of(metric), began_ns, self._now_ns, value)
        self._points.setdefault((name, is_sum), []).append(point)
        self._texts[name] = sentence_of(metric), unit_of(metric)

    def metrics(self) -> list[Told]:
        cumulative = AggregationTemporality.CUMULATIVE
        return [
            Told(
                name,
                *self._texts[name],
                Sum(points, cumulative, is_monotonic=False) if is_sum else Gauge(points),
            )
            for (name, is_sum), points in self._points.items()
        ]


class OpenTelemetrySpans:
    """Sends each span as a message, a trace of its own, as Flink's are. chance: makes its ids."""

    def __init__(self, settings: OpenTelemetrySettings, chance: Chance) -> None:
        self._endpoint = settings.endpoint
        self._chance = chance
        self._exporter = OTLPSpanExporter(
            endpoint=settings.endpoint, timeout=settings.timeout_ms / 1_000
        )
        self._resource = _resource(settings)
        _quiet(OTLPSpanExporter)

    def report(self, span: Span) -> None:
        trace_id = self._chance.bits64() << 64 | self._chance.bits64()
        context = SpanContext(
            trace_id, self._chance.bits64(), is_remote=False, trace_flags=TraceFlags(1)
        )
        told = ReadableSpan(
            span.name,
            context,
            resource=self._resource,
            attributes={"jobId": span.job, **span.attributes},
            start_time=span.start_ms * _NANOS,
            end_time=span.end_ms * _NANOS,
            instrumentation_scope=_SCOPE,
        )
        if self._exporter.export([told]) is not SpanExportResult.SUCCESS:
            raise PeerLost(f"a span could not be sent to {self._endpoint}")

    def close(self) -> None:
        self._exporter.shutdown()


def _resource(settings: OpenTelemetrySettings) -> Resource:
    service = {"service.name": settings.service_name}
    if settings.service_version:
        service["service.version"] = settings.service_version
    return Resource(service)


def _quiet(exporter: type) -> None:
    """Leaves out what an exporter logs of a failure, since its reporter raises it."""
    logging.getLogger(exporter.__module__).addHandler(logging.NullHandler())
