"""Receivers of reporters, and what a job's metrics look like there."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Told
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ToldSpan
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.jobs import KEYS, running_counts
from tests.e2e.metered import STEP, metered
from tests.e2e.runtimes import END_S, Jobs
from tests.e2e.watch import until, wait_running

OPERATOR = "flink_taskmanager_job_task_operator"


class Receiver:
    """An HTTP server that keeps the bodies it is sent, by method and path."""

    def __init__(self) -> None:
        self.came: list[tuple[str, str, bytes]] = []
        self.status = 200
        kept = self

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                kept.came.append((self.command, self.path, body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(kept.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = do_DELETE = _take

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="receiver")
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(END_S)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver for a while."""
    made = Receiver()
    try:
        yield made
    finally:
        made.close()


def fetched(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples of what Prometheus would fetch, by name: labels and value."""
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=END_S) as answer:
        return samples(answer.read().decode())


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples of a text of Prometheus', by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def decoded(body: bytes) -> tuple[dict[str, str], dict[str, Told]]:
    """Attributes of the resource, and metrics by name, of one message of OpenTelemetry."""
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    [scope] = resource.scope_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    return attributes, {metric.name: metric for metric in scope.metrics}


def decoded_spans(body: bytes) -> list[tuple[dict[str, str], ToldSpan]]:
    """Each span of one message, with the attributes of its resource."""
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    [scope] = resource.scope_spans
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    return [(attributes, span) for span in scope.spans]


def check_reporters(jobs: Jobs) -> None:
    """One job reports to all: what functions counted in both subtasks comes to each of them."""
    lines = jobs.folder / "metrics.jsonl"
    with receiver() as otel:
        env = jobs.env(
            2,
            **{
                "metrics.reporters": "prom,otel,lines",
                "metrics.reporter.prom.factory.class": "prometheus",
                "metrics.reporter.prom.port": "19300-19399",
                "metrics.reporter.otel.factory.class": (
                    "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory"
                ),
                "metrics.reporter.otel.exporter.endpoint": f"{otel.url}/v1/metrics",
                "metrics.reporter.otel.service.name": "weighing",
                "metrics.reporter.otel.interval": "200 ms",
                "metrics.reporter.lines.factory.class": "json-lines",
                "metrics.reporter.lines.path": str(lines),
                "metrics.reporter.lines.filter.includes": "taskmanager.job.task.operator:seen",
                "metrics.reporter.lines.interval": "200 ms",
            },
        )
        metered(env, None, 2_000)
        client = jobs.start(env, "reported")
        wait_running(client)
        check_prometheus()
        client.cancel().result(timeout=60)
        check_opentelemetry([body for _, _, body in otel.came])
    check_lines(lines)


def check_state_is_exported(jobs: Jobs) -> None:
    """Prometheus fetches entries and bytes of a state by its name."""
    exporter = {
        "metrics.reporter.prom.factory.class": "prometheus",
        "metrics.reporter.prom.port": "19500-19599",
    }
    env = jobs.checkpointed(2, 200, **exporter)
    running_counts(env, None, 2_000).filter(lambda row: False).print()
    client = jobs.start(env, "exported")
    wait_running(client)

    def told(name: str) -> float:
        port = port_of_reporter(19500)
        found = {} if port is None else fetched(port)
        return sum(
            value
            for labels, value in found.get(f"{OPERATOR}_state_{name}", ())
            if (labels["job_name"], labels["state"]) == ("exported", "count")
        )

    until(lambda: told("numStateEntries") == KEYS, "Prometheus gets the entries")
    until(lambda: KEYS < told("stateSize") < KEYS * 100, "Prometheus gets the bytes")
    client.cancel().result(timeout=60)


def port_of_reporter(first: int = 19300) -> int | None:
    """The first of a hundred ports at which metrics are served; None as long as there is none."""
    for port in range(first, first + 100):
        try:
            if "flink_jobmanager_job_uptime" in fetched(port):
                return port
        except OSError:
            continue
    return None


def check_prometheus() -> None:
    """The metrics of the function in the text that Prometheus fetches."""
    until(lambda: port_of_reporter() is not None, "metrics are served")
    port = port_of_reporter()
    assert port is not None, "they are served until the job ends"
    until(lambda: all_counted(port), "Prometheus gets the counters")
    found = fetched(port)
    labels = [labels for labels, _ in found[f"{OPERATOR}_seen"]]
    assert {each["subtask_index"] for each in labels} == {"0", "1"}
    assert {each["operator_name"] for each in labels} == {"weigh:_it__twice"}
    assert set(labels[0]) == {
        "job_id",
        "job_name",
        "host",
        "tm_id",
        "task_id",
        "task_name",
        "subtask_index",
        "task_attempt_num",
        "operator_id",
        "operator_name",
    }
    weights = found[f"{OPERATOR}_shop_country_weight"]
    assert {labels["country"] for labels, _ in weights} == {"nl"}
    assert {labels["quantile"] for labels, _ in weights} >= {"0.5", "0.99"}
    assert f"{OPERATOR}_broken" not in found
    assert {labels["operator_name"] for labels, _ in found[f"{OPERATOR}_numRecordsIn"]} >= {
        "weigh:_it__twice",
        "Filter",
    }
    memory = found["flink_taskmanager_Status_Process_Memory_Resident"]
    assert all(value > 10 << 20 for _, value in memory)


def all_counted(port: int) -> bool:
    """Whether both subtasks have counted a few rows."""
    counts = [value for _, value in fetched(port).get(f"{OPERATOR}_seen", ())]
    return len(counts) == 2 and min(counts) > 100


def check_opentelemetry(bodies: list[bytes]) -> None:
    """The metrics of the function in the last message, which is sent as the job ends."""
    attributes, told = decoded(bodies[-1])
    assert attributes["service.name"] == "weighing"
    operator = "flink.taskmanager.job.task.operator"
    points = told[f"{operator}.seen"].sum.data_points
    assert {attribute(point, "subtask_index") for point in points} == {"0", "1"}
    assert {attribute(point, "operator_name") for point in points} == {STEP}
    assert all(point.as_int > 100 for point in points)
    rates = told[f"{operator}.numRecordsInPerSecond.rate"].gauge.data_points
    assert any(point.as_double > 100 for point in rates)
    greatest, _ = told[f"{operator}.shop.country.weight_max"].gauge.data_points
    assert attribute(greatest, "country") == "nl"
    assert told["flink.taskmanager.Status.Process.Memory.Resident"].unit == "By"
    assert told["flink.jobmanager.job.uptime"].gauge.data_points[0].HasField("as_int")


def attribute(point: object, name: str) -> str:
    """An attribute of a data point."""
    attributes = point.attributes  # type: ignore[attr-defined]
    [found] = [each.value.string_value for each in attributes if each.key == name]
    return found


def check_lines(path: Path) -> None:
    """Lines of the one metric that the filter lets through."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert {each["name"] for each in told} == {"seen"}
    last = told[-1]
    assert last["scope"] == "taskmanager.job.task.operator" and last["kind"] == "counter"
    assert last["variables"]["operator_name"] == STEP and last["value"] > 100
