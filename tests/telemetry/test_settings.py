"""Reporters as they are set."""

from pathlib import Path

import pytest

from tidegate.config.configuration import Configuration
from tidegate.config.metrics import reporter_settings
from tidegate.errors import ConfigError
from tidegate.model.settings import (
    JsonLinesSettings,
    OpenTelemetrySettings,
    PrometheusPushSettings,
    PrometheusSettings,
    ReporterSettings,
)

FLINK = "org.apache.flink.metrics"


def reporters(**settings: object) -> tuple[ReporterSettings, ...]:
    """Those of keys behind ``metrics.``."""
    given = {f"metrics.{key}": value for key, value in settings.items()}
    return reporter_settings(Configuration.from_dict(given))


def test_without_settings_there_are_none() -> None:
    assert reporters() == ()


@pytest.mark.parametrize("kind", ["prometheus", f"{FLINK}.prometheus.PrometheusReporterFactory"])
def test_prometheus_by_its_name_and_by_flinks_class(kind: str) -> None:
    [found] = reporters(**{"reporter.a.factory.class": kind, "reporter.a.port": "9250-9260"})
    assert found.name == "a" and found.interval_ms == 10_000
    assert found.target == PrometheusSettings((9250, 9260), "localhost")


def test_flinks_keys_of_the_pushgateway_and_of_opentelemetry() -> None:
    push, otel, lines = reporters(
        **{
            "reporters": "push, otel; lines",
            "reporter.push.factory.class": (
                f"{FLINK}.prometheus.PrometheusPushGatewayReporterFactory"
            ),
            "reporter.push.hostUrl": "http://gate:9091",
            "reporter.push.jobName": "orders",
            "reporter.push.randomJobNameSuffix": "false",
            "reporter.push.groupingKey": "team=a;site=b",
            "reporter.push.interval": "60 s",
            "reporter.otel.factory.class": f"{FLINK}.otel.OpenTelemetryMetricReporterFactory",
            "reporter.otel.exporter.endpoint": "http://otel:4318/v1/metrics",
            "reporter.otel.service.name": "orders",
            "reporter.lines.factory.class": "json-lines",
            "reporter.lines.path": "told.jsonl",
            "reporter.unused.factory.class": "nothing known",
        }
    )
    assert push.interval_ms == 60_000
    assert push.target == PrometheusPushSettings(
        "http://gate:9091", "orders", {"team": "a", "site": "b"}, random_suffix=False
    )
    assert otel.target == OpenTelemetrySettings("http://otel:4318/v1/metrics", "orders")
    assert lines.target == JsonLinesSettings(str(Path("told.jsonl").absolute()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"reporters": "a"}, "metrics.reporter.a.factory.class"),
        ({"reporter.a.factory.class": "graphite"}, "'graphite', which is no reporter"),
        ({"reporter.a.factory.class": "json-lines"}, "Set metrics.reporter.a.path"),
        (
            {"reporter.a.factory.class": "prometheus", "reporter.a.prot": "1"},
            "There is no option metrics.reporter.a.prot",
        ),
        (
            {"reporter.a.factory.class": "prometheus", "reporter.a.interval": "soon"},
            "metrics.reporter.a.interval is 'soon'",
        ),
        (
            {"reporter.a.factory.class": "prometheus", "reporter.a.filter.includes": "*:*:countr"},
            "metrics.reporter.a.filter.includes has '*:*:countr', and 'countr' is no kind",
        ),
    ],
)
def test_what_makes_no_reporter_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        reporters(**settings)
    assert says in str(refused.value)
