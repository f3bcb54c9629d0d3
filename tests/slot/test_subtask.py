"""A subtask: the order of a checkpoint, aborts and notifications."""

from statistics import median
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.subtask import (
    Recorder,
    ScriptedSource,
    Slow,
    World,
    barrier,
    rows,
)
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Operator, Output, Polled, Steps
from tidegate.api.state import OperatorStateDescriptor
from tidegate.model.elements import (
    Barrier,
    Batch,
    CancelBarrier,
    EndOfData,
    EndOfPartition,
    OperatorEvent,
    RowBatch,
    Watermark,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId


def two_recorders() -> tuple[list[str], Recorder, Recorder]:
    log: list[str] = []
    return log, Recorder("head", log), Recorder("tail", log)


def joined(world: World, log: list[str]) -> list[str]:
    """The world and its operators write into one log."""
    world.log = log
    return log


# --- the order of a checkpoint --------------------------------------------------------------------

ORDER = [
    "head: prepare 1",
    "tail: prepare 1",
    "sent barrier 1",
    "tail: snapshot 1",
    "head: snapshot 1",
    "cut 1",
]


@pytest.mark.feature("F091", "F126")
def test_prepare_broadcast_snapshot_where_the_barrier_comes_through_channels() -> None:
    log, head, tail = two_recorders()
    world = World(head, tail)
    joined(world, log)
    world.start()
    log.clear()
    world.put(0, barrier(1)).run()
    assert log == ORDER


@pytest.mark.feature("F091", "F126")
def test_prepare_broadcast_snapshot_where_the_driver_triggers_a_source() -> None:
    log: list[str] = []
    source = ScriptedSource("head", log, [Polled.NOTHING])
    world = World(source, Recorder("tail", log), inputs=0)
    joined(world, log)
    world.start()
    log.clear()
    world.subtask.trigger(barrier(1))
    world.run()
    assert log == ORDER


def test_a_source_that_has_read_ahead_is_polled_and_nobody_else_is_woken() -> None:
    log: list[str] = []
    source = ScriptedSource("head", log, [Polled.NOTHING, 1, Polled.NOTHING, Polled.NOTHING])
    world = World(source, Recorder("tail", log), inputs=0).start()
    log.clear()
    world.subtask.poll_soon()
    world.run()
    assert log == ["head: polled 1", "tail: rows [1]"]
    log.clear()
    world.subtask.wake()
    world.run()
    assert log == ["head: ready", "tail: ready"]


@pytest.mark.feature("F092")
def test_what_an_operator_held_back_leaves_before_the_barrier() -> None:
    class MiniBatch(Recorder):
        def __init__(self) -> None:
            super().__init__("mini-batch", [])
            self.held: list[object] = []

        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch)
            self.held += batch.values
            return None

        def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
            out.emit(RowBatch(self.held))
            self.held = []

    world = World(MiniBatch()).start()
    world.put(0, rows(1), rows(2), barrier(1), rows(3)).run()
    assert world.sent[0] == [rows(1, 2), barrier(1)]


@pytest.mark.feature("F092")
def test_the_barrier_waits_until_what_was_held_back_has_gone_through_a_slow_chain() -> None:
    class Late(Recorder):
        def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
            out.emit(rows("held"))

    log: list[str] = []
    world = World(Late("late", log), Slow("slow", log)).start()
    world.put(0, barrier(1)).run()
    assert world.sent[0] == [] and not world.subtask.runnable
    world.waits.pop()()  # type: ignore[operator]
    world.run()
    assert world.sent[0] == [rows("held"), barrier(1)]
    assert world.checkpoints_cut == [1]


def test_a_cut_that_waits_for_a_busy_chain_is_not_made_once_it_is_given_up() -> None:
    log: list[str] = []
    source = ScriptedSource("source", [], ["row", Polled.NOTHING])
    world = World(source, Slow("slow", log), inputs=0).start()
    for checkpoint in (7, 8, 9):
        world.subtask.trigger(barrier(checkpoint))
    world.run()
    assert world.checkpoints_cut == []
    world.subtask.abort(CheckpointId(7), None)
    world.subtask.abort(CheckpointId(8), None)
    world.waits.pop()()  # type: ignore[operator]
    world.run()
    assert world.checkpoints_cut == [9]
    assert world.sent[0] == [
        rows("row"),
        CancelBarrier(CheckpointId(7)),
        CancelBarrier(CheckpointId(8)),
        barrier(9),
    ]
    assert log == ["slow: aborted 7", "slow: aborted 8", "slow: prepare 9", "slow: snapshot 9"]


@pytest.mark.feature("F090")
@given(
    batches=st.lists(st.integers(1, 3), max_size=8),
    at=st.integers(0, 8),
    wakes=st.integers(0, 2),
)
def test_no_row_is_processed_between_the_barrier_and_the_snapshot(
    batches: list[int], at: int, wakes: int
) -> None:
    log, head, tail = two_recorders()
    world = World(head, tail).pieces_of(1_000)
    joined(world, log)
    world.start()
    for n, size in enumerate(batches):
        if n == at:
            world.put(0, barrier(1))
        world.put(0, RowBatch([(n, row) for row in range(size)]))
    for _ in range(wakes):
        world.subtask.wake()
    if at >= len(batches):
        world.put(0, barrier(1))
    world.run()
    first, last = log.index("head: prepare 1"), log.index("cut 1")
    during = [line for line in log[first : last + 1] if not line.startswith("sent rows")]
    assert during == ORDER  # rows that were gathered before it leave ahead of the barrier
    before = [n for n, size in enumerate(batches) for _ in range(1 if size else 0) if n < at]
    seen = [line for line in log[:first] if line.startswith("head: rows")]
    assert len(seen) == len(before)


@pytest.mark.feature("F095")
@given(batches=st.lists(st.one_of(st.integers(1, 5), st.just("barrier")), max_size=20))
def test_what_is_in_the_state_is_what_was_sent_before_the_barrier(
    batches: list[int | str],
) -> None:
    class Counting(Operator):
        """Counts rows, and emits each count."""

        def __init__(self) -> None:
            self.count = 0
            self.put_away: list[int] = []

        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            for _ in range(len(batch)):
                self.count += 1
                out.emit(rows(self.count))
            return None

        def snapshot(self, context: SnapshotContext) -> None:
            self.put_away.append(self.count)

    counting = Counting()
    world = World(counting).start()
    barriers = 0
    for batch in batches:
        if isinstance(batch, int):
            world.put(0, RowBatch([None] * batch))
        else:
            barriers += 1
            world.put(0, barrier(barriers))
    world.run()
    sent_before: list[int] = []
    count = 0
    for element in world.sent[0]:
        if isinstance(element, RowBatch):
            count += len(element)
        elif isinstance(element, Barrier):
            sent_before.append(count)
    assert counting.put_away == sent_before and len(sent_before) == barriers


@pytest.mark.feature("F096")
def test_every_output_gets_one_barrier_of_each_checkpoint() -> None:
    world = World(Recorder("a", []), inputs=2, outputs=3).start()
    for checkpoint in (1, 2, 3):
        world.put(0, barrier(checkpoint), rows(checkpoint))
        world.put(1, barrier(checkpoint))
    world.run()
    for sent in world.sent:
        assert [e.checkpoint for e in sent if isinstance(e, Barrier)] == [1, 2, 3]


@pytest.mark.feature("F118")
def test_a_subtask_with_many_channels_takes_its_snapshot_once_all_barriers_are_there() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=3).start()
    world.put(0, barrier(1), rows("behind 0"))
    world.put(1, rows("before 1"))
    world.put(2, barrier(1), rows("behind 2"))
    world.run()
    assert world.checkpoints_cut == [] and log == ["a: rows ['before 1']"]
    world.put(1, barrier(1), rows("behind 1")).run()
    assert world.checkpoints_cut == [1]
    assert log[:3] == ["a: rows ['before 1']", "a: prepare 1", "a: snapshot 1"]
    assert sorted(log[3:]) == [f"a: rows ['behind {n}']" for n in range(3)]


@pytest.mark.feature("F129")
def test_rows_behind_the_barrier_of_a_fast_channel_wait_for_the_snapshot_and_are_not_lost() -> None:
    log: list[str] = []
    world = World(Recorder("join", log), inputs=2)
    joined(world, log)
    world.start()
    log.clear()
    fast, slow = 0, 1
    world.put(fast, rows("before"), barrier(1), rows("behind"), rows("behind too")).run()
    world.put(slow, rows("still before")).run()
    assert [line for line in log if line.startswith("join: rows")] == [
        "join: rows ['before']",
        "join: rows ['still before']",
    ]
    world.put(slow, barrier(1)).run()
    assert [line for line in log if line.startswith("join:")][-3:] == [
        "join: snapshot 1",
        "join: rows ['behind']",
        "join: rows ['behind too']",
    ]
    assert world.sent[0][-1] == rows("behind", "behind too")


@pytest.mark.feature("F119")
def test_no_operator_sees_a_barrier() -> None:
    class Strict(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch)
            return super().process(batch, port, out)

        def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
            assert isinstance(watermark, Watermark)
            return super().on_watermark(watermark, out)

    log: list[str] = []
    world = World(Strict("a", log), inputs=2).start()
    world.put(0, rows(1), barrier(1), Watermark(5), CancelBarrier(CheckpointId(2)))
    world.put(1, barrier(1), Watermark(6), CancelBarrier(CheckpointId(2)), rows(2))
    world.run()
    assert [line for line in log if "prepare" not in line and "snapshot" not in line] == [
        "a: rows [1]",
        "a: time 5",
        "a: rows [2]",
    ]


@pytest.mark.feature("F117")
def test_rows_marks_and_requests_are_handled_one_after_the_other_in_order() -> None:
    log: list[str] = []
    world = World(Recorder("a", log)).start()
    world.put(0, rows(1), Watermark(5), rows(2), barrier(1), rows(3), Watermark(6))
    world.run()
    world.subtask.event(world.operator_ids[0], OperatorEvent("hello"))
    world.run()
    assert log == [
        "a: rows [1]",
        "a: time 5",
        "a: rows [2]",
        "a: prepare 1",
        "a: snapshot 1",
        "a: rows [3]",
        "a: time 6",
        "a: event hello",
        "a: ready",
    ]


@pytest.mark.feature("F097")
def test_a_barrier_older_than_the_last_one_is_dropped() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, barrier(5), barrier(4), rows(1)).run()
    assert world.checkpoints_cut == [5] and world.declined == []
    assert [e for e in world.sent[0] if isinstance(e, Barrier)] == [barrier(5)]
    assert world.sent[0][-1] == rows(1)


@pytest.mark.feature("F102")
def test_the_function_sees_the_checkpoints_id_and_time() -> None:
    head = Recorder("a", [])
    world = World(head).start()
    world.put(0, barrier(7, triggered_ms=123)).run()
    assert head.contexts == [SnapshotContext(CheckpointId(7), 123)]


@pytest.mark.feature("F099", "F103")
def test_each_operator_of_the_chain_is_asked_once_a_checkpoint_and_its_state_is_taken() -> None:
    log: list[str] = []
    operators = [Recorder(name, log) for name in "abc"]
    world = World(*operators)
    for n, backend in enumerate(world.backends):
        backend.operator_state(OperatorStateDescriptor("state")).update([f"of operator {n}"])
    world.start()
    world.put(0, barrier(1), barrier(2)).run()
    asked = [line for line in log if "snapshot" in line]
    assert asked == [f"{name}: snapshot {n}" for n in (1, 2) for name in "cba"]
    assert [list(states) for states in world.written()] == [world.operator_ids[::-1]] * 2


@pytest.mark.feature("F098")
def test_the_quick_part_and_the_alignment_are_measured() -> None:
    class Sleepy(Recorder):
        def snapshot(self, context: SnapshotContext) -> None:
            world.clock.now_ms += 30

    world = World(Sleepy("a", []), inputs=2).start()
    world.put(0, barrier(1, triggered_ms=world.clock.wall_ms() - 500)).run()
    world.clock.now_ms += 200
    world.put(1, barrier(1)).run()
    [figures] = world.figures()
    assert (figures.sync_ms, figures.alignment_ms, figures.start_delay_ms) == (30, 200, 500)


def test_the_delay_of_a_barrier_from_a_clock_ahead_is_never_negative() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, barrier(1, triggered_ms=world.clock.wall_ms() + 5_000)).run()
    assert world.figures()[0].start_delay_ms == 0


def test_a_function_that_fails_in_its_snapshot_fails_the_subtask() -> None:
    class Failing(Recorder):
        def snapshot(self, context: SnapshotContext) -> None:
            raise ValueError("no disk")

    world = World(Failing("a", [])).start()
    with pytest.raises(ValueError, match="no disk"):
        world.put(0, barrier(1)).run()


# --- triggers and aborts --------------------------------------------------------------------------


def test_the_driver_s_abort_of_what_is_aligning_frees_the_channels_and_tells_downstream() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=2).start()
    world.put(0, barrier(1), rows("held")).run()
    world.subtask.abort(CheckpointId(1), None)
    world.run()
    assert world.sent[0] == [CancelBarrier(CheckpointId(1)), rows("held")]
    assert log == ["a: aborted 1", "a: rows ['held']"]
    assert world.given_up == [1]


def test_a_barrier_that_comes_after_the_abort_is_passed_over() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    world.subtask.abort(CheckpointId(1), None)
    world.put(0, barrier(1), rows("free")).run()
    assert world.checkpoints_cut == []
    assert world.sent[0] == [CancelBarrier(CheckpointId(1)), rows("free")]


@pytest.mark.feature("F245")
def test_a_cancel_barrier_declines_and_goes_on_downstream() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    world.put(0, barrier(1)).put(1, CancelBarrier(CheckpointId(1))).run()
    (declined,) = world.declined
    assert declined.checkpoint == 1
    assert declined.reason is FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    assert world.sent[0] == [CancelBarrier(CheckpointId(1))]


def test_an_abort_brings_a_lost_completion_first() -> None:
    log: list[str] = []
    world = World(Recorder("a", log)).start()
    world.subtask.abort(CheckpointId(6), CheckpointId(5))
    assert log == ["a: complete 5", "a: aborted 6"]


# --- notifications --------------------------------------------------------------------------------


@pytest.mark.feature("F143", "F147")
def test_operators_hear_of_completion_tail_to_head_with_ids_that_only_grow() -> None:
    log, head, tail = two_recorders()
    world = World(head, tail).start()
    for checkpoint in (1, 3, 2, 3, 5):
        world.subtask.complete(CheckpointId(checkpoint), None)
    assert log == [f"{name}: complete {n}" for n in (1, 3, 5) for name in ("tail", "head")]


@pytest.mark.feature("F143")
def test_the_checkpoint_that_was_restored_is_not_told_again() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), restored=CheckpointId(4)).start()
    world.subtask.complete(CheckpointId(4), None)
    world.subtask.complete(CheckpointId(5), CheckpointId(4))
    assert log == ["a: complete 5", "a: subsumed 4"]


def test_one_operator_that_raises_does_not_keep_the_others_from_hearing() -> None:
    class Failing(Recorder):
        def on_complete(self, checkpoint: CheckpointId) -> None:
            raise OSError("commit failed")

    log: list[str] = []
    world = World(Recorder("head", log), Failing("tail", log)).start()
    with pytest.raises(OSError, match="commit failed"):
        world.subtask.complete(CheckpointId(1), None)
    assert log == ["head: complete 1"]


def test_a_subtask_that_does_not_run_yet_is_told_nothing() -> None:
    log: list[str] = []
    world = World(Recorder("a", log))
    world.subtask.complete(CheckpointId(1), None)
    world.subtask.abort(CheckpointId(2), None)
    assert log == []


@pytest.mark.feature("F148")
def test_for_a_stateless_chain_a_completion_changes_nothing() -> None:
    class Silent(Operator):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit(batch)
            return None

    world = World(Silent(), Silent(), Silent()).start()
    world.put(0, rows(1), barrier(1)).run()
    before, calls = list(world.sent[0]), world.calls_for_turns
    costs_s: list[float] = []
    for checkpoint in range(1, 2_000):
        began_s = perf_counter()
        world.subtask.complete(CheckpointId(checkpoint), None)
        costs_s.append(perf_counter() - began_s)
    assert world.sent[0] == before and world.calls_for_turns == calls
    assert not world.subtask.runnable
    # The median: a busy machine stops a few of the calls, and not half of them.
    assert median(costs_s) < 0.001


@pytest.mark.feature("F089")
@pytest.mark.parametrize("inputs", [0, 1, 2, 3])
def test_a_trigger_of_the_driver_is_taken_alike_whatever_the_inputs(inputs: int) -> None:
    log: list[str] = []
    source = ScriptedSource("head", log, [1, Polled.NOTHING])
    head = Recorder("head", log) if inputs else source
    world = World(head, inputs=inputs).start()
    world.subtask.trigger(barrier(1))
    for channel in range(inputs):
        assert world.run().checkpoints_cut == []
        world.put(channel, rows(channel), EndOfData(), EndOfPartition())
    world.run()
    assert world.checkpoints_cut == [1]
    assert [element for element in world.sent[0] if isinstance(element, Barrier)] == [barrier(1)]


def test_a_subtask_starts_once() -> None:
    log: list[str] = []
    world = World(Recorder("a", log)).start()
    world.subtask.start()
    world.put(0, rows(1)).run()
    assert log == ["a: rows [1]"]
