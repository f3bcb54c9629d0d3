"""A subtask: the end of data, restored as finished, and who asks for turns."""

from dataclasses import replace

import pytest

from tests.worlds.subtask import (
    PERIODIC,
    WITHOUT_CHECKPOINTS,
    Recorder,
    ScriptedSource,
    World,
    barrier,
    rows,
)
from tidegate.api.operator import Output, Polled, Steps
from tidegate.api.state import OperatorStateDescriptor
from tidegate.errors import UserCodeFailed
from tidegate.model.control import ExecutionState
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    Barrier,
    Batch,
    Element,
    EndOfData,
    EndOfPartition,
    OperatorEvent,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId


def two_recorders() -> tuple[list[str], Recorder, Recorder]:
    log: list[str] = []
    return log, Recorder("head", log), Recorder("tail", log)


# --- the end --------------------------------------------------------------------------------------


def test_a_source_that_is_exhausted_ends_event_time_finishes_and_says_so() -> None:
    log: list[str] = []
    source = ScriptedSource("source", log, ["a"])
    world = World(source, Recorder("tail", log), inputs=0, settings=WITHOUT_CHECKPOINTS).start()
    assert world.sent[0] == [
        rows("a"),
        WatermarkStatus(idle=False),
        Watermark(MAX_WATERMARK_MS),
        EndOfData(),
        EndOfPartition(),
    ]
    assert log[-3:] == [f"tail: time {MAX_WATERMARK_MS}", "source: finish", "tail: finish"]
    assert world.states == [ExecutionState.RUNNING, ExecutionState.FINISHED]


def test_event_time_ends_for_readers_of_a_source_that_was_idle() -> None:
    log: list[str] = []
    reader = World(Recorder("a", log), inputs=2).start()
    reader.put(0, WatermarkStatus(idle=True)).put(1, Watermark(10)).run()
    source = World(ScriptedSource("s", [], []), inputs=0, settings=WITHOUT_CHECKPOINTS).start()
    ends = [e for e in source.sent[0] if isinstance(e, Watermark | WatermarkStatus)]
    reader.put(0, *ends).put(1, Watermark(MAX_WATERMARK_MS)).run()
    assert log == ["a: time 10", f"a: time {MAX_WATERMARK_MS}"]


def test_the_operators_finish_when_the_data_of_all_channels_has_ended() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=2, settings=WITHOUT_CHECKPOINTS).start()
    world.put(0, EndOfData(), EndOfPartition()).run()
    assert log == [] and world.states[-1] is ExecutionState.RUNNING
    world.put(1, rows(1), EndOfData(), EndOfPartition()).run()
    assert log == ["a: rows [1]", "a: finish"]
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_finished_subtask_waits_for_a_checkpoint_taken_after_its_end() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), settings=PERIODIC).start()
    world.put(0, barrier(1), EndOfData()).run()
    assert world.subtask.ending.operators_finished
    world.subtask.complete(CheckpointId(1), None)  # taken before the end: it does not count
    assert world.states[-1] is ExecutionState.RUNNING
    world.put(0, barrier(2), EndOfPartition()).run()
    assert [snapshot.after_finish for snapshot in world.snapshots] == [False, True]
    world.subtask.complete(CheckpointId(2), None)
    assert log[-1] == "a: complete 2"
    assert world.states[-1] is ExecutionState.FINISHED
    assert world.sent[0][-1] == EndOfPartition()


def test_a_subtask_does_not_end_before_its_producers_have() -> None:
    """Else a checkpoint could have it finished, and them not; such a one cannot be restored."""
    world = World(Recorder("a", []), inputs=2).start()
    world.put(0, EndOfData(), barrier(1), EndOfPartition()).put(1, EndOfData(), barrier(1)).run()
    world.subtask.complete(CheckpointId(1), None)
    assert world.checkpoints_cut == [1] and world.states[-1] is ExecutionState.RUNNING
    world.put(1, EndOfPartition()).run()
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_later_checkpoint_than_the_first_after_the_end_will_do() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, EndOfData(), barrier(3)).run()
    world.subtask.abort(CheckpointId(3), None)
    world.put(0, barrier(4), EndOfPartition()).run()
    world.subtask.complete(CheckpointId(4), None)
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_subtask_does_not_end_before_its_snapshots_and_coroutines_have() -> None:
    world = World(Recorder("a", []), settings=WITHOUT_CHECKPOINTS).start()
    world.busy = 1
    world.put(0, EndOfData(), EndOfPartition()).run()
    assert world.states[-1] is ExecutionState.RUNNING
    world.busy = 0
    world.subtask.idle_again()
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_subtask_that_only_waits_for_its_snapshots_begins_no_further_one() -> None:
    """Else it would never end where checkpoints overlap all the time."""
    world = World(ScriptedSource("s", [], []), inputs=0).start()
    world.subtask.trigger(barrier(1))
    world.run()
    world.busy = 1
    world.subtask.complete(CheckpointId(1), None)
    assert world.states[-1] is ExecutionState.RUNNING
    world.subtask.trigger(barrier(2))
    world.run()
    assert [decline.reason for decline in world.declined] == [
        FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
    ]
    assert world.checkpoints_cut == [1]
    world.busy = 0
    world.subtask.idle_again()
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_subtask_does_not_end_while_elements_wait_for_credit() -> None:
    world = World(Recorder("a", []), credit=1, settings=WITHOUT_CHECKPOINTS).start()
    world.put(0, RowBatch([1, 2, 3, 4])).run()
    world.put(0, RowBatch([5, 6, 7, 8]), EndOfData(), EndOfPartition()).run()
    assert world.sent[0] == [RowBatch([1, 2, 3, 4])]
    world.grant()
    world.run()
    assert world.sent[0][1:] == [RowBatch([5, 6, 7, 8]), EndOfData(), EndOfPartition()]
    assert world.states[-1] is ExecutionState.FINISHED


def test_the_end_itself_may_have_to_wait_for_credit() -> None:
    class LastWords(Recorder):
        def finish(self, out: Output) -> Steps | None:
            out.emit(RowBatch([1, 2, 3, 4]))
            out.emit(RowBatch([5, 6, 7, 8]))
            return None

    world = World(LastWords("a", []), credit=1, settings=WITHOUT_CHECKPOINTS).start()
    world.put(0, EndOfData(), EndOfPartition()).run()
    assert world.states[-1] is ExecutionState.RUNNING and not world.subtask.runnable
    world.grant()
    assert world.subtask.runnable
    world.run()
    assert world.states[-1] is ExecutionState.FINISHED


class LastRows(ScriptedSource):
    """Has two batches left as it ends."""

    def finish(self, out: Output) -> Steps | None:
        out.emit(RowBatch([1, 2, 3, 4]))
        out.emit(RowBatch([5, 6, 7, 8]))
        return None


def test_a_source_does_not_end_while_its_last_rows_wait_for_credit() -> None:
    source = LastRows("s", [], [])
    world = World(source, inputs=0, credit=1, settings=WITHOUT_CHECKPOINTS).start()
    assert world.sent[0][-1] == RowBatch([1, 2, 3, 4])
    assert world.states[-1] is ExecutionState.RUNNING and not world.subtask.runnable
    world.grant()
    world.run()
    assert world.sent[0][-3:] == [RowBatch([5, 6, 7, 8]), EndOfData(), EndOfPartition()]
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_trigger_that_comes_when_the_channels_are_over_is_declined() -> None:
    source = LastRows("a", [], [])
    world = World(source, inputs=0, credit=1, settings=WITHOUT_CHECKPOINTS).start()
    world.subtask.trigger(barrier(9))
    world.run()
    assert [(d.checkpoint, d.reason) for d in world.declined] == [
        (9, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)
    ]
    world.grant()
    world.run()
    assert world.states[-1] is ExecutionState.FINISHED
    assert not any(isinstance(element, Barrier) for element in world.sent[0])


def test_a_finished_source_still_takes_checkpoints() -> None:
    log: list[str] = []
    world = World(ScriptedSource("s", log, []), inputs=0).start()
    assert world.subtask.ending.operators_finished
    world.subtask.trigger(barrier(1))
    world.run()
    assert world.checkpoints_cut == [1] and world.snapshots[0].after_finish
    assert world.sent[0][-1] == barrier(1)


# --- restored as finished -------------------------------------------------------------------------


def test_a_source_that_had_finished_passes_on_only_the_end_and_barriers() -> None:
    source = ScriptedSource("s", [], ["never again"])
    world = World(source, inputs=0, finished_on_restore=True, restored=CheckpointId(3))
    world.backends[0].operator_state(OperatorStateDescriptor("state")).update(["of no use"])
    world.start()
    assert world.sent[0] == [
        WatermarkStatus(idle=False),
        Watermark(MAX_WATERMARK_MS),
        EndOfData(),
    ]
    world.subtask.trigger(barrier(4))
    world.run()
    assert world.written() == [{}]
    world.subtask.complete(CheckpointId(4), None)
    assert world.states[-1] is ExecutionState.FINISHED and source.script == ["never again"]


def test_a_subtask_that_had_finished_waits_for_the_end_of_its_inputs() -> None:
    world = World(
        Recorder("a", []),
        finished_on_restore=True,
        restored=CheckpointId(3),
        settings=WITHOUT_CHECKPOINTS,
    ).start()
    world.subtask.idle_again()
    world.subtask.complete(CheckpointId(4), None)
    assert world.sent[0] == [] and world.states[-1] is ExecutionState.RUNNING
    world.put(0, EndOfData(), EndOfPartition()).run()
    assert world.sent[0] == [EndOfData(), EndOfPartition()]


# --- turns ----------------------------------------------------------------------------------------


def test_a_source_with_nothing_to_give_is_polled_again_when_woken() -> None:
    log: list[str] = []
    source = ScriptedSource("s", log, ["a", Polled.NOTHING, "b", Polled.NOTHING])
    world = World(source, inputs=0).start()
    assert log == ["s: polled a"] and not world.subtask.runnable
    world.subtask.wake()
    world.run()
    assert "s: polled b" in log and not world.subtask.runnable


@pytest.mark.feature("F223")
@pytest.mark.parametrize("lost", [False, True])
def test_a_source_that_waits_for_the_first_checkpoint_gives_no_row_before_its_completion(
    lost: bool,
) -> None:
    log: list[str] = []
    source = ScriptedSource("s", log, ["a", "b", Polled.NOTHING])
    checkpoints = replace(PERIODIC.checkpoints, pause_sources=True)
    settings = replace(PERIODIC, checkpoints=checkpoints)
    world = World(source, inputs=0, restored=CheckpointId(3), settings=settings).start()
    world.subtask.wake()
    world.run()
    world.subtask.trigger(barrier(4))
    world.run()
    assert world.checkpoints_cut == [4]
    world.subtask.abort(CheckpointId(5), CheckpointId(3))
    world.run()
    assert not [line for line in log if "polled" in line]
    if lost:
        world.subtask.abort(CheckpointId(6), CheckpointId(4))
    else:
        world.subtask.complete(CheckpointId(4), None)
    world.run()
    assert [line for line in log if "polled" in line] == ["s: polled a", "s: polled b"]


def test_a_wake_up_within_the_poll_counts() -> None:
    class Impatient(ScriptedSource):
        def poll(self, out: Output) -> Polled:
            world.subtask.wake()
            return super().poll(out)

    log: list[str] = []
    world = World(Impatient("s", log, [Polled.NOTHING, "a", Polled.NOTHING, "b"]), inputs=0)
    world.start()
    assert [line for line in log if "polled" in line] == ["s: polled a", "s: polled b"]


def test_without_room_nothing_is_read_and_credit_makes_it_go_on() -> None:
    world = World(Recorder("a", []), credit=1).start()
    full = RowBatch([1, 2, 3, 4])
    for _ in range(40):
        world.put(0, full)
    world.run()
    read = len(world.granted)
    assert 2 <= read < 20 and not world.subtask.runnable  # one has left, and what waits is little
    while len(world.granted) == read:
        world.grant()
        world.run()
    assert read < len(world.granted) < 40


def test_a_barrier_passes_a_source_that_has_no_room() -> None:
    full = RowBatch([1, 2, 3, 4])

    class Flood(ScriptedSource):
        def poll(self, out: Output) -> Polled:
            out.emit(full)
            return Polled.MORE

    world = World(Flood("s", [], []), inputs=0, credit=1)
    world.subtask.start()
    world.run()
    world.subtask.trigger(barrier(1))
    assert world.subtask.runnable
    world.run()
    assert world.checkpoints_cut == [1]


class Holding(Recorder):
    """Wants no input after its first batch until it is woken."""

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.takes_input = False
        return super().process(batch, port, out)

    def on_ready(self, out: Output) -> None:
        self.takes_input = True


@pytest.mark.parametrize("position", [0, 1])
def test_input_that_an_operator_holds_back_is_read_when_it_is_ready(position: int) -> None:
    log: list[str] = []
    operators = [Recorder("a", []), Recorder("b", [])]
    operators[position] = Holding("h", log)
    world = World(*operators).start()
    world.put(0, rows(1), rows(2)).run()
    assert log == ["h: rows [1]"] and not world.subtask.runnable
    world.subtask.wake()
    world.run()
    assert log == ["h: rows [1]", "h: rows [2]"]


def test_a_source_is_not_polled_while_input_is_held_back_and_its_barrier_passes() -> None:
    log: list[str] = []
    source = ScriptedSource("s", log, ["x", "y"])
    world = World(source, Holding("h", []), inputs=0).start()
    world.subtask.trigger(barrier(1))
    world.run()
    assert [line for line in log if "polled" in line] == ["s: polled x"]
    assert world.checkpoints_cut == [1]
    world.subtask.wake()
    world.run()
    assert [line for line in log if "polled" in line] == ["s: polled x", "s: polled y"]


def test_what_was_gathered_leaves_when_the_input_runs_dry() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, rows(1)).run()
    assert world.sent[0] == [rows(1)]
    assert [output.gathering_since_ms for output in world.outputs] == [None]


def test_what_was_gathered_longer_ago_leaves() -> None:
    world = World(Recorder("a", [])).start()
    world.outputs[0].rows(rows(1), world.clock.now_ms)
    world.subtask.outputs.flush_older_than(world.clock.now_ms - 1)
    assert world.sent[0] == []
    world.subtask.outputs.flush_older_than(world.clock.now_ms)
    assert world.sent[0] == [rows(1)]


def test_elements_that_came_before_the_start_are_read_after_it() -> None:
    log: list[str] = []
    world = World(Recorder("a", log))
    world.put(0, rows(1))
    assert not world.subtask.runnable
    world.start()
    assert log == ["a: rows [1]"]


def test_a_failed_subtask_does_nothing_more() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, rows(1))
    world.subtask.end(ExecutionState.FAILED)
    world.subtask.end(ExecutionState.CANCELED)
    assert not world.subtask.runnable
    assert world.states == [ExecutionState.RUNNING, ExecutionState.FAILED]


def test_what_came_before_a_failure_leaves_though_rows_in_another_channel_cannot_be_sent() -> None:
    class Refusing(list[Element]):
        def append(self, element: Element) -> None:
            raise UserCodeFailed("a row cannot be sent to another subtask")

    world = World(Recorder("a", []), outputs=3).start()
    world.sent[0] = world.sent[1] = Refusing()
    for output in world.outputs:
        output.rows(rows(1), 0)
    world.subtask.fail(UserCodeFailed("row 2 is wrong"))
    assert world.states[-1] is ExecutionState.FAILED
    assert world.sent[2] == [rows(1)]


def test_an_event_reaches_the_operator_it_is_for() -> None:
    log, head, tail = two_recorders()
    world = World(head, tail).start()
    world.subtask.event(world.operator_ids[1], OperatorEvent("x"))
    world.run()
    assert "tail: event x" in log and "head: event x" not in log


def test_the_figures_count_rows_in_and_out() -> None:
    class Doubling(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit(batch)
            out.emit(batch)
            return None

    world = World(Doubling("a", [])).pieces_of(10).start()
    world.put(0, rows(1, 2), rows(3), Watermark(9)).run()
    figures = world.subtask.figures
    assert (figures.rows_in, figures.rows_out, figures.batches_in) == (3, 6, 2)
    assert figures.watermark_ms == 9


def test_a_trigger_that_waits_is_declined_as_the_subtask_ends() -> None:
    world = World(ScriptedSource("s", [], []), inputs=0).start()
    world.subtask.trigger(barrier(1))
    world.run()
    world.subtask.trigger(barrier(2))
    world.subtask.complete(CheckpointId(1), None)
    assert [(each.checkpoint, each.reason) for each in world.declined] == [
        (2, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)
    ]
    assert world.checkpoints_cut == [1] and world.states[-1] is ExecutionState.FINISHED
