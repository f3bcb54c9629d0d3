"""Results back to the program, each once, and never more than it can hold; and printing."""

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.world import FakeCoordinatorContext, Hosted, World, arrow
from tidegate.api.results import ResultBuffer
from tidegate.api.rows.batches import dict_rows
from tidegate.connectors.collect import CollectSink
from tidegate.connectors.print import PrintSink
from tidegate.errors import JobFailed
from tidegate.model.elements import OperatorEvent, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.sinks.sink import SinkOperator

MANY = 40_000
"""More rows than the sink sends ahead of who takes them."""


class Collecting:
    """A collect sink with its coordinator."""

    def __init__(
        self,
        world: World,
        *,
        rows_max: int = 1_000,
        checkpointing: bool = True,
        settings: SlotSettings | None = None,
    ) -> None:
        self.settings = settings
        self.world = world
        self.buffer = ResultBuffer(rows_max)
        self.checkpointing = checkpointing
        self.attempt = 0
        self.start({}, None)

    def start(self, lists: dict[str, list[object]], restored: CheckpointId | None) -> None:
        self.context = FakeCoordinatorContext(self.world, 1)
        self.context.buffers["rows"] = self.buffer
        sink = CollectSink("rows")
        self.coordinator = sink.coordinator(self.context)
        self.sent: list[OperatorEvent] = []
        self.step = Hosted(
            SinkOperator(sink),
            self.world,
            lists=lists,
            restored=restored,
            attempt=self.attempt,
            checkpointing=self.checkpointing,
            settings=self.settings,
            send=self.sent.append,
        )

    def deliver(self) -> None:
        while self.sent:
            self.coordinator.on_event(0, self.sent.pop(0))
        while self.context.sent:
            self.step.operator.on_event(self.context.sent.popleft()[1])

    def restart(self, lists: dict[str, list[object]], checkpoint: int) -> None:
        self.attempt += 1
        self.start(lists, CheckpointId(checkpoint))

    def taken(self) -> list[object]:
        rows: list[object] = []
        while self.buffer._chunks:
            chunk = self.buffer.take()
            rows += chunk if isinstance(chunk, list) else dict_rows(chunk)
        return rows


def test_rows_are_released_when_their_checkpoint_is_complete(world: World) -> None:
    job = Collecting(world)
    job.step.rows(1, 2)
    job.step.snapshot(1)
    job.step.rows(3)
    job.deliver()
    assert job.taken() == []
    job.step.complete(1)
    job.deliver()
    assert job.taken() == [1, 2]


def test_without_checkpoints_rows_are_released_at_once(world: World) -> None:
    job = Collecting(world, checkpointing=False)
    job.step.rows(1, 2)
    job.deliver()
    assert job.taken() == [1, 2]
    job.step.process(arrow({"n": [3]}))
    job.step.finish()
    job.deliver()
    assert job.taken() == [{"n": 3}]


def test_the_end_of_the_job_delivers_the_rest(world: World) -> None:
    job = Collecting(world)
    job.step.rows(1)
    job.step.finish()
    job.step.snapshot(1)
    job.step.complete(1)
    job.deliver()
    job.buffer.end()
    assert list(job.buffer) == [1]


def test_where_nobody_answers_rows_leave_before_the_snapshot_and_are_not_in_it(
    world: World,
) -> None:
    job = Collecting(world, settings=SlotSettings(repeatable=True))
    job.step.rows(*range(MANY))
    job.step.rows(1)
    assert job.step.snapshot(1).lists[0]["SinkWriterState"] == []
    for event in job.sent:
        job.coordinator.on_event(0, event)
    assert len(job.taken()) == MANY + 1


@pytest.mark.parametrize("delivered", [False, True])
def test_a_crash_after_completion_delivers_each_row_once(world: World, delivered: bool) -> None:
    job = Collecting(world)
    job.step.rows(1, 2)
    lists = job.step.snapshot(1).lists[0]
    job.step.complete(1)
    if delivered:
        job.deliver()
    job.restart(lists, 1)
    job.deliver()
    job.step.rows(3)
    job.step.snapshot(2)
    job.step.complete(2)
    job.deliver()
    assert job.taken() == [1, 2, 3]


def test_a_program_that_does_not_take_holds_back_the_sink(world: World) -> None:
    job = Collecting(world, rows_max=10, checkpointing=False)
    operator = job.step.operator

    def waits() -> object:
        steps = world.on_loop(
            lambda: operator.process(RowBatch(list(range(30_000))), 0, job.step.out)
        )
        return next(steps) if steps is not None else None

    waited = [waits(), waits()]
    assert waited[0] is None
    job.deliver()
    assert not waited[1].done()
    assert len(job.taken()) == 60_000
    world.pass_time(50)
    job.deliver()
    assert waited[1].done()


def test_confirmed_chunks_leave_the_state(world: World) -> None:
    job = Collecting(world)
    job.step.rows(1)
    job.step.snapshot(1)
    job.step.complete(1)
    assert len(job.step.snapshot(2).lists[0]["SinkWriterState"]) == 1
    job.deliver()
    assert job.step.snapshot(3).lists[0]["SinkWriterState"] == []


@given(order=st.permutations(range(1, 9)), again=st.lists(st.integers(1, 8)))
def test_a_chunk_counts_once_in_whatever_order_chunks_come(
    order: list[int], again: list[int]
) -> None:
    buffer = ResultBuffer()
    for number in [*order, *again]:
        buffer.put("a", number, [number])
    buffer.put("b", 1, ["b"])
    buffer.end()
    assert list(buffer) == [*order, "b"]


def test_what_ends_the_job_is_raised_after_the_rest() -> None:
    buffer = ResultBuffer()
    buffer.put("a", 1, [1, 2])
    buffer.end(JobFailed("it broke"))
    buffer.put("a", 2, [3])
    rows = iter(buffer)
    assert [next(rows), next(rows)] == [1, 2]
    with pytest.raises(JobFailed, match="it broke"):
        next(rows)


def test_records_that_wait_can_be_looked_at_and_stay() -> None:
    buffer = ResultBuffer()
    assert buffer.waiting(3) == []
    buffer.put("a", 1, [1, 2])
    buffer.put("a", 2, pa.RecordBatch.from_pylist([{"n": 3}, {"n": 4}]))
    assert buffer.waiting(1) == [1]
    assert buffer.waiting(3) == [1, 2, {"n": 3}]
    assert buffer.waiting(9) == [1, 2, {"n": 3}, {"n": 4}]
    buffer.end()
    assert list(buffer) == [1, 2, {"n": 3}, {"n": 4}] and buffer.waiting(9) == []


def test_a_taker_waits_for_rows() -> None:
    buffer = ResultBuffer()
    taken: list[object] = []
    taker = threading.Thread(target=lambda: taken.extend(buffer))
    taker.start()
    buffer.put("a", 1, [1])
    buffer.end()
    taker.join(10)
    assert taken == [1]


# --- print ---


@pytest.mark.parametrize(
    ("identifier", "parallelism", "line"),
    [
        (None, 1, "x\n"),
        (None, 4, "2> x\n"),
        ("mine", 1, "mine> x\n"),
        ("mine", 4, "mine:2> x\n"),
    ],
)
def test_lines_begin_as_flink_begins_them(
    world: World,
    capsys: pytest.CaptureFixture[str],
    identifier: str | None,
    parallelism: int,
    line: str,
) -> None:
    subtask = 1 if parallelism > 1 else 0
    step = Hosted(
        SinkOperator(PrintSink(identifier)), world, subtask=subtask, parallelism=parallelism
    )
    step.rows("x")
    assert capsys.readouterr().out == line


def test_printing_may_go_to_the_standard_error(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Hosted(SinkOperator(PrintSink(to_error=True)), world)
    step.rows((1, "a"))
    step.process(arrow({"n": [1]}))
    step.snapshot(1)
    step.complete(1)
    step.finish()
    assert capsys.readouterr().err == "(1, 'a')\n{'n': 1}\n"
