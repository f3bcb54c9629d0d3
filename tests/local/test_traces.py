"""The spans of a whole job in a file."""

import json
from collections import Counter

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import BreakingOnce, Probe
from tests.e2e.reported import decoded_spans, receiver
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import completed, view, wait_completed, wait_recovered
from tidegate import ConfigError
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus

END_S = 100


@pytest.mark.feature("F234")
@pytest.mark.slow
def test_a_file_has_a_span_for_each_checkpoint_and_each_start(jobs: Jobs) -> None:
    file, breaking = jobs.folder / "spans.jsonl", Latch(jobs.folder / "breaking")
    settings = {
        "traces.reporters": "file",
        "tidegate.traces.file": str(file),
        "web.checkpoints.history": 1_000,
    }
    env = jobs.checkpointed(2, 100, **settings)
    probe = Probe(Journal(jobs.folder / "journal"), "slow", snapshot_s=0.01)
    counts = running_counts(env, None, 500).map(probe).map(BreakingOnce(breaking))
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "traced")
    wait_completed(client, 2)
    breaking.set()
    recovered = wait_recovered(client, 1)
    wait_completed(client, recovered.checkpoints.counts.completed + 1)
    client.cancel().result(timeout=END_S)

    seen = view(client)
    spans = [json.loads(line) for line in file.read_text().splitlines()]
    assert {span["job"] for span in spans} == {seen.job}
    starts = [span for span in spans if span["name"] == "JobInitialization"]
    assert len(starts) == seen.restarts + 1 == 2
    assert [s["attributes"]["initializationStatus"] for s in starts] == ["COMPLETED"] * 2
    assert "checkpointId" not in starts[0]["attributes"]
    assert starts[1]["attributes"]["checkpointId"] == recovered.restored
    assert starts[1]["attributes"]["fullSize"] > 0
    spread = {"maxInitializeStateDurationMs", "sumInitializeStateDurationMs"}
    assert all(spread <= set(start["attributes"]) for start in starts)

    checkpoints = {s["attributes"]["checkpointId"]: s for s in spans if s["name"] == "Checkpoint"}
    assert len(checkpoints) + len(starts) == len(spans)
    counts_of = Counter(span["attributes"]["checkpointStatus"] for span in checkpoints.values())
    shown = Counter(one.status for one in seen.checkpoints.history)
    assert counts_of["COMPLETED"] == shown[CheckpointStatus.COMPLETED]
    assert counts_of["FAILED"] == shown[CheckpointStatus.FAILED]
    for one in completed(seen):
        span = checkpoints[one.checkpoint]
        assert (span["start_ms"], span["end_ms"]) == (one.trigger_ms, one.latest_ack_ms)
        attributes = span["attributes"]
        assert attributes["fullSize"] == attributes["sumStateSizeBytes"] == one.state_size
        assert attributes["metadataSize"] == one.metadata_size > 0
        assert (attributes["checkpointType"], attributes["isUnaligned"]) == ("Checkpoint", "false")
        assert attributes["maxSyncCheckpointDurationMs"] >= 10


@pytest.mark.slow
def test_a_receiver_of_opentelemetry_gets_the_spans_of_a_job(jobs: Jobs) -> None:
    with receiver() as otel:
        settings = {
            "traces.reporters": "otel",
            "traces.reporter.otel.factory.class": (
                "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory"
            ),
            "traces.reporter.otel.exporter.endpoint": f"{otel.url}/v1/traces",
            "traces.reporter.otel.service.name": "counting",
        }
        env = jobs.checkpointed(2, 100, **settings)
        running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
        client = jobs.start(env, "traced")
        wait_completed(client, 2)
        client.cancel().result(timeout=END_S)
        spans = [span for _, _, body in otel.came for span in decoded_spans(body)]
    assert {resource["service.name"] for resource, _ in spans} == {"counting"}
    names = Counter(span.name for _, span in spans)
    assert names["JobInitialization"] == 1 and names["Checkpoint"] >= 2
    assert len({span.trace_id for _, span in spans}) == len(spans)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"traces.reporters": "otel"}, "without 'factory.class'"),
        ({"traces.reporter.otel.factory.class": "jaeger"}, "no reporter of spans"),
        (
            {
                "traces.reporter.otel.factory.class": "opentelemetry",
                "traces.reporter.otel.exporter.endpint": "http://h",
            },
            "without 'exporter.endpoint'",
        ),
        ({"traces.reporters": "file"}, "no path is set"),
    ],
)
def test_reporters_that_cannot_be_are_refused_at_once(
    jobs: Jobs, settings: dict[str, object], said: str
) -> None:
    env = jobs.checkpointed(1, 100, **settings)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    with pytest.raises(ConfigError, match=said) as caught:
        jobs.start(env, "traced")
    assert "traces." in str(caught.value)
