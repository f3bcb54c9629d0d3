"""What reporters send, and what stands in their way."""

import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.e2e.reported import Receiver, decoded, decoded_spans, fetched, receiver, samples
from tests.e2e.watch import until
from tests.rest.world import EMPTY
from tests.telemetry.world import metric
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.errors import ConfigError, PeerLost
from tidegate.model.chance import SeededChance
from tidegate.model.ids import Epoch
from tidegate.model.metrics import Metered, MetricKind, Span, Spread
from tidegate.model.settings import (
    JsonLinesSettings,
    OpenTelemetrySettings,
    PrometheusPushSettings,
    PrometheusSettings,
    ReporterSettings,
)
from tidegate.telemetry.reporters.json_lines import JsonLines, line
from tidegate.telemetry.reporters.opentelemetry import OpenTelemetryReporter, OpenTelemetrySpans
from tidegate.telemetry.reporters.prometheus import PrometheusPort, PrometheusPush
from tidegate.telemetry.reporting import MetricReporting
from tidegate.testing.clock import ManualClock

SPREAD = Spread(9, 1, 8, 4.5, 2.5, (4, 5, 6, 7, 7.5, 8))
ALL = [
    metric("seen", 7, MetricKind.COUNTER, groups=(("country", "nl"),)),
    metric("pace", Metered(70, 3.5), MetricKind.METER),
    metric("size", SPREAD, MetricKind.HISTOGRAM),
    metric("whole", Spread(2, 1, 3, 2.0), MetricKind.HISTOGRAM),
    metric("path", "/chk-1"),
    metric("endless", float("inf")),
]
AT = "flink_taskmanager_job_task_operator_"


@pytest.fixture
def received() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def test_prometheus_fetches_what_was_reported_last() -> None:
    port = PrometheusPort("prom", PrometheusSettings((0, 0), "localhost"))
    try:
        port.report([metric("old", 1)], 0)
        port.report(ALL, 0)
        found = fetched(port.port)
    finally:
        port.close()
    assert f"{AT}old" not in found and f"{AT}path" not in found
    [(labels, seen)] = found[f"{AT}country_seen"]
    assert seen == 7 and labels["country"] == "nl" and labels["operator_name"] == "b"
    assert found[f"{AT}pace"][0][1] == 3.5
    quantiles = {labels["quantile"]: value for labels, value in found[f"{AT}size"]}
    assert quantiles == {"0.5": 4, "0.75": 5, "0.95": 6, "0.98": 7, "0.99": 7.5, "0.999": 8}
    parts = {part: found[f"{AT}size_{part}"][0][1] for part in ("count", "min", "max", "mean")}
    assert parts == {"count": 9, "min": 1, "max": 8, "mean": 4.5}
    assert f"{AT}whole" not in found and found[f"{AT}whole_count"][0][1] == 2


def test_a_port_that_is_taken_is_told_and_a_range_goes_on_to_the_next() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        first = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="can listen at no port") as refused:
            PrometheusPort("prom", PrometheusSettings((first, first), "localhost"))
        assert "metrics.reporter.prom.port" in str(refused.value)
        port = PrometheusPort("prom", PrometheusSettings((first, first + 50), "localhost"))
        port.close()
        assert first < port.port <= first + 50


def test_metrics_are_pushed_under_the_jobs_name_and_deleted_at_the_end(received: Receiver) -> None:
    settings = PrometheusPushSettings(received.url, "orders", {"site": "a"})
    push = PrometheusPush(settings, "-1")
    push.report(ALL, 0)
    push.close()
    (put, path, text), (delete, deleted, _) = received.came
    assert (put, delete) == ("PUT", "DELETE")
    assert path == deleted == "/metrics/job/orders-1/site/a"
    assert samples(text.decode())[f"{AT}country_seen"][0][1] == 7


def test_a_gateway_that_has_refused_is_not_asked_to_delete(received: Receiver) -> None:
    received.status = 500
    push = PrometheusPush(PrometheusPushSettings(received.url, "orders", {}), "-1")
    with pytest.raises(OSError, match="500"):
        push.report(ALL, 0)
    push.close()
    assert [method for method, _, _ in received.came] == ["PUT"]


def test_opentelemetry_gets_sums_and_gauges_with_a_point_for_each_place(received: Receiver) -> None:
    settings = OpenTelemetrySettings(f"{received.url}/v1/metrics", "orders", "7")
    reporter = OpenTelemetryReporter(settings, began_ms=1_000)
    reporter.report(
        [*ALL, metric("seen", 9, MetricKind.COUNTER, groups=(("country", "be"),))], 2_000
    )
    reporter.close()
    [(_, path, body)] = received.came
    attributes, told = decoded(body)
    at = "flink.taskmanager.job.task.operator"
    assert path == "/v1/metrics"
    assert (attributes["service.name"], attributes["service.version"]) == ("orders", "7")
    seen = told[f"{at}.country.seen"].sum
    assert [point.as_int for point in seen.data_points] == [7, 9]
    assert (seen.data_points[0].start_time_unix_nano, seen.data_points[0].time_unix_nano) == (
        1_000_000_000,
        2_000_000_000,
    )
    assert not seen.is_monotonic
    assert told[f"{at}.pace.count"].sum.data_points[0].as_int == 70
    assert told[f"{at}.pace.rate"].gauge.data_points[0].as_double == 3.5
    assert told[f"{at}.size_p99"].gauge.data_points[0].as_double == 7.5
    assert f"{at}.path" not in told


def test_a_receiver_that_refuses_is_an_error(received: Receiver) -> None:
    received.status = 400
    reporter = OpenTelemetryReporter(OpenTelemetrySettings(received.url, "orders"), 0)
    with pytest.raises(PeerLost, match="could not be sent"):
        reporter.report(ALL, 0)
    reporter.close()


def test_each_metric_is_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "told.jsonl"
    path.write_text('{"before": 1}\n')
    lines = JsonLines("lines", JsonLinesSettings(str(path)))
    lines.report(ALL, 5)
    _, *told = map(json.loads, path.read_text().splitlines())
    assert [each["name"] for each in told] == [each.name for each in ALL]
    assert told[0]["value"] == 7 and told[0]["time_ms"] == 5
    assert told[0]["variables"]["country"] == "nl"
    assert told[1]["value"] == {"count": 70, "rate": 3.5}
    assert told[2]["value"]["p99"] == 7.5
    assert told[4]["value"] == "/chk-1" and told[5]["value"] is None
    with pytest.raises(
        ConfigError, match=r"(?s)cannot write its file.*metrics\.reporter\.lines\.path"
    ):
        JsonLines("lines", JsonLinesSettings(str(tmp_path / "none" / "told.jsonl")))


def test_numbers_that_json_lacks_are_null_wherever_they_stand() -> None:
    meter, spread = (
        json.loads(line(replace(ALL[1], value=value), 5))["value"]
        for value in (Metered(7, math.nan), Spread(count=1, mean=math.inf))
    )
    assert meter == {"count": 7, "rate": None}
    assert spread["mean"] is None and spread["count"] == 1


@pytest.mark.parametrize(
    ("module", "target", "extra"),
    [
        ("prometheus_client", PrometheusSettings((0, 0), "localhost"), "prometheus"),
        ("opentelemetry", OpenTelemetrySettings("http://nobody", "orders"), "opentelemetry"),
    ],
)
def test_a_client_that_is_missing_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, target: object, extra: str
) -> None:
    for name in list(sys.modules):
        if name.startswith((module, "tidegate.telemetry.reporters")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as refused:
        MetricReporting([ReporterSettings("mine", target)], ManualClock(), None, None)  # type: ignore[arg-type]
    assert f"pip install 'tidegate[{extra}]'" in str(refused.value)
    assert "metrics.reporter.mine.factory.class" in str(refused.value)


def test_a_job_that_is_over_before_it_could_be_reported_leaves_no_port_open() -> None:
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    settings = [ReporterSettings("prom", PrometheusSettings((port, port), "localhost"))]
    reporting = MetricReporting(settings, SystemClock(), SeededChance(1), process_log())
    reporting.shut()
    reporting.open(SimpleNamespace(view=lambda: EMPTY), Epoch(1))  # type: ignore[arg-type]
    again = PrometheusPort("prom", PrometheusSettings((port, port), "localhost"))
    again.close()
    assert again.port == port


def test_reporting_goes_on_where_one_receiver_fails_and_the_end_waits_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "told.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    settings = [
        ReporterSettings("push", PrometheusPushSettings(gone, "orders", {}), interval_ms=100),
        ReporterSettings("lines", JsonLinesSettings(str(path)), interval_ms=100),
    ]
    reporting = MetricReporting(settings, SystemClock(), SeededChance(1), process_log())
    client = SimpleNamespace(view=lambda: EMPTY)
    reporting.open(client, Epoch(1))  # type: ignore[arg-type]
    until(lambda: path.read_text().count('"numRestarts"') > 2, "reports go on")
    reporting.shut()
    after = path.read_text()
    assert after.count('"numRestarts"') > 3
    assert capsys.readouterr().err.count("metrics could not be reported") == 1


def test_no_reporter_waits_for_the_receiver_of_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("", 0)) as free:
        url, port = f"http://127.0.0.1:{silent.getsockname()[1]}", free.getsockname()[1]
        free.close()
        settings = [
            ReporterSettings("push", PrometheusPushSettings(url, "orders", {}), interval_ms=100),
            ReporterSettings("prom", PrometheusSettings((port, port), "localhost")),
        ]
        reporting = MetricReporting(settings, SystemClock(), SeededChance(1), process_log())
        client = SimpleNamespace(view=lambda: EMPTY)
        reporting.open(client, Epoch(1))  # type: ignore[arg-type]
        pushed, _ = silent.accept()
        until(lambda: "flink_jobmanager_job_numRestarts" in fetched(port), "the port is up to date")
        pushed.close()
    reporting.shut()
    assert all("tidegate-metrics" not in each.name for each in threading.enumerate())


def test_a_view_that_cannot_be_shown_ends_no_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, odd = tmp_path / "told.jsonl", [ValueError("odd"), PeerLost("the driver is busy")]

    def view() -> object:
        if odd:
            raise odd.pop()
        return EMPTY

    settings = [ReporterSettings("lines", JsonLinesSettings(str(path)), interval_ms=100)]
    reporting = MetricReporting(settings, SystemClock(), SeededChance(1), process_log())
    reporting.open(SimpleNamespace(view=view), Epoch(1))  # type: ignore[arg-type]
    until(lambda: '"numRestarts"' in path.read_text(), "reports go on")
    reporting.shut()
    assert capsys.readouterr().err.count("ValueError: odd") == 1


def test_a_span_comes_as_a_trace_of_its_own(received: Receiver) -> None:
    settings = OpenTelemetrySettings(f"{received.url}/v1/traces", "orders", "1.2")
    reporter = OpenTelemetrySpans(settings, SeededChance(1))
    for number in (1, 2):
        reporter.report(
            Span("Checkpoint", "7f", 1_000, 1_040, {"checkpointId": number, "isUnaligned": "false"})
        )
    reporter.close()
    spans = [decoded_spans(body) for _, _, body in received.came]
    assert [path for _, path, _ in received.came] == ["/v1/traces"] * 2
    [(resource, first)], [(_, second)] = spans
    assert resource == {"service.name": "orders", "service.version": "1.2"}
    assert first.name == "Checkpoint" and first.trace_id != second.trace_id
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (10**9, 1_040 * 10**6)
    attributes = {each.key: each.value for each in first.attributes}
    assert attributes["checkpointId"].int_value == 1
    assert attributes["jobId"].string_value == "7f"
    assert attributes["isUnaligned"].string_value == "false"


def test_a_receiver_of_spans_that_refuses_is_told(received: Receiver) -> None:
    received.status = 400
    settings = OpenTelemetrySettings(f"{received.url}/v1/traces", "orders")
    reporter = OpenTelemetrySpans(settings, SeededChance(1))
    with pytest.raises(PeerLost, match="/v1/traces"):
        reporter.report(Span("JobInitialization", "7f", 1, 2, {}))
    reporter.close()
