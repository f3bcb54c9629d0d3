"""The commit protocol, with a sink whose target is a list."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.operators.world import Hosted, World
from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import Prepared, WriterContext
from tidegate.errors import CommitFailed, StorageFailed
from tidegate.model.elements import Batch, OperatorEvent, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.sinks.sink import SinkOperator, commit


class ListSink:
    """Commits texts into a list, and fails as often as it is told to."""

    def __init__(self, *, failures: int = 0, lost: bool = False) -> None:
        self.committed: list[str] = []
        self.commits: list[list[str]] = []
        self.failures = failures
        self.lost = lost
        self.restored: list[bytes] = []
        self.writer_made = self.closed = 0
        self.checked = False
        self.told: list[str] = []

    def check(self) -> None:
        self.checked = True

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "ListWriter":
        self.restored = list(restored)
        self.writer_made += 1
        self.committed_before_writer = list(self.committed)
        return ListWriter(self)

    def committer(self) -> "ListSink":
        return self

    def commit(self, committables: Sequence[bytes]) -> None:
        if self.lost:
            raise CommitFailed("it is lost")
        if self.failures:
            self.failures -= 1
            raise StorageFailed("not now")
        texts = [data.decode() for data in committables]
        self.commits.append(texts)
        self.committed += [text for text in texts if text not in self.committed]

    def close(self) -> None:
        self.closed += 1


class ListWriter:
    def __init__(self, sink: ListSink) -> None:
        self._sink = sink
        self._rows: list[str] = []

    def write(self, batch: Batch) -> Awaitable[object] | None:
        self._rows += [str(value) for value in as_rows(batch).values]
        return None

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        self._sink.told.append("prepare")
        rows, self._rows = self._rows, []
        return Prepared([row.encode() for row in rows])

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        self._sink.told.append(f"snapshot {checkpoint}")
        return [f"state of {checkpoint}".encode()]

    def close(self) -> None:
        self._sink.closed += 1


def test_checkpoints_are_committed_in_their_order_with_those_given_up_before(
    world: World,
) -> None:
    sink = ListSink()
    step = Hosted(SinkOperator(sink), world)
    for checkpoint, row in enumerate("abc", start=1):
        step.rows(row)
        step.snapshot(checkpoint)
    step.operator.on_aborted(CheckpointId(1))
    step.complete(2)
    assert sink.commits == [["a"], ["b"]]
    step.complete(3)
    assert sink.commits == [["a"], ["b"], ["c"]]


def test_what_is_not_confirmed_stays_in_the_next_checkpoint(world: World) -> None:
    sink = ListSink()
    step = Hosted(SinkOperator(sink), world)
    step.rows("a")
    step.snapshot(1)
    step.rows("b")
    before = step.snapshot(2).lists[0]["SinkCommittables"]
    step.complete(1)
    after = step.snapshot(3).lists[0]["SinkCommittables"]
    assert before == [(1, b"a"), (2, b"b")]
    assert after == [(2, b"b")]


def test_a_world_that_fails_is_tried_again(world: World) -> None:
    sink = ListSink(failures=3)
    step = Hosted(SinkOperator(sink), world, settings=SlotSettings(commit_retries=3))
    step.rows("a")
    step.snapshot(1)
    step.complete(1)
    assert sink.committed == ["a"]


@pytest.mark.feature("F283")
def test_a_commit_is_given_up_after_its_retries(world: World) -> None:
    sink = ListSink(failures=5)
    step = Hosted(SinkOperator(sink), world, settings=SlotSettings(commit_retries=3), name="out")
    step.rows("a")
    step.snapshot(1)
    with pytest.raises(
        CommitFailed, match=r"1 committables of checkpoint 1 .* in 4 tries"
    ) as caught:
        step.complete(1)
    assert sink.failures == 1
    assert caught.value.where == "operator 'out'"


def test_what_cannot_succeed_is_not_tried_again(world: World) -> None:
    sink = ListSink(lost=True)
    step = Hosted(SinkOperator(sink), world)
    step.rows("a")
    step.snapshot(1)
    with pytest.raises(CommitFailed, match="it is lost"):
        step.complete(1)
    assert world.monotonic_ms() < 10


@pytest.mark.feature("F285")
def test_a_restore_commits_all_that_the_checkpoint_holds_before_the_writer_is_made(
    world: World,
) -> None:
    sink = ListSink()
    lists = {"SinkCommittables": [(2, b"b"), (1, b"a")], "SinkWriterState": [b"mine"]}
    step = Hosted(SinkOperator(sink), world, lists=lists, restored=CheckpointId(2))
    assert sink.writer_made == 0
    step.rows("c")
    assert sink.commits == [["a"], ["b"]]
    assert sink.committed_before_writer == ["a", "b"]
    assert sink.restored == [b"mine"]
    assert step.snapshot(3).lists[0]["SinkCommittables"] == [(3, b"c")]


def test_a_checkpoint_that_comes_before_the_restored_is_committed_waits_for_it(
    world: World,
) -> None:
    sink = ListSink()
    lists = {"SinkCommittables": [(1, b"a")], "SinkWriterState": [b"mine"]}
    step = Hosted(SinkOperator(sink), world, lists=lists, restored=CheckpointId(1))
    cut = step.cut(2)
    assert cut.lists == lists
    assert sink.committed == []
    assert cut.durable is not None
    world.wait_for(cut.durable)
    assert sink.committed == ["a"]


def test_a_writer_that_is_made_late_hears_of_each_barrier_that_has_passed(world: World) -> None:
    sink = ListSink()
    lists = {"SinkCommittables": [(1, b"a")], "SinkWriterState": [b"mine"]}
    step = Hosted(SinkOperator(sink), world, lists=lists, restored=CheckpointId(1))
    step.cut(2)
    cut = step.cut(3)
    assert sink.told == [] and cut.lists["SinkWriterState"] == [b"mine"]
    step.rows("b")
    assert sink.told == ["prepare", "snapshot 2", "prepare", "snapshot 3"]
    assert step.snapshot(4).lists[0] == {
        "SinkCommittables": [(4, b"b")],
        "SinkWriterState": [b"state of 4"],
    }


def test_what_a_late_writer_prepares_at_once_belongs_to_the_next_checkpoint(world: World) -> None:
    class Restoring(ListSink):
        def writer(self, context: WriterContext, restored: Sequence[bytes]) -> ListWriter:
            writer = ListWriter(self)
            writer.write(RowBatch([data.decode() for data in restored]))
            return writer

    lists = {"SinkCommittables": [(1, b"a")], "SinkWriterState": [b"begun"]}
    step = Hosted(SinkOperator(Restoring()), world, lists=lists, restored=CheckpointId(1))
    world.wait_for(step.cut(2).durable)
    assert step.snapshot(3).lists[0]["SinkCommittables"] == [(3, b"begun")]


def test_a_commit_that_takes_long_takes_later_checkpoints_along(world: World) -> None:
    sink = ListSink()
    step = Hosted(SinkOperator(sink), world)
    for checkpoint, row in enumerate("abc", start=1):
        step.rows(row)
        step.snapshot(checkpoint)
    for checkpoint in (1, 2, 3):
        world.on_loop(lambda n=checkpoint: step.operator.on_complete(CheckpointId(n)))
    world.settle()
    assert sink.commits == [["a"], ["b"], ["c"]]


class Hanging:
    """The pool of a world in which a commit returns when the test says so."""

    def __init__(self, world: World) -> None:
        self.answer = world.loop.create_future()

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self.answer


def test_a_commit_that_does_not_return_is_told_of_again_and_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Hanging(world)
    committing = commit(
        ListSink(), [b"a", b"b"], pool.run_blocking, retries=0, name="out", of="checkpoint 7"
    )
    world.start(committing)
    world.pass_time(29_000)
    assert caplog.messages == []
    world.pass_time(32_000)
    text = "operator 'out' has been committing 2 committables of checkpoint 7 for"
    assert caplog.messages == [f"{text} 30 s", f"{text} 60 s"]
    world.on_loop(lambda: pool.answer.set_exception(StorageFailed("it was slow, and failed")))
    with pytest.raises(CommitFailed, match="it was slow"):
        world.settle()


def test_what_waits_for_its_commit_is_counted(world: World) -> None:
    step = Hosted(SinkOperator(ListSink()), world)
    for checkpoint, row in enumerate("ab", start=1):
        step.rows(row)
        step.snapshot(checkpoint)
    assert pending(step) == 2
    step.complete(1)
    assert pending(step) == 1


def pending(step: Hosted) -> object:
    read = {key.name: value for key, value in step.context.registry.read().items()}
    return read.get("pendingCommittables")


def test_a_sink_that_commits_nothing_counts_nothing(world: World) -> None:
    class Printing(ListSink):
        def committer(self) -> None:
            return None

    assert pending(Hosted(SinkOperator(Printing()), world)) is None


def test_two_completions_at_once_are_committed_once_each(world: World) -> None:
    sink = ListSink()
    step = Hosted(SinkOperator(sink), world)
    for checkpoint, row in enumerate("ab", start=1):
        step.rows(row)
        step.snapshot(checkpoint)

    def both() -> None:
        step.operator.on_complete(CheckpointId(1))
        step.operator.on_complete(CheckpointId(2))

    world.on_loop(both)
    world.settle()
    assert sink.commits == [["a"], ["b"]]


def test_after_the_end_of_input_the_writer_is_not_asked_again(world: World) -> None:
    sink = ListSink()
    step = Hosted(SinkOperator(sink), world)
    step.rows("a")
    step.finish()
    assert step.snapshot(1).lists[0]["SinkCommittables"] == [(1, b"a")]
    step.snapshot(2)
    step.complete(2)
    assert sink.commits == [["a"]]


def test_closing_closes_writer_and_committer_even_before_open(world: World) -> None:
    sink = ListSink()
    SinkOperator(sink).close()
    assert sink.closed == 0
    step = Hosted(SinkOperator(sink), world)
    step.operator.close()
    assert sink.closed == 2


def test_the_sink_is_checked_where_the_job_is_submitted() -> None:
    sink = ListSink()
    SinkOperator(sink).check()
    assert sink.checked


def test_only_a_sink_with_a_coordinator_has_one() -> None:
    class Coordinated(ListSink):
        def coordinator(self, context: object) -> str:
            return "mine"

    assert not hasattr(SinkOperator(ListSink()), "coordinator")
    assert SinkOperator(Coordinated()).coordinator(None) == "mine"


def test_a_slow_writer_holds_back_its_input(world: World) -> None:
    class Slow(ListWriter):
        def write(self, batch: Batch) -> Awaitable[object]:
            self.room = world.loop.create_future()
            return self.room

        def on_event(self, event: OperatorEvent) -> None:
            self.room.set_result(None)

    class SlowSink(ListSink):
        def writer(self, context: WriterContext, restored: Sequence[bytes]) -> Slow:
            return Slow(self)

    step = Hosted(SinkOperator(SlowSink()), world)
    steps = world.on_loop(lambda: step.operator.process(RowBatch(["a"]), 0, step.out))
    waited = next(steps)
    assert not waited.done()
    step.operator.on_event(OperatorEvent("go on"))
    assert waited.done()
    assert next(steps, "exhausted") == "exhausted"
