"""Operators that leave something to be awaited when their subtask is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.slot.cluster import Cluster, run
from tests.slot.operators import NOTHING, ONE_BY_ONE
from tests.worlds.subtask import WITHOUT_CHECKPOINTS, Recorder, ScriptedSource
from tidegate.model.control import Cancel, ExecutionState, Pulse, SubtaskChanged
from tidegate.slot.subtask import hosted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.slot.slot import Slot


class Leaving(Recorder):
    """Leaves an awaitable behind, or fails in its close."""

    def __init__(self, leave: Callable[[], Awaitable[None]]) -> None:
        super().__init__("sink", [])
        self._leave = leave

    def close(self) -> Any:
        return self._leave()


def told_of(leave: Callable[[], Awaitable[None]], patch: pytest.MonkeyPatch) -> list[str]:
    """What is logged as a subtask is cancelled whose operator leaves this."""
    told: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        executions = await cluster.deploy([slot])
        with capture_logs() as logs:
            for execution in executions:
                cluster.tell(slot, Cancel(execution))
                await cluster.changed_to(execution, ExecutionState.CANCELED)
            await cluster.nothing_is_beside(slot)
        told.extend(entry["event"] for entry in logs)
        assert cluster.holds(slot) == []

    source = ScriptedSource("source", [], list(NOTHING))
    operators = {"source": [source], "sink": [Leaving(leave)]}
    run(lambda: Cluster(ONE_BY_ONE, operators), work, patch)
    return told


def test_what_an_operator_leaves_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def flushed() -> None:
        await asyncio.sleep(0)
        done.append("flushed")

    assert told_of(flushed, monkeypatch) == []
    assert done == ["flushed"]


def test_what_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise OSError("no connection")

    assert told_of(failing, monkeypatch) == ["closing an operator failed"]


@pytest.mark.parametrize("raised", [SystemExit(2), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_is_no_exception_is_told_too(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once() -> Any:
        raise raised

    async def later() -> None:
        await asyncio.sleep(0)
        raise raised

    assert told_of(at_once, monkeypatch) == ["closing an operator failed"]
    assert told_of(later, monkeypatch) == ["closing an operator failed"]


@pytest.mark.parametrize("is_later", [False, True])
def test_a_subtask_at_its_end_fails_of_what_fails_in_its_close(
    is_later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once() -> Any:
        raise OSError("flush failed")

    async def later() -> None:
        await asyncio.sleep(0)
        raise OSError("flush failed")

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        await cluster.changed_to(source, ExecutionState.FINISHED)
        failed = await cluster.changed_to(sink, ExecutionState.FAILED)
        assert "OSError: flush failed" in str(failed.error)
        assert failed.figures is not None and failed.figures.rows_in == 1
        assert [change.state for change in cluster.of(SubtaskChanged)].count(failed.state) == 1

    operators = {
        "source": [ScriptedSource("source", [], ["x"])],
        "sink": [Leaving(later if is_later else at_once)],
    }
    run(lambda: Cluster(ONE_BY_ONE, operators, settings=WITHOUT_CHECKPOINTS), work, monkeypatch)


def test_a_subtask_has_finished_once_what_it_leaves_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gates: list[asyncio.Future[None]] = []

    async def waits() -> None:
        gates.append(asyncio.get_running_loop().create_future())
        await gates[0]

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, sink = await cluster.deploy([slot])
        await cluster.eventually(lambda: bool(gates))
        await cluster.settle()
        assert cluster.state(sink) is ExecutionState.RUNNING
        gates[0].set_result(None)
        await cluster.changed_to(sink, ExecutionState.FINISHED)

    operators = {"source": [ScriptedSource("source", [], ["x"])], "sink": [Leaving(waits)]}
    run(lambda: Cluster(ONE_BY_ONE, operators, settings=WITHOUT_CHECKPOINTS), work, monkeypatch)


def test_what_takes_too_long_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(hosted, "CLOSE_LIMIT_S", 0.01)
    [told] = told_of(never, monkeypatch)
    assert told == "closing an operator takes too long and is abandoned; check its 'close'"


def test_a_close_is_a_call_of_its_subtask_that_a_heartbeat_tells_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Pulse] = []
    slots: list[Slot] = []

    class Closing(Recorder):
        def close(self) -> None:
            told.append(slots[0].pulse())

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        slots.append(cluster.slots[slot])
        _, sink = await cluster.deploy([slot])
        cluster.tell(slot, Cancel(sink))
        await cluster.changed_to(sink, ExecutionState.CANCELED)
        assert [pulse.calling for pulse in told] == [sink]
        assert slots[0].pulse().calling is None

    source = ScriptedSource("source", [], list(NOTHING))
    operators = {"source": [source], "sink": [Closing("sink", [])]}
    run(lambda: Cluster(ONE_BY_ONE, operators), work, monkeypatch)
