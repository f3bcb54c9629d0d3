"""One address for many jobs, asked over HTTP: one that runs, one that is over, one that is gone."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
import zipfile
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from structlog.testing import capture_logs

from tests.e2e.rest import Rest
from tests.rest.left import driver, put_archive, put_sign
from tests.rest.served import Served
from tests.rest.shown import VIEW
from tests.rest.world import JOB
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.model.control import JobStatus
from tidegate.model.ids import JobId
from tidegate.model.settings import RestSettings, TlsStores
from tidegate.rest.cluster.cluster_server import ClusterServer
from tidegate.rest.cluster.folders import JobFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

OVER, GONE = JobId("f" * 32), JobId("e" * 32)
GIVEN = {"rest.port": "0", "s3.secret-key": "hush"}
TOKEN = "0123456789abcdef"


class Running(Served):
    """A job with steps, slots and failures, which can be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = VIEW


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def client() -> Running:
    return Running()


@pytest.fixture
def folder(tmp_path: Path, stack: ExitStack, client: Running) -> Path:
    """With the signs and archives of three jobs."""
    put_sign(tmp_path, driver(stack, client).url)
    put_archive(tmp_path, JobStatus.FINISHED, OVER)
    with closing(socket.create_server(("127.0.0.1", 0))) as port:
        address = f"http://127.0.0.1:{port.getsockname()[1]}"
    put_sign(tmp_path, address, job=GONE, name="gone")
    put_archive(tmp_path, JobStatus.RUNNING, GONE)
    return tmp_path


def server_of(folder: Path, **settings: Any) -> ClusterServer:
    return ClusterServer(
        JobFolders([str(folder)], []),
        RestSettings((0, 0), **settings),
        GIVEN,
        TlsStores(),
        60_000,
        SystemClock(),
        process_log(),
    )


def asked(server: ClusterServer, ask: Callable[[], T]) -> T:
    """What is found out by asking, on another thread, while the server serves."""

    async def live() -> T:
        answers: list[asyncio.Future[T]] = []

        def ready() -> None:
            answers.append(asyncio.get_running_loop().run_in_executor(None, ask))
            answers[0].add_done_callback(lambda _: server.over.set())

        await server.serve(ready)
        return await answers[0]

    with capture_logs(), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(live())


def answers(folder: Path, *paths: str) -> list[Any]:
    server = server_of(folder)
    rest = Rest(server.url, job=JOB)
    return asked(server, lambda: [rest.get(path) for path in paths])


def refusals(folder: Path, *requests: tuple[str, str]) -> list[tuple[int, str]]:
    server = server_of(folder)
    rest = Rest(server.url, job=JOB)
    return asked(server, lambda: [rest.refused(*request) for request in requests])


def test_all_jobs_are_listed_with_their_states(folder: Path) -> None:
    states = {JOB: "RUNNING", OVER: "FINISHED", GONE: "SUSPENDED"}
    jobs, shown, applications, cluster, config = answers(
        folder, "/jobs", "/v1/jobs/overview", "/applications/overview", "/overview", "/config"
    )
    assert {job["id"]: job["status"] for job in jobs["jobs"]} == states
    assert {job["jid"]: job["state"] for job in shown["jobs"]} == states
    troubles = {job["jid"]: job.get("trouble", "") for job in shown["jobs"]}
    assert "was killed" in troubles[GONE] and not troubles[JOB] and not troubles[OVER]
    assert len(applications["applications"]) == 3
    counts = ("jobs-running", "jobs-finished", "taskmanagers", "slots-total")
    assert [cluster[name] for name in counts] == [1, 1, 3, 3]
    assert config["flink-version"] == cluster["flink-version"]


def test_metrics_of_jobs_and_slots_are_put_together(folder: Path) -> None:
    resident = "Status.Process.Memory.Resident"
    names, one, none, ended, slots, chosen = answers(
        folder,
        "/jobs/metrics",
        f"/jobs/metrics?get=numRestarts&jobs={JOB},{OVER}",
        f"/jobs/metrics?get=numRestarts&jobs={GONE}",
        f"/jobs/metrics?jobs={OVER}",
        f"/taskmanagers/metrics?get={resident}&agg=sum",
        f"/taskmanagers/metrics?get={resident}&taskmanagers=two",
    )
    assert {"id": "numRestarts"} in names
    assert (one[0]["id"], one[0]["min"], one[0]["max"]) == ("numRestarts", 4, 4)
    assert none == [] and ended == []
    assert slots == [{"id": resident, "sum": 777}] and chosen == []


def test_slots_of_all_jobs_are_listed_and_asked(folder: Path) -> None:
    listed, one = answers(folder, "/taskmanagers", "/taskmanagers/one")
    assert [slot["id"] for slot in listed["taskmanagers"]] == ["one", "two", "idle"]
    assert (one["id"], one["path"]) == ("one", "host-1, pid 11")
    assert refusals(folder, ("GET", "/taskmanagers/nine")) == [
        (404, "TaskExecutor with ID nine could not be found.")
    ]


def test_the_process_shows_its_settings_without_secrets_and_its_figures(folder: Path) -> None:
    settings, names, running = answers(
        folder,
        "/jobmanager/config",
        "/jobmanager/metrics",
        "/jobmanager/metrics?get=numRunningJobs",
    )
    given = {each["key"]: each["value"] for each in settings}
    assert given["rest.port"] == "0" and "hush" not in given["s3.secret-key"]
    assert {"id": "numRunningJobs"} in names
    assert running == [{"id": "numRunningJobs", "value": "1"}]
    [(status, _)] = refusals(folder, ("GET", f"/jobs/{JOB}/rescales/history"))
    assert status == 404


def test_what_is_asked_of_one_job_is_answered_by_its_driver_or_its_archive(folder: Path) -> None:
    live, failures, left, picture, gone = answers(
        folder,
        f"/jobs/{JOB}",
        f"/v1/jobs/{JOB}/exceptions?maxExceptions=1",
        f"/jobs/{OVER}",
        f"/jobs/{OVER}/picture",
        f"/jobs/{GONE}",
    )
    assert [vertex["name"] for vertex in live["vertices"]] == ["read <fast>", "write"]
    assert len(failures["exceptionHistory"]["entries"]) == 1
    assert (left["state"], picture["job"]["left"]) == ("FINISHED", True)
    assert gone["state"] == "SUSPENDED"
    unknown, unasked = refusals(
        folder, ("GET", f"/jobs/{'d' * 32}"), ("GET", f"/jobs/{OVER}/no/such/thing")
    )
    assert unknown == (404, f"Could not find Flink job ({'d' * 32})")
    assert unasked == (404, "A job that is over has left no answer to this.")


def test_only_a_running_job_is_changed(folder: Path, client: Running) -> None:
    over, gone, button = refusals(
        folder,
        ("PATCH", f"/jobs/{OVER}"),
        ("PATCH", f"/jobs/{GONE}"),
        ("GET", f"/jobs/{JOB}/yarn-cancel"),
    )
    assert over == (409, "The job has ended: FINISHED.")
    assert gone[0] == 409 and "--from latest" in gone[1]
    assert button[0] == 403 and not client.cancelled
    server = server_of(folder)
    path, headers = f"/jobs/{JOB}/yarn-cancel", {"Sec-Fetch-Site": "same-origin"}
    rest = Rest(server.url, job=JOB)
    assert asked(server, lambda: rest.ask("GET", path, **headers)) == (202, {})
    assert client.cancelled


def test_a_driver_that_dies_meanwhile_is_noticed_by_whoever_asks(
    folder: Path, stack: ExitStack
) -> None:
    put_archive(folder, JobStatus.RUNNING)
    server = server_of(folder)
    rest = Rest(server.url, job=JOB)

    def ask() -> tuple[str, tuple[int, str], str, Any]:
        before = rest.get(rest.job)["state"]
        stack.close()
        slots = rest.get("/taskmanagers")
        return before, rest.refused("PATCH", rest.job), rest.get(rest.job)["state"], slots

    before, (status, why), after, slots = asked(server, ask)
    assert (before, after) == ("RUNNING", "SUSPENDED")
    assert status == 504 and "cannot be reached" in why
    assert slots == {"taskmanagers": []}


def test_a_question_to_a_driver_that_dies_is_answered_out_of_its_archive(
    folder: Path, stack: ExitStack
) -> None:
    put_archive(folder, JobStatus.RUNNING)
    server = server_of(folder)
    rest = Rest(server.url, job=JOB)

    def ask() -> tuple[str, str]:
        before = rest.get(rest.job)["state"]
        stack.close()
        return before, rest.get(rest.job)["state"]

    assert asked(server, ask) == ("RUNNING", "SUSPENDED")


def test_a_token_keeps_strangers_out_and_a_link_lets_a_browser_in_once(tmp_path: Path) -> None:
    assert asked_link(server_of(tmp_path)) == (None, 200)
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    link, status = asked_link(server_of(tmp_path, token_file=str(file)))
    assert link is not None and "/login?code=" in link and status == 401
    server = server_of(tmp_path, token_file=str(file))
    known = Rest(server.url, job=JOB, token=TOKEN)

    def ask() -> tuple[Any, int]:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(server.login_url() or "", timeout=60) as page:
            return known.get("/jobs"), page.status

    assert asked(server, ask) == ({"jobs": []}, 200)


def asked_link(server: ClusterServer) -> tuple[str | None, int]:
    """The link for a browser, and the status of what a stranger asks."""
    stranger = Rest(server.url, job=JOB)
    return server.login_url(), asked(server, lambda: stranger.ask("GET", "/jobs")[0])


def test_flinks_dashboard_is_served_over_all_jobs(tmp_path: Path) -> None:
    jar = tmp_path / "dashboard.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("web/index.html", b"<html>dashboard")
        archive.writestr("web/main.a877f62051d76ab2.js", b"run()")
    server = server_of(tmp_path, jar=str(jar))

    def ask() -> bytes:
        with urllib.request.urlopen(f"{server.url}/main.a877f62051d76ab2.js", timeout=60) as file:
            return file.read()

    assert asked(server, ask) == b"run()"


def test_a_folder_that_is_not_there_is_told_beside_the_jobs(folder: Path) -> None:
    server = ClusterServer(
        JobFolders([str(folder), f"{folder}/ordres"], []),
        RestSettings((0, 0)),
        GIVEN,
        TlsStores(),
        60_000,
        SystemClock(),
        process_log(),
    )
    rest = Rest(server.url, job=JOB)
    told = asked(server, lambda: rest.get("/jobs/overview"))
    assert told["troubles"] == [f"there is no folder {folder}/ordres yet"]
    assert len(told["jobs"]) == 3
