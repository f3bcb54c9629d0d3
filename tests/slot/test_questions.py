"""What a slot does beside its work: it answers its driver, and collects garbage."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import TYPE_CHECKING

from tests.slot.cluster import Cluster, run
from tests.slot.operators import ONE_BY_ONE, pair
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointDeclined,
    HasRead,
    ReadBack,
    Release,
    Samples,
    SlotLeaving,
    TellSamples,
    TellThreads,
    Threads,
    TriggerCheckpoint,
)
from tidegate.model.elements import CheckpointOptions
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId
from tidegate.slot.slot import COLLECT_EVERY_MS

if TYPE_CHECKING:
    import pytest


def sampling() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tidegate-sampler"]


def test_a_slot_tells_where_each_of_its_threads_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.tell(slot, TellThreads(7))
        told = await cluster.first(Threads)
        assert (told.number, told.slot) == (7, slot)
        here = next(
            each for each in told.stacks if each.thread.startswith(threading.current_thread().name)
        )
        assert "slot.py" in here.stack and "in message" in here.stack

    run(lambda: Cluster(ONE_BY_ONE, {}), work, monkeypatch)


def test_samples_are_taken_from_the_first_question_to_the_end_of_the_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        before = len(sampling())
        for number, execution in enumerate((source, sink)):
            cluster.tell(slot, TellSamples(number, execution.subtask.vertex))
        await cluster.until(lambda: len(cluster.of(Samples)) == 2)
        assert cluster.of(Samples)[0] == Samples(0, slot, ())
        assert len(sampling()) == before + 1, "one for all vertices"
        cluster.tell(slot, Release("over"))
        assert await cluster.running[slot] == "over"
        await cluster.eventually(lambda: len(sampling()) == before)

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


def test_a_slot_says_whether_it_can_read_a_savepoint(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.tell(slot, ReadBack(3, "memory:/savepoints/none", (10, 11), {}))
        read = await cluster.first(HasRead)
        assert (read.number, read.slot) == (3, slot)
        assert read.error is not None and f"slot {slot}" in read.error.where

    run(lambda: Cluster(ONE_BY_ONE, {}), work, monkeypatch)


def test_a_message_that_cannot_be_read_ends_the_slot_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        cluster.wires[slot].send([pickle.dumps("a message")[:-1]])
        assert await cluster.running[slot] == "a message of the driver failed"
        leaving = await cluster.first(SlotLeaving)
        assert leaving.error is not None and leaving.error.where == slot

    run(lambda: Cluster(ONE_BY_ONE, {}), work, monkeypatch)


def test_checkpoints_of_subtasks_that_are_elsewhere_are_declined_and_their_ends_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        [(_, elsewhere), *_] = cluster.deployments([slot])
        number = CheckpointId(4)
        cluster.tell(slot, CheckpointAborted(elsewhere.execution, number, None))
        cluster.tell(slot, TriggerCheckpoint(elsewhere.execution, number, 1, CheckpointOptions()))
        declined = await cluster.first(CheckpointDeclined)
        assert declined.reason is FailureReason.TASK_CHECKPOINT_FAILURE
        assert (declined.execution, declined.checkpoint) == (elsewhere.execution, number)
        assert cluster.holds(slot) == []

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


def test_a_slot_with_a_process_of_its_own_collects_garbage_when_it_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            collected.append(about["generation"])

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        assert not gc.isenabled()
        await cluster.settle()
        gc.callbacks.append(note)
        cluster.clock.advance(COLLECT_EVERY_MS + 1)
        await cluster.settle()
        assert collected == [], "it is not woken for it"
        cluster.tell(slot, TellThreads(1))
        await cluster.deploy([slot])
        assert collected == [2], "all of it, once"
        cluster.tell(slot, Release("over"))
        assert await cluster.running[slot] == "over"
        assert gc.isenabled()

    gc.enable()
    try:
        run(lambda: Cluster(ONE_BY_ONE, pair([]), owns_process=True), work, monkeypatch)
    finally:
        if note in gc.callbacks:
            gc.callbacks.remove(note)
