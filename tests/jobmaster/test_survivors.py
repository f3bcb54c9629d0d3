"""Slots that live host the subtasks of lost ones: which, until when, and what befalls them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.world import chain, vertex
from tests.jobmaster.steps import (
    BROKEN,
    EVERY_SECOND,
    STRANDS,
    TWO,
    ask,
    completed,
    current,
    fail,
    made,
    named,
    pass_time,
)
from tests.properties import examples
from tests.worlds.jobmaster import World
from tidegate.checkpoint.coordinator.commands import AddPointer
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.errors import SlotLost, UserCodeFailed
from tidegate.jobmaster.commands import (
    Deployed,
    DropSlot,
    GuestsDeployed,
    GuestsReturn,
    GuestsStay,
    RequestSlots,
    RescaleDone,
    ResetSubtasks,
    Restarting,
    SlotsAwaited,
)
from tidegate.jobmaster.events import RescaleRequested, SlotRequestFailed
from tidegate.jobmaster.slots import SlotPool
from tidegate.jobmaster.survivors import REPORT_MS
from tidegate.model.control import Cancel, ExecutionState, JobStatus, Offer
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import SlotId
from tidegate.model.settings import CheckpointSettings, FixedDelay, NoRestart

ON = replace(EVERY_SECOND, on_survivors=True, restart=FixedDelay(attempts=3, delay_ms=0))
FOUR = chain(vertex("source", 4, coordinator=True), vertex("count", 4))
A, B, C, D, E = (SlotId(f"slot-{number}") for number in range(5))


def lose(world: World, *slots: SlotId) -> None:
    """Slots are killed, and what has to be deployed again is, where it can."""
    for slot in slots:
        world.lose(slot, SlotLost("killed"))
    world.wake_up_to(world.now_ms)


def places(world: World, vertex_name: str = "count") -> list[SlotId | None]:
    """The slots of the living subtasks of a vertex, by index."""
    (found,) = [v for v in world.machine.view(world.now_ms).vertices if v.name == vertex_name]
    return [None if s.state.is_terminal else s.slot for s in found.subtasks]


def guests(world: World) -> list[str]:
    """The subtasks shown as guests."""
    return [
        f"{vertex.name}/{subtask.index}"
        for vertex in world.machine.view(world.now_ms).vertices
        for subtask in vertex.subtasks
        if subtask.guest
    ]


def runs(world: World) -> bool:
    return world.status is JobStatus.RUNNING and {s.state for s in world.subtasks()} == {
        ExecutionState.RUNNING
    }


# --- on slots that live ---------------------------------------------------------------------------


def test_a_slot_that_lives_hosts_the_subtasks_of_a_lost_one_at_once() -> None:
    world = made(ON)
    lose(world, B)
    assert runs(world) and places(world) == places(world, "source") == [A, A]
    assert guests(world) == ["source/1", "count/1"]
    assert world.of(GuestsDeployed) == [GuestsDeployed({A: ("source (2/2)", "count (2/2)")})]
    newest = world.of(AddPointer)[-1].checkpoint
    assert world.of(Deployed)[-1] == Deployed(1, newest, 4), "from the newest checkpoint"
    assert world.of(RequestSlots)[-1] == RequestSlots(1), "another slot is asked for meanwhile"


def test_without_the_option_the_job_waits_for_another_slot() -> None:
    world = made(replace(ON, on_survivors=False))
    lose(world, B)
    assert world.status is JobStatus.RESTARTING
    world.offer()
    assert runs(world) and places(world) == [A, C]
    assert not world.of(GuestsDeployed) and not guests(world)


def test_they_return_with_the_next_checkpoint_after_a_slot_has_come() -> None:
    world = made(ON)
    lose(world, B)
    pass_time(world, world.now_ms + 2_000)
    assert completed(world) == 3 and places(world) == [A, A], "there is no slot yet"
    world.offer()
    assert places(world) == [A, A], "checkpoints from before it do not count"
    pass_time(world, world.now_ms + 1_000)
    assert runs(world) and places(world) == places(world, "source") == [A, C]
    (returned,) = world.of(GuestsReturn)
    assert returned.subtasks == named("source/1", "count/1")
    assert returned.guests == {A: ("source (2/2)", "count (2/2)")}
    assert world.of(Deployed)[-1].restored == world.of(AddPointer)[-1].checkpoint
    assert not guests(world)


def test_their_return_is_no_failure_and_uses_up_no_restart() -> None:
    world = made(replace(ON, restart=FixedDelay(attempts=1, delay_ms=0)))
    lose(world, B)
    world.offer()
    pass_time(world, world.now_ms + 3_000)
    seen = world.machine.view(world.now_ms)
    assert (seen.restarts, len(seen.failures), len(world.of(Restarting))) == (1, 1, 1)
    assert world.statuses[-4:] == [JobStatus.RESTARTING, JobStatus.RUNNING] * 2
    assert len(world.of(GuestsReturn)) == 1, "once"


def test_a_savepoint_brings_nobody_back() -> None:
    world = made(replace(ON, checkpoints=CheckpointSettings()))
    world.send(CheckpointRequested(1, SnapshotKind.CHECKPOINT))
    lose(world, B)
    world.offer()
    world.send(CheckpointRequested(2, SnapshotKind.SAVEPOINT, target="file:/savepoints"))
    assert completed(world) == 2 and places(world) == [A, A]
    world.send(CheckpointRequested(3, SnapshotKind.CHECKPOINT))
    assert places(world) == [A, C]


def test_without_checkpoints_they_stay() -> None:
    world = made(replace(ON, checkpoints=CheckpointSettings()))
    lose(world, B)
    world.offer()
    pass_time(world, world.now_ms + 100_000)
    assert runs(world) and places(world) == [A, A] and guests(world) == ["source/1", "count/1"]


def test_a_restart_for_another_reason_takes_them_to_their_slot_too() -> None:
    world = made(ON)
    lose(world, B)
    world.offer()
    fail(world, "count/0")
    world.wake_up_to(world.now_ms)
    assert places(world) == [A, C] and not guests(world)
    pass_time(world, world.now_ms + 3_000)
    assert not world.of(GuestsReturn)


def test_only_their_region_moves() -> None:
    world = made(ON, STRANDS)
    lose(world, C)
    assert places(world, "write") == [A, B, A]
    world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert places(world, "write") == places(world, "read") == [A, B, D]
    cancelled = {cancel.execution.subtask for cancel in world.sent(Cancel)}
    assert cancelled == set(named("read/2", "write/2"))
    assert {e.subtask.index for e in world.of(ResetSubtasks)[-1].executions.popitem()[1]} == {2}


def test_finished_guests_go_nowhere() -> None:
    world = made(ON, STRANDS)
    lose(world, C)
    for subtask in named("read/2", "write/2"):
        world.change(current(world)[subtask], ExecutionState.FINISHED)
    world.offer()
    pass_time(world, world.now_ms + 3_000)
    assert completed(world) >= 3 and not world.of(GuestsReturn)


# --- how many -------------------------------------------------------------------------------------


def test_half_of_the_slots_are_enough_and_each_hosts_one_more() -> None:
    world = made(ON, FOUR)
    lose(world, B, C)
    assert runs(world) and places(world) == [A, A, D, D]
    lose(world, D)
    assert world.status is JobStatus.RESTARTING, "one would have to host all"
    world.offer()
    assert runs(world) and places(world) == [A, E, A, E]


def test_the_first_of_several_slots_that_come_takes_its_own() -> None:
    world = made(ON, FOUR)
    lose(world, B, C)
    world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert places(world) == [A, E, A, D] and guests(world) == ["source/2", "count/2"]
    world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert places(world) == [A, E, SlotId("slot-5"), D] and not guests(world)


def test_where_all_are_lost_the_job_waits_for_half_of_them() -> None:
    world = made(ON, FOUR)
    lose(world, A, B, C, D)
    world.offer()
    assert world.status is JobStatus.RESTARTING
    world.offer()
    assert runs(world) and places(world) == [E, SlotId("slot-5")] * 2


def test_a_job_of_one_slot_waits_for_another() -> None:
    world = made(ON, chain(vertex("source", 1), vertex("count", 1)))
    lose(world, A)
    assert world.status is JobStatus.RESTARTING
    world.offer()
    assert runs(world) and places(world) == [B] and not world.of(GuestsDeployed)


def test_a_job_begins_on_all_of_its_slots() -> None:
    world = World(ON, TWO).start()
    world.offer()
    assert not world.executions, "half of them are no survivors before it has run"
    world.offer()
    assert runs(world) and places(world) == [A, B]


# --- what befalls them ----------------------------------------------------------------------------


def test_a_survivor_that_is_killed_too_leaves_its_guests_to_the_next() -> None:
    world = made(ON, FOUR)
    lose(world, B)
    assert places(world) == [A, A, C, D]
    world.offer()
    lose(world, A)
    assert (runs(world) and places(world) == [C, E, C, D]) or places(world) == [E, E, C, D]
    assert guests(world) == ["source/0", "count/0"], "its own slot has come"


def test_a_slot_that_comes_while_guests_are_restored_gets_them_later() -> None:
    world = made(ON)
    world.prompt = False
    lose(world, B)
    while world.status is not JobStatus.RUNNING:
        world.deliver()
    assert places(world) == [A, A]
    world.offer()
    world.prompt = True
    world.send()
    while world.waiting:
        world.deliver()
    assert runs(world) and places(world) == [A, A]
    pass_time(world, world.now_ms + 1_000)
    assert runs(world) and places(world) == [A, C]


def test_a_slot_that_is_lost_while_they_return_costs_no_second_restart() -> None:
    world = made(replace(ON, restart=FixedDelay(attempts=1, delay_ms=0)))
    lose(world, B)
    world.offer()
    world.prompt = False
    while not world.of(GuestsReturn):
        world.beat()
        world.wake_up_to(world.now_ms + 100)
        while world.waiting and not world.of(GuestsReturn):
            world.deliver()
    world.prompt = True
    lose(world, C)
    assert runs(world) and places(world) == [A, A]
    failures = world.machine.view(world.now_ms).failures
    assert len(failures) == 1 and world.over is None


def test_a_failure_while_they_return_stands_in_the_history_as_its_own() -> None:
    world = made(ON)
    lose(world, B)
    world.offer()
    world.prompt = False
    while not world.of(GuestsReturn):
        world.beat()
        world.wake_up_to(world.now_ms + 100)
        while world.waiting and not world.of(GuestsReturn):
            world.deliver()
    fail(world, "count/0")
    newest, _ = world.machine.view(world.now_ms).failures
    assert newest.kind == UserCodeFailed.__name__ and not newest.concurrent


def test_without_a_restart_strategy_a_lost_slot_ends_the_job_as_ever() -> None:
    world = made(replace(ON, restart=NoRestart()))
    lose(world, B)
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert not world.of(GuestsDeployed)


def test_a_restart_on_survivors_counts_and_waits_as_the_strategy_says() -> None:
    world = made(replace(ON, restart=FixedDelay(attempts=1, delay_ms=5_000)))
    lose(world, B)
    assert world.status is JobStatus.RESTARTING
    pass_time(world, world.now_ms + 5_000)
    assert runs(world) and places(world) == [A, A]
    fail(world, "count/0", BROKEN)
    assert world.over is not None, "its one restart was used up"


def test_no_slot_is_missed_while_a_restart_waits_for_its_time() -> None:
    world = made(replace(ON, slots_timeout_ms=2_000, restart=FixedDelay(9, delay_ms=30_000)))
    lose(world, B)
    pass_time(world, world.now_ms + 31_000)
    assert runs(world) and places(world) == [A, A]
    assert world.machine.view(world.now_ms).restarts == 1


def test_a_stop_with_savepoint_is_not_held_up_by_their_return() -> None:
    world = made(ON)
    lose(world, B)
    world.offer()
    world.prompt = False
    world.beat()
    world.wake_up_to(world.now_ms + 1_000)
    while world.of(AddPointer)[-1].checkpoint != 2:
        world.deliver()
    world.send(CheckpointRequested(1, SnapshotKind.SUSPEND, target="file:/savepoints"))
    assert completed(world) == 1, "a checkpoint is about to be complete"
    world.prompt = True
    while world.waiting:
        world.deliver()
    pass_time(world, world.now_ms + 3_000)
    assert completed(world) == 3 and not world.of(GuestsReturn)
    world.finish_all()
    assert world.over is not None and world.over.status is JobStatus.FINISHED


# --- slots that do not come -----------------------------------------------------------------------


def test_the_job_goes_on_without_a_slot_that_does_not_come() -> None:
    world = made(replace(ON, slots_timeout_ms=5_000))
    lose(world, B)
    pass_time(world, world.now_ms + REPORT_MS + 10_000)
    assert runs(world) and places(world) == [A, A]
    assert [awaited.want for awaited in world.of(SlotsAwaited)] == [2]
    world.send(SlotRequestFailed(SlotLost("no core")))
    before = len(world.of(RequestSlots))
    pass_time(world, world.now_ms + 1_000)
    assert len(world.of(RequestSlots)) == before + 1, "it is asked for again"


def test_a_job_whose_slots_will_never_come_stays_on_those_it_has_and_says_so() -> None:
    world = made(ON)
    lose(world, B)
    error = SlotLost("other versions")
    world.send(SlotRequestFailed(error, final=True))
    (stay,) = world.of(GuestsStay)
    assert stay == GuestsStay({A: ("source (2/2)", "count (2/2)")}, error)
    before = len(world.of(RequestSlots))
    pass_time(world, world.now_ms + 100_000)
    assert runs(world) and len(world.of(RequestSlots)) == before
    lose(world, A)
    world.send(SlotRequestFailed(error, final=True))
    assert world.over is not None and world.over.status is JobStatus.SUSPENDED
    assert "restarted again" not in str(world.over.error), "no strategy was asked"


def test_such_a_job_can_be_rescaled_to_the_slots_it_has() -> None:
    world = made(ON)
    lose(world, B)
    world.send(SlotRequestFailed(SlotLost("other versions"), final=True))
    ask(world, 1)
    pass_time(world, world.now_ms + 1_000)
    assert world.of(RescaleDone)[-1].error is None
    assert runs(world) and places(world) == [A] and not guests(world)
    assert world.machine.view(world.now_ms).slots_wanted == 1


def test_a_rescale_to_more_takes_guests_to_slots_of_their_own() -> None:
    world = made(ON)
    lose(world, B)
    world.send(RescaleRequested(1, 3))
    while world.coming:
        world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert runs(world) and places(world) == [A, C, D] and not guests(world)
    assert not world.of(GuestsReturn)


def test_a_slot_beyond_the_need_is_refused_while_none_is_missing() -> None:
    world = made(ON)
    lose(world, B)
    world.offer()
    world.send(Offer(SlotId("late"), "late:1", 1, "host", {}))
    assert world.of(DropSlot)[-1].slot == SlotId("late")


# --- the places of indices ------------------------------------------------------------------------


@given(data=st.data(), needed=st.integers(1, 8))
@examples(200)
def test_each_index_has_a_place_and_guests_are_spread_evenly(
    data: st.DataObject, needed: int
) -> None:
    pool = SlotPool(needed, 10_000)
    for number in range(needed):
        slot = SlotId(f"slot-{number}")
        assert pool.offered(Offer(slot, f"{slot}:1", 1, "host", {}), 0)
    lost = data.draw(st.sets(st.integers(0, needed - 1), max_size=needed // 2))
    for number in lost:
        pool.left(SlotId(f"slot-{number}"))
    found = pool.places(())
    assert len(found) == needed and set(found) == set(pool.in_order())
    assert all(pool.own(i) in (None, slot) for i, slot in enumerate(found))
    assert max(found.count(slot) for slot in found) <= 2, "half of the slots host one more each"


def test_a_region_joins_those_of_its_index_that_go_on() -> None:
    pool = SlotPool(4, 10_000)
    for slot in (A, B, C, D):
        pool.offered(Offer(slot, f"{slot}:1", 1, "host", {}), 0)
    pool.left(B)
    assert pool.places([(1, D)]) == [A, D, C, D]
    pool.left(C)
    assert pool.places([(1, D)]) == [A, D, A, D], "and the next guest goes to another slot"


@pytest.mark.parametrize("on", [True, False])
def test_the_view_tells_guests_apart(on: bool) -> None:
    world = made(replace(ON, on_survivors=on))
    assert guests(world) == []
    lose(world, B)
    assert bool(guests(world)) is on
