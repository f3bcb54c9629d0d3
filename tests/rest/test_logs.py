"""The log over REST: of the driver, of slots, and of the whole job with filters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.e2e.rest import Rest
from tests.rest.served import Served, made
from tests.rest.shown import SLOTS, VIEW
from tests.rest.world import JOB
from tidegate.model.control import STDOUT, Logged, LogRecord
from tidegate.model.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOT = SLOTS[0].id
LOOKUP = LogRecord(
    2_000,
    40,
    "orders",
    "cannot look up",
    "Traceback\nKeyError",
    "look up",
    "read -> look up",
    1,
    0,
    SLOT,
)
LINE = LogRecord(3_000, 20, STDOUT, "printed", operator="look up", slot=SLOT, stream=STDOUT)


@pytest.fixture
def served() -> Served:
    served = Served()
    served.shown = VIEW
    return served


@pytest.fixture
def rest(served: Served) -> Iterator[Rest]:
    served.logged.log.info("checkpoint completed", checkpoint=7)
    served.logged.heard(Logged(SLOT, (LOOKUP, LINE)))
    with structlog.testing.capture_logs():
        server = made()
        server.open(served, Epoch(1))  # type: ignore[arg-type]
        yield Rest(server.url)
        server.shut()


def messages(rest: Rest, query: str) -> list[str]:
    return [each["message"] for each in rest.get(f"/jobs/{JOB}/log?{query}")["records"]]


def test_the_driver_and_each_slot_have_files(rest: Rest) -> None:
    [file] = rest.get("/jobmanager/logs")["logs"]
    texts = [rest.text(f"/jobmanager/{path}") for path in ("log", "logs/driver.log")]
    assert texts[0] == texts[1] and texts[0].endswith("checkpoint completed checkpoint=7\n")
    assert file == {"name": "driver.log", "size": len(texts[0]), "mtime": 0}
    at = f"/taskmanagers/{SLOT}"
    log, lines = rest.get(f"{at}/logs")["logs"]
    text = rest.text(f"{at}/log")
    assert text == rest.text(f"{at}/logs/slot.log")
    assert "ERROR orders [look up (2)]: cannot look up" in text and "\nKeyError\n" in text
    assert log == {"name": "slot.log", "size": len(text.encode()), "mtime": 3_000}
    assert rest.text(f"{at}/stdout") == rest.text(f"{at}/logs/slot.out") == "printed\n"
    assert lines["size"] == len("printed\n")


def test_half_a_surrogate_pair_is_in_nobodys_way(rest: Rest, served: Served) -> None:
    odd = replace(LINE, text="half \ud83d a pair")
    served.logged.heard(Logged(SLOT, (odd,)))
    for path in (f"/taskmanagers/{SLOT}/stdout", f"/jobs/{JOB}/log?format=text"):
        text = rest.text(path)
        assert "printed" in text and "half ? a pair" in text
    assert "half \ud83d a pair" in messages(rest, "")


def test_a_slot_that_has_logged_nothing_has_empty_files(rest: Rest) -> None:
    at = f"/taskmanagers/{SLOTS[2].id}"
    assert rest.text(f"{at}/log") == rest.text(f"{at}/stdout") == ""
    assert [each["size"] for each in rest.get(f"{at}/logs")["logs"]] == [0, 0]


def test_the_whole_job_has_one_log_in_which_readers_choose(rest: Rest) -> None:
    page = rest.get(f"/jobs/{JOB}/log")
    assert page["after"] == 3 and len(page["records"]) == 3
    assert page["records"][1] == {
        "time": "1970-01-01T00:00:02.000+00:00",
        "timestamp": 2_000,
        "level": "ERROR",
        "logger": "orders",
        "message": "cannot look up",
        "exception": "Traceback\nKeyError",
        "operator": "look up",
        "task": "read -> look up",
        "subtask": 1,
        "attempt": 0,
        "slot": SLOT,
    }
    assert messages(rest, "level=error") == messages(rest, "subtask=1") == ["cannot look up"]
    assert messages(rest, "operator=look+up") == ["cannot look up", "printed"]
    assert (
        messages(rest, "text=KEYERROR") == messages(rest, "after=1&limit=1") == ["cannot look up"]
    )
    assert messages(rest, "since=2500") == messages(rest, "limit=1") == ["printed"]
    assert messages(rest, "slot=") == ["checkpoint completed checkpoint=7"]
    assert rest.text(f"/jobs/{JOB}/log?format=text&level=error").endswith("KeyError\n")


@pytest.mark.parametrize(
    "query", ["level=loud", "subtask=x", "since=-1", "after=%C2%B2", "limit=1e3"]
)
def test_what_cannot_be_chosen_is_refused(rest: Rest, query: str) -> None:
    assert rest.refused("GET", f"/jobs/{JOB}/log?{query}")[0] == 400


def test_files_and_slots_that_are_not_there(rest: Rest) -> None:
    for path in ("/jobmanager/logs/other.log", f"/taskmanagers/{SLOT}/logs/any.log"):
        assert rest.refused("GET", path) == (404, "File not found.")
    for path in ("log", "logs", "stdout"):
        assert rest.refused("GET", f"/taskmanagers/none/{path}")[0] == 404
