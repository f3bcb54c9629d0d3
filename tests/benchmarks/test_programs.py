"""Programs that are measured: each runs at a small size, and prints its result in its last line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ("--runtime", "local", "--parallelism", "1")
LIMIT_S = 200


@pytest.mark.parametrize(
    "program",
    [
        ("w1_tidegate", "--api", "records", "--records", "20000", "--keys", "10", *LOCAL),
        ("w1_tidegate", "--api", "batches", "--records", "20000", "--keys", "10", *LOCAL),
        ("w1_tidegate", "--api", "listed", "--records", "20000", "--keys", "10", *LOCAL),
        ("w1_tidegate", "--api", "text", "--records", "20000", "--verify", *LOCAL),
        ("w1_tidegate", "--api", "dicts", "--records", "20000", "--verify", *LOCAL),
        ("w1_tidegate", "--api", "dataclasses", "--records", "20000", "--verify", *LOCAL),
        ("w1_tidegate", "--api", "reduce", "--records", "20000", "--keys", "10", *LOCAL),
        ("w1_tidegate", "--api", "declared", "--records", "20000", "--keys", "10", *LOCAL),
        ("w1_tidegate", "--api", "running", "--records", "20000", "--keys", "10", *LOCAL),
        ("w2_tidegate", "--api", "records", "--records", "20000", "--keys", "10", *LOCAL),
        ("w2_tidegate", "--api", "traced", "--records", "400000", "--keys", "10", *LOCAL),
        ("w2_tidegate", "--api", "batches", "--records", "20000", "--keys", "10", *LOCAL),
        ("w4_tidegate", "--seconds", "2", "--keys", "10", *LOCAL),
        ("million_keys_tidegate", "--records", "20000", "--keys", "1000"),
        ("savepoint_tidegate", "hashmap", "canonical", "1000"),
        ("savepoint_tidegate", "rocksdb", "native", "1000"),
        ("recovery_tidegate", "--keys", "10", "--rate", "1000", "--kills", "1"),
    ],
    ids=" ".join,
)
def test_a_program_that_is_measured_runs(program: tuple[str, ...]) -> None:
    assert str(result_of(program)["system"]).startswith("tidegate")


@pytest.mark.spark
@pytest.mark.parametrize(
    "program",
    [
        ("batch_on_spark", "process", "--rows", "4000", "--keys", "10"),
        ("batch_on_spark", "applyInPandas", "--rows", "4000", "--keys", "10"),
        ("batch_on_spark", "declared, of a DataFrame", "--rows", "4000", "--keys", "10"),
        ("micro_batches", "tidegate", "--rows", "4000", "--keys", "10", "--batches", "3"),
        ("micro_batches", "transformWithStateInPandas", "--rows", "40", "--batches", "3"),
    ],
    ids=" ".join,
)
def test_a_program_beside_sparks_own_runs(program: tuple[str, ...]) -> None:
    result = result_of(program)
    assert result["system"] == program[1]
    assert float(str(result["records_per_s"])) > 0


def result_of(program: tuple[str, ...]) -> dict[str, object]:
    """The result line of a program, which runs in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program[0]}", *program[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src:packages/flinkformat/src"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    result: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return result


def test_pairs_of_two_trees_are_measured_once(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/pairs.py", ".", ".", "--rounds", "1", "--only", "start"]
    command += ["--keep", str(tmp_path / "pairs.jsonl")]
    outputs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S).stdout
        for _ in range(2)
    ]
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 1
    assert outputs[0].endswith(outputs[1].split("\n", 1)[1])
