"""A server over a job that is made up: its life, and what it says where nothing can be done."""

import asyncio
import gc
import http.client
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import pytest
import structlog

from tests.e2e.rest import Rest
from tests.rest.served import Served, made
from tests.rest.world import EMPTY, JOB
from tidegate import ConfigError, Configuration, StreamExecutionEnvironment
from tidegate.errors import PeerLost, StorageFailed
from tidegate.model.control import JobStatus
from tidegate.model.ids import Epoch
from tidegate.rest.listening import Patience
from tidegate.rest.messages import response
from tidegate.rest.server import RestServer
from tidegate.rest.shapes.finite import finite
from tidegate.rest.shapes.metric_shapes import answer
from tidegate.testing.clock import ManualClock, ManualLoop


@pytest.fixture
def client() -> Served:
    return Served()


@pytest.fixture
def server(client: Served) -> Iterator[RestServer]:
    server = made()
    with structlog.testing.capture_logs():
        server.open(client, Epoch(1))
    yield server
    server.shut()


@pytest.fixture
def rest(server: RestServer) -> Rest:
    return Rest(server.url)


def test_a_job_that_is_just_beginning_has_its_pages(rest: Rest) -> None:
    job = rest.get(rest.job)
    assert (job["jid"], job["state"], job["start-time"], job["end-time"]) == (
        JOB,
        "RUNNING",
        1_000,
        -1,
    )
    assert job["vertices"] == [] and job["timestamps"]["FAILED"] == 0
    summary = rest.get(f"{rest.job}/checkpoints")["summary"]["state_size"]
    assert summary["max"] == 0 and summary["p999"] == "NaN"


def test_a_job_that_has_ended_otherwise_cannot_be_cancelled(rest: Rest, client: Served) -> None:
    times = {JobStatus.INITIALIZING: 1_000, JobStatus.FINISHED: 1_500}
    client.shown = replace(EMPTY, status=JobStatus.FINISHED, timestamps_ms=times)
    status, text = rest.refused("PATCH", rest.job)
    assert status == 409 and "another terminal state (FINISHED)" in text
    assert rest.get(rest.job)["duration"] == 500
    client.shown = replace(EMPTY, status=JobStatus.CANCELED)
    assert rest.ask("PATCH", rest.job) == (202, {}) and client.cancelled


def test_a_fault_of_our_own_is_an_answer_too(rest: Rest, client: Served) -> None:
    client.shown = None
    with structlog.testing.capture_logs() as logs:
        status, answer = rest.ask("GET", "/jobs/overview")
    assert (status, answer) == (
        500,
        {"errors": ["Internal server error.", "The job's log says more."]},
    )
    assert [log["event"] for log in logs] == ["a request could not be answered"]


def test_a_driver_that_is_too_busy_is_no_fault(rest: Rest, client: Served) -> None:
    def view() -> object:
        raise PeerLost("the driver has not said", remedy="Look for a call.")

    client.view = view  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        status, answer = rest.ask("GET", "/jobs/overview")
    assert (status, answer) == (503, {"errors": ["the driver has not said", "Look for a call."]})
    assert logs == []


def test_numbers_that_json_lacks_are_told_by_their_names() -> None:
    odd = {"a": [float("nan"), float("inf")], "b": (-float("inf"), 1.5)}
    assert finite(odd) == {"a": ["NaN", "Infinity"], "b": ["-Infinity", 1.5]}
    assert response(odd).text == '{"a":["NaN","Infinity"],"b":["-Infinity",1.5]}'
    [told] = answer({"rate": float("inf")}, "rate")
    assert told == {"id": "rate", "value": "Infinity"}


def test_connections_that_are_made_as_the_server_ends_are_closed(client: Served) -> None:
    def knock(address: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                socket.create_connection(address, timeout=1).close()

    with warnings.catch_warnings(record=True) as seen, structlog.testing.capture_logs():
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(5):
            server = made()
            server.open(client, Epoch(1))
            host, port = server.url.removeprefix("http://").split(":")
            knocking = threading.Thread(target=knock, args=((host, int(port)),))
            knocking.start()
            server.shut()
            knocking.join(20)
        gc.collect()
    assert [str(each.message) for each in seen if "transport" in str(each.message)] == []


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET /jobs HTTP/1.1\r\nHost: lo",
        b"POST /savepoint-disposal HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        b"Content-Type: application/json\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_half_a_request_is_not_waited_for_long(
    half: bytes, client: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.rest.listening.Patience", lambda: Patience(0.2))
    monkeypatch.setattr("tidegate.rest.messages.REQUEST_TIMEOUT_S", 0.2)
    server = made()
    with structlog.testing.capture_logs():
        server.open(client, Epoch(1))
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("localhost", port), timeout=60) as link:
        link.sendall(half)
        answer = b"".join(iter(lambda: link.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408" if b"POST" in half else b"")
    Rest(server.url)
    server.shut()


class _Link:
    """A connection over which some bytes of an answer have still to go, and its guest."""

    def __init__(self, unsent: int) -> None:
        self.unsent = unsent
        self.is_cut = False
        self.transport = self

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def cut(self) -> None:
        self.is_cut = True


@pytest.mark.parametrize(
    ("unsent", "looks"),
    [((0,), 1), ((9, 9), 2), ((9, 4, 2, 0, 0), 5), ((9, 9, 4), 2)],
    ids=["no request", "nobody reads", "read slowly", "read too late"],
)
def test_an_answer_is_not_cut_off_while_it_is_read(unsent: tuple[int, ...], looks: int) -> None:
    clock, link, looked = ManualClock(), _Link(unsent[0]), 0
    patience = Patience(10.0)
    with closing(ManualLoop(clock)) as loop:
        loop.on(lambda: patience.came(link, link))  # type: ignore[arg-type]
        for link.unsent in unsent:
            if link.is_cut:
                break
            clock.advance(10_000)
            loop.run_ready()
            looked += 1
    assert link.is_cut and looked == looks


def test_a_connection_serves_one_request_after_the_other(server: RestServer) -> None:
    link = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    for _ in range(3):
        link.request("GET", "/jobs")
        assert JOB.encode() in link.getresponse().read()
    link.close()


def test_a_body_without_bounds_is_refused(rest: Rest) -> None:
    status, text = rest.refused("POST", f"{rest.job}/savepoints", b" " * (1 << 21))
    assert status == 413 and "Maximum request body size" in text


def test_a_body_that_nests_too_deeply_is_a_faulty_request(rest: Rest) -> None:
    status, text = rest.refused("POST", f"{rest.job}/savepoints", b'{"a":' * 10_000)
    assert status == 400 and "did not conform" in text


def test_an_operation_is_in_progress_until_it_has_come_to_something(
    rest: Rest, client: Served
) -> None:
    where = f"{rest.job}/savepoints"
    id = rest.begin(where, {"target-directory": "/savepoints"})
    pending = {"status": {"id": "IN_PROGRESS"}, "operation": None}
    assert rest.get(f"{where}/{id}") == pending
    client.saved.set_exception(StorageFailed("no room", remedy="Make some."))
    cause = rest.outcome(f"{where}/{id}")["failure-cause"]
    assert cause["class"] == "StorageFailed"
    assert cause["stack-trace"] == "StorageFailed: no room\n  what to do: Make some."


def test_a_server_that_is_shut_is_gone_and_was_never_there_where_it_was_not_opened(
    client: Served,
) -> None:
    opened, never = made(), made()
    with structlog.testing.capture_logs():
        opened.open(client, Epoch(1))
    rest = Rest(opened.url)
    for server in (opened, never):
        server.shut()
    assert rest.gone()
    never.open(client, Epoch(1))
    rest.url = never.url
    assert rest.gone()


def test_without_its_library_the_job_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidegate.rest.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    settings = Configuration.from_dict({"rest.port": "0"})
    env = StreamExecutionEnvironment.local(configuration=settings)
    env.from_collection([1]).print()
    with pytest.raises(ConfigError, match="The HTTP server's package is not installed") as missing:
        env.execute()
    assert "tidegate[rest]" in missing.value.remedy


def test_a_server_that_cannot_start_says_why_and_is_waited_for_by_nobody(
    client: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = made()

    def full(**_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "Runner", full)
    with hooked_threads(), pytest.raises(OSError, match="too many open files"):
        server.open(client, Epoch(1))
    server.shut()


@contextmanager
def hooked_threads() -> Iterator[None]:
    """Errors of threads are not printed within."""
    former, threading.excepthook = threading.excepthook, lambda _: None
    try:
        yield
    finally:
        threading.excepthook = former
