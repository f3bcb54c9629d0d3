"""The latency benchmark of Kafka, in small, against a real broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kafka import KafkaServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200
SMALL = ("--rate", "200", "--warm-s", "0.5", "--seconds", "1", "--keys", "50")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_each_record_has_a_latency(kafka: KafkaServer, guarantee: str) -> None:
    load = [sys.executable, "-m", "benchmarks.kafka_latency.load", "--system", "tidegate", *SMALL]
    job = [sys.executable, "-m", "benchmarks.kafka_latency.tidegate_job", "--runtime", "local"]
    ran = subprocess.run(
        [*load, "--servers", kafka.servers, "--", *job, "--guarantee", guarantee],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src:packages/flinkformat/src"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["latencies"] == 200
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]
