"""Blocking calls outlive the subtask that made them; its operators are closed after them."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
import structlog

from tests.slot.cluster import Cluster, line, run, vertex
from tests.slot.operators import NOTHING, ONE_BY_ONE
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.api.operator import Operator, OperatorContext, Output, Steps
from tidegate.connectors.files.encoders import CsvEncoding, PartEncoder
from tidegate.connectors.files.file_sink import FileSink
from tidegate.model.control import Cancel, CheckpointAcknowledged, ExecutionState, Release
from tidegate.model.elements import Batch
from tidegate.operators.sinks.sink import SinkOperator
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.slot.subtask import hosted
from tidegate.storage.store import Writer, Written

HELD_S = 10


@dataclass
class Hold:
    """Where a call waits until it is let go."""

    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        self.begun.set()
        assert self.go_on.wait(HELD_S)

    async def reached(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self.begun.wait, HELD_S)


@dataclass
class HeldEncoder:
    """Waits in the middle of a write, or when the part is closed and nobody knows it yet."""

    inner: PartEncoder
    hold: Hold
    held_in: str

    def write(self, table: pa.Table) -> None:
        self.inner.write(table)
        if self.held_in == "write":
            self.hold()

    def close(self) -> Written:
        written = self.inner.close()
        self.hold()
        return written

    def abort(self) -> None:
        self.inner.abort()


@dataclass
class HeldEncoding:
    """CSV, slowly."""

    hold: Hold
    held_in: str
    suffix: str = ".csv"

    def encoder(self, writer: Writer, schema: pa.Schema) -> HeldEncoder:
        return HeldEncoder(CsvEncoding().encoder(writer, schema), self.hold, self.held_in)


def parts(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def hold() -> Iterator[Hold]:
    hold = Hold()
    yield hold
    hold.go_on.set()


@pytest.mark.parametrize("how", ["cancel", "release"])
@pytest.mark.parametrize("held_in", ["write", "close"])
def test_a_part_that_is_written_while_its_subtask_is_cancelled_is_closed_and_deleted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    hold: Hold,
    held_in: str,
    how: Literal["cancel", "release"],
) -> None:
    """A file left open would be told of by the garbage collector, and fail the test."""
    sink = FileSink(str(tmp_path), HeldEncoding(hold, held_in))  # type: ignore[arg-type]
    operators: dict[str, list[Operator]] = {
        "source": [ScriptedSource("source", [], [{"n": 1}, *NOTHING])],
        "sink": [SinkOperator(sink)],
    }

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, writing = await cluster.deploy([slot])
        await cluster.settle()
        cluster.trigger(slot, source, 1)  # so that what was gathered is written
        await hold.reached()
        assert len(parts(tmp_path)) == 1
        if how == "cancel":
            cluster.tell(slot, Cancel(writing))
        else:
            cluster.tell(slot, Release("over"))
        await cluster.changed_to(writing, ExecutionState.CANCELED)
        await cluster.settle()
        assert len(parts(tmp_path)) == 1
        hold.go_on.set()
        await cluster.eventually(lambda: not parts(tmp_path))
        if how == "release":
            assert await cluster.running[slot] == "over"
        assert [a for a in cluster.of(CheckpointAcknowledged) if a.execution == writing] == []

    run(lambda: Cluster(ONE_BY_ONE, operators, threads=True), work, monkeypatch)


class Calling(Recorder):
    """Makes a call that is held and another behind it, and waits for neither."""

    def __init__(self, log: list[str], hold: Hold) -> None:
        super().__init__("calling", log)
        self.hold = hold

    def open(self, context: OperatorContext) -> None:
        self.context = context

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.context.tasks.start(self._call(self.hold))
        self.context.tasks.start(self._call(lambda: self.log.append("the second call")))
        return None

    async def _call(self, call: object) -> None:
        await self.context.tasks.run_blocking(call)  # type: ignore[arg-type]
        self.log.append("heard of")


def calling(log: list[str], hold: Hold) -> dict[str, list[Operator]]:
    return {
        "source": [ScriptedSource("source", [], ["x", *NOTHING])],
        "sink": [Calling(log, hold)],
    }


def test_an_operator_is_closed_after_its_last_call_and_what_waits_is_not_made(
    monkeypatch: pytest.MonkeyPatch, hold: Hold
) -> None:
    log: list[str] = []

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, sink = await cluster.deploy([slot])
        await hold.reached()
        cluster.tell(slot, Cancel(sink))
        await cluster.changed_to(sink, ExecutionState.CANCELED)
        await cluster.settle()
        assert log == []
        hold.go_on.set()
        await cluster.eventually(lambda: bool(log))
        assert log == ["calling: close"]

    run(lambda: Cluster(ONE_BY_ONE, calling(log, hold), threads=True), work, monkeypatch)


def test_a_call_that_never_ends_is_told_of_and_keeps_no_slot_waiting(
    monkeypatch: pytest.MonkeyPatch, hold: Hold
) -> None:
    log: list[str] = []
    monkeypatch.setattr(hosted, "CALL_LIMIT_S", 0.01)

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        await cluster.deploy([slot])
        await hold.reached()
        with structlog.testing.capture_logs() as logged:
            cluster.tell(slot, Release("over"))
            assert await cluster.running[slot] == "over"
        (told,) = [line for line in logged if line["log_level"] == "warning"]
        assert "its call to a file or service is still running" in told["event"]
        assert log == []
        hold.go_on.set()
        await cluster.pool_is_idle()

    run(lambda: Cluster(ONE_BY_ONE, calling(log, hold), threads=True), work, monkeypatch)


class Idle:
    """A source whose readers wait for records that do not come, and each of them as well."""

    bounded = False

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.waiting = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.asked = False

    def reader(self, context: Any) -> "Idle":
        made = Idle(self.log)
        made.waiting, made.go_on, made.context = self.waiting, self.go_on, context
        return made

    finished = wants_splits = False

    def poll(self) -> None:
        if not self.asked:
            self.asked = True
            self.context.read_ahead(self._wait, lambda _: None)

    def _wait(self) -> None:
        self.waiting.release()
        assert self.go_on.wait(HELD_S)
        self.log.append(f"{self.context.subtask} has waited")

    def close(self) -> None:
        self.log.append(f"{self.context.subtask} is closed")

    async def all_wait(self, readers: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(readers):
            assert await loop.run_in_executor(None, self.waiting.acquire, True, HELD_S)


@pytest.fixture
def idle() -> Iterator[Idle]:
    idle = Idle([])
    yield idle
    idle.go_on.set()


class Opened(Recorder):
    """Shows the context that it is opened with."""

    def open(self, context: OperatorContext) -> None:
        self.context = context


def test_readers_that_wait_for_records_keep_nobody_else_waiting_and_are_closed_after_that(
    monkeypatch: pytest.MonkeyPatch, idle: Idle
) -> None:
    readers = 5
    sink = Opened("sink", [])

    class Operators(dict[str, list[Operator]]):
        def __getitem__(self, name: str) -> list[Operator]:
            return [sink if name == "sink" else SourceReaderOperator(idle)]  # type: ignore[arg-type]

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        *sources, _ = await cluster.deploy([slot] * readers)
        await idle.all_wait(readers)
        async with asyncio.timeout(HELD_S):
            assert await sink.context.tasks.run_blocking(lambda: "at once") == "at once"
        for source in sources:
            cluster.tell(slot, Cancel(source))
            await cluster.changed_to(source, ExecutionState.CANCELED)
        await cluster.settle()
        assert idle.log == []
        idle.go_on.set()
        await cluster.eventually(lambda: len(idle.log) == 2 * readers)
        for reader in range(readers):
            assert idle.log.index(f"{reader} has waited") < idle.log.index(f"{reader} is closed")

    many = line(vertex("source", readers), vertex("sink"))
    run(lambda: Cluster(many, Operators(), threads=True), work, monkeypatch)
