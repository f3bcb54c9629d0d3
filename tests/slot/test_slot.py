"""A slot under its driver: deployments, links, failures, and what it leaves behind."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.slot.cluster import SETTINGS, Cluster, line, run, vertex
from tests.slot.operators import (
    NOTHING,
    ONE_BY_ONE,
    pair,
)
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.api.operator import KeyBy, Operator, OperatorContext, Output, Polled, Steps
from tidegate.errors import UserCodeFailed
from tidegate.model.control import (
    Cancel,
    CheckpointDeclined,
    Deploy,
    ExecutionState,
    Refused,
    Release,
    SlotLeaving,
    Start,
    SubtaskChanged,
)
from tidegate.model.elements import Batch, RowBatch
from tidegate.model.ids import SlotId
from tidegate.model.settings import SlotSettings
from tidegate.model.topology import Partitioner


def test_a_slot_offers_itself_hosts_subtasks_and_goes_when_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        assert cluster.offers[slot].request == "r"
        source, sink = await cluster.deploy([slot])
        await cluster.until(lambda: "sink: rows ['x']" in log)
        cluster.tell(slot, Release("over"))
        assert await cluster.running[slot] == "over"
        assert isinstance(cluster.said[-1], SubtaskChanged | SlotLeaving)
        assert [s for s in (cluster.state(source), cluster.state(sink))] == [
            ExecutionState.CANCELED
        ] * 2
        assert log[-2:] == ["source: close", "sink: close"]

    run(lambda: Cluster(ONE_BY_ONE, pair(log, ["x", *NOTHING])), work, monkeypatch)


def test_a_refused_slot_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.tell(slot, Refused("too many"))
        assert await cluster.running[slot] == "refused: too many"

    run(lambda: Cluster(ONE_BY_ONE, {}), work, monkeypatch)


def test_a_slot_whose_driver_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        await cluster.deploy([slot])
        cluster.wires[slot].close()
        assert await cluster.running[slot] == "the driver is gone"
        assert log[-2:] == ["source: close", "sink: close"]

    run(lambda: Cluster(ONE_BY_ONE, pair(log)), work, monkeypatch)


def test_a_cancel_right_behind_the_deployment_leaves_no_subtask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        for _, message in cluster.deployments([slot]):
            cluster.tell(slot, message)
            cluster.tell(slot, Cancel(message.execution))
        await cluster.until(lambda: len(cluster.of(SubtaskChanged)) >= 2)
        await cluster.settle()
        assert {c.state for c in cluster.of(SubtaskChanged)} == {ExecutionState.CANCELED}
        assert cluster.holds(slot) == []

    run(lambda: Cluster(ONE_BY_ONE, pair(log)), work, monkeypatch)


def test_a_cancel_while_the_state_is_fetched_ends_the_subtask_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.gate.clear()
        sent = cluster.deployments([slot])
        for _, message in sent:
            cluster.tell(slot, message)
        await cluster.settle()
        for _, message in sent:
            cluster.tell(slot, Cancel(message.execution))
        for _, message in sent:
            await cluster.changed_to(message.execution, ExecutionState.CANCELED)
        cluster.gate.set()
        await cluster.settle()
        assert ExecutionState.INITIALIZING not in {c.state for c in cluster.of(SubtaskChanged)}
        assert cluster.holds(slot) == []

    run(lambda: Cluster(ONE_BY_ONE, pair(log)), work, monkeypatch)


def test_a_failure_in_a_function_is_told_with_its_place_and_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            raise ZeroDivisionError("row 7")

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, sink = await cluster.deploy([slot])
        failed = await cluster.changed_to(sink, ExecutionState.FAILED)
        assert isinstance(failed.error, UserCodeFailed)
        assert "ZeroDivisionError: row 7" in str(failed.error)
        assert "sink (1/1)" in str(failed.error) and "raise ZeroDivisionError" in failed.error.trace

    operators = {"source": [ScriptedSource("s", [], ["x", *NOTHING])], "sink": [Broken("b", [])]}
    run(lambda: Cluster(ONE_BY_ONE, operators), work, monkeypatch)


def test_a_cancel_that_comes_while_a_failure_is_told_breaks_nothing_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signal may find the slot in a library that it calls itself, such as `copy`."""
    calls: list[Any] = []
    signalled: list[bool] = []

    class Odd(UserCodeFailed):
        def __copy__(self) -> "Odd":
            call = calls[0].current
            calls[0].interrupt([] if call is None else [call.execution], sys._getframe())
            signalled.append(True)
            return self

        def __reduce__(self) -> tuple[object, ...]:
            return UserCodeFailed, (self.what,)

    class Broken(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            raise Odd("row 7")

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        calls.append(cluster.slots[slot].calls)
        _, sink = await cluster.deploy([slot])
        failed = await cluster.changed_to(sink, ExecutionState.FAILED)
        assert "row 7" in str(failed.error) and signalled
        assert not cluster.running[slot].done()

    operators = {"source": [ScriptedSource("s", [], ["x", *NOTHING])], "sink": [Broken("b", [])]}
    run(lambda: Cluster(ONE_BY_ONE, operators), work, monkeypatch)


def test_of_a_chain_that_does_not_open_only_what_was_opened_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed(Recorder):
        def open(self, context: OperatorContext) -> None:
            raise OSError("no such host")

    log: list[str] = []
    topology = line(vertex("source"), vertex("sink", operators=3))
    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Recorder("head", log), Closed("mid", log), Recorder("tail", log)],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        for _, message in cluster.deployments([slot]):
            cluster.tell(slot, message)
        failed = await cluster.changed_to(message.execution, ExecutionState.FAILED)
        assert "no such host" in str(failed.error)
        assert log == ["tail: close", "mid: close"]

    run(lambda: Cluster(topology, operators), work, monkeypatch)


def test_an_operator_that_does_not_close_does_not_keep_the_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Recorder):
        def close(self) -> None:
            super().close()
            raise OSError("cannot close")

    log: list[str] = []
    topology = line(vertex("source"), vertex("sink", operators=2))
    operators = {
        "source": [ScriptedSource("s", [], list(NOTHING))],
        "sink": [Recorder("head", log), Stuck("tail", log)],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, sink = await cluster.deploy([slot])
        cluster.tell(slot, Cancel(sink))
        await cluster.changed_to(sink, ExecutionState.CANCELED)
        assert log == ["tail: close", "head: close"]

    run(lambda: Cluster(topology, operators), work, monkeypatch)


@pytest.mark.parametrize(
    ("places", "peers"),
    [("ab", ["b", "a"]), ("aba", ["b", "a"]), ("aa", [""])],
    ids=["each its own", "a guest", "one hosts all"],
)
def test_rows_go_from_slot_to_slot_each_to_the_holder_of_its_key(
    places: str, peers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(places)
    topology = line(vertex("source", count), vertex("count", count), partitioner=Partitioner.HASH)
    counted: list[str] = []

    class Naming(Recorder):
        def open(self, context: OperatorContext) -> None:
            self.subtask = context.info.subtask

        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch) and batch.key_groups is not None
            for value, group in zip(batch.values, batch.key_groups, strict=True):
                assert group * count // 8 == self.subtask
                counted.append(str(value))
            return None

    class Two(dict[str, list[Operator]]):
        """New operators for each subtask, as if each had been unpickled."""

        def __getitem__(self, name: str) -> list[Operator]:
            if name == "source":
                return [ScriptedSource("s", [], [*range(20), *NOTHING])]
            return [Naming("count", [])]

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start(*sorted(set(places)))
        await cluster.deploy([SlotId(place) for place in places])
        await cluster.eventually(lambda: len(counted) == 20 * count)
        assert sorted(counted) == sorted([str(n) for n in range(20)] * count)
        assert ["".join(cluster.peers(slot)) for slot in slots] == peers

    run(
        lambda: Cluster(topology, Two(), keys={"source": KeyBy(selector=lambda v: v)}),
        work,
        monkeypatch,
    )


def test_two_slots_share_one_link_however_many_subtasks_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = line(vertex("source", 2), vertex("a", 2), vertex("b", 2), vertex("sink", 2))
    dialled: list[str] = []

    class Fresh(dict[str, list[Operator]]):
        def __getitem__(self, name: str) -> list[Operator]:
            made = (
                ScriptedSource(name, [], list(NOTHING)) if name == "source" else Recorder(name, [])
            )
            return [made]

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a", "b")
        connect = cluster.network.connect

        async def counting(address: str, name: str, handler: Any) -> Any:
            dialled.append(name)
            await asyncio.sleep(0)
            return await connect(address, name, handler)

        cluster.network.connect = counting  # type: ignore[method-assign]
        await cluster.deploy(slots)
        assert dialled == ["a"]

    run(lambda: Cluster(topology, Fresh()), work, monkeypatch)


def test_subtasks_with_channels_to_a_lost_slot_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = line(vertex("source", 2), vertex("sink", 2))

    class Fresh(dict[str, list[Operator]]):
        def __getitem__(self, name: str) -> list[Operator]:
            made = (
                ScriptedSource(name, [], list(NOTHING)) if name == "source" else Recorder(name, [])
            )
            return [made]

    async def work(cluster: Cluster) -> None:
        first, second = await cluster.start("a", "b")
        executions = await cluster.deploy([first, second])
        cluster.running[second].cancel()
        for execution in executions:
            if execution.subtask.index == 0:
                failed = await cluster.changed_to(execution, ExecutionState.FAILED)
                assert failed.error is not None
                assert "the link to slot b is over" in failed.error.what
                name = "source" if execution.subtask.vertex.startswith(b"source") else "sink"
                assert failed.error.where == f"{name} (1/2)"

    run(lambda: Cluster(topology, Fresh()), work, monkeypatch)


def test_a_row_that_cannot_be_read_fails_its_reader_and_not_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = line(vertex("source", 1), vertex("sink", 2))

    class Rotten:
        def __reduce__(self) -> tuple[object, ...]:
            return (int, ("not a number",))

    class Fresh(dict[str, list[Operator]]):
        def __getitem__(self, name: str) -> list[Operator]:
            if name == "source":
                return [ScriptedSource("s", [], [1, Rotten(), *NOTHING])]
            return [Recorder(name, [])]

    async def work(cluster: Cluster) -> None:
        slots = await cluster.start("a", "b")
        _, here, there = await cluster.deploy(slots)
        failed = await cluster.changed_to(there, ExecutionState.FAILED)
        assert "invalid literal for int()" in str(failed.error)
        assert cluster.state(here) is ExecutionState.RUNNING
        assert cluster.peers(slots[0]) == ["b"]

    run(lambda: Cluster(topology, Fresh()), work, monkeypatch)


def test_few_rows_leave_within_the_buffer_timeout_though_their_subtask_is_never_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    emitted_ms: list[float] = []

    class Busy(ScriptedSource):
        def poll(self, out: Output) -> Polled:
            if len(log) == 2 - len(self.script[1:]) and self.script:  # each is read before the next
                emitted_ms.append(clusters[0].clock.now_ms)
                out.emit(RowBatch([self.script.pop(0)]))
            return Polled.MORE

    clusters: list[Cluster] = []
    settings = replace(SETTINGS, slot=SlotSettings(rows=16, buffer_timeout_ms=20))

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        clusters.append(cluster)
        await cluster.deploy([slot])
        await cluster.eventually(lambda: "sink: rows ['few']" in log)
        assert 20 <= cluster.clock.now_ms - emitted_ms[-1] < 200

    # The sink asks for longer batches once it has read the first row and sees the second.
    operators = {
        "source": [Busy("busy", [], ["1st", "2nd", "few"])],
        "sink": [Recorder("sink", log)],
    }
    run(lambda: Cluster(ONE_BY_ONE, operators, settings=settings), work, monkeypatch)


def test_a_new_attempt_hears_nothing_of_the_former_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[list[str]] = []

    class Fresh(dict[str, list[Operator]]):
        def __getitem__(self, name: str) -> list[Operator]:
            if name == "source":
                return [ScriptedSource("s", [], list(NOTHING))]
            logs.append([])
            return [Recorder("sink", logs[-1])]

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        old = await cluster.deploy([slot])
        for execution in old:
            cluster.tell(slot, Cancel(execution))
            await cluster.changed_to(execution, ExecutionState.CANCELED)
        new = await cluster.deploy([slot])
        for execution in old:
            cluster.tell(slot, Start(execution))
            cluster.tell(slot, Cancel(execution))
            cluster.trigger(slot, execution, 1)
        await cluster.until(lambda: len(cluster.of(CheckpointDeclined)) == 2)
        assert [cluster.state(execution) for execution in new] == [ExecutionState.RUNNING] * 2
        assert logs[0][-1] == "sink: close" and logs[1] == []

    run(lambda: Cluster(ONE_BY_ONE, Fresh()), work, monkeypatch)


def test_a_message_of_the_driver_that_cannot_be_done_ends_the_slot_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.wires[slot].send([b"no pickle"])
        await cluster.running[slot]
        (leaving,) = cluster.of(SlotLeaving)
        assert leaving.slot == SlotId("a") and leaving.error is not None
        assert "UnpicklingError" in str(leaving.error)

    run(lambda: Cluster(ONE_BY_ONE, {}), work, monkeypatch)


def test_deployments_are_values_that_survive_the_wire() -> None:
    import pickle

    deploy = Deploy(None, b"", ONE_BY_ONE, {}, {}, {})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(deploy)) == deploy
