"""What a job leaves of itself, and what is answered out of it."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import structlog
from structlog.testing import capture_logs

from tests.e2e.watch import until
from tests.rest.served import Served, made
from tests.rest.world import EMPTY, JOB, SEEN, VERTEX
from tidegate.clock import SystemClock
from tidegate.errors import FormatError
from tidegate.jobmaster.view import FailureView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, Logged, LogRecord, SubtaskFigures
from tidegate.model.ids import Epoch, JobId, SlotId
from tidegate.model.logs import LogFilter
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.rest.archive import Archive
from tidegate.rest.cluster.archived_answers import answer_of
from tidegate.rest.cluster.folders import ArchivedJob, FoundJob, JobFolders
from tidegate.rest.cluster.known_jobs import SeenJob
from tidegate.rest.cluster.reading import read_archive
from tidegate.rest.refusals import BadRequest
from tidegate.rest.shapes.archive_shapes import answers, archived
from tidegate.rest.shapes.log_shapes import LEFT_BYTES, LeftLog, to_leave

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.jobmaster.view import JobView

NOW_MS = 20_000
AT = f"/jobs/{JOB}"
TASK = SubtaskView(
    0,
    1,
    ExecutionState.FINISHED,
    SlotId("one"),
    {ExecutionState.RUNNING: 1_500, ExecutionState.FINISHED: 9_000},
    SubtaskFigures(rows_in=30, rows_out=20),
    metrics={MetricKey("numRecordsIn", MetricKind.COUNTER): 30},
)
OTHER = replace(TASK, index=1, metrics={MetricKey("numRecordsIn", MetricKind.COUNTER): 10})
STEP = VertexView(VERTEX.vertex, "counts", 2, 128, (TASK, OTHER))
FAILURES = tuple(FailureView(ms, f"broke at {ms}", "", None) for ms in (3_000, 2_000, 1_500))
OVER = replace(
    EMPTY,
    status=JobStatus.FINISHED,
    timestamps_ms={**EMPTY.timestamps_ms, JobStatus.FINISHED: 9_100},
    vertices=(STEP,),
    failures=FAILURES,
    checkpoints=SEEN,
)
VERTEX_AT = f"{AT}/vertices/{STEP.id.hex()}"


def left(view: JobView) -> dict[str, str]:
    return dict(read_archive(archived(view, NOW_MS), "here"))


def seen(view: JobView, state: str = "", trouble: str = "") -> SeenJob:
    overview = json.loads(left(view)["/jobs/overview"])["jobs"][0]
    told = {**overview, "state": state or overview["state"]}
    return SeenJob(FoundJob(view.job, view.name), told, live=False, trouble=trouble)


def asked(path: str, view: JobView = OVER, trouble: str = "", **query: str) -> Any:
    text = answer_of(left(view), path, query, state=view.status.value, trouble=trouble)
    return None if text is None else json.loads(text)


def test_an_archive_answers_as_the_job_would() -> None:
    """Each path of the archive is asked of a running server over the same view."""
    server, client = made(), Served()
    client.shown = OVER
    with capture_logs():
        server.open(client, Epoch(1))
    host = urlsplit(server.url)
    link = HTTPConnection(host.hostname or "", host.port or 0, timeout=20)

    def told(path: str) -> Any:
        query = f"?get={','.join(names(path))}" if path.endswith("/metrics") else ""
        link.request("GET", path + query)
        answer = link.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, (path, body)
        return body

    def names(path: str) -> list[str]:
        return [each["id"] for each in json.loads(found[path])]

    found = left(OVER)
    with closing(link):
        for path, text in found.items():
            assert timeless(told(path)) == timeless(json.loads(text)), path
    server.shut()
    assert len(found) == len(list(answers(OVER, NOW_MS))) + 1 > 30


def timeless(body: Any) -> Any:
    """A body without what only the time of asking decides."""
    match body:
        case dict():
            passing = ("now", "status-duration", "end-timestamp", "findings")
            return {key: timeless(each) for key, each in body.items() if key not in passing}
        case list():
            return [
                timeless(each)
                for each in body
                if not (isinstance(each, dict) and "Time" in str(each.get("id", "")))
            ]
        case _:
            return body


def test_metrics_of_an_archive_are_chosen_as_those_of_a_job() -> None:
    name = "numRecordsIn"
    every = asked(f"{VERTEX_AT}/subtasks/metrics", get=name)
    assert every == [{"id": name, "min": 10, "max": 30, "avg": 20, "sum": 40, "skew": 50}]
    assert asked(f"{VERTEX_AT}/subtasks/metrics", get=name, agg="sum") == [{"id": name, "sum": 40}]
    assert {"id": name} in asked(f"{VERTEX_AT}/subtasks/metrics")
    assert asked(f"{VERTEX_AT}/metrics", get=f"1.{name}") == [{"id": f"1.{name}", "value": "10"}]
    assert asked(f"{VERTEX_AT}/subtasks/1/metrics", get=name) == [{"id": name, "value": "10"}]
    assert asked(f"{VERTEX_AT}/subtasks/x/metrics") is None
    assert asked(f"{AT}/nothing/metrics") is None and asked(f"{AT}/nothing") is None


def test_failures_of_an_archive_are_as_many_as_are_asked_for() -> None:
    history = asked(f"{AT}/exceptions", maxExceptions="2")["exceptionHistory"]
    assert [each["timestamp"] for each in history["entries"]] == [3_000, 2_000]
    assert history["truncated"] is True
    assert asked(f"{AT}/exceptions")["exceptionHistory"]["truncated"] is False
    with pytest.raises(BadRequest):
        asked(f"{AT}/exceptions", maxExceptions="²")
    with pytest.raises(BadRequest):
        asked(f"{AT}/exceptions", maxExceptions="9" * 5_000)


def test_a_job_whose_driver_is_gone_says_so_wherever_its_state_is_shown() -> None:
    view = replace(EMPTY, vertices=(STEP,))
    job = seen(view, "SUSPENDED", "it was killed")
    told = {"state": job.state, "trouble": job.trouble}
    found = left(view)
    shown = json.loads(answer_of(found, f"{AT}/picture", {}, **told) or "")["job"]
    assert (shown["state"], shown["trouble"], shown["left"]) == (
        "SUSPENDED",
        "it was killed",
        True,
    )
    assert json.loads(answer_of(found, AT, {}, **told) or "")["state"] == "SUSPENDED"
    assert job.shown()["trouble"] == "it was killed" and "trouble" not in seen(view).shown()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"archive": [{"path": 1}]}', b"\xff", b"{" * 9_999])
def test_bytes_that_are_no_archive_are_told(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_archive(data, "/history/x")
    assert caught.value.where == "/history/x"


def test_a_job_leaves_an_archive_at_its_end_and_another_replaces_it(tmp_path: Path) -> None:
    client = Served()
    for status in (JobStatus.RUNNING, JobStatus.FINISHED):
        client.shown = replace(OVER, status=status)
        archive = Archive(str(tmp_path), SystemClock(), structlog.get_logger())
        archive.open(client, Epoch(1))
        archive.shut()
    assert [each.name for each in tmp_path.iterdir()] == [JOB]
    [found], troubles = JobFolders([], [str(tmp_path)]).look()
    assert found.archived is not None and not troubles
    assert found.archived.overview["state"] == "FINISHED" and found.archived.over


def test_an_archive_that_cannot_be_written_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    client = Served()
    client.shown = OVER
    log = structlog.get_logger()
    with capture_logs() as logged:
        archive = Archive(str(tmp_path / "file"), SystemClock(), log)
        archive.open(client, Epoch(1))
        archive.shut()
    assert [each["log_level"] for each in logged] == ["warning"]


def test_a_fault_of_our_own_is_told_with_its_trace_and_ends_nothing(tmp_path: Path) -> None:
    client = Served()
    client.shown = None
    with capture_logs() as logged:
        archive = Archive(str(tmp_path), SystemClock(), structlog.get_logger())
        archive.open(client, Epoch(1))
        archive.shut()
    [told] = logged
    assert (told["log_level"], told["exc_info"]) == ("warning", True)
    assert "told to break" in told["error"]


def test_a_last_archive_that_takes_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.rest.archive._END_S", 0.01)
    gate = threading.Event()

    class Slow(Served):
        def view(self) -> object:
            gate.wait(60)
            return OVER

    with capture_logs() as logged:
        archive = Archive(str(tmp_path), SystemClock(), structlog.get_logger())
        archive.open(Slow(), Epoch(1))
        archive.shut()
    gate.set()
    until(lambda: (tmp_path / JOB).exists(), "it is written nevertheless")
    assert ["still being written" in each["event"] for each in logged] == [True]


def test_of_two_archives_of_a_job_the_one_of_its_last_run_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    put(one, 1, OVER)
    later = {status: ms + 50_000 for status, ms in EMPTY.timestamps_ms.items()}
    put(two, 1, replace(OVER, status=JobStatus.RUNNING, timestamps_ms=later))
    for folders in ((one, two), (two, one)):
        [found], _ = JobFolders([], [str(each) for each in folders]).look()
        assert found.archived is not None and found.archived.overview["state"] == "RUNNING"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    folders = JobFolders([str(tmp_path), f"{tmp_path}/ordres"], [f"{tmp_path}/archives"])
    assert folders.missing() == [f"{tmp_path}/ordres", f"{tmp_path}/archives"]
    found, troubles = folders.look()
    assert found == [] and troubles[0] == f"there is no folder {tmp_path}/ordres yet"


def put(folder: Path, number: int, view: JobView) -> JobId:
    """Leaves an archive of a job of its own that ended so many milliseconds after the first."""
    id = JobId(f"{number:032x}")
    times = {**view.timestamps_ms, JobStatus.FINISHED: 9_100 + number}
    folder.mkdir(exist_ok=True)
    data = archived(replace(view, job=id, timestamps_ms=times), NOW_MS)
    (folder / id).write_bytes(data)
    return id


def test_of_ended_jobs_as_many_as_are_to_be_kept_are_kept(tmp_path: Path) -> None:
    history = tmp_path / ".history"
    oldest, *newer = [put(history, number, OVER) for number in (1, 2, 3)]
    running = put(history, 4, replace(OVER, status=JobStatus.RUNNING))
    (history / "notes.txt").write_text("not ours")
    (history / f"{5:032x}").write_text("damaged")
    listed = json.dumps({"jobs": [{"jid": "x", "name": "y", "state": "DREAMING"}]})
    odd = {"archive": [{"path": "/jobs/overview", "json": listed}]}
    (history / f"{6:032x}").write_text(json.dumps(odd))
    found, troubles = JobFolders([str(tmp_path)], [], retained=2).look()
    assert {each.id for each in found} == {*newer, running}
    assert [number for number in (5, 6) if f"{number:032x}" in "".join(troubles)] == [5, 6]
    assert not (history / oldest).exists() and (history / "notes.txt").exists()


def test_an_archive_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    id = put(tmp_path, 1, OVER)
    folders = JobFolders([], [str(tmp_path)])

    def overview() -> ArchivedJob:
        [found], _ = folders.look()
        assert found.archived is not None
        return found.archived

    first = overview()
    assert overview() is first
    path = f"/jobs/{id}/status"
    assert json.loads(folders.answers(first)[path]) == {"status": "FINISHED"}
    times = {**OVER.timestamps_ms, JobStatus.CANCELED: 9_000}
    put(tmp_path, 1, replace(OVER, status=JobStatus.CANCELED, timestamps_ms=times))
    second = overview()
    assert second is not first
    assert json.loads(folders.answers(second)[path]) == {"status": "CANCELED"}


def logged(count: int, text: str = "record") -> Served:
    """A client whose job has logged so much."""
    client, level = Served(), (20, 30, 45)
    client.shown = OVER
    for number in range(count):
        record = LogRecord(number, level[number % 3], "orders", f"{text} {number}", slot="one")
        if number % 2:
            record = replace(record, trace="KeyError", operator="look up", subtask=1, attempt=0)
        client.logged.heard(Logged(SlotId("one"), (record,)))
    return client


@pytest.mark.parametrize("over", [True, False])
def test_the_log_of_an_archive_is_chosen_from_as_that_of_a_job(over: bool) -> None:
    client = logged(60)
    left_log = LeftLog(json.loads(json.dumps(to_leave(client.log, over=over))))
    for wanted in (
        LogFilter(),
        LogFilter(level="warning"),
        LogFilter(operator="look up", subtask=1),
        LogFilter(text="keyerror", since_ms=40),
        LogFilter(slot=""),
    ):
        for limit in (1, 7, 1_000):
            for after in (None, 0, 30, 60):
                chosen = {"after": after, "limit": limit}
                now, then = client.log(wanted, **chosen), left_log.read(wanted, **chosen)
                assert then.entries == now.entries
                assert then.after >= (then.entries[-1].number if then.entries else 0)
                if len(then.entries) < limit:
                    assert then.after == now.after


def test_a_job_that_is_over_leaves_the_newest_megabyte_of_its_log() -> None:
    client = logged(3_000, "x" * 1_000)
    running, over = (to_leave(client.log, over=each) for each in (False, True))
    assert len(json.dumps(over)) < LEFT_BYTES + 10_000
    numbers = [int(each["message"].split()[1]) for each in over["records"]]  # type: ignore[attr-defined]
    assert numbers == list(range(numbers[0], 3_000)) and 500 < len(numbers) < 1_000
    assert over["after"] == 3_000
    assert running["records"] == over["records"][-len(running["records"]) :]  # type: ignore[index, arg-type]


def test_an_archive_has_the_log_as_json_and_as_lines(tmp_path: Path) -> None:
    client = logged(3)
    archive = Archive(str(tmp_path), SystemClock(), structlog.get_logger())
    archive.open(client, Epoch(1))
    archive.shut()
    found = read_archive((tmp_path / JOB).read_bytes(), "here")

    def answered(**query: str) -> str:
        return answer_of(found, f"{AT}/log", query, state="FINISHED", trouble="") or ""

    records = json.loads(answered(level="warning"))["records"]
    assert [each["message"] for each in records] == ["record 1", "record 2"]
    assert records[1]["level"] == "Level 45"
    lines = answered(format="text", text="record 1")
    assert lines.startswith("1970-01-01 00:00:00.001Z WARNING orders [look up (2)]: record 1")
    assert lines.endswith("\nKeyError\n")
    for faulty in ({"level": "loud"}, {"after": "²"}):
        with pytest.raises(BadRequest):
            answered(**faulty)
    assert answer_of({}, f"{AT}/log", {}, state="FINISHED", trouble="") is None
