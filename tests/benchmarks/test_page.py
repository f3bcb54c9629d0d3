"""The benchmarks' page, made from a small folder of results."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.kafka_latency.comparison import LIMITS_MS
from benchmarks.page import Page, ResultsError

ROOT = Path(__file__).resolve().parents[2]
CONDITIONS = {
    "at": "2026-11-27T12:00:00+00:00",
    "commit": "abc1234",
    "cores": 2,
    "load_1m": 0.5,
    "python": "3.11.2, profile-guided optimisation",
    "rounds": 5,
}
RATES = {"tidegate-spark records": 2_000_000.0, "flink-jvm": 4_000_000.0, "pyflink": 5_000.0}
KAFKA = "tidegate-spark, exactly-once, 100 ms"
SESSIONS: Mapping[str, Mapping[str, object]] = {
    "w1": {
        "medians": RATES,
        "processor_ns": {"tidegate-spark records": 612.3},
        "quiet_runs": {"tidegate-spark records": 4},
        "runs": {"tidegate-spark records": [{}] * 5},
    },
    "batch-on-spark": {
        "medians": {"process": 400e3, "applyInPandas": 80e3, "declared": 1e6},
        "processor_ns": {"process": 4_460.0},
    },
    "micro-batches": {
        "medians": {
            "tidegate, 10,000 keys": 1e6,
            "transformWithStateInPandas, 10,000 keys": 250e3,
        },
        "processor_ns": {},
    },
    "nexmark": {
        "medians": {"q0 records": 400e3, "q0 flink-sql": 1e6, "q1 records": 200e3},
        "processor_ns": {"q0 records": 2_500.0},
        "held": {"PyFlink": True},
    },
    "kafka-latency": {
        "medians": {f"{p}_ms": {KAFKA: ms} for p, ms in (("p50", 61), ("p99", 200), ("max", 230))}
    },
    "recovery": {"medians_ms": {"local 10,000 keys": 180}, "longest_ms": {}},
    "first-program": {"wall_ms": 512.0, "processor_ms": 700.0},
    "many-keys": {"medians": {"processor_ns": {"10 k keys": 50.0, "10 M keys": 100.0}}},
    "state-read": {"figures": {"blocks": {"rate": 5_900_000.0, "key s": 0.13}}},
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Sessions as benchmarks leave them."""
    folder = tmp_path / "results"
    folder.mkdir()
    for name, session in SESSIONS.items():
        leave(folder, name, CONDITIONS | session)
    return folder


def leave(folder: Path, name: str, session: Mapping[str, object]) -> None:
    with (folder / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(session) + "\n")


def made(results: Path) -> str:
    assets = results.parent / "assets"
    assets.mkdir(exist_ok=True)
    return Page(results, assets).text()


def test_figures_stand_beside_floors_and_peers(results: Path) -> None:
    lines = made(results).splitlines()
    assert (
        "| `process`, a generator; on Spark | 2.00 M | 612 | 0.5 | 0.55, **missed** | 400 |"
        in lines
    )
    assert "| process | 400.0 k | 4,460 | 5 | 3, held |" in lines
    assert "| declared | 1.00 M |  |  |  |" in lines
    assert "| tidegate, 10,000 keys | 1.00 M |  | 4 | 5, **missed** |" in lines
    assert "| q0 | 400.0 k |  |  | 1.00 M | 2,500 |  | 0.40 |  |" in lines
    assert f"| {KAFKA} | 61.0 | 200.0 | 230.0 | {LIMITS_MS[KAFKA]:g}, **missed** |" in lines
    assert "| local 10,000 keys | 180 |  | 250, held |" in lines
    assert "| 10 M keys | 100 | 2.00 | 2.5, held |" in lines
    assert "| blocks | 5,900,000 | 0.13 |" in lines


def test_conditions_stand_with_each_part(results: Path) -> None:
    page = made(results)
    built = "Python 3.11.2, profile-guided optimisation; 2 cores; 5 rounds"
    assert f"Commit `abc1234`; 2026-11-27; {built}; 4 of 5 runs quiet." in page
    assert f"{built}; load 0.5 at its end, quiet runs not noted." in page


def test_what_has_no_whole_session_is_named(results: Path) -> None:
    made(results)
    for file in results.iterdir():
        file.unlink()
    page = made(results)
    assert page.count("No whole session yet: `make bench ARGS=") == 21
    assert "No whole session yet: `make bench ARGS=w1-rocksdb`." in page
    assert not list((results.parent / "assets").iterdir()), "plots of sessions that are gone"


def test_the_last_session_counts(results: Path) -> None:
    leave(results, "w1", CONDITIONS | {"medians": {"tidegate-spark records": 3e6}})
    assert "| `process`, a generator; on Spark | 3.00 M |  |" in made(results)


def test_plots_have_words_for_who_does_not_see_them_and_are_the_same_each_time(
    results: Path,
) -> None:
    page, assets = made(results), results.parent / "assets"
    plots = {file.name: file.read_bytes() for file in assets.iterdir()}
    assert set(plots) == {
        f"benchmark-{name}.svg" for name in ("rates", "nexmark", "latency", "recovery")
    }
    for name, drawn in plots.items():
        (alt,) = [line for line in page.splitlines() if line.endswith(f"](assets/{name})")]
        assert len(alt.split("]")[0]) > 60
        assert ET.fromstring(drawn).tag.endswith("svg")
    made(results)
    assert plots == {file.name: file.read_bytes() for file in assets.iterdir()}


@pytest.mark.parametrize(
    ("session", "told"),
    [
        ({}, "line 2: the field 'medians' is missing"),
        ({"medians": [1]}, r"line 2: 'medians' is \[1\], no dict"),
        ({"medians": {"flink-jvm": "fast"}}, "line 2, medians: 'flink-jvm' is 'fast', no number"),
        ({"medians": {}, "commit": 7}, "line 2: 'commit' is 7, no str"),
    ],
)
def test_a_result_that_cannot_be_shown_is_told_with_file_and_line(
    results: Path, session: Mapping[str, object], told: str
) -> None:
    leave(results, "w1", CONDITIONS | session)
    with pytest.raises(ResultsError, match=rf"w1\.jsonl, {told}"):
        made(results)


def test_a_line_that_was_cut_is_told(results: Path) -> None:
    (results / "w1.jsonl").write_text('{"at": "2026')
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.page", "--results", results, "--docs", results.parent],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"bench-page: {results}/w1.jsonl, line 1: this is no JSON")
