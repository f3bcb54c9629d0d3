"""Calls of plain functions: on threads, in processes, in batches; and what they may not do."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.metrics.reading import number
from tests.operators.async_results import InOrder
from tests.operators.world import Hosted, World
from tidegate.api.functions import RuntimeContext
from tidegate.api.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from tidegate.api.state import ValueStateDescriptor
from tidegate.errors import UserCodeFailed, UserError
from tidegate.operators.async_calls.async_wait import AsyncWaitOperator
from tidegate.operators.async_calls.call_batches import BatchLimits, BatchSize
from tidegate.operators.async_calls.call_settings import CallSettings, Executor
from tidegate.typeinfo.types import Types

LIMIT_S = 120
LONG_MS = 3_600_000
ONCE = AsyncRetryStrategy.no_restart()


class Step(Hosted):
    """An open operator; threads and processes are real, the loop's time is not."""

    out: InOrder

    def __init__(
        self,
        function: object,
        world: World,
        settings: CallSettings,
        *,
        retry: AsyncRetryStrategy[object] = ONCE,
    ) -> None:
        super().__init__(AsyncWaitOperator(function, retry, settings, ordered=True), world)
        self.out = InOrder()

    def turn(self) -> None:
        """What is done leaves."""
        self.world.pass_time(0)
        self.world.raise_failures()
        if self.context.woken:
            self.context.woken = False
            self.drive(self.world.on_loop(lambda: self.operator.on_ready(self.out)))

    def until(self, reached: Callable[[], bool]) -> None:
        """Turns until a condition holds."""
        limit_s = time.monotonic() + LIMIT_S
        while not reached():
            assert time.monotonic() < limit_s, "it never comes to that"
            self.turn()
            time.sleep(0.001)

    def pass_time(self, ms: int) -> None:
        """Time of the loop passes."""
        self.world.pass_time(ms)
        self.turn()

    def metric(self, name: str) -> float:
        """A metric of the operator now."""
        return number(self.context.registry, name)


class Gate:
    """A plain function whose calls wait until a test lets them go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun: list[object] = []

    def __call__(self, value: object) -> object:
        self.begun.append(value)
        assert self.open.wait(LIMIT_S), "nobody let the call go"
        return f"about {value}"


# --- plain functions on threads -------------------------------------------------------------------


def test_a_plain_function_gives_one_result_from_calls_on_many_threads(world: World) -> None:
    gate = Gate()
    step = Step(gate, world, CallSettings(LONG_MS, capacity=8))
    step.rows(*range(8))
    step.until(lambda: len(gate.begun) == 8)
    gate.open.set()
    step.until(lambda: len(step.out.values) == 8)
    assert step.out.values == [f"about {n}" for n in range(8)]
    step.close()


def test_a_coroutine_function_gives_one_result_too(world: World) -> None:
    async def doubled(value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value, value]

    step = Step(doubled, world, CallSettings(LONG_MS))
    step.rows(1, 2)
    step.finish()
    assert step.out.values == [[1, 1], [2, 2]]


def test_no_more_threads_call_than_workers_are_given(world: World) -> None:
    gate = Gate()
    step = Step(gate, world, CallSettings(LONG_MS, capacity=8, workers=2))
    step.rows(1, 2, 3, 4)
    step.until(lambda: len(gate.begun) == 2)
    gate.open.set()
    step.until(lambda: len(step.out.values) == 4)
    assert sorted(gate.begun, key=str) == [1, 2, 3, 4]
    step.close()


def test_calls_under_way_are_in_the_snapshot_and_the_end_does_not_wait_for_them(
    world: World,
) -> None:
    gate = Gate()
    step = Step(gate, world, CallSettings(LONG_MS))
    step.rows(1, 2)
    step.until(lambda: len(gate.begun) == 2)
    assert step.snapshot(1).lists[0] == {"AsyncWaitInFlight": [(1, None), (2, None)]}
    step.close()
    assert not gate.open.is_set() and step.out.values == []
    gate.open.set()


def test_a_call_whose_time_is_over_keeps_its_place_until_it_returns_and_is_counted(
    world: World,
) -> None:
    gate = Gate()

    class Patient(AsyncFunction[int, object]):
        def async_invoke(self, value: int) -> list[object]:
            return [gate(value)]

        def timeout(self, value: int) -> list[object]:
            return [f"nothing about {value}"]

    step = Step(Patient(), world, CallSettings(50, capacity=2))
    step.rows(1, 2, 3)
    step.until(lambda: len(gate.begun) == 2)
    step.pass_time(60)
    assert step.out.values == ["nothing about 1", "nothing about 2"]
    assert step.metric("numCallsTimedOut") == step.metric("callsGoingOnAfterTimeout") == 2
    step.pass_time(1_000)
    assert 3 not in gate.begun and not step.operator.takes_input
    gate.open.set()
    step.until(lambda: len(step.out.values) == 3)
    assert step.out.values[2] == "about 3"
    step.until(lambda: step.metric("callsGoingOnAfterTimeout") == 0)
    step.close()


def test_the_time_of_a_call_does_not_run_while_it_waits_for_a_thread(world: World) -> None:
    gate = Gate()
    step = Step(gate, world, CallSettings(50, workers=1))
    step.rows(1)
    step.until(lambda: gate.begun == [1])
    step.rows(2)
    step.pass_time(40)
    gate.open.set()
    step.until(lambda: len(step.out.values) == 2)
    step.pass_time(40)
    assert step.metric("numCallsTimedOut") == 0
    step.close()


def test_what_a_plain_function_raises_is_repeated_or_fails_with_its_row(world: World) -> None:
    calls: list[int] = []

    def flaky(value: int) -> int:
        calls.append(value)
        return 10 // (len(calls) - 1)

    step = Step(flaky, world, CallSettings(LONG_MS), retry=AsyncRetryStrategy.fixed_delay(2, 0))
    step.rows(5)
    step.until(lambda: len(step.out.values) == 1)
    assert calls == [5, 5] and step.out.values == [10]
    step.close()
    calls.clear()
    once = Step(flaky, world, CallSettings(LONG_MS))
    once.rows(7)
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as caught:
        once.until(lambda: False)
    assert caught.value.where == "operator 'step', at the row 7"
    assert "return 10 // (len(calls) - 1)" in caught.value.trace
    once.close()


async def exits(value: int) -> int:
    raise SystemExit(value)


async def fails_a_test(value: int) -> int:
    pytest.fail(f"SystemExit({value})")


def exits_at_once(value: int) -> int:
    raise SystemExit(value)


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (exits, CallSettings(LONG_MS)),
        (fails_a_test, CallSettings(LONG_MS)),
        (exits_at_once, CallSettings(LONG_MS)),
        (exits_at_once, CallSettings(LONG_MS, executor=Executor.PROCESS, workers=1)),
    ],
    ids=["on the loop", "as pytest fails", "on a thread", "in a process"],
)
def test_a_call_that_ends_the_program_fails_with_its_row(
    world: World, function: object, settings: CallSettings
) -> None:
    step = Step(function, world, settings)
    step.rows(3)
    with pytest.raises(UserCodeFailed, match=r"SystemExit\(3\)") as caught:
        step.until(lambda: False)
    assert caught.value.where == "operator 'step', at the row 3"
    assert "SystemExit({value})" in caught.value.trace or "(value)" in caught.value.trace
    step.close()


def test_a_plain_function_that_gives_a_coroutine_is_told_to_be_declared_so(world: World) -> None:
    async def asked(value: int) -> int:
        return value

    step = Step(lambda value: asked(value), world, CallSettings(LONG_MS))
    step.rows(1)
    with pytest.raises(UserCodeFailed, match="gave a coroutine") as caught:
        step.until(lambda: False)
    assert "async def" in caught.value.remedy
    step.close()


# --- open and close -------------------------------------------------------------------------------


class Session(AsyncFunction[int, str]):
    """Opens and closes a client as coroutines do."""

    def __init__(self) -> None:
        self.life: list[str] = []

    async def open(self, runtime_context: RuntimeContext) -> None:
        await asyncio.sleep(0.01)
        tone = runtime_context.get_job_parameter("tone")
        self.life.append(f"open of {runtime_context.get_task_name_with_subtasks()}, {tone}")

    async def async_invoke(self, value: int) -> list[str]:
        assert self.life, "the client is not there yet"
        return [f"{value}"]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.life.append("close")


def test_coroutines_that_open_and_close_are_awaited_around_all_calls(world: World) -> None:
    session = Session()
    step = Step(session, world, CallSettings(LONG_MS))
    step.rows(1, 2)
    step.pass_time(1)
    assert session.life == [] and step.snapshot(1).lists[0]["AsyncWaitInFlight"]
    step.pass_time(20)
    step.finish()
    step.close()
    assert step.out.values == ["1", "2"]
    assert session.life == ["open of step (1/1), low", "close"]


@pytest.mark.slow
@pytest.mark.parametrize("executor", Executor)
def test_what_opening_raises_is_the_functions_failure(world: World, executor: Executor) -> None:
    class Closed(Session):
        async def open(self, runtime_context: RuntimeContext) -> None:
            raise ConnectionError("no route")

    step = Step(Closed(), world, CallSettings(LONG_MS, executor=executor))
    with pytest.raises(UserCodeFailed, match="ConnectionError: no route") as caught:
        step.until(lambda: False)
    assert caught.value.where == "operator 'step', in its open"
    step.close()


class NoFailure(BaseException):
    """No `Exception`, like the outcomes of pytest."""


@pytest.mark.parametrize("raised", [SystemExit(3), NoFailure("no"), asyncio.CancelledError()])
def test_a_coroutine_that_raises_no_exception_as_it_opens_has_failed(
    world: World, raised: BaseException
) -> None:
    class Raises(Session):
        async def open(self, runtime_context: RuntimeContext) -> None:
            raise raised

    step = Step(Raises(), world, CallSettings(LONG_MS))
    with pytest.raises(UserCodeFailed, match=type(raised).__name__) as caught:
        step.until(lambda: False)
    assert caught.value.where == "operator 'step', in its open"
    step.close()


@pytest.mark.parametrize(
    "call",
    [
        *("get_state", "get_list_state", "get_map_state", "get_reducing_state"),
        *("get_aggregating_state", "get_operator_list_state", "get_broadcast_state"),
    ],
)
def test_a_function_that_is_called_at_once_for_many_has_no_state(world: World, call: str) -> None:
    class Remembering(AsyncFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.ask = getattr(runtime_context, call)

        async def async_invoke(self, value: int) -> list[int]:
            return [self.ask(ValueStateDescriptor("seen", Types.INT()))]

    step = Step(Remembering(), world, CallSettings(LONG_MS))
    step.rows(1)
    with pytest.raises(UserError, match=f"{call}: an AsyncFunction has no state and no timers"):
        step.until(lambda: False)
    step.close()


# --- processes ------------------------------------------------------------------------------------


class Elsewhere(AsyncFunction[str, object]):
    """Tells where it runs; dies once, or each time, when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        (self.folder / f"open {os.getpid()}").touch()

    def async_invoke(self, value: str) -> list[object]:
        if value == "raise":
            raise LookupError(value)
        if value == "die" or (value == "die once" and not (self.folder / "died").exists()):
            (self.folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [(value, os.getpid())]

    def close(self) -> None:
        (self.folder / f"close {os.getpid()}").touch()


def in_processes(workers: int = 1) -> CallSettings:
    return CallSettings(LONG_MS, executor=Executor.PROCESS, workers=workers)


@pytest.mark.slow
def test_functions_are_opened_called_and_closed_in_processes(world: World, tmp_path: Path) -> None:
    step = Step(Elsewhere(tmp_path), world, in_processes())
    step.rows("a", "b")
    step.until(lambda: len(step.out.values) == 2)
    step.close()
    ((first, pid), (second, again)) = step.out.values
    assert (first, second) == ("a", "b") and pid == again != os.getpid()
    assert {path.name for path in tmp_path.iterdir()} == {f"open {pid}", f"close {pid}"}
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_process_that_is_killed_repeats_its_row(world: World, tmp_path: Path) -> None:
    step = Step(Elsewhere(tmp_path), world, in_processes())
    step.rows("a", "die once", "b")
    step.until(lambda: len(step.out.values) == 3)
    step.close()
    pids = [pid for _, pid in step.out.values]
    assert [value for value, _ in step.out.values] == ["a", "die once", "b"]
    assert pids[0] != pids[1] == pids[2]


@pytest.mark.slow
def test_a_row_that_kills_each_process_fails_by_name(world: World, tmp_path: Path) -> None:
    step = Step(Elsewhere(tmp_path), world, in_processes())
    step.rows("die")
    with pytest.raises(UserCodeFailed, match=r"died 3 times .* killed by SIGKILL") as caught:
        step.until(lambda: False)
    assert caught.value.where == "operator 'step', at the row 'die'"
    step.close()


@pytest.mark.slow
def test_what_is_raised_in_a_process_comes_with_the_trace_from_there(
    world: World, tmp_path: Path
) -> None:
    step = Step(Elsewhere(tmp_path), world, in_processes())
    step.rows("raise")
    with pytest.raises(UserCodeFailed, match="raised LookupError: raise") as caught:
        step.until(lambda: False)
    assert "raise LookupError(value)" in caught.value.trace
    step.close()


HOLDS = """
import asyncio, os, sys, time
from tidegate.operators.async_calls.call_processes import CallProcesses
from tidegate.api.operator import SubtaskInfo
from tidegate.model.ids import OperatorId
from tidegate.model.settings import SlotSettings
from tidegate.operators.async_calls.call_context import CallContext
from tidegate.typeinfo.by_value import pickled_by_value

def hold(value):
    print(os.getpid(), flush=True)
    while True:
        pass

operator, settings = OperatorId(bytes(16)), SlotSettings()
info = SubtaskInfo(
    operator, "step", False, "job", "step", "step (1/1)", 0, 1, 128, 1, 0, None, True, settings, {}
)
context = CallContext(info, None)
processes = CallProcesses(pickled_by_value((hold, "async_invoke")))
processes.begin(context)
processes.call(1, lambda: None)
"""


def test_processes_die_with_a_slot_that_is_killed_though_a_call_goes_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as slot:
        assert slot.stdout is not None
        pid = int(slot.stdout.readline())
        slot.kill()
    limit_s = time.monotonic() + LIMIT_S
    while alive(pid):
        assert time.monotonic() < limit_s, f"process {pid} outlives its slot"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# --- batches --------------------------------------------------------------------------------------


class Model(AsyncFunction[int, str]):
    """A model: a call costs 30 ms and 1 ms a row. Odd multiples of 100 fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def async_invoke_batch(self, values: list[int]) -> list[list[str] | Exception]:
        self.batches.append(values)
        await asyncio.sleep((30 + len(values)) / 1000)
        return [
            LookupError(f"no {value}") if value % 200 == 100 else [f"{value}"] * (value % 3)
            for value in values
        ]


def test_batches_grow_as_far_as_they_make_a_row_cheaper(world: World) -> None:
    model = Model()
    settings = CallSettings(LONG_MS, capacity=400, workers=1, batch_rows=50)
    step = Step(model, world, settings)
    step.rows(*range(1, 100))
    step.finish()
    assert [len(batch) for batch in model.batches] == [1, 2, 4, 8, 16, 32, 36]
    assert step.out.values == [f"{n}" for n in range(1, 100) for _ in range(n % 3)]


def test_an_exception_in_a_place_fails_that_row_alone(world: World) -> None:
    class Lenient(Model):
        tries = 0

        async def async_invoke_batch(self, values: list[int]) -> list[list[str] | Exception]:
            given = await super().async_invoke_batch(values)
            if 100 in values:
                self.tries += 1
            if 100 in values and self.tries == 3:
                given[values.index(100)] = ["found"]
            return given

    retry = AsyncRetryStrategy.fixed_delay(3, 10)
    step = Step(Lenient(), world, CallSettings(LONG_MS), retry=retry)
    step.rows(1, 100, 4)
    step.finish()
    assert step.out.values == ["1", "found", "4"]


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ConnectionError("no model"), "ConnectionError: no model"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_what_a_whole_batch_raises_fails_each_of_its_rows(
    world: World, raised: BaseException, told: str
) -> None:
    class Broken(Model):
        async def async_invoke_batch(self, values: list[int]) -> list[list[str] | Exception]:
            raise raised

    step = Step(Broken(), world, CallSettings(LONG_MS))
    step.rows(4)
    with pytest.raises(UserCodeFailed, match=told) as caught:
        step.until(lambda: False)
    assert caught.value.where == "operator 'step', at the row 4"


@pytest.mark.parametrize("given", [None, [], [["a"], ["b"]], "x"])
def test_a_batch_that_does_not_answer_each_row_fails(world: World, given: object) -> None:
    class Short(AsyncFunction[int, str]):
        async def async_invoke_batch(self, values: list[int]) -> object:
            return given

    step = Step(Short(), world, CallSettings(LONG_MS))
    step.rows(1)
    with pytest.raises(UserCodeFailed, match="for a batch of 1 rows"):
        step.until(lambda: False)


def test_a_row_waits_for_others_no_longer_than_a_call_takes_or_the_limit(world: World) -> None:
    model = Model()
    step = Step(model, world, CallSettings(LONG_MS, batch_wait_ms=20))
    step.rows(1)
    step.pass_time(40)
    step.rows(2)
    step.pass_time(10)
    assert model.batches == [[1]]
    step.rows(4)
    step.turn()
    assert model.batches == [[1], [2, 4]]
    step.pass_time(40)
    step.rows(5)
    step.pass_time(10)
    assert len(model.batches) == 2
    step.pass_time(11)
    assert model.batches[2:] == [[5]]
    step.finish()


def test_a_batch_on_a_thread_keeps_the_places_of_rows_whose_time_is_over(world: World) -> None:
    gate = Gate()

    class Slow(AsyncFunction[int, object]):
        def async_invoke_batch(self, values: list[int]) -> list[list[object]]:
            return [[gate(value)] for value in values]

        def timeout(self, value: int) -> list[object]:
            return [f"nothing about {value}"]

    step = Step(Slow(), world, CallSettings(50, capacity=1))
    step.rows(1, 2)
    step.until(lambda: gate.begun == [1])
    step.pass_time(60)
    assert step.out.values == ["nothing about 1"]
    assert step.metric("callsGoingOnAfterTimeout") == 1
    gate.open.set()
    step.until(lambda: len(step.out.values) == 2)
    assert step.out.values[1] == "about 2"
    step.close()


def limits(rows: int = 64, cost_s: float = 10) -> BatchLimits:
    return BatchLimits(rows=rows, wait_s=1, cost_s=cost_s, calls=1)


def sizes(limits: BatchLimits, costs_s: Callable[[int], float], calls: int) -> list[int]:
    """The sizes of so many full batches."""
    size, found = BatchSize(limits), list[int]()
    for _ in range(calls):
        found.append(size.rows)
        size.took(size.rows, costs_s(size.rows))
    return found


def test_a_batch_of_rows_that_cost_the_same_each_stays_small() -> None:
    assert sizes(limits(), lambda rows: 5 * rows, 5) == [1, 2, 1, 1, 1]


def test_a_batch_never_costs_more_than_half_of_a_rows_time() -> None:
    found = sizes(limits(cost_s=2.0), lambda rows: 1 + 0.1 * rows, 8)
    assert found == [1, 2, 4, 8, 16, 8, 8, 8]


def test_a_larger_batch_is_tried_once_more_after_a_while() -> None:
    found = sizes(limits(cost_s=2.0), lambda rows: 1 + 0.1 * rows, 120)
    assert 16 in found[10:]
