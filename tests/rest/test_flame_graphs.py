"""Flame graphs over REST: their shape, whose samples they hold, and what is said without any."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.e2e.rest import Rest
from tests.rest.served import Served, made
from tests.rest.shown import ONE, OVER, READER, READS, SINK, TWO, VIEW
from tests.rest.world import JOB
from tidegate.model.control import FrameCount, KeyCount, Samples
from tidegate.model.ids import Epoch, SlotId, VertexId
from tidegate.rest.routes import flame_graphs
from tidegate.rest.shapes.flame_shapes import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = f"/jobs/{JOB}/vertices/{READER.id.hex()}/flamegraph"
BOTH = replace(READER, subtasks=(READS, replace(READS, index=1, slot=TWO)))
COUNTS = {
    ONE: (
        FrameCount(0, True, ("map", "f (a.py:1)", "g (a.py:9)"), 5),
        FrameCount(0, True, ("map", "f (a.py:1)"), 2),
        FrameCount(0, False, ("waits for input",), 3),
    ),
    TWO: (FrameCount(1, True, ("filter",), 9),),
}


KEYS = {
    ONE: (KeyCount(0, "sum", "'a'", 2),),
    TWO: (KeyCount(1, "sum", "'b'", 3), KeyCount(1, "sum", "'c'", 1)),
}


class Sampled(Served):
    """A client whose slots have samples; those that are left out do not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = replace(VIEW, vertices=(BOTH, *VIEW.vertices[1:]))
        self.counts = dict(COUNTS)

    def call_samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        assert vertex == READER.id
        told: Future[Samples] = Future()
        if slot in self.counts:
            keys = KEYS[slot]
            told.set_result(Samples(1, slot, self.counts[slot], keys, 2 * len(keys)))
        return told


@pytest.fixture
def client() -> Sampled:
    return Sampled()


@pytest.fixture(params=[{}])
def rest(client: Sampled, request: pytest.FixtureRequest) -> Iterator[Rest]:
    with structlog.testing.capture_logs():
        server = made(**request.param)
        server.open(client, Epoch(1))  # type: ignore[arg-type]
        yield Rest(server.url)
        server.shut()


def leaf(name: str, value: int) -> dict[str, object]:
    return {"name": name, "value": value, "children": []}


ON_CPU_OF_ONE = {
    "name": "map",
    "value": 7,
    "children": [{"name": "f (a.py:1)", "value": 7, "children": [leaf("g (a.py:9)", 5)]}],
}


def test_counts_become_a_tree_with_the_widest_first() -> None:
    assert tree(()) == leaf("root", 0)
    assert tree((*COUNTS[ONE], *COUNTS[TWO])) == {
        "name": "root",
        "value": 19,
        "children": [leaf("filter", 9), ON_CPU_OF_ONE, leaf("waits for input", 3)],
    }


def test_a_graph_has_the_samples_of_the_kind_and_subtask_that_are_asked_for(rest: Rest) -> None:
    whole = rest.get(AT)
    assert whole["endTimestamp"] > 0 and whole["data"] == tree((*COUNTS[ONE], *COUNTS[TWO]))
    assert rest.get(f"{AT}?type=full")["data"] == whole["data"]
    on_cpu = rest.get(f"{AT}?type=ON_CPU")["data"]
    assert on_cpu["value"] == 16 and on_cpu["children"] == [leaf("filter", 9), ON_CPU_OF_ONE]
    off_cpu = rest.get(f"{AT}?type=off_cpu")["data"]
    assert off_cpu == {"name": "root", "value": 3, "children": [leaf("waits for input", 3)]}
    one = rest.get(f"{AT}?type=on_cpu&subtaskindex=0")["data"]
    assert one == {"name": "root", "value": 7, "children": [ON_CPU_OF_ONE]}
    assert rest.get(f"{AT}?type=off_cpu&subtaskindex=1") == {"endTimestamp": -3, "data": None}


def test_the_hottest_keys_are_those_of_all_subtasks(rest: Rest, client: Sampled) -> None:
    at = AT.replace("flamegraph", "hot-keys")
    told = rest.get(at)
    assert told["samples"] == 6
    assert [(each["key"], each["subtask"], each["share"]) for each in told["keys"]] == [
        ("'b'", 1, 0.5),
        ("'a'", 0, 2 / 6),
        ("'c'", 1, 1 / 6),
    ]
    assert {each["operator"] for each in told["keys"]} == {"sum"}
    client.shown = OVER
    assert rest.get(at) == {"samples": 0, "keys": []}


def test_without_samples_it_says_why(rest: Rest, client: Sampled) -> None:
    client.counts = {ONE: (), TWO: ()}
    assert rest.get(AT) == {"endTimestamp": -3, "data": None}
    client.shown = VIEW
    assert rest.get(f"{AT}?subtaskindex=1") == {"endTimestamp": -1, "data": None}
    client.shown = OVER
    assert rest.get(AT) == {"endTimestamp": -1, "data": None}
    nothing = f"/jobs/{JOB}/vertices/{SINK.hex()}/flamegraph"
    assert rest.get(nothing) == {"endTimestamp": -1, "data": None}


@pytest.mark.parametrize("rest", [{"flame_graphs": False}], indirect=True)
def test_where_they_are_switched_off_no_slot_is_asked(rest: Rest, client: Sampled) -> None:
    client.counts = {}
    assert rest.get(AT) == {"endTimestamp": -2, "data": None}


def test_what_cannot_be_asked_for_is_refused(rest: Rest) -> None:
    assert rest.refused("GET", f"{AT}?type=wall")[0] == 400
    for wrong in ("x", "-1", "%C2%B2"):
        status, text = rest.refused("GET", f"{AT}?subtaskindex={wrong}")
        assert status == 400 and "subtaskindex" in text
    assert rest.refused("GET", f"{AT}?subtaskindex=2")[0] == 404


def test_a_stuck_slot_holds_nobody_up(
    rest: Rest, client: Sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flame_graphs, "SAMPLES_WITHIN_S", 0.01)
    del client.counts[ONE]
    assert rest.get(AT)["data"] == tree(COUNTS[TWO])
    status, text = rest.refused("GET", f"{AT}?subtaskindex=0")
    assert status == 504
    assert "slot one has been in a call of lookup of read <fast> (1/2) for 12000 ms" in text
    client.counts = {}
    assert "slot two is gone, or too busy" in rest.refused("GET", AT)[1]
