"""Operators' coordinators: whom they hear, whom they reach, what happens when they fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tidegate.checkpoint.coordinator.events import (
    CoordinatorSnapshotFailed,
    CoordinatorSnapshotTaken,
    OperatorEventSent,
)
from tidegate.driver.user_code.hosts import CoordinatorHosts
from tidegate.errors import JobCanceled, SlotLost, UserCodeFailed
from tidegate.jobmaster.events import CoordinatorFailed, JobEvent
from tidegate.model.control import ToCoordinator
from tidegate.model.elements import OperatorEvent
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    OperatorId,
    SubtaskId,
    VertexId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate.api.coordinator import CoordinatorContext

OPERATOR = OperatorId(b"o" * 16)
SECOND = OperatorId(b"p" * 16)


def executions(attempt: int, epoch: int = 1) -> tuple[ExecutionId, ...]:
    return tuple(
        ExecutionId(SubtaskId(VertexId(b"v" * 16), n), Attempt(attempt), Epoch(epoch))
        for n in range(2)
    )


class Coordinator:
    """Writes down what it hears; raises what it is told to."""

    def __init__(self, context: CoordinatorContext, raises: dict[str, BaseException]) -> None:
        self.context = context
        self.heard: list[object] = []
        self._raises = raises

    def _note(self, name: str, *what: object) -> None:
        self.heard.append((name, *what))
        if name in self._raises:
            raise self._raises[name]

    def start(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        self._note("start", checkpoint, data)

    def subtask_ready(self, subtask: int) -> None:
        self._note("ready", subtask)

    def subtask_reset(self, subtask: int, checkpoint: CheckpointId | None) -> None:
        self._note("reset", subtask, checkpoint)

    def on_event(self, subtask: int, event: OperatorEvent) -> None:
        self._note("event", subtask, event.payload)

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        self._note("snapshot", checkpoint)
        return b"state"

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._note("complete", checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._note("aborted", checkpoint)

    def close(self) -> None:
        self._note("close")


class World:
    """The hosts, what they posted, and the coordinators that were made."""

    def __init__(self, **raises: BaseException) -> None:
        self.posted: list[JobEvent] = []
        self.made: list[Coordinator] = []
        self.blocked: list[tuple[Callable[[], object], asyncio.Future[object]]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._raises = raises
        self.hosts = CoordinatorHosts(
            self,  # type: ignore[arg-type]  # the two questions that hosts ask of a graph
            self.post,
            self.spawn,
            self._run_blocking,  # type: ignore[arg-type]
            {OPERATOR: "/staged"},
        )

    def post(self, event: JobEvent) -> None:
        self.posted.append(event)

    def operator(self, operator: OperatorId) -> SimpleNamespace:
        return SimpleNamespace(name="numbers")

    def coordinated(self, operator: OperatorId) -> World:
        if "make" in self._raises:
            raise self._raises["make"]
        return self

    def coordinator(self, context: CoordinatorContext) -> Coordinator:
        self.made.append(Coordinator(context, self._raises))
        return self.made[-1]

    def _run_blocking(self, call: Callable[[], object]) -> asyncio.Future[object]:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.blocked.append((call, done))
        return done

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def start(self, attempt: int = 0, data: bytes | None = None) -> Coordinator:
        checkpoint = None if data is None else CheckpointId(3)
        self.hosts.start(checkpoint, {OPERATOR: data}, {OPERATOR: executions(attempt)})
        return self.made[-1]

    async def unblock(self) -> None:
        await asyncio.sleep(0)
        for call, done in self.blocked:
            try:
                done.set_result(call())
            except Exception as error:
                done.set_exception(error)
        await asyncio.gather(*self.tasks)


def on_loop(test: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def event(attempt: int, payload: object = "hi", epoch: int = 1) -> ToCoordinator:
    return ToCoordinator(executions(attempt, epoch)[1], OPERATOR, OperatorEvent(payload))


@on_loop
async def test_a_coordinator_starts_from_its_state_and_hears_of_its_subtasks() -> None:
    world = World()
    made = world.start(data=b"old")
    world.hosts.ready(executions(0)[0], (OPERATOR,))
    world.hosts.event(event(0))
    world.hosts.complete(OPERATOR, CheckpointId(4))
    world.hosts.aborted(OPERATOR, CheckpointId(5))
    assert made.context.parallelism == 2
    assert made.heard == [
        ("start", 3, b"old"),
        ("ready", 0),
        ("event", 1, "hi"),
        ("complete", 4),
        ("aborted", 5),
    ]


@on_loop
async def test_what_subtasks_of_a_former_attempt_or_epoch_say_is_dropped() -> None:
    world = World()
    world.start(0)
    made = world.start(1)
    world.hosts.event(event(0))
    world.hosts.event(event(1, epoch=9))
    world.hosts.ready(executions(0)[0], (OPERATOR,))
    assert made.heard == [("start", None, None)]


@on_loop
async def test_a_coordinator_lives_on_when_one_of_its_subtasks_is_reset() -> None:
    world = World()
    made = world.start(0)
    kept, again = executions(0)[0], executions(1)[1]
    world.hosts.reset(CheckpointId(3), {OPERATOR: (again,), SECOND: (again,)})
    world.hosts.event(event(0, "of the former attempt"))
    world.hosts.ready(again, (OPERATOR,))
    world.hosts.event(event(1))
    assert made.heard[1:] == [("reset", 1, 3), ("ready", 1), ("event", 1, "hi")]
    for subtask in range(2):
        made.context.send(subtask, OperatorEvent("split"))
    sent = [
        (s.execution, s.event.payload) for s in world.posted if isinstance(s, OperatorEventSent)
    ]
    assert sent == [(kept, "split"), (again, "split")]
    assert len(world.made) == 1


@on_loop
async def test_what_a_coordinator_sends_goes_to_the_attempt_it_was_made_for() -> None:
    world = World()
    made = world.start(4)
    made.context.send(1, OperatorEvent("split"))
    assert world.posted == [OperatorEventSent(executions(4)[1], OPERATOR, OperatorEvent("split"))]


@on_loop
async def test_a_new_deployment_closes_the_old_coordinators_and_hears_them_no_more() -> None:
    world = World()
    old = world.start(0)
    world.start(1)
    assert old.heard[-1] == ("close",)
    old.context.send(0, OperatorEvent("late"))
    old.context.fail(SlotLost("late"))
    assert world.posted == []


@on_loop
async def test_a_snapshot_is_answered_once_with_the_state_or_the_failure() -> None:
    world = World()
    world.start()
    world.hosts.snapshot(OPERATOR, CheckpointId(1))
    assert world.posted == [CoordinatorSnapshotTaken(CheckpointId(1), OPERATOR, b"state")]
    failing = World(snapshot=ValueError("no"))
    failing.start()
    failing.hosts.snapshot(OPERATOR, CheckpointId(2))
    (answer,) = failing.posted
    assert isinstance(answer, CoordinatorSnapshotFailed) and answer.checkpoint == 2
    assert "ValueError: no" in str(answer.error) and "numbers" in str(answer.error)


@on_loop
async def test_a_coordinator_that_ends_the_program_has_failed() -> None:
    world = World(start=SystemExit(5), snapshot=SystemExit(6), close=SystemExit(7))
    world.start()
    world.hosts.snapshot(OPERATOR, CheckpointId(1))
    world.hosts.close()
    started, answer = world.posted
    assert isinstance(started, CoordinatorFailed) and "SystemExit(5)" in str(started.error)
    assert isinstance(answer, CoordinatorSnapshotFailed) and "SystemExit(6)" in str(answer.error)


@on_loop
async def test_the_snapshot_of_a_closed_coordinator_fails_and_is_never_an_empty_state() -> None:
    world = World()
    world.start()
    world.hosts.close()
    world.hosts.snapshot(OPERATOR, CheckpointId(1))
    (answer,) = world.posted
    assert isinstance(answer, CoordinatorSnapshotFailed)


@pytest.mark.parametrize(
    "call", ["make", "start", "ready", "reset", "event", "complete", "aborted"]
)
def test_whatever_a_coordinator_raises_is_its_failure_with_its_name(call: str) -> None:
    async def test() -> None:
        world = World(**{call: KeyError("split 7")})
        try:
            world.start()
        except IndexError:
            assert call == "make"
        world.hosts.ready(executions(0)[0], (OPERATOR,))
        world.hosts.event(event(0))
        world.hosts.reset(None, {OPERATOR: executions(1)[:1]})
        world.hosts.complete(OPERATOR, CheckpointId(1))
        world.hosts.aborted(OPERATOR, CheckpointId(1))
        failed = world.posted[0]
        assert isinstance(failed, CoordinatorFailed) and failed.operator == OPERATOR
        assert isinstance(failed.error, UserCodeFailed)
        assert "split 7" in str(failed.error)
        assert "coordinator of operator 'numbers'" in str(failed.error)

    asyncio.run(test())


@on_loop
async def test_one_that_ends_the_program_has_failed() -> None:
    world = World(event=SystemExit(3), snapshot=SystemExit(4), close=SystemExit(5))
    world.start()
    world.hosts.event(event(0))
    world.hosts.snapshot(OPERATOR, CheckpointId(1))
    world.hosts.close()
    failed, unsaved = world.posted
    assert isinstance(failed, CoordinatorFailed) and "SystemExit(3)" in str(failed.error)
    assert isinstance(unsaved, CoordinatorSnapshotFailed) and "SystemExit(4)" in str(unsaved.error)


@on_loop
async def test_one_that_fails_to_close_does_not_keep_the_others_open() -> None:
    world = World(close=OSError("stuck"))
    both = {OPERATOR: executions(0), SECOND: executions(0)}
    world.hosts.start(None, {OPERATOR: None, SECOND: None}, both)
    world.hosts.close()
    assert [made.heard[-1] for made in world.made] == [("close",)] * 2
    assert world.posted == []


@on_loop
async def test_a_blocking_call_brings_its_result_unless_the_coordinator_was_closed() -> None:
    world = World()
    made = world.start()
    results: list[object] = []
    made.context.run_blocking(lambda: 7, results.append)
    await world.unblock()
    assert results == [7]
    made.context.run_blocking(lambda: 8, results.append)
    world.hosts.close()
    world.blocked.pop(0)
    await world.unblock()
    assert results == [7]


@on_loop
async def test_a_blocking_call_that_raises_fails_the_job() -> None:
    world = World()
    made = world.start()
    made.context.run_blocking(lambda: 1 // 0, lambda result: None)
    await world.unblock()
    (failed,) = world.posted
    assert isinstance(failed, CoordinatorFailed) and "ZeroDivisionError" in str(failed.error)


@on_loop
async def test_a_call_for_later_is_dropped_when_the_coordinator_was_closed() -> None:
    world = World()
    made = world.start()
    calls: list[str] = []
    made.context.call_later(0, lambda: calls.append("in time"))
    await asyncio.sleep(0.005)
    made.context.call_later(0, lambda: calls.append("too late"))
    world.hosts.close()
    await asyncio.sleep(0.005)
    assert calls == ["in time"]


@on_loop
async def test_results_outlive_the_coordinators_and_end_with_the_job() -> None:
    world = World()
    buffer = world.start().context.results("rows")
    assert world.start(1).context.results("rows") is buffer
    buffer.put("a", 1, [1, 2])
    world.hosts.results.end(None)
    assert buffer.take() == [1, 2] and buffer.take() is None


@on_loop
async def test_who_asks_for_results_after_the_end_does_not_wait_for_ever() -> None:
    world = World()
    world.hosts.results.end(JobCanceled("the job was cancelled"))
    with pytest.raises(JobCanceled):
        world.hosts.results.of("never made").take()
