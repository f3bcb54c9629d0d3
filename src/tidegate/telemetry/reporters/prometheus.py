"""Prometheus: a port that it fetches metrics from, and a Pushgateway that they are pushed to.

Counters are of Prometheus' type gauge, as with Flink: its own counters have other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    delete_from_gateway,
    push_to_gateway,
    start_http_server,
)
from prometheus_client import Metric as Family

from tidegate.errors import ConfigError
from tidegate.model.metrics import QUANTILES, Metered, Spread
from tidegate.telemetry.catalogue import sentence_of
from tidegate.telemetry.names import prometheus_labels, prometheus_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Sequence
    from wsgiref.simple_server import WSGIServer

    from tidegate.model.settings import PrometheusPushSettings, PrometheusSettings
    from tidegate.telemetry.metrics import Metric

_JOIN_S: Final = 5.0
_PUSH_S: Final = 5.0
"""How long a Pushgateway may take for an answer."""


class _Latest:
    """Collector of the metrics that were reported last; read by the server's threads."""

    def __init__(self, *, filtered: bool) -> None:
        self._filtered = filtered
        self.metrics: Sequence[Metric] = ()

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for metric in self.metrics:
            add(families, metric, filtered=self._filtered)
        return families.values()


def add(families: dict[str, Family], metric: Metric, *, filtered: bool) -> None:
    """Adds a metric to the families of its name. Texts are no metrics of Prometheus'."""
    name, labels = prometheus_name(metric), prometheus_labels(metric, filtered=filtered)
    sentence = sentence_of(metric)

    def sample(name: str, value: float, kind: str = "gauge") -> None:
        family = families.setdefault(name, Family(name, sentence, kind))
        family.add_sample(name, labels, value)

    match metric.value:
        case Metered(_, rate):
            sample(name, rate)
        case Spread() as spread:
            family = families.setdefault(name, Family(name, sentence, "summary"))
            family.add_sample(f"{name}_count", labels, spread.count)
            for quantile, value in zip(QUANTILES, spread.quantiles, strict=False):
                family.add_sample(name, {**labels, "quantile": str(quantile)}, value)
            for part, value in (("min", spread.least), ("max", spread.greatest)):
                sample(f"{name}_{part}", value)
            sample(f"{name}_mean", spread.mean)
        case int() | float() as number:
            sample(name, number)
        case str():
            pass


class PrometheusPort:
    """Answers whoever fetches metrics. Raises ConfigError if no port is free."""

    def __init__(self, name: str, settings: PrometheusSettings) -> None:
        self._latest = _Latest(filtered=settings.filters_labels)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._latest)
        self._server, self._thread = _started(name, settings, registry)
        self.port = self._server.server_port

    def report(self, metrics: Sequence[Metric], now_ms: int) -> None:
        self._latest.metrics = metrics

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_JOIN_S)


def _started(
    name: str, settings: PrometheusSettings, registry: CollectorRegistry
) -> tuple[WSGIServer, threading.Thread]:
    first, last = settings.port
    refused: OSError | None = None
    for port in range(first, last + 1):
        try:
            return start_http_server(port, settings.host, registry)
        except OSError as error:
            refused = error
    raise ConfigError(
        f"Reporter '{name}' can listen at no port from {first} to {last} of {settings.host}: "
        f"{refused}",
        where=f"metrics.reporter.{name}.port",
        remedy="Set another port or a range, such as 9250-9260; 0 takes any.",
    )


class PrometheusPush:
    """Pushes metrics to a Pushgateway. suffix: told apart from other runs by it."""

    def __init__(self, settings: PrometheusPushSettings, suffix: str) -> None:
        self._settings = settings
        self._job = settings.job_name + (suffix if settings.random_suffix else "")
        self._latest = _Latest(filtered=settings.filters_labels)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._latest)
        self._answers = False

    def report(self, metrics: Sequence[Metric], now_ms: int) -> None:
        settings, self._latest.metrics = self._settings, metrics
        self._answers = False
        push_to_gateway(
            settings.url, self._job, self._registry, dict(settings.grouping), timeout=_PUSH_S
        )
        self._answers = True

    def close(self) -> None:
        settings = self._settings
        if settings.deletes and self._answers:
            delete_from_gateway(settings.url, self._job, dict(settings.grouping), timeout=_PUSH_S)
