"""What the steps of an operator wait for, in a slot: futures, coroutines, and those cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.slot.cluster import Cluster, run
from tests.slot.operators import NOTHING, ONE_BY_ONE
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.model.control import Cancel, ExecutionState
from tidegate.slot.loop.beside import BlockingCalls, DaemonThreads, guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.api.operator import Operator, OperatorContext, Output, Steps
    from tidegate.model.elements import Batch


class Awaiting(Recorder):
    """Waits for something before it notes each batch."""

    def __init__(self, log: list[str], made: Callable[[], Awaitable[object]]) -> None:
        super().__init__("sink", log)
        self._made = made

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        return self._steps(batch, out)

    def _steps(self, batch: Batch, out: Output) -> Steps:
        self.log.append("waits")
        yield self._made()
        super().process(batch, 0, out)


def of(log: list[str], made: Callable[[], Awaitable[object]]) -> dict[str, list[Operator]]:
    source = ScriptedSource("source", [], ["x", *NOTHING])
    return {"source": [source], "sink": [Awaiting(log, made)]}


def test_steps_go_on_once_a_coroutine_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    async def looked_up() -> None:
        await asyncio.sleep(0)
        log.append("looked up")

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a")
        await cluster.deploy(slots)
        await cluster.eventually(lambda: len(log) == 3)
        assert log == ["waits", "looked up", "sink: rows ['x']"]

    run(lambda: Cluster(ONE_BY_ONE, of(log, looked_up)), work, monkeypatch)


def test_a_subtask_fails_whose_steps_wait_for_what_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    futures: list[asyncio.Future[object]] = []

    def asked() -> Awaitable[object]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a")
        _, sink = await cluster.deploy(slots)
        await cluster.eventually(lambda: bool(futures))
        futures[0].cancel()
        failed = await cluster.changed_to(sink, ExecutionState.FAILED)
        assert failed.error is not None
        assert failed.error.what == "what the subtask waited for was cancelled"

    run(lambda: Cluster(ONE_BY_ONE, of(log, asked)), work, monkeypatch)


def test_a_subtask_that_is_cancelled_cancels_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    async def never() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            log.append("given up")

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a")
        _, sink = await cluster.deploy(slots)
        await cluster.eventually(lambda: log == ["waits"])
        await cluster.settle()
        cluster.tell(slots[0], Cancel(sink))
        await cluster.changed_to(sink, ExecutionState.CANCELED)
        await cluster.eventually(lambda: "given up" in log)
        assert log == ["waits", "sink: close", "given up"]

    run(lambda: Cluster(ONE_BY_ONE, of(log, never)), work, monkeypatch)


class NoFailure(BaseException):
    """No `Exception`, like the outcomes of pytest."""


NO_EXCEPTIONS = [SystemExit(3), KeyboardInterrupt(3), NoFailure(3), asyncio.CancelledError(3)]


class Raising(Recorder):
    """Raises what is no `Exception`, as a function does that takes itself for a script."""

    def __init__(self, call: str, raised: BaseException) -> None:
        super().__init__("sink", [])
        self._call = call
        self._raised = raised

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if self._call == "open":
            raise self._raised

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        raise self._raised


@pytest.mark.parametrize("call", ["open", "process"])
@pytest.mark.parametrize("raised", NO_EXCEPTIONS)
def test_a_function_that_raises_no_exception_has_failed(
    raised: BaseException, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ScriptedSource("source", [], ["x", *NOTHING])

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a")
        if call == "open":
            deployments = [deploy for _, deploy in cluster.deployments(slots)]
            for deploy in deployments:
                cluster.tell(slots[0], deploy)
            executions = [deploy.execution for deploy in deployments]
        else:
            executions = await cluster.deploy(slots)
        failed = await cluster.changed_to(executions[1], ExecutionState.FAILED)
        assert repr(raised) in str(failed.error)

    sink = Raising(call, raised)
    run(lambda: Cluster(ONE_BY_ONE, {"source": [source], "sink": [sink]}), work, monkeypatch)


@pytest.mark.parametrize("raised", NO_EXCEPTIONS[:3])
def test_a_coroutine_beside_a_subtask_that_raises_no_exception_has_failed(
    raised: BaseException,
) -> None:
    failures: list[Exception] = []

    async def leaves() -> None:
        raise raised

    async def work() -> None:
        await asyncio.get_running_loop().create_task(guarded(leaves(), failures.append))

    asyncio.run(work())
    assert list(map(str, failures)) == [f"the call raised {raised!r}"]


@pytest.mark.parametrize("raised", NO_EXCEPTIONS)
def test_a_call_on_a_thread_that_raises_no_exception_has_failed(raised: BaseException) -> None:
    def raises() -> None:
        raise raised

    async def work() -> None:
        threads = DaemonThreads(1)
        with pytest.raises(RuntimeError, match=type(raised).__name__):
            await BlockingCalls(threads.run).run(raises)
        threads.close()

    asyncio.run(work())
