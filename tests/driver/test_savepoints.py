"""Requests for savepoints: each once, whoever asks again."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from tidegate import CheckpointDone, SavepointFormatType
from tidegate.api.job import JobExecutionResult
from tidegate.driver.client.requests import (
    TRIGGER_IDS_MAX,
    Savepoint,
    SavepointRequests,
    savepoint_asked,
)
from tidegate.errors import ConfigError, StorageFailed
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import JobId

PLAIN = savepoint_asked(SnapshotKind.SAVEPOINT, "/s", SavepointFormatType.CANONICAL)
LAST = savepoint_asked(SnapshotKind.SUSPEND, None, SavepointFormatType.NATIVE)


class Asked:
    """What reaches the driver, to be answered by the test."""

    def __init__(self) -> None:
        self.begun: list[tuple[Savepoint, Future[CheckpointDone]]] = []
        self.result: Future[JobExecutionResult] = Future()
        self.requests = SavepointRequests(self._ask, self.result, lambda: "waits for Map (1/2)")

    def _ask(self, savepoint: Savepoint) -> Future[CheckpointDone]:
        done: Future[CheckpointDone] = Future()
        self.begun.append((savepoint, done))
        return done


def test_a_plain_savepoint_is_answered_when_it_is_there() -> None:
    asked = Asked()
    path = asked.requests.ask(PLAIN, None)
    assert not path.done() and not path.cancel(), "others may wait for it too"
    asked.begun[0][1].set_result(CheckpointDone(3, "/s/savepoint-1"))
    assert path.result(0) == "/s/savepoint-1"


def test_the_last_one_is_answered_when_the_job_has_ended() -> None:
    asked = Asked()
    path = asked.requests.ask(LAST, None)
    asked.begun[0][1].set_result(CheckpointDone(3, "/s/savepoint-1"))
    assert not path.done()
    asked.result.set_result(JobExecutionResult(JobId("j"), 1))
    assert path.result(0) == "/s/savepoint-1"


def test_who_waits_for_one_in_vain_is_told_what_it_waits_for() -> None:
    path = Asked().requests.ask(LAST, None)
    with pytest.raises(TimeoutError, match=r"after 0 s the savepoint waits for Map \(1/2\)"):
        path.result(0)


def test_one_id_is_one_savepoint_though_it_failed() -> None:
    asked = Asked()
    first = asked.requests.ask(PLAIN, "a")
    asked.begun[0][1].set_exception(StorageFailed("no room"))
    assert asked.requests.ask(LAST, "a") is first
    assert isinstance(first.exception(0), StorageFailed)
    assert asked.requests.ask(PLAIN, "b") is not first and len(asked.begun) == 2


def test_the_oldest_ids_are_forgotten() -> None:
    asked = Asked()
    first = asked.requests.ask(PLAIN, "0")
    for number in range(1, TRIGGER_IDS_MAX + 1):
        asked.requests.ask(PLAIN, str(number))
    assert asked.requests.ask(PLAIN, "0") is not first
    assert len(asked.begun) == TRIGGER_IDS_MAX + 2


@pytest.mark.parametrize(
    "target",
    [
        "memory://x/y",
        "memory:/x",
        "local:///tmp/x",
        "LOCAL:///tmp/x",
        "simplecache::file:///tmp/x",
        "filecache::s3://bucket/x",
        "zip://x::file:///tmp/y.zip",
    ],
)
@pytest.mark.parametrize("is_default", [False, True], ids=["asked for", "default"])
def test_a_place_that_nobody_else_can_read_is_refused(target: str, is_default: bool) -> None:
    given, default = (None, target) if is_default else (target, None)
    with pytest.raises(ConfigError, match="nobody else could read it") as refused:
        savepoint_asked(SnapshotKind.SUSPEND, given, SavepointFormatType.CANONICAL, default=default)
    assert refused.value.remedy


@pytest.mark.parametrize("target", ["s3://bucket/savepoints", "hdfs://host/x", "/data/a::b"])
def test_a_place_that_others_can_read_is_taken_as_it_is(target: str) -> None:
    asked = savepoint_asked(
        SnapshotKind.SAVEPOINT, target, SavepointFormatType.NATIVE, default="memory:/unused"
    )
    assert asked.directory == target


def test_a_relative_folder_is_taken_from_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = savepoint_asked(SnapshotKind.SAVEPOINT, Path("mine"), SavepointFormatType.NATIVE)
    assert asked.directory == str(tmp_path / "mine")
