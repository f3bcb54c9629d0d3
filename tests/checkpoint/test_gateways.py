"""Messages to subtasks are held back where a checkpoint cuts: checkpoint coordination §5."""

from __future__ import annotations

from tidegate.checkpoint.coordinator.gateways import Gateways
from tidegate.model.control import ToOperator
from tidegate.model.elements import OperatorEvent
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    OperatorId,
    SubtaskId,
    VertexId,
)

OPERATOR = OperatorId(b"o" * 16)
LEFT, RIGHT = (
    ExecutionId(SubtaskId(VertexId(b"v" * 16), index), Attempt(0), Epoch(1)) for index in range(2)
)
FIVE, SIX, SEVEN = (CheckpointId(number) for number in range(5, 8))


def event(name: str, execution: ExecutionId = LEFT) -> ToOperator:
    return ToOperator(execution, OPERATOR, OperatorEvent(name))


def closed(*checkpoints: CheckpointId) -> Gateways:
    gateways = Gateways()
    for checkpoint in checkpoints:
        gateways.close(checkpoint, OPERATOR, (LEFT, RIGHT))
    return gateways


def test_an_open_gateway_lets_everything_through() -> None:
    assert Gateways().send(event("a")) == [event("a")]


def test_a_closed_gateway_holds_back_until_the_acknowledgement() -> None:
    gateways = closed(FIVE)
    assert gateways.send(event("a")) == []
    assert gateways.send(event("b")) == []
    assert gateways.acknowledged(FIVE, RIGHT) == []
    assert gateways.acknowledged(FIVE, LEFT) == [event("a"), event("b")]
    assert gateways.send(event("c")) == [event("c")]


def test_a_confirmation_passes_since_the_subtask_may_take_no_barrier_before_it() -> None:
    gateways = closed(FIVE)
    assert gateways.send(event("a")) == []
    taken = ToOperator(LEFT, OPERATOR, OperatorEvent("taken", confirms=True))
    assert gateways.send(taken) == [taken]
    assert gateways.acknowledged(FIVE, LEFT) == [event("a")]


def test_each_subtask_has_a_gateway_of_its_own() -> None:
    gateways = closed(FIVE)
    gateways.acknowledged(FIVE, RIGHT)
    assert gateways.send(event("a", RIGHT)) == [event("a", RIGHT)]
    assert gateways.send(event("a", LEFT)) == []


def test_an_abort_lets_out_what_was_held_back() -> None:
    gateways = closed(FIVE)
    gateways.send(event("a"))
    assert gateways.aborted(FIVE) == [event("a")]
    assert gateways.aborted(FIVE) == []


def test_what_is_sent_between_two_snapshots_goes_out_between_them() -> None:
    gateways = closed(FIVE)
    gateways.send(event("a"))
    gateways.close(SIX, OPERATOR, (LEFT, RIGHT))
    gateways.send(event("b"))
    assert gateways.holds_before(SIX)
    assert not gateways.holds_before(FIVE)
    assert gateways.acknowledged(FIVE, LEFT) == [event("a")]
    assert not gateways.holds_before(SIX)
    assert gateways.acknowledged(SIX, LEFT) == [event("b")]


def test_an_acknowledgement_covers_older_checkpoints() -> None:
    gateways = closed(FIVE, SIX)
    gateways.send(event("a"))
    assert gateways.acknowledged(SIX, LEFT) == [event("a")]
    assert gateways.send(event("b")) == [event("b")]


def test_after_the_abort_of_a_newer_checkpoint_the_older_one_still_holds() -> None:
    gateways = closed(FIVE, SIX)
    gateways.send(event("a"))
    assert gateways.aborted(SIX) == []
    assert gateways.acknowledged(FIVE, LEFT) == [event("a")]


def test_after_the_abort_of_an_older_checkpoint_the_newer_one_still_holds() -> None:
    gateways = closed(FIVE)
    gateways.send(event("a"))
    gateways.close(SIX, OPERATOR, (LEFT, RIGHT))
    gateways.send(event("b"))
    assert gateways.aborted(FIVE) == [event("a")]
    assert gateways.acknowledged(SIX, LEFT) == [event("b")]


def test_what_was_held_back_for_a_dead_attempt_goes_with_it() -> None:
    gateways = closed(FIVE)
    gateways.send(event("a"))
    gateways.drop(LEFT)
    assert gateways.acknowledged(FIVE, LEFT) == []
    assert not gateways.holds_before(SEVEN)
    assert gateways.send(event("b", RIGHT)) == []
