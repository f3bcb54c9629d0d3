"""A subtask whose barriers overtake data: the cut, what is persisted, and what is read first."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.slot.held import TIMEOUT_MS, UNALIGNED, Held
from tests.worlds.subtask import Recorder, ScriptedSource, World, rows
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Operator, Output, Polled, Steps
from tidegate.model.control import ExecutionState
from tidegate.model.elements import (
    Barrier,
    BarrierAnnouncement,
    Batch,
    CancelBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId


def full(start: int) -> RowBatch:
    """A batch that leaves as it is."""
    return rows(*range(start, start + 4))


# --- input ----------------------------------------------------------------------------------------


@pytest.mark.feature("F237")
def test_a_barrier_overtakes_what_waits_in_its_channel() -> None:
    log: list[str] = []
    world = Held(Recorder("a", log)).start()
    world.put(0, rows(1), rows(2), world.barrier(7), rows(3)).run()
    assert world.checkpoints_cut == [7]
    assert log.index("a: snapshot 7") < log.index("a: rows [1]")
    assert world.saved.came(7) == [1, 2]
    assert world.saved.finished == [(7, "output"), (7, "input")]
    assert isinstance(world.sent[0][0], Barrier)


@pytest.mark.feature("F237", "F160")
def test_what_still_comes_before_the_other_barriers_is_saved_and_processed() -> None:
    log: list[str] = []
    world = Held(Recorder("a", log), inputs=2).start()
    world.put(0, world.barrier(7)).run()
    assert world.saved.finished == [(7, "output")]
    world.put(1, rows(1), rows(2)).put(0, rows(9)).run()
    world.put(1, rows(3), world.barrier(7), rows(4)).run()
    assert world.saved.came(7, 1) == [1, 2, 3] and world.saved.came(7, 0) == []
    assert world.saved.finished[-1] == (7, "input")
    assert [line for line in log if "rows" in line].index("a: rows [9]") < 3


def test_of_a_batch_that_was_read_in_part_the_rest_is_saved() -> None:
    world = Held(Recorder("a", []))
    world.pieces_of(2)
    world.subtask.start()
    world.put(0, rows(1, 2, 3, 4, 5))
    world.turn()
    world.put(0, world.barrier(7)).run()
    assert world.saved.came(7) == [3, 4, 5]


def test_the_end_of_a_channel_stands_for_its_barrier_before_it_is_read() -> None:
    world = Held(Recorder("a", []), inputs=2)
    world.put(1, rows(1), EndOfData(), EndOfPartition())
    world.put(0, rows(2), world.barrier(7))
    world.start()
    assert world.saved.came(7, 1) == [1] and world.saved.came(7, 0) == [2]
    assert world.saved.finished == [(7, "output"), (7, "input")]


@pytest.mark.feature("F153", "F158")
def test_what_was_restored_is_read_first_and_is_saved_again() -> None:
    log: list[str] = []
    world = Held(Recorder("a", log), inputs=2)
    world.pieces_of(10)
    channels = [channel.id for channel in world.inputs]
    world.gate.restore([(channels[1], rows(1, 2)), (channels[0], rows(3)), (channels[1], rows(4))])
    world.put(0, rows(5), world.barrier(7))
    world.subtask.start()
    world.run()
    assert world.saved.came(7, 1) == [1, 2, 4] and world.saved.came(7, 0) == [3, 5]
    read = [line for line in log if "rows" in line]
    assert read == [f"a: rows {values}" for values in ([1, 2], [3], [4], [5])]
    given = world.granted.count
    assert given(0) == given(1) + 1, "what was restored has cost no credit"


def test_an_aligned_barrier_waits_behind_what_was_restored() -> None:
    log: list[str] = []
    world = Held(Recorder("a", log))
    world.pieces_of(10)
    world.gate.restore([(world.inputs[0].id, rows(1, 2))])
    aligned = Barrier(CheckpointId(7), world.clock.wall_ms(), CheckpointOptions())
    world.put(0, aligned).start()
    assert log.index("a: rows [1, 2]") < log.index("a: snapshot 7")
    assert world.saved.data == {}


@pytest.mark.feature("F248")
@pytest.mark.parametrize("during", [True, False])
def test_it_may_show_as_running_while_it_reads_what_was_restored(during: bool) -> None:
    checkpoints = replace(UNALIGNED.checkpoints, during_recovery=during)
    world = World(Recorder("a", []), settings=replace(UNALIGNED, checkpoints=checkpoints))
    world.gate.restore([(world.inputs[0].id, rows(1)), (world.inputs[0].id, rows(2))])
    world.subtask.start()
    world.turn()
    assert world.states == ([ExecutionState.RUNNING] if during else [])
    world.turn()
    assert world.states == [ExecutionState.RUNNING]
    world.put(0, rows(3)).run()
    sent = [value for each in world.sent[0] if isinstance(each, RowBatch) for value in each.values]
    assert sent == [1, 2, 3]


# --- output ---------------------------------------------------------------------------------------


@pytest.mark.feature("F237")
def test_a_barrier_overtakes_what_waits_to_leave() -> None:
    world = Held(Recorder("a", []), credit=1).start()
    world.put(0, full(0)).run()
    world.put(0, full(4)).run()
    world.put(0, rows(8), world.barrier(7)).run()
    assert world.sent[0][0] == full(0) and isinstance(world.sent[0][1], Barrier)
    assert world.saved.unsent(7) == [4, 5, 6, 7] and world.saved.came(7) == [8]
    world.grant()
    world.run()
    assert world.sent[0][2] == full(4), "it goes on all the same"


def test_a_batch_in_the_middle_is_brought_to_its_end_without_room() -> None:
    class Chunks(Operator):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            return self._chunks(out)

        def _chunks(self, out: Output) -> Iterator[None]:
            for start in range(0, 16, 4):
                out.emit(full(start))
                yield

        def snapshot(self, context: SnapshotContext) -> None:
            cut.append(len(world.saved.unsent(7)))

    cut: list[int] = []
    world = Held(Chunks(), credit=1).start()
    world.put(0, rows("go")).run()
    assert not world.subtask.runnable, "it waits for credit in the middle of a batch"
    world.put(0, world.barrier(7)).run()
    assert cut == [12] and world.checkpoints_cut == [7]
    assert world.saved.unsent(7) == list(range(4, 16))
    assert not world.subtask.runnable, "there is still no room for more"


def test_a_source_that_waits_for_credit_is_cut_at_once() -> None:
    class Flood(ScriptedSource):
        def poll(self, out: Output) -> Polled:
            out.emit(full(0))
            return Polled.MORE

    world = Held(Flood("s", [], []), inputs=0, credit=1)
    world.subtask.start()
    world.run()
    world.subtask.trigger(world.barrier(7))
    world.run()
    assert world.checkpoints_cut == [7] and world.saved.unsent(7) == [0, 1, 2, 3]
    assert world.saved.finished == [(7, "output"), (7, "input")]


@pytest.mark.feature("F239")
def test_a_barrier_that_waits_to_leave_overtakes_after_its_time() -> None:
    world = Held(ScriptedSource("s", [], [Polled.NOTHING]), inputs=0, credit=1, outputs=2).start()
    for output in world.outputs:
        output.rows(full(0), world.clock.now_ms)
    world.outputs[0].rows(full(4), world.clock.now_ms)
    world.subtask.trigger(world.barrier(7, timed=True))
    world.run()
    announced = BarrierAnnouncement(world.barrier(7, timed=True))
    assert world.sent[0] == [full(0), announced], "the barrier waits behind a batch"
    assert world.sent[1][-1] == announced.barrier
    assert world.saved.finished == [(7, "input")] and world.checkpoints_cut == [7]
    world.pass_time(TIMEOUT_MS - 1)
    assert world.saved.unsent(7) == []
    world.pass_time(1)
    assert isinstance(world.sent[0][-1], Barrier) and world.sent[0][-1].options.is_unaligned
    assert world.saved.unsent(7, 0) == [4, 5, 6, 7] and world.saved.unsent(7, 1) == []
    assert world.saved.finished == [(7, "input"), (7, "output")]


@pytest.mark.feature("F236")
def test_a_barrier_that_leaves_in_time_takes_nothing_with_it() -> None:
    world = Held(ScriptedSource("s", [], [Polled.NOTHING]), inputs=0, credit=1).start()
    world.outputs[0].rows(full(0), world.clock.now_ms)
    world.outputs[0].rows(full(4), world.clock.now_ms)
    world.subtask.trigger(world.barrier(7, timed=True))
    world.run()
    world.grant()
    kinds = [type(element).__name__ for element in world.sent[0]]
    assert kinds == ["RowBatch", "BarrierAnnouncement", "RowBatch", "Barrier"]
    assert world.saved.finished == [(7, "input"), (7, "output")]
    world.pass_time(2 * TIMEOUT_MS)
    assert world.saved.data == {}


@pytest.mark.feature("F238")
def test_alignment_that_takes_too_long_turns_unaligned() -> None:
    log: list[str] = []
    world = Held(Recorder("a", log), inputs=2).start()
    world.put(0, world.barrier(7, timed=True), rows(9)).run()
    assert world.checkpoints_cut == [] and "a: rows [9]" not in log
    world.pass_time(TIMEOUT_MS)
    assert world.checkpoints_cut == [7] and "a: rows [9]" in log
    assert world.sent[0][0] == world.snapshots[0].barrier
    assert world.snapshots[0].barrier.options.is_unaligned
    world.put(1, rows(1), world.barrier(7, timed=True)).run()
    assert world.saved.came(7, 1) == [1] and world.saved.came(7, 0) == []


# --- giving up ------------------------------------------------------------------------------------


def test_what_is_given_up_is_no_longer_saved() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    world.put(0, world.barrier(7)).run()
    world.subtask.abort(CheckpointId(7), None)
    world.put(1, rows(1)).run()
    assert world.saved.came(7, 1) == [] and 7 in world.saved.aborted
    assert CancelBarrier(CheckpointId(7)) in world.sent[0]
    world.put(1, world.barrier(7)).put(0, world.barrier(8)).put(1, world.barrier(8)).run()
    assert world.checkpoints_cut == [7, 8]


def test_an_abort_that_is_heard_late_leaves_the_newer_checkpoint_its_data() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    world.put(0, world.barrier(8)).run()
    world.put(1, rows(1)).run()
    world.subtask.abort(CheckpointId(7), None)
    world.put(1, rows(2), world.barrier(8), rows(3)).run()
    assert world.saved.came(8, 1) == [1, 2]
    assert world.saved.finished[-1] == (8, "input")


@pytest.mark.feature("F097")
def test_nothing_is_saved_for_a_checkpoint_whose_barrier_comes_after_a_newer_one() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    world.put(0, world.barrier(5)).put(1, world.barrier(5)).run()
    world.put(0, world.barrier(4)).put(1, rows(1)).run()
    assert world.checkpoints_cut == [5]
    assert all(checkpoint == 5 for checkpoint, _ in world.saved.data)
    assert {checkpoint for checkpoint, _ in world.saved.finished} == {5}


@pytest.mark.feature("F097")
def test_an_abort_of_the_driver_aborts_the_channel_state_too() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    world.put(0, world.barrier(4)).run()
    world.saved.aborted.clear()
    world.subtask.abort(CheckpointId(4), None)
    assert 4 in world.saved.aborted


@pytest.mark.feature("F097")
def test_a_barrier_that_has_still_to_leave_takes_nothing_with_it_once_it_is_given_up() -> None:
    world = Held(ScriptedSource("s", [], [Polled.NOTHING]), inputs=0, credit=1).start()
    world.outputs[0].rows(full(0), world.clock.now_ms)
    world.outputs[0].rows(full(4), world.clock.now_ms)
    world.subtask.trigger(world.barrier(7, timed=True))
    world.run()
    world.subtask.abort(CheckpointId(7), None)
    assert world.saved.aborted == [7]
    world.pass_time(2 * TIMEOUT_MS)
    assert world.saved.data == {} and world.saved.finished == [(7, "input")]


def test_a_checkpoint_given_up_by_a_newer_one_is_declined_and_forgotten() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    world.put(0, world.barrier(7)).run()
    world.put(0, world.barrier(8)).run()
    assert [(d.checkpoint, d.reason) for d in world.declined] == [
        (7, FailureReason.CHECKPOINT_DECLINED_SUBSUMED)
    ]
    assert world.given_up == [7] and 7 in world.saved.aborted


# --- any order ------------------------------------------------------------------------------------


class Through(Operator):
    """Passes rows on one by one; notes at each snapshot what it has seen."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.cuts: dict[int, list[tuple[int, int]]] = {}

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        assert isinstance(batch, RowBatch)
        return self._rows(batch, out)

    def _rows(self, batch: RowBatch, out: Output) -> Iterator[None]:
        for value in batch.values:
            self.seen.append(value)  # type: ignore[arg-type]
            out.emit(rows(value))
            yield

    def snapshot(self, context: SnapshotContext) -> None:
        self.cuts[context.checkpoint] = list(self.seen)


class Run:
    """A subtask with two channels, on which three checkpoints come; what happens next is drawn."""

    def __init__(self, chance: Random) -> None:
        self.through = Through()
        self.world = Held(self.through, inputs=2, credit=chance.randint(1, 3))
        self.world.pieces_of(2)
        self.before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._chance = chance
        self._timed = {number: chance.random() < 0.6 for number in (1, 2, 3)}
        self._ends = chance.random() < 0.5
        self._put: list[list[tuple[int, int]]] = [[], []]
        self._scripts = [self._script() for _ in range(2)]

    def _script(self) -> list[int]:
        """Barriers by their numbers, and rows in front of each, as zeros."""
        return [n for number in (1, 2, 3) for n in [0] * self._chance.randint(0, 3) + [number]]

    def to_the_end(self) -> None:
        self.world.subtask.start()
        acts = [self._turn, self._turn, self._turn, self._come, self._come, self._grant, self._wait]
        while any(self._scripts):
            self._chance.choice(acts)()
        for _ in range(60):
            self.world.run()
            self._grant()
            self.world.pass_time(TIMEOUT_MS)

    def _turn(self) -> None:
        if self.world.subtask.runnable:
            self.world.turn()

    def _come(self) -> None:
        channel = self._chance.randrange(2)
        script = self._scripts[channel]
        if not script:
            return
        number = script.pop(0)
        if number == 0:
            values = [(channel, len(self._put[channel]) + n) for n in range(3)]
            self._put[channel] += values
            self.world.put(channel, rows(*values))
            return
        self.before[number, channel] = list(self._put[channel])
        self.world.put(channel, self.world.barrier(number, timed=self._timed[number]))
        if self._ends and not script:
            self.world.put(channel, EndOfData(), EndOfPartition())

    def _grant(self) -> None:
        self.world.grant()

    def _wait(self) -> None:
        self.world.clock.now_ms += 30
        self.world.call_due()

    def sent_before(self, checkpoint: int) -> list[object]:
        sent: list[object] = []
        for element in self.world.sent[0]:
            if isinstance(element, Barrier) and element.checkpoint == checkpoint:
                return sent
            sent += element.values if isinstance(element, RowBatch) else []
        raise AssertionError(f"the barrier of checkpoint {checkpoint} was never sent")


@pytest.mark.feature("F120", "F237", "F238", "F239")
@examples(300)
@given(seed=st.integers(0, 2**32))
def test_every_cut_is_consistent(seed: int) -> None:
    """State and what was saved hold exactly what came before the barriers, each row once, in order.

    And what was sent before the barrier, with what was saved of the outputs, is what was emitted.
    """
    run = Run(Random(seed))
    run.to_the_end()
    world, saved = run.world, run.world.saved
    declined = {decline.checkpoint for decline in world.declined}
    whole = [number for number in world.checkpoints_cut if number not in declined]
    assert 3 in whole
    for number in whole:
        cut = run.through.cuts[number]
        for channel in (0, 1):
            seen = [value for value in cut if value[0] == channel]
            assert seen + saved.came(number, channel) == run.before[number, channel]
        assert run.sent_before(number) + saved.unsent(number) == cut
        assert {(number, "input"), (number, "output")} <= set(saved.finished)


def test_a_job_without_unaligned_checkpoints_hears_nothing_ahead() -> None:
    assert World(Recorder("a", [])).gate.heard is None
