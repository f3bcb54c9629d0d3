"""Tasks of a batch tell what they do, and the driver keeps the attempt that counts."""

from __future__ import annotations

import logging
import pickle
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watch import until
from tests.threads import left_behind
from tests.worlds.clock import StepClock
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.model.control import (
    ExecutionState,
    Logged,
    Pulse,
    SlotInvitation,
    SubtaskChanged,
    SubtaskFigures,
    TaskBegan,
)
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SlotId, SubtaskId, VertexId
from tidegate.model.settings import LogSettings, SlotSettings
from tidegate.spark.batch.driver_loop import DriverLoop
from tidegate.spark.batch.telling import LastWords, telling
from tidegate.spark.batch.watch import ATTEMPTS_MAX, TaskWatch
from tidegate.transport.tcp import TcpNetwork

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.errors import TidegateError
    from tidegate.transport.wire import Buffer

SUBTASK = SubtaskId(VertexId(b"v" * 16), 0)
SETTINGS = SlotSettings(log=LogSettings(lines_max=100))
FINISHED, FAILED, RUNNING = ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.RUNNING


class Heard:
    """Hears what tasks say of the job as a whole."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[tuple[str, bool]] = []
        self.is_ending = False

    def logged(self, message: Logged) -> None:
        self.lines += [record.text for record in message.records]

    def task_failed(
        self, subtask: SubtaskId, slot: SlotId, error: TidegateError, *, again: bool
    ) -> None:
        self.failures.append((slot, again))


class Link:
    """The driver's end of a link, of which nothing is sent."""

    peer = "task"

    def send(self, parts: Sequence[Buffer]) -> None: ...

    def close(self) -> None: ...


class Task:
    """One attempt of the subtask, as it speaks over its link."""

    def __init__(self, watch: TaskWatch, attempt: int) -> None:
        self.execution = ExecutionId(SUBTASK, Attempt(attempt), Epoch(1))
        self.slot = SlotId(f"task-{attempt}")
        self._link = watch.accept(Link())
        self.say(TaskBegan(self.execution, self.slot, "host", 7, stage=3))

    def say(self, message: object) -> None:
        self._link.on_frame(memoryview(pickle.dumps(message)))

    def has_done(self, rows: int) -> None:
        self.say(Pulse(self.slot, figures={self.execution: SubtaskFigures(rows_in=rows)}))

    def ends(self, state: ExecutionState, rows: int) -> None:
        self.say(SubtaskChanged(self.execution, state, figures=SubtaskFigures(rows_in=rows)))
        self.vanishes()

    def vanishes(self) -> None:
        self._link.on_closed(None)


def counted(watch: TaskWatch) -> tuple[ExecutionState, int, int]:
    """State, number and rows of the attempt that counts."""
    seen = watch.task(SUBTASK)
    assert seen is not None
    return seen.state, seen.number, seen.figures.rows_in


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def watch(heard: Heard) -> TaskWatch:
    return TaskWatch(StepClock(), heard)


def test_a_task_that_died_is_a_failure_and_the_next_attempt_counts_alone(
    watch: TaskWatch, heard: Heard
) -> None:
    first = Task(watch, 5)
    first.has_done(10)
    assert counted(watch) == (RUNNING, 0, 10) and watch.stage(SUBTASK.vertex) == 3
    first.vanishes()
    assert counted(watch) == (FAILED, 0, 10) and heard.failures == [("task-5", True)]
    second = Task(watch, 9)
    assert counted(watch) == (RUNNING, 1, 0)
    second.ends(FINISHED, 12)
    assert counted(watch) == (FINISHED, 1, 12) and len(heard.failures) == 1


def test_a_task_that_is_lost_once_its_job_is_cancelled_was_cancelled(
    watch: TaskWatch, heard: Heard
) -> None:
    first = Task(watch, 5)
    heard.is_ending = True
    first.vanishes()
    assert counted(watch) == (ExecutionState.CANCELED, 0, 0)


def test_a_task_whose_twin_has_finished_is_no_failure(watch: TaskWatch, heard: Heard) -> None:
    first, twin = Task(watch, 1), Task(watch, 2)
    assert [each.id for each in watch.slots()] == ["task-1", "task-2"]
    first.ends(FINISHED, 12)
    twin.has_done(3)
    twin.vanishes()
    assert counted(watch) == (FINISHED, 0, 12) and heard.failures == []
    assert watch.slots() == () and watch.quiet.is_set()


def test_a_task_whose_link_broke_runs_on(watch: TaskWatch) -> None:
    task = Task(watch, 1)
    task.vanishes()
    Task(watch, 1).has_done(4)
    assert counted(watch) == (RUNNING, 0, 4) and not watch.quiet.is_set()


def test_a_task_whose_stage_is_run_again_has_run_again_though_spark_counts_its_tries_anew(
    watch: TaskWatch,
) -> None:
    Task(watch, 1).ends(FINISHED, 12)
    Task(watch, 1)  # its link was broken
    assert not watch.ran_again
    Task(watch, 2).ends(FINISHED, 12)
    assert watch.ran_again


def test_few_attempts_of_a_task_are_remembered(watch: TaskWatch) -> None:
    tasks = [Task(watch, attempt) for attempt in range(3 * ATTEMPTS_MAX)]
    assert len(watch.slots()) == ATTEMPTS_MAX
    tasks[0].ends(FINISHED, 1)  # nobody knows it any more
    assert counted(watch)[:2] == (RUNNING, 3 * ATTEMPTS_MAX - 1)


def begun() -> TaskBegan:
    return TaskBegan(ExecutionId(SUBTASK, Attempt(1), Epoch(1)), SlotId("one"), "host", 7, 0)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert not left_behind(before, prefix="tidegate", within_s=10)


@pytest.mark.usefixtures("nothing_left")
def test_the_driver_hears_what_a_task_logs_and_how_it_ends() -> None:
    heard = Heard()
    watch, loop = TaskWatch(SystemClock(), heard), DriverLoop(process_log())
    network = TcpNetwork(secret=b"s" * 32, host="127.0.0.1")
    listener = loop.done(_listen(network, watch))
    invitation = SlotInvitation(listener, b"s" * 32, settings=SETTINGS)
    with telling(invitation, begun(), "step (1/1)", SystemClock()) as task:
        print("printed")
        logging.getLogger("shop").warning("logged")
        until(lambda: watch.task(SUBTASK), "the task is known")
        task.ends(LastWords(FINISHED, None, SubtaskFigures(rows_in=4)))
    until(watch.quiet.is_set, "its last word was heard")
    assert counted(watch) == (FINISHED, 0, 4)
    assert {"printed", "logged"} <= set(heard.lines)
    loop.close()


async def _listen(network: TcpNetwork, watch: TaskWatch) -> str:
    return (await network.listen(watch.accept)).address


@pytest.mark.usefixtures("nothing_left")
def test_a_task_that_reaches_no_driver_prints_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = taken.getsockname()[1]
        invitation = SlotInvitation(f"127.0.0.1:{port}", b"s" * 32, settings=SETTINGS)
        with telling(invitation, begun(), "step (1/1)", SystemClock()) as task:
            print("printed")
            sys.stderr.write("and told\n")
            task.ends(LastWords(FINISHED))
    until(lambda: not _tells(), "the task's thread has ended")
    out, err = capsys.readouterr()
    assert "printed" in out and "and told" in err


def _tells() -> bool:
    return any(thread.name == "tidegate-telling" for thread in threading.enumerate())
