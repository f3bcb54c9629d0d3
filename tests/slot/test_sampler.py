"""Where a slot's time goes: how frames are folded, and who is sampled for how long."""

import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest

from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.model.control import FrameCount
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SlotId, SubtaskId, VertexId
from tidegate.slot.loop.rounds import Rounds
from tidegate.slot.sampler import (
    BETWEEN,
    FRAMES_MAX,
    KEY_LETTERS,
    ON_MS,
    WAITS_FOR_INPUT,
    WAITS_FOR_ROOM,
    WAITS_FOR_TURN,
    Line,
    Sampler,
    folded,
    key_in,
)
from tidegate.slot.subtask.subtask import Subtask

VERTEX, OTHER = VertexId(b"v" * 16), VertexId(b"o" * 16)
LIMIT_S = 60.0


def user(function: str, number: int = 7) -> Line:
    return Line(function, "/jobs/orders.py", number, ours=False)


def engine(function: str) -> Line:
    return Line(function, "/lib/tidegate/operators/map.py", 70, ours=True)


def test_the_engine_above_a_function_is_folded_into_its_operator() -> None:
    lines = [user("price"), user("convert", 3), engine("each"), engine("MapOperator.process")]
    assert folded("rates", lines) == ("rates", "convert (orders.py:3)", "price (orders.py:7)")


def test_the_engine_below_a_function_is_shown() -> None:
    lines = [engine("ValueState.value"), user("total"), engine("process")]
    assert folded("sum", lines) == ("sum", "total (orders.py:7)", "ValueState.value (map.py:70)")


def test_where_no_function_runs_the_innermost_frame_stands_for_the_engine() -> None:
    lines = [engine("encode"), engine("emit"), engine("process")]
    assert folded("keys", lines) == ("keys", "encode (map.py:70)")
    assert folded(None, lines) == (BETWEEN, "encode (map.py:70)")
    assert folded("keys", []) == ("keys",)


def test_a_deep_recursion_is_cut_at_its_deep_end() -> None:
    lines = [user("down", number) for number in range(3 * FRAMES_MAX, 0, -1)]
    frames = folded("deep", [*lines, engine("process")])
    assert len(frames) == 1 + FRAMES_MAX
    assert frames[1] == "down (orders.py:1)"


class Opaque:
    """A key whose text must not be asked for."""

    def __repr__(self) -> str:
        raise AssertionError("a function of the user's")


class World:
    """A loop, which is the test's own thread, with subtasks that do as they are told."""

    def __init__(self) -> None:
        self.rounds = Rounds(SystemClock())
        self.now_ms = 0
        self.sampler = Sampler(self.rounds, lambda: self.now_ms)

    def subtask(self, vertex: VertexId, index: int, *, has_room: bool = True) -> Subtask:
        execution = ExecutionId(SubtaskId(vertex, index), Attempt(0), Epoch(1))
        outputs = SimpleNamespace(room=SimpleNamespace(is_free=has_room))
        made = cast("Subtask", SimpleNamespace(execution=execution, outputs=outputs))
        self.rounds.subtasks[execution] = made
        return made

    def told(self, vertex: VertexId = VERTEX) -> tuple[FrameCount, ...]:
        return self.sampler.read(vertex, 1, SlotId("here")).counts

    def work_until_sampled(self) -> None:
        """A user's function: it ends once it has been seen."""
        until_s = time.monotonic() + LIMIT_S
        while not any(each.on_cpu for each in self.told()):
            assert time.monotonic() < until_s, "nobody samples"


def samplers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tidegate-sampler"]


def test_samples_say_who_works_and_what_the_others_wait_for() -> None:
    world = World()
    works = world.subtask(VERTEX, 0)
    world.subtask(VERTEX, 1)
    world.subtask(VERTEX, 2, has_room=False)
    world.rounds.list(world.subtask(VERTEX, 3).execution)
    world.subtask(OTHER, 4)
    assert samplers() == [] and world.told() == ()
    world.rounds.act(works, world.work_until_sampled)
    told = world.told()
    [at_work] = {each.frames[:2] for each in told if each.on_cpu}
    assert at_work[0] == BETWEEN
    assert at_work[1].startswith("World.work_until_sampled (test_sampler.py:")
    assert {each.subtask for each in told if each.on_cpu} == {0}
    waiting = {each.subtask: each.frames for each in told if each.subtask}
    assert waiting == {1: (WAITS_FOR_INPUT,), 2: (WAITS_FOR_ROOM,), 3: (WAITS_FOR_TURN,)}
    assert all(each.samples > 0 for each in told)
    del world.rounds.subtasks[works.execution]
    assert all(each.subtask for each in world.told())
    world.sampler.close()
    for thread in samplers():
        thread.join(LIMIT_S)
    assert samplers() == []


def test_a_minute_after_the_last_question_nothing_is_left() -> None:
    world = World()
    works = world.subtask(VERTEX, 0)
    world.rounds.act(works, world.work_until_sampled)
    [thread] = samplers()
    world.now_ms += ON_MS - 1
    world.told()
    world.now_ms += ON_MS - 1
    world.rounds.act(works, world.work_until_sampled)
    assert samplers() == [thread]
    world.now_ms += ON_MS
    thread.join(LIMIT_S)
    assert samplers() == []
    assert world.told() == ()
    world.sampler.close()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("amsterdam", "'amsterdam'"),
        (("nl", 7, None), "('nl', 7, None)"),
        (Opaque(), "a Opaque"),
        (("nl", Opaque()), "a tuple"),
        ("x" * 200, "'" + "x" * (KEY_LETTERS - 2) + "…"),
    ],
)
def test_a_key_in_hand_is_told_without_calling_the_users_code(key: object, text: str) -> None:
    cell = KeyCell()
    cell.key, cell.group = key, 3
    assert key_in(cell) == text


def test_no_key_is_in_hand_where_none_was_set() -> None:
    assert key_in(KeyCell()) is None
