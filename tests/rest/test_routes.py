"""Each path answers with the page that it names, of the vertex, subtask or slot that it names."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.e2e.rest import Rest
from tests.rest.served import Served
from tests.rest.shown import ENDED, ONE, OVER, READER, READS, SINK, SLOTS, VIEW, WRITER
from tests.rest.world import DONE, JOB
from tidegate.errors import PeerLost, RescaleRefused
from tidegate.model.chance import SeededChance
from tidegate.model.control import ThreadStack
from tidegate.model.ids import Epoch, SlotId
from tidegate.model.settings import RestSettings
from tidegate.rest.messages import response
from tidegate.rest.routes import slots
from tidegate.rest.server import RestServer
from tidegate.rest.shapes import checkpoint_shapes as checkpoints
from tidegate.rest.shapes import cluster_shapes as cluster
from tidegate.rest.shapes import job_shapes as jobs
from tidegate.rest.shapes import metric_shapes as metrics
from tidegate.telemetry.picture import waits
from tidegate.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN = {"rest.port": "0", "a.password": "x"}
SHOWN = replace(VIEW, settings=replace(VIEW.settings, given=GIVEN))
SHARE = DONE.vertices[0]
AT = f"/jobs/{JOB}/vertices/{READER.id.hex()}"
QUIET = (
    ("/jobmanager/profiler", "File not found."),
    ("/jobmanager/profiler/one.html", "File not found."),
    ("/taskmanagers/one/profiler", "File not found."),
    ("/taskmanagers/one/profiler/one.html", "File not found."),
    (f"/jobs/{JOB}/rescales/overview", "Resource not found."),
    (f"/jobs/{JOB}/rescales/details/{JOB}", "Resource not found."),
    ("/jobmanager/stdout", "File not found."),
    ("/jobmanager/logs/other.log", "File not found."),
    ("/taskmanagers/one/logs/any.log", "File not found."),
)


class Asked(Served):
    """A client that is rescaled, and whose slots tell their threads."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = SHOWN
        self.rescaled: list[int] = []
        self.scaling: Future[None] = Future()
        self.threads: Future[tuple[ThreadStack, ...]] = Future()

    def rescale(self, parallelism: int) -> Future[None]:
        self.rescaled.append(parallelism)
        return self.scaling

    def thread_dump(self, slot: SlotId | None = None) -> Future[tuple[ThreadStack, ...]]:
        assert slot == ONE
        return self.threads


@pytest.fixture
def client() -> Asked:
    return Asked()


@pytest.fixture
def server(client: Asked) -> Iterator[RestServer]:
    with structlog.testing.capture_logs():
        server = RestServer(
            RestSettings((0, 0)), ManualClock(), SeededChance(1), structlog.get_logger()
        )
        server.open(client, Epoch(1))  # type: ignore[arg-type]
        yield server
        server.shut()


@pytest.fixture
def rest(server: RestServer) -> Rest:
    return Rest(server.url)


def pages() -> dict[str, object]:
    """Every page that shows the job, with what it shows."""
    now_ms = ManualClock().wall_ms()
    return {
        "/jobs": {"jobs": [{"id": JOB, "status": "RUNNING"}]},
        "/jobs/overview": {"jobs": [jobs.overview(SHOWN, now_ms)]},
        "/applications/overview": {"applications": [cluster.application(SHOWN, now_ms)]},
        f"/applications/{JOB}": cluster.application_details(SHOWN, now_ms),
        f"/applications/{JOB}/exceptions": cluster.application_exceptions(SHOWN),
        f"/applications/{JOB}/jobmanager/config": cluster.settings_of(SHOWN),
        "/taskmanagers": cluster.slots(SHOWN, now_ms),
        "/taskmanagers/one": cluster.slot_details(SHOWN, SLOTS[0], now_ms),
        "/taskmanagers/idle": cluster.slot_details(SHOWN, SLOTS[2], now_ms),
        "/jobmanager/config": cluster.settings_of(SHOWN),
        f"/jobs/{JOB}/jobmanager/config": cluster.settings_of(SHOWN),
        f"/jobs/{JOB}": jobs.details(SHOWN, now_ms),
        f"/jobs/{JOB}/waits": waits(SHOWN),
        f"/jobs/{JOB}/status": {"status": "RUNNING"},
        f"/jobs/{JOB}/plan": {"plan": jobs.plan(SHOWN)},
        f"/jobs/{JOB}/config": jobs.config(SHOWN),
        f"/jobs/{JOB}/exceptions": jobs.exceptions(SHOWN, 20, None),
        f"/jobs/{JOB}/exceptions?maxExceptions=1": jobs.exceptions(SHOWN, 1, None),
        f"/jobs/{JOB}/execution-result": {"status": {"id": "IN_PROGRESS"}},
        f"/jobs/{JOB}/resource-requirements": jobs.requirements(SHOWN),
        f"/jobs/{JOB}/accumulators": {
            "job-accumulators": [],
            "user-task-accumulators": [],
            "serialized-user-task-accumulators": {},
        },
        f"/jobs/{JOB}/checkpoints": checkpoints.overview(SHOWN.checkpoints),
        f"/jobs/{JOB}/checkpoints/config": checkpoints.config(SHOWN.settings),
        f"/jobs/{JOB}/checkpoints/details/6": checkpoints.checkpoint(DONE, tasks=True),
        f"/jobs/{JOB}/checkpoints/details/6/subtasks/{SHARE.vertex.hex()}": (
            checkpoints.subtasks(DONE, SHARE)
        ),
        AT: jobs.vertex_details(SHOWN, READER, now_ms),
        f"/jobs/{JOB}/vertices/{SINK.hex()}": jobs.vertex_details(SHOWN, WRITER, now_ms),
        f"{AT}/subtasktimes": jobs.subtask_times(SHOWN, READER, now_ms),
        f"{AT}/taskmanagers": jobs.slots_of(SHOWN, READER, now_ms),
        f"{AT}/watermarks": metrics.watermarks(READER),
        f"{AT}/accumulators": {"id": READER.id.hex(), "user-accumulators": []},
        f"{AT}/subtasks/accumulators": {
            "id": READER.id.hex(),
            "parallelism": 2,
            "subtasks": [],
        },
        f"{AT}/subtasks/0": jobs.subtask_of(jobs.hosts(SHOWN), READS, now_ms),
        f"{AT}/subtasks/1": jobs.subtask_of(jobs.hosts(SHOWN), ENDED, now_ms),
        f"{AT}/subtasks/1/attempts/3": jobs.subtask_of(jobs.hosts(SHOWN), ENDED, now_ms),
    }


def test_each_path_has_its_page(rest: Rest) -> None:
    for path, page in pages().items():
        expected = response(page).body
        assert isinstance(expected, bytes)
        assert rest.get(path) == json.loads(expected), path


def test_what_is_not_there_is_told_in_the_words_that_the_dashboard_passes_over(rest: Rest) -> None:
    for path, text in QUIET:
        assert rest.refused("GET", path) == (404, text), path


def test_slots_and_attempts_that_are_unknown(rest: Rest) -> None:
    for path in ("", "/logs", "/thread-dump"):
        status, text = rest.refused("GET", f"/taskmanagers/none{path}")
        assert status == 404 and "none could not be found" in text
    status, text = rest.refused("GET", f"{AT}/subtasks/1/attempts/2")
    assert status == 404 and "attempt 2 of subtask 1" in text


def test_the_dashboard_may_cancel_and_stop_by_get_and_others_may_not(
    rest: Rest, client: Asked
) -> None:
    own = {"Sec-Fetch-Site": "same-origin"}
    for path in ("yarn-cancel", "yarn-stop"):
        client.cancelled = False
        assert rest.refused("GET", f"/jobs/{JOB}/{path}")[0] == 403 and not client.cancelled
        assert rest.ask("GET", f"/jobs/{JOB}/{path}", **own) == (202, {}) and client.cancelled
    client.cancelled = False
    assert rest.ask("POST", f"/applications/{JOB}/cancel", {}) == (202, {}) and client.cancelled


def put(rest: Rest, upper: int) -> tuple[int, Any]:
    body = {
        vertex.id.hex(): {"parallelism": {"lowerBound": 1, "upperBound": upper}}
        for vertex in (READER, WRITER)
    }
    path = f"/jobs/{JOB}/resource-requirements"
    return rest.ask("PUT", path, body, **{"Content-Type": "application/json"})


def test_a_job_is_rescaled_by_what_it_is_to_have(rest: Rest, client: Asked) -> None:
    client.scaling.set_result(None)
    assert put(rest, 5) == (200, {}) and client.rescaled == [5]
    assert put(rest, 65)[0] == 400 and client.rescaled == [5]
    path = f"/jobs/{JOB}/resource-requirements"
    broken = {READER.id.hex(): {"parallelism": {"upperBound": "many"}}}
    assert rest.ask("PUT", path, broken, **{"Content-Type": "application/json"})[0] == 400


def test_a_rescaling_that_is_refused_says_why(rest: Rest, client: Asked) -> None:
    client.scaling.set_exception(RescaleRefused("no checkpoints are taken"))
    status, answer = put(rest, 5)
    assert status == 400 and "no checkpoints are taken" in answer["errors"][0]
    client.scaling = Future()
    client.scaling.set_exception(PeerLost("the driver is gone"))
    assert put(rest, 5)[0] == 500


def test_a_rescaling_that_takes_its_time_goes_on(
    rest: Rest, client: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.rest.routes.scaling.REFUSED_WITHIN_S", 0.01)
    assert put(rest, 5) == (200, {}) and not client.scaling.done()
    client.scaling.set_exception(PeerLost("the slots have not come"))


def test_threads_of_a_slot(rest: Rest, client: Asked) -> None:
    client.threads.set_result((ThreadStack("loop", "here\n"),))
    assert rest.get("/taskmanagers/one/thread-dump") == cluster.threads(client.threads.result())


def test_a_slot_that_is_in_a_call_has_the_stack_that_its_guard_has_read(
    rest: Rest, client: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "THREADS_WITHIN_S", 0.01)
    [told] = rest.get("/taskmanagers/one/thread-dump")["threadInfos"]
    assert told["threadName"] == "read <fast> (1/2)"
    assert told["stringifiedThreadInfo"] == '"read <fast> (1/2)"\nb\na\n\n'
    client.threads = Future()
    client.threads.set_exception(PeerLost("no answer"))
    client.shown = replace(SHOWN, slots=(replace(SLOTS[0], long_call=None),))
    status, text = rest.refused("GET", "/taskmanagers/one/thread-dump")
    assert status == 504 and "call that does not return" in text


def test_the_driver_has_its_threads(rest: Rest) -> None:
    names = [each["threadName"] for each in rest.get("/jobmanager/thread-dump")["threadInfos"]]
    assert "tidegate-rest" in names and "MainThread" in names


def test_the_surroundings_of_the_driver_have_no_secrets(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_TOKEN", "x")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("TIDEGATE_SETTINGS", '{"tidegate.ha.zookeeper.password": "hunter2"}')
    told = rest.get("/jobmanager/environment")
    assert "hunter2" not in str(told)
    assert {"PYTHONHASHSEED=7", "TIDEGATE_TOKEN=******"} <= set(told["jvm"]["options"])
    assert any(each.startswith("aiohttp ") for each in told["classpath"])
    assert told["jvm"]["version"].startswith("CPython 3.")


def test_the_result_of_a_job_that_failed(rest: Rest, client: Asked) -> None:
    client.shown = OVER
    found = rest.get(f"/jobs/{JOB}/execution-result")
    assert found["job-execution-result"]["application-status"] == "FAILED"
