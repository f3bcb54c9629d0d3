"""The job's own page: its files, and the picture that it asks for."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

import tidegate.rest
from tests.rest.served import Served, made
from tests.rest.world import DONE, EMPTY, FAILED, JOB, RUNNING, SEEN, VERTEX
from tidegate.graph.guarantees import guarantees
from tidegate.jobmaster.view import FailureView, SlotView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, LongCall, SubtaskFigures
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Epoch, OperatorId, SlotId, VertexId
from tidegate.model.metrics import Metered, MetricKey, MetricKind
from tidegate.model.topology import (
    Delivery,
    DeliveryGuarantee,
    Edge,
    FunctionInfo,
    OperatorInfo,
    Partitioner,
)
from tidegate.telemetry.costs import costs_of
from tidegate.telemetry.picture import picture, waits

FILES = Path(tidegate.rest.__file__).parent / "page"
NOW_MS = 20_000
SOURCE, SINK = VERTEX.vertex, VertexId(b"b" * 16)
ONE, TWO = SlotId("one"), SlotId("two")
READS = SubtaskView(
    0,
    2,
    ExecutionState.RUNNING,
    ONE,
    {ExecutionState.RUNNING: 1_500},
    SubtaskFigures(rows_in=30, rows_out=20, watermark_ms=77),
    metrics={
        MetricKey("numRecordsInPerSecond", MetricKind.METER): Metered(30, 2.5),
        MetricKey("numRecordsOutPerSecond", MetricKind.METER): Metered(20, 1.5),
        MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE): 400,
        MetricKey("backPressuredTimeMsPerSecond", MetricKind.GAUGE): 100,
    },
)
FUNCTIONS = (FunctionInfo("timestamps"), FunctionInfo("map", "line 3 calls a function"))
READ = OperatorInfo(OperatorId(SOURCE), "read <fast>", uid="reading", functions=FUNCTIONS)
WRITE = OperatorInfo(
    OperatorId(SINK), "write", sink=True, delivery=Delivery(DeliveryGuarantee.EXACTLY_ONCE)
)
WAITS = replace(READS, index=1, slot=TWO)
READER = VertexView(SOURCE, "read <fast>", 2, 128, (READS, WAITS), (READ,))
BESIDE = FailureView(4_001, "it broke too", "read (2/2)", TWO, "KeyError")
CAUSE = FailureView(
    4_000, "it broke", "write (1/1)", ONE, "ValueError", {"kind": "user"}, (BESIDE,)
)
VIEW = replace(
    EMPTY,
    restarts=4,
    rescales=2,
    vertices=(READER, VertexView(SINK, "write", 1, 64, (), (WRITE,))),
    edges=(Edge(SOURCE, SINK, Partitioner.REBALANCE, 0),),
    failures=(CAUSE,),
    slots=(SlotView(ONE, "host-1", 11, 5, 12_000, LongCall("lookup", "a\nb"), "read (1/2)"),),
    checkpoints=SEEN,
)
OVER = replace(
    VIEW,
    status=JobStatus.FAILED,
    timestamps_ms={**VIEW.timestamps_ms, JobStatus.FAILED: 12_000},
)


def test_a_picture_shows_the_job_and_its_steps() -> None:
    shown = picture(VIEW, NOW_MS, since=0)
    assert shown["job"] == {
        "id": JOB,
        "name": "orders",
        "state": "RUNNING",
        "now": NOW_MS,
        "began": 1_000,
        "ended": None,
        "restarts": 4,
        "rescales": 2,
        "epoch": 1,
        "slots": 1,
        "slots_wanted": 1,
        "batch": False,
        "tasks": None,
        "costs": costs_of(VIEW),
    }
    reader, writer = shown["vertices"]
    subtasks = reader.pop("subtasks")
    assert reader == {
        "id": SOURCE.hex(),
        "name": "read <fast>",
        "parallelism": 2,
        "stage": None,
        "fixed": False,
        "operators": [
            {
                "name": "read <fast>",
                "uid": "reading",
                "functions": [
                    {"call": "timestamps", "each": "row", "by_row": ""},
                    {"call": "map", "each": "row", "by_row": "line 3 calls a function"},
                ],
            }
        ],
    }
    assert subtasks[0] == {
        "index": 0,
        "attempt": 2,
        "state": "RUNNING",
        "slot": "one",
        "rows_in": 30,
        "rows_out": 20,
        "in_a_second": 2.5,
        "out_a_second": 1.5,
        "busy": 0.4,
        "held": 0.1,
        "watermark": 77,
    }
    assert [each["index"] for each in subtasks] == [0, 1] and writer["subtasks"] == []
    assert picture(OVER, NOW_MS, since=0)["job"]["ended"] == 12_000
    assert picture(replace(EMPTY, epoch=Epoch(3)), NOW_MS, since=0)["job"]["epoch"] == 3


def test_rates_are_those_of_sources_and_sinks_within_their_chains() -> None:
    def rate(id: OperatorId, a_second: float) -> dict[MetricKey, Metered]:
        return {MetricKey("numRecordsInPerSecond", MetricKind.METER, id): Metered(1, a_second)}

    map_id = OperatorId(b"m" * 16)
    rates = {**rate(READ.id, 50.0), **rate(map_id, 49.0), **rate(WRITE.id, 7.0)}
    task = replace(READS, metrics={**READS.metrics, **rates})
    ended = replace(task, index=1, state=ExecutionState.FINISHED)
    operators = (READ, OperatorInfo(map_id, "map", upstream=0), replace(WRITE, upstream=1))
    whole = VertexView(SOURCE, "all in one", 2, 128, (task, ended), operators)
    assert picture(replace(EMPTY, vertices=(whole,)), NOW_MS, since=0)["rates"] == {
        "read": 50.0,
        "written": 7.0,
    }
    apart = replace(whole, operators=(READ,))
    sink = VertexView(SINK, "write", 2, 64, (task, ended), (WRITE,))
    view = replace(VIEW, vertices=(apart, sink))
    assert picture(view, NOW_MS, since=0)["rates"] == {"read": 50.0, "written": 7.0}


def test_a_picture_shows_what_flows_what_waits_and_what_failed() -> None:
    shown = picture(VIEW, NOW_MS, since=0)
    assert shown["edges"] == [{"from": SOURCE.hex(), "to": SINK.hex(), "how": "REBALANCE"}]
    assert shown["waits"] == waits(VIEW)
    [call] = shown["findings"]
    assert (call["subject"], call["step"]) == ("call", "read (1/2)")
    assert "12 s" in call["what"] and "AsyncDataStream" in call["remedy"]
    assert shown["checkpoints"]["backlog"] is None
    behind = replace(VIEW, checkpoints=replace(SEEN, backlog=(READ.id,)))
    catching_up = picture(behind, NOW_MS, since=0)["checkpoints"]["backlog"]
    assert catching_up == {"sources": [READ.name], "interval": None}
    [promise] = guarantees([WRITE], VIEW.settings)
    assert shown["sinks"] == [
        {"sink": "write", "guarantee": "none", "why": [promise.why[0]], "provided": []}
    ]
    cause = {"at": 4_001, "kind": "KeyError", "error": "it broke too", "task": "read (2/2)"}
    assert shown["failures"][0] == {
        "at": 4_000,
        "kind": "ValueError",
        "error": "it broke",
        "task": "write (1/1)",
        "slot": "one",
        "labels": {"kind": "user"},
        "concurrent": [{**cause, "slot": "two", "labels": {}, "concurrent": []}],
    }


@pytest.mark.parametrize(
    ("watermark", "told"),
    [(None, None), (MIN_TIMESTAMP_MS, None), (-5, -5), (MAX_WATERMARK_MS, "end")],
)
def test_event_time_that_has_not_begun_or_is_over_is_no_number(
    watermark: int | None, told: object
) -> None:
    first = READER.subtasks[0]
    figures = replace(first.figures, watermark_ms=watermark)
    view = replace(EMPTY, vertices=(replace(READER, subtasks=(replace(first, figures=figures),)),))
    [vertex] = picture(view, NOW_MS, since=0)["vertices"]
    assert vertex["subtasks"][0]["watermark"] == told


def test_event_time_of_a_source_is_what_it_gives_out() -> None:
    given = {MetricKey("currentOutputWatermark", MetricKind.GAUGE): 4_000}
    task = replace(READS, figures=replace(READS.figures, watermark_ms=None), metrics=given)
    view = replace(EMPTY, vertices=(replace(READER, subtasks=(task,)),))
    [vertex] = picture(view, NOW_MS, since=0)["vertices"]
    assert vertex["subtasks"][0]["watermark"] == 4_000


def test_a_checkpoint_names_the_share_that_came_last_and_those_that_are_missing() -> None:
    reader = replace(READER, id=VERTEX.vertex, parallelism=3)
    reason = FailureReason.CHECKPOINT_EXPIRED
    failed = replace(FAILED, reason=reason, failure="too late", failed_ms=1_500)
    seen = replace(VIEW.checkpoints, history=(RUNNING, DONE, failed))
    shown = picture(replace(VIEW, vertices=(reader,), checkpoints=seen), NOW_MS, since=0)
    assert shown["checkpoints"]["counts"] == {"completed": 17, "failed": 3, "in_progress": 1}
    assert shown["checkpoints"]["interval"] == VIEW.settings.checkpoints.interval_ms
    running, done, failure = shown["checkpoints"]["history"]
    assert running["waits_for"] == ["read <fast> (3/3)"] and running["path"] is None
    latest = {"task": "read <fast> (2/3)", "start_delay": 19, "alignment": 18, "sync": 14}
    assert done == {
        "id": 6,
        "status": "COMPLETED",
        "savepoint": False,
        "unaligned": False,
        "begun": 1_000,
        "duration": 63,
        "tasks": 3,
        "acknowledged": 2,
        "state_size": 62,
        "written": 61,
        "path": "/chk-6",
        "failure": None,
        "remedy": None,
        "latest": {**latest, "async": 15},
        "waits_for": [],
    }
    assert (failure["failure"], failure["remedy"]) == ("too late", reason.remedy)


def test_a_picture_leaves_out_checkpoints_that_are_known_and_names_few_that_are_missing() -> None:
    share = replace(VERTEX, vertex=VertexId(b"gone" * 4), subtasks=(None,) * 12)
    seen = replace(VIEW.checkpoints, history=(replace(RUNNING, vertices=(share,)), DONE))
    view = replace(VIEW, checkpoints=seen)
    [one] = picture(view, NOW_MS, since=7)["checkpoints"]["history"]
    assert one["id"] == 7 and one["latest"] is None
    assert one["waits_for"][0] == "a step that is gone (1/1)"
    assert one["waits_for"][8:] == ["4 more"]


def test_the_page_comes_with_a_policy_and_is_not_sent_twice() -> None:
    server = made()
    with capture_logs():
        server.open(Served(), Epoch(1))
    host = urlsplit(server.url)
    link = HTTPConnection(host.hostname or "", host.port or 0, timeout=20)

    def ask(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        return answer.status, dict(answer.headers), answer.read()

    with closing(link):
        status, told, body = ask("/")
        assert status == 200 and body == (FILES / "index.html").read_bytes()
        assert "script-src 'self'" in told["Content-Security-Policy"]
        assert ask("/", **{"If-None-Match": told["ETag"]})[::2] == (304, b"")
        assert ask("/page/main.js")[1]["Content-Type"] == "text/javascript; charset=utf-8"
        assert ask("/page/vendor/uplot/uPlot.min.css")[1]["Content-Type"].startswith("text/css")
        for path in ("/page/nothing.js", "/page/../server.py", "/page/..%2fserver.py"):
            assert ask(path)[0] == 404
        status, _, body = ask(f"/jobs/{JOB}/picture?checkpoints=3")
        assert status == 200 and b'"name":"orders"' in body
        for wrong in ("-1", "x", "%C2%B2"):
            assert ask(f"/jobs/{JOB}/picture?checkpoints={wrong}")[0] == 400
    server.shut()


def test_the_page_loads_only_what_comes_with_it() -> None:
    """No file is missing, none is left over, and nothing is fetched from elsewhere."""
    used = {"index.html"}
    waiting = [FILES / "index.html"]
    while waiting:
        file = waiting.pop()
        text = file.read_text()
        if file.name == "index.html":
            names = [
                name.removeprefix("page/")
                for name in re.findall(r'(?:href|src)="(page/[^"]+)"', text)
            ]
            assert not re.search(r'(?:href|src)="(?!page/|jobs/)', text)
        elif file.suffix == ".js" and "vendor" not in file.parts:
            names = re.findall(r"(?:from |import\()'\./([^']+)'", text)
            assert "://" not in text
        else:
            names = []
        for name in names:
            assert (FILES / name).is_file(), f"{file.name} loads {name}"
            if name not in used:
                used.add(name)
                waiting.append(FILES / name)
    there = {str(each.relative_to(FILES)) for each in FILES.rglob("*") if each.is_file()}
    assert {name for name in there - used if "LICENSE" not in name} == {"vendor/README.md"}
