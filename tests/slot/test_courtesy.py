"""Which subtasks of a slot wait with slow calls while a checkpoint is under way."""

from tidegate.model.ids import Attempt, CheckpointId, Epoch, ExecutionId, SubtaskId, VertexId
from tidegate.slot.loop.courtesy import MOMENT_S, MOMENTS, STEPS_S, Courtesy


def execution(number: int) -> ExecutionId:
    return ExecutionId(SubtaskId(VertexId(b"v" * 16), number), Attempt(0), Epoch(1))


class Open:
    """The checkpoints for which the slot has still something to do."""

    def __init__(self, *checkpoints: int) -> None:
        self.checkpoints = set(checkpoints)
        self.courtesy = Courtesy(lambda checkpoint: checkpoint in self.checkpoints)

    def cut(self, checkpoint: int, call_s: float) -> None:
        self.courtesy.cut(execution(0), CheckpointId(checkpoint), call_s, now_s=100.0)

    def waits(self, now_s: float, number: int = 0) -> bool:
        return self.courtesy.waits(execution(number), now_s)


def test_a_slow_subtask_that_is_cut_waits_for_a_call_like_its_own_and_a_moment_more() -> None:
    world = Open(1)
    world.cut(1, call_s=0.5)
    assert world.waits(100.0) and world.waits(100.5 + STEPS_S / 2)
    assert not world.waits(100.5 + STEPS_S)


def test_a_moment_is_left_behind_each_of_the_next_calls_while_the_part_is_not_done() -> None:
    world = Open(1)
    world.cut(1, call_s=0.04)
    assert not world.waits(101), "the first wait is over"
    for call in range(1, MOMENTS):
        assert world.waits(101 + call) and world.waits(101 + call + 0.007)
        assert not world.waits(101 + call + 0.009), "a call begins"
    assert not world.waits(200)
    world.cut(1, call_s=60)
    assert not world.waits(300)
    assert world.waits(400) and not world.waits(400 + MOMENT_S)
    world.checkpoints.clear()
    assert not world.waits(500)


def test_it_goes_on_once_the_part_of_the_slot_is_done() -> None:
    world = Open(1)
    world.cut(1, call_s=60)
    assert world.waits(101)
    world.checkpoints.clear()
    assert not world.waits(101)


def test_it_goes_on_once_the_checkpoint_is_given_up() -> None:
    world = Open(1, 2)
    world.cut(1, call_s=60)
    world.courtesy.given_up(CheckpointId(2))
    assert world.waits(101)
    world.courtesy.given_up(CheckpointId(1))
    assert not world.waits(101)


def test_a_subtask_whose_calls_are_short_does_not_wait() -> None:
    world = Open(1)
    world.cut(1, call_s=0.004)
    assert not world.waits(100.0)
    assert not world.waits(100.0, number=1)


def test_a_subtask_that_is_over_is_forgotten() -> None:
    world = Open(1)
    world.cut(1, call_s=60)
    world.courtesy.forget(execution(0))
    assert not world.waits(101)


def test_nobody_waits_twice_without_a_call_however_many_checkpoints_come() -> None:
    world = Open(1, 2, 3, 4)
    world.cut(1, call_s=0.5)
    assert world.waits(100.2)
    world.cut(2, call_s=0.5)
    world.courtesy.called(execution(0), 0.001)  # a watermark, not a call
    assert world.waits(100.5) and not world.waits(100.5 + STEPS_S)
    world.cut(3, call_s=0.5)
    assert not world.waits(100.6), "it has waited"
    world.courtesy.called(execution(0), 0.5)
    world.cut(4, call_s=0.5)
    assert world.waits(100.2)
