"""The door to a running job: what it answers, and what stands in the way of whoever asks."""

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from tests.datastream.fakes import Client
from tidegate.api.job import CheckpointDone
from tidegate.driver.client import door as doors
from tidegate.driver.client.door import Door, DoorSign, answer, ask_at, follow_log, read_sign
from tidegate.driver.telling import watching
from tidegate.errors import (
    ConfigError,
    DriverSilent,
    FormatError,
    PeerLost,
    TidegateError,
    UserError,
)
from tidegate.jobmaster.view import StopView, WaitView
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch, SlotId
from tidegate.model.logs import LogPage
from tidegate.storage import paths
from tidegate.storage.stores import Stores

JOB = "orders/eu"


class Saving(Client):
    """A client whose savepoints are there, or fail, at once."""

    def __init__(self, error: TidegateError | None = None) -> None:
        super().__init__([])
        self.failure = error
        self.asked: list[object] = []

    def stop_with_savepoint(self, *args: object, **settings: object) -> Future[str]:
        self.asked.append((args, settings["trigger_id"]))
        done: Future[str] = Future()
        if self.failure is None:
            done.set_result("/savepoints/savepoint-1")
        else:
            done.set_exception(self.failure)
        return done


@pytest.fixture
def client() -> Saving:
    return Saving()


@pytest.fixture
def door(tmp_path: Path, client: Saving) -> Iterator[Door]:
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(client, Epoch(7))
    yield door
    door.shut()
    door.close()


def sign_in(folder: Path) -> DoorSign:
    sign = read_sign(Stores().open(str(folder)), JOB)
    assert sign is not None
    return sign


def test_a_request_is_brought_to_the_job_and_its_answer_back(
    door: Door, client: Saving, tmp_path: Path
) -> None:
    sign = sign_in(tmp_path)
    assert (sign.host, sign.pid) == (socket.gethostname(), os.getpid())
    request = {"do": "stop", "drain": True, "directory": "/savepoints", "trigger_id": "x"}
    assert ask_at(sign, JOB, request) == "/savepoints/savepoint-1"
    assert client.asked == [((True, "/savepoints"), "x")]


def test_only_the_user_himself_may_come_in(door: Door, tmp_path: Path) -> None:
    folder = Path(sign_in(tmp_path).socket).parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_error_is_an_answer_that_says_what_where_and_what_to_do(
    door: Door, client: Saving, tmp_path: Path
) -> None:
    client.failure = ConfigError("No folder", where="job 'orders'", remedy="Name one.")
    with pytest.raises(UserError) as refused:
        ask_at(sign_in(tmp_path), JOB, {"do": "stop", "drain": False})
    assert str(refused.value) == str(client.failure)
    client.failure = TidegateError("It broke")
    with pytest.raises(TidegateError, match="It broke") as failed:
        ask_at(sign_in(tmp_path), JOB, {"do": "stop", "drain": False})
    assert not isinstance(failed.value, UserError)


class Slow(Saving):
    """A client whose savepoints are there once its view was asked for twice."""

    def __init__(self) -> None:
        super().__init__()
        self.path: Future[str] = Future()
        self.looks = 0

    def stop_with_savepoint(self, *args: object, **settings: object) -> Future[str]:
        return self.path

    def view(self) -> object:
        self.looks += 1
        if self.looks == 1:
            wait = WaitView("Count (1/2)", SlotId("slot-1"))
            return SimpleNamespace(stopping=StopView(1, None, (wait,)), slots=())
        self.path.set_result("/savepoints/savepoint-2")
        raise PeerLost("The driver is busy")


def test_whoever_asks_is_told_what_the_answer_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TELL_EVERY_MS", 10)
    door, told = Door(JOB, str(tmp_path), structlog.get_logger()), list[str]()
    door.open(Slow(), Epoch(7))
    try:
        request = {"do": "stop", "drain": False}
        path = ask_at(sign_in(tmp_path), JOB, request, tell=told.append)
    finally:
        door.shut()
        door.close()
    assert path == "/savepoints/savepoint-2"
    assert told == [
        "stop: not done after 0.01 s; it waits for subtasks to take their share of the savepoint: "
        "Count (1/2) on slot slot-1",
        "stop: not done after 0.02 s; it cannot say why: The driver is busy",
    ]


def test_a_status_is_told_alone_or_with_figures(door: Door, client: Saving, tmp_path: Path) -> None:
    """Commands of 0.1 ask for it alone."""
    began = {JobStatus.INITIALIZING: 1_000, JobStatus.RUNNING: 2_000}
    vertices = [SimpleNamespace(parallelism=n) for n in (1, 3, 2)]
    view = SimpleNamespace(
        status=JobStatus.RUNNING, timestamps_ms=began, vertices=vertices, restarts=4
    )
    status: Future[JobStatus] = Future()
    status.set_result(JobStatus.RUNNING)
    client.view = lambda: view  # type: ignore[method-assign]
    client.get_job_status = lambda: status  # type: ignore[method-assign]
    sign = sign_in(tmp_path)
    assert ask_at(sign, JOB, {"do": "status"}) == "RUNNING"
    assert ask_at(sign, JOB, {"do": "status", "figures": True}) == {
        "status": "RUNNING",
        "start_ms": 1_000,
        "running_since_ms": 2_000,
        "parallelism": 3,
        "restarts": 4,
    }


def test_a_request_of_another_version_is_refused(client: Saving) -> None:
    [refused] = answer(client, {"do": "dance"})
    assert refused["user"] is True and "'dance'" in json.dumps(refused)


def test_what_is_no_request_ends_that_connection_alone(door: Door, tmp_path: Path) -> None:
    sign = sign_in(tmp_path)
    for said in (b"\n", b"[1, 2]\n", b'{"do"\n'):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(sign.socket)
            link.sendall(said)
            assert link.recv(100) == b""
    assert ask_at(sign, JOB, {"do": "stop", "drain": False}) == "/savepoints/savepoint-1"


def test_a_checkpoint_is_told_with_its_figures(door: Door, client: Saving, tmp_path: Path) -> None:
    done: Future[CheckpointDone] = Future()
    done.set_result(CheckpointDone(CheckpointId(3), "/checkpoints/chk-3"))
    client.trigger_checkpoint = lambda *, full=False: done  # type: ignore[method-assign]
    told = ask_at(sign_in(tmp_path), JOB, {"do": "checkpoint"})
    assert told == asdict(done.result())


def test_a_driver_that_breaks_off_before_its_answer_is_gone(
    door: Door, client: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TELL_EVERY_MS", 10)
    path: Future[str] = Future()

    def breaks() -> object:
        path.set_exception(LookupError("a fault of its own"))
        return SimpleNamespace(stopping=None, slots=())

    client.stop_with_savepoint = lambda *_, **settings: path  # type: ignore[method-assign]
    client.view = breaks  # type: ignore[method-assign]
    told = list[str]()
    with pytest.raises(PeerLost, match="does not answer"):
        ask_at(sign_in(tmp_path), JOB, {"do": "stop", "drain": False}, tell=told.append)
    assert len(told) == 1


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[DoorSign]:
    """The door of a driver that was stopped, as by Ctrl-Z: the system takes calls, nobody reads."""
    for limit in ("ANSWER_SOON_S", "QUIET_S"):
        monkeypatch.setattr(doors, limit, 0.05)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(folder / "door"))
            bound.listen(1)
            yield DoorSign(socket.gethostname(), 77, str(folder / "door"))
    finally:
        shutil.rmtree(folder)


def test_a_driver_that_is_stopped_is_not_waited_for(stopped: DoorSign) -> None:
    with pytest.raises(DriverSilent, match=r"not answered for 0\.05 s") as told:
        ask_at(stopped, JOB, {"do": "status"}, within_s=0.05)
    assert "kill -CONT" in told.value.remedy
    request = {"filter": {}, "follow": True}
    with pytest.raises(DriverSilent):
        next(follow_log(stopped, JOB, request))
    with pytest.raises(DriverSilent, match=r"not answered for 0\.05 s"):
        # More calls than the system keeps for it: no more is waited than for a place among them.
        ask_at(stopped, JOB, {"do": "status"}, within_s=60)


def test_whoever_waits_for_long_is_told_that_the_driver_says_nothing(stopped: DoorSign) -> None:
    told = list[str]()
    with pytest.raises(DriverSilent):
        ask_at(stopped, JOB, {"do": "stop"}, tell=told.append, within_s=0.15)
    assert told == [
        "stop: not done; the driver, process 77, has not answered for 0.05 s",
        "stop: not done; the driver, process 77, has not answered for 0.1 s",
    ]


def test_the_first_page_of_a_log_that_is_followed_comes_at_once(client: Saving) -> None:
    client.log = lambda *_, after=None, limit=0: LogPage((), 5)  # type: ignore[attr-defined]
    client.get_job_execution_result = Future  # type: ignore[method-assign,assignment]
    pages = answer(client, {"do": "log", "filter": {}, "follow": True})
    assert next(pages) == {"page": {"after": 5, "records": []}}


def test_a_place_that_is_no_door_is_left_alone(tmp_path: Path, client: Saving) -> None:
    store = Stores().open(str(tmp_path))
    kept = tmp_path / "mine" / "door"
    kept.parent.mkdir()
    kept.write_text("precious")
    sign = {"host": socket.gethostname(), "pid": 1, "socket": str(kept)}
    store.create(paths.door_file(JOB, Epoch(3)), json.dumps(sign).encode())
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(client, Epoch(4))
    door.shut()
    door.close()
    assert kept.read_text() == "precious"


def test_a_door_that_is_closed_leaves_nothing_and_whoever_knocks_is_told(
    client: Saving, tmp_path: Path
) -> None:
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(client, Epoch(7))
    sign = sign_in(tmp_path)
    door.shut()
    door.close()
    assert read_sign(Stores().open(str(tmp_path)), JOB) is None
    assert not Path(sign.socket).parent.exists()
    with pytest.raises(PeerLost, match="does not answer"):
        ask_at(sign, JOB, {"do": "status"})
    with pytest.raises(UserError, match="another machine") as elsewhere:
        ask_at(replace(sign, host="elsewhere"), JOB, {"do": "status"})
    assert "elsewhere" in elsewhere.value.remedy


def test_whoever_has_the_result_finds_nothing_left_and_whoever_waits_is_answered_after(
    client: Saving, tmp_path: Path
) -> None:
    waiting: Future[str] = Future()
    asked = threading.Event()

    def wait(*args: object, **settings: object) -> Future[str]:
        asked.set()
        return waiting

    client.stop_with_savepoint = wait  # type: ignore[method-assign]
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(client, Epoch(7))
    sign = sign_in(tmp_path)
    with ThreadPoolExecutor(1) as others:
        answered = others.submit(ask_at, sign, JOB, {"do": "stop", "drain": False})
        assert asked.wait(60)
        door.shut()
        assert read_sign(Stores().open(str(tmp_path)), JOB) is None
        assert not Path(sign.socket).parent.exists()
        waiting.set_result("/savepoints/savepoint-9")
        door.close()
        assert answered.result(60) == "/savepoints/savepoint-9"


def test_the_newest_driver_takes_down_what_a_killed_one_has_left(tmp_path: Path) -> None:
    store = Stores().open(str(tmp_path))
    killed = Path(tempfile.mkdtemp(prefix="tidegate-"))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(killed / "door"))
    sign = {"host": socket.gethostname(), "pid": 1, "socket": str(killed / "door")}
    store.create(".jobs/orders%2Feu/doors/0000000003", json.dumps(sign).encode())
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(Saving(), Epoch(4))
    try:
        assert sign_in(tmp_path).pid == os.getpid()
        assert len(list(store.list(".jobs/orders%2Feu/doors"))) == 1
        assert not killed.exists()
    finally:
        door.shut()
        door.close()


def test_a_job_whose_door_cannot_be_opened_runs_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    door = Door(JOB, str(tmp_path / "file"), structlog.get_logger())
    with structlog.testing.capture_logs() as logs:
        door.open(Saving(), Epoch(1))
    door.shut()
    door.close()
    assert [log["log_level"] for log in logs] == ["warning"]


def test_a_door_of_a_job_that_has_ended_already_stays_shut(tmp_path: Path) -> None:
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.shut()
    door.open(Saving(), Epoch(1))
    door.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"host":1}', b"\xff", b"[" * 100_000])
def test_a_sign_that_was_damaged_is_told_and_is_in_no_drivers_way(
    damage: bytes, client: Saving, tmp_path: Path
) -> None:
    store = Stores().open(str(tmp_path))
    store.create(paths.door_file(JOB, Epoch(1)), damage)
    with pytest.raises(FormatError, match="sign") as told:
        read_sign(store, JOB)
    assert str(tmp_path) in told.value.where
    door = Door(JOB, str(tmp_path), structlog.get_logger())
    door.open(client, Epoch(2))
    try:
        assert sign_in(tmp_path).pid == os.getpid()
    finally:
        door.shut()
        door.close()
