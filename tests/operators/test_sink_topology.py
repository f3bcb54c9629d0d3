"""Writers and committers that are operators of their own."""

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.operators.world import Hosted, World
from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import CommittableMessage, Prepared, WriterContext
from tidegate.errors import StorageFailed, UserError
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId
from tidegate.operators.sinks.sink_topology import CommitterOperator, SinkWriterOperator

if TYPE_CHECKING:
    from asyncio import Future


class Texts:
    """A sink whose writer prepares a committable for each row. durable: to be waited for."""

    def __init__(self, durable: Awaitable[object] | None = None) -> None:
        self.durable = durable
        self.calls: list[list[bytes]] = []
        self.closed = 0
        self._rows: list[bytes] = []

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "Texts":
        self.restored = list(restored)
        return self

    def committer(self) -> "Texts":
        return self

    def write(self, batch: Batch) -> None:
        self._rows += [str(value).encode() for value in as_rows(batch).values]

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        rows, self._rows = self._rows, []
        return Prepared(rows, self.durable)

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return [b"at %d" % checkpoint]

    def commit(self, committables: Sequence[bytes]) -> None:
        self.calls.append(list(committables))

    def close(self) -> None:
        self.closed += 1


def messages(*texts: str, subtask: int = 0, checkpoint: int = 0) -> list[CommittableMessage]:
    return [CommittableMessage(text.encode(), subtask, checkpoint) for text in texts]


def test_a_writer_hands_on_what_belongs_before_the_barrier(world: World) -> None:
    sink = Texts()
    lists: dict[str, list[object]] = {"SinkWriterState": [b"mine"]}
    step = Hosted(SinkWriterOperator(sink), world, subtask=3, lists=lists)
    assert sink.restored == [b"mine"]
    step.rows("a", "b")
    assert step.out.values == []
    taken = step.snapshot(1).lists[0]
    handed_on = messages("a", "b", subtask=3, checkpoint=1)
    assert step.out.values == handed_on
    assert taken == {"SinkWriterState": [b"at 1"]}
    step.rows("c")
    step.finish()
    step.snapshot(2)
    assert step.out.values == [*handed_on, *messages("c", subtask=3, checkpoint=2)]
    step.operator.close()
    assert sink.closed == 1


def test_a_checkpoint_waits_until_what_was_handed_on_is_durable(world: World) -> None:
    durable: Future[None] = world.loop.create_future()
    step = Hosted(SinkWriterOperator(Texts(durable)), world)
    step.rows("a")
    cut = step.cut(1)
    assert cut.durable is not None and not durable.done()
    world.on_loop(lambda: durable.set_result(None))
    world.wait_for(cut.durable)


def test_what_a_checkpoint_that_was_given_up_has_begun_is_waited_for_by_the_next(
    world: World,
) -> None:
    durable: Future[None] = world.loop.create_future()
    sink = Texts(durable)
    step = Hosted(SinkWriterOperator(sink), world)
    step.rows("a")
    step.cut(1)
    step.operator.on_aborted(CheckpointId(1))
    sink.durable = None  # nothing more is prepared
    cut = step.cut(2)
    assert cut.durable is not None
    world.on_loop(lambda: durable.set_result(None))
    world.wait_for(cut.durable)
    assert step.cut(3).durable is None


def test_what_cannot_be_made_durable_fails_each_checkpoint_that_would_commit_it(
    world: World,
) -> None:
    durable: Future[None] = world.loop.create_future()
    sink = Texts(durable)
    step = Hosted(SinkWriterOperator(sink), world)
    step.rows("a")
    step.cut(1)
    sink.durable = None
    durable.set_exception(StorageFailed("no room"))
    cut = step.cut(2)
    assert cut.durable is not None
    with pytest.raises(StorageFailed, match="no room"):
        world.wait_for(cut.durable)


def test_all_that_came_for_a_checkpoint_is_committed_by_one_call(world: World) -> None:
    sink = Texts()
    step = Hosted(CommitterOperator(sink.committer), world)
    step.rows(*messages("a", "b"))
    step.rows(*messages("c", subtask=1))
    assert step.snapshot(1).lists[0]["SinkCommittables"] == [(1, b"a"), (1, b"b"), (1, b"c")]
    step.rows(*messages("d"))
    assert sink.calls == []
    step.complete(1)
    assert sink.calls == [[b"a", b"b", b"c"]]
    assert step.snapshot(2).lists[0]["SinkCommittables"] == [(2, b"d")]
    step.complete(2)
    assert sink.calls[1:] == [[b"d"]]
    assert step.out.values == [*messages("a", "b"), *messages("c", subtask=1), *messages("d")]


def test_what_comes_ahead_of_its_checkpoint_waits_for_it(world: World) -> None:
    """At least once, the barriers of several writers are not aligned."""
    sink = Texts()
    step = Hosted(CommitterOperator(sink.committer), world)
    step.rows(*messages("first", checkpoint=1), *messages("ahead", subtask=1, checkpoint=2))
    assert step.snapshot(1).lists[0]["SinkCommittables"] == [(1, b"first")]
    step.complete(1)
    assert sink.calls == [[b"first"]]
    assert step.snapshot(2).lists[0]["SinkCommittables"] == [(2, b"ahead")]
    step.complete(2)
    assert sink.calls[1:] == [[b"ahead"]]


def test_what_a_restored_checkpoint_holds_is_committed_first(world: World) -> None:
    sink = Texts()
    lists: dict[str, list[object]] = {"SinkCommittables": [(2, b"b"), (1, b"a"), (2, b"c")]}
    step = Hosted(CommitterOperator(sink.committer), world, lists=lists, restored=CheckpointId(2))
    cut = step.cut(3)
    assert cut.durable is not None
    world.wait_for(cut.durable)
    assert sink.calls == [[b"a"], [b"b", b"c"]]


def test_without_checkpoints_all_is_committed_at_the_end(world: World) -> None:
    sink = Texts()
    step = Hosted(CommitterOperator(sink.committer), world, checkpointing=False)
    step.rows(*messages("a"))
    step.finish()
    assert sink.calls == [[b"a"]]


def test_a_sink_may_have_no_committer_of_its_own(world: World) -> None:
    step = Hosted(CommitterOperator(lambda: None), world)
    step.rows(*messages("a"))
    step.snapshot(1)
    step.complete(1)
    assert step.out.values == messages("a")
    step.operator.close()


def test_what_is_no_committable_is_refused_by_operator(world: World) -> None:
    step = Hosted(CommitterOperator(Texts().committer), world, name="table")
    with pytest.raises(UserError, match="'a', which is not a CommittableMessage") as refused:
        step.rows("a")
    assert refused.value.where == "operator 'table'" and refused.value.remedy
