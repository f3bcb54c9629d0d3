"""Operators that leave something to be awaited when their subtask is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.slot.cluster import Cluster, run
from tests.slot.operators import NOTHING, ONE_BY_ONE
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.model.control import Cancel, ExecutionState
from tidegate.slot.subtask import hosted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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


def test_what_takes_too_long_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(hosted, "CLOSE_LIMIT_S", 0.01)
    [told] = told_of(never, monkeypatch)
    assert told == "closing an operator takes too long and is abandoned; check its 'close'"
