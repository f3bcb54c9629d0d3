"""State by name and key group over REST: counted in a real checkpoint's files."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.e2e.rest import Rest
from tests.rest.served import Served, made
from tests.rest.world import DONE, EMPTY, JOB, SAVED
from tests.snapshots.snapshot_world import JobWorld, Kind, operator_id
from tidegate import inspect_snapshot
from tidegate.jobmaster.view import JobView, VertexView
from tidegate.model.ids import CheckpointId, Epoch, VertexId
from tidegate.model.topology import OperatorInfo
from tidegate.rest.routes import key_groups
from tidegate.rest.shapes.key_group_shapes import LISTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

AT = f"/jobs/{JOB}/state/key-groups"
MINUTE_MS = 60_000
COUNTS = OperatorInfo(operator_id("counts"), "the counts", uid="counts")
STEP = VertexView(VertexId(b"c" * 16), "counts, out", 4, 16, (), (COUNTS,))
GONE = "/nowhere/chk-9"


def completed(*places: str) -> tuple[CheckpointStatistics, ...]:
    """Checkpoints a minute apart, the newest first; places: the oldest first."""
    made = [
        replace(DONE, checkpoint=CheckpointId(n), pointer=place, latest_ack_ms=n * MINUTE_MS)
        for n, place in enumerate(places, 1)
    ]
    return tuple(reversed(made))


def view(history: Sequence[CheckpointStatistics]) -> JobView:
    seen = replace(EMPTY.checkpoints, history=tuple(history))
    return replace(EMPTY, vertices=(STEP,), checkpoints=seen)


@pytest.fixture
def client() -> Served:
    return Served()


@pytest.fixture
def rest(client: Served) -> Iterator[Rest]:
    with structlog.testing.capture_logs():
        server = made()
        server.open(client, Epoch(1))  # type: ignore[arg-type]
        yield Rest(server.url)
        server.shut()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[JobWorld]:
    with JobWorld(Kind(parallelism=2), root=str(tmp_path)) as world:
        yield world


def count(rest: Rest) -> Any:
    return rest.outcome(f"{AT}/{rest.begin(AT, {})}")


def state_of(told: Any, name: str) -> Any:
    [operator] = [each for each in told["operators"] if each["uid"] == "counts"]
    [state] = [each for each in operator["states"] if each["name"] == name]
    return state


def test_states_and_their_largest_key_groups_are_told_with_their_growth(
    rest: Rest, client: Served, world: JobWorld
) -> None:
    world.work()
    first = world.checkpoint()
    hot = world.group_of("hot")
    world.put({f"key {n}": n for n in range(5_000) if world.group_of(f"key {n}") == hot})
    second = world.checkpoint()
    client.shown = view(completed(first, second))
    told = count(rest)
    expected = {s.name: s for s in inspect_snapshot(second).operators[0].states or ()}
    before = {s.name: s for s in inspect_snapshot(first).operators[0].states or ()}
    assert (told["checkpoint"], told["at"], told["path"]) == (2, 2 * MINUTE_MS, second)
    assert told["compared-with"] == {"checkpoint": 1, "at": MINUTE_MS}
    assert told["bytes"] == sum(each["bytes"] for each in told["operators"]) > 0
    [counts, source] = told["operators"]
    assert (counts["step"], counts["backend"], source["step"]) == ("counts, out", "hashmap", None)
    sizes = [each["bytes"] for each in counts["states"]]
    assert sizes == sorted(sizes, reverse=True) and counts["bytes"] == sum(sizes)
    assert {each["name"] for each in counts["states"]} == set(expected)
    state, whole = state_of(told, "count"), expected["count"]
    size, older = whole.size_bytes or 0, before["count"].size_bytes or 0
    assert (state["bytes"], state["entries"]) == (size, whole.entries)
    assert state["grown_a_minute"] == size - older > 0
    assert all(each["key-groups"] is None for each in source["states"])
    groups = state["key-groups"]
    assert (groups["of"], groups["held"]) == (16, len(whole.key_groups))
    assert groups["mean-bytes"] == size / 16
    sizes_of = {each.key_group: each.size_bytes or 0 for each in whole.key_groups}
    assert [each["bytes"] for each in groups["largest"]] == sorted(sizes_of.values(), reverse=True)[
        :LISTED
    ]
    [fastest] = groups["fastest"]
    assert fastest == groups["largest"][0]
    assert (fastest["key-group"], fastest["bytes"]) == (hot, sizes_of[hot])
    assert fastest["task"] == f"counts, out ({hot * 4 // 16 + 1}/4)"
    older = sum(g.size_bytes or 0 for g in before["count"].key_groups if g.key_group == hot)
    assert fastest["grown_a_minute"] == sizes_of[hot] - older


def test_of_much_state_some_key_groups_are_counted_and_the_rest_is_estimated(
    rest: Rest, client: Served, world: JobWorld
) -> None:
    world.put({f"key {n}": n for n in range(3_000)})
    first = world.checkpoint()
    world.put({f"key {n}": n for n in range(3_000, 4_000)})
    second = world.checkpoint()
    much = 3 * key_groups.BYTES_MAX + 1
    history = [replace(one, state_size=much) for one in completed(first, second)]
    client.shown = view(history)
    told, state = count(rest), state_of(count(rest), "count")
    exact = {s.name: s for s in inspect_snapshot(second).operators[0].states or ()}["count"]
    before = {s.name: s for s in inspect_snapshot(first).operators[0].states or ()}["count"]
    chosen = [each for each in exact.key_groups if each.key_group % 4 == 0]
    assert told["one-key-group-in"] == 4
    assert state["entries"] == 4 * sum(each.entries for each in chosen)
    assert state["bytes"] == 4 * sum(each.size_bytes or 0 for each in chosen)
    assert 0.5 * exact.entries < state["entries"] < 2 * exact.entries
    assert state["grown_a_minute"] == state["bytes"] - 4 * sum(
        each.size_bytes or 0 for each in before.key_groups if each.key_group % 4 == 0
    )
    groups = state["key-groups"]
    assert {each["key-group"] for each in groups["largest"]} == {0, 4, 8, 12}
    largest = max(chosen, key=lambda each: each.size_bytes or 0)
    assert groups["largest"][0]["bytes"] == largest.size_bytes
    client.shown = view([replace(one, state_size=1) for one in history])
    assert count(rest)["one-key-group-in"] == 1


@pytest.mark.parametrize(("backend", "is_read"), [("incremental", True), ("rocksdb", False)])
def test_much_state_on_disk_is_not_fetched_to_be_estimated(
    rest: Rest, client: Served, tmp_path: Path, backend: str, is_read: bool
) -> None:
    with JobWorld(Kind(backend, parallelism=2), root=str(tmp_path)) as world:
        world.work()
        [one] = completed(world.checkpoint())
        client.shown = view([replace(one, state_size=2 * key_groups.BYTES_MAX)])
        [counts] = [each for each in count(rest)["operators"] if each["uid"] == "counts"]
    assert bool(counts["states"]) is is_read and (counts["unread"] == "") is is_read
    assert is_read or ("fetched" in counts["unread"] and counts["bytes"] > 0)


def test_without_an_earlier_checkpoint_no_growth_is_told(
    rest: Rest, client: Served, world: JobWorld
) -> None:
    world.work()
    client.shown = view((*completed(GONE, world.checkpoint()), SAVED))
    told = count(rest)
    state = state_of(told, "count")
    assert told["checkpoint"] == 2 and told["compared-with"] is None
    assert state["grown_a_minute"] is None and state["key-groups"]["fastest"] == []
    assert {each["grown_a_minute"] for each in state["key-groups"]["largest"]} == {None}


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ((), "No checkpoint of this job has completed yet"),
        ((SAVED,), "No checkpoint of this job has completed yet"),
        (completed("memory:/job/chk-1"), "is in the memory of the driver"),
        ((replace(DONE, discarded=True),), "was deleted, and there is no newer one"),
        (
            (replace(DONE, state_size=key_groups.ONE_IN_MAX * key_groups.BYTES_MAX + 1),),
            "tidegate inspect --key-groups /chk-6",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(
    rest: Rest, client: Served, history: tuple[CheckpointStatistics, ...], why: str
) -> None:
    client.shown = view(history)
    status, told = rest.refused("POST", AT, {})
    assert status == 409 and why in told
    assert rest.refused("GET", f"{AT}/{'0' * 32}")[0] == 404


class Passing(Served):
    """A client whose checkpoints are deleted as soon as one has seen them, up to the last."""

    def __init__(self, *places: str) -> None:
        super().__init__()
        self._left = list(completed(*places))[::-1]

    def view(self) -> object:
        one = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return view((one,))


@pytest.mark.parametrize("deleted", [2, 20])
def test_a_checkpoint_that_is_deleted_meanwhile_gives_way_to_the_next(
    world: JobWorld, deleted: int
) -> None:
    world.work()
    last = world.checkpoint()
    with structlog.testing.capture_logs():
        server = made()
        server.open(Passing(*[GONE] * deleted, last), Epoch(1))  # type: ignore[arg-type]
        rest = Rest(server.url)
        told = count(rest)
        server.shut()
    if deleted == 2:
        assert told["checkpoint"] == 3
    else:
        assert "deleted while they were read" in told["failure-cause"]["stack-trace"]


def test_missing_files_of_a_checkpoint_that_stands_are_an_error(
    rest: Rest, client: Served, world: JobWorld
) -> None:
    world.work()
    path = world.checkpoint()
    shutil.rmtree(path)
    client.shown = view(completed(path))
    cause = count(rest)["failure-cause"]
    assert path in cause["stack-trace"] and cause["class"] == "RestoreRefused"


def test_one_count_runs_at_a_time() -> None:
    running: list[Future[object]] = []

    def submit(call: object) -> Future[object]:
        running.append(Future())
        return running[-1]

    counts = key_groups.Counts(Served(), submit)  # type: ignore[arg-type]
    first = counts.begin()
    assert counts.begin() is first and running == [first]
    first.set_result({})
    assert counts.begin() is running[1]
