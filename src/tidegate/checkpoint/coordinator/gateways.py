"""Gateways between operators' coordinators and their subtasks.

What a coordinator sends after its snapshot for a checkpoint must not reach a subtask before that
subtask's snapshot, or it would be in the subtask's state and not in the coordinator's. So the
gateway to each subtask closes when the coordinator's snapshot is there, holds back what is sent,
and opens when the subtask has taken its own, or the checkpoint is given up.

The other direction needs care when checkpoints overlap: what is held back for checkpoint n belongs
before the cut of n + 1. Hence `holds_before`: nobody is triggered for n + 1 while it is true.

A confirmation passes a closed gateway: a subtask that waits for it takes no barrier, and would wait
for ever for what is held back until it has taken one.

Source: checkpoint coordination §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.model.control import ToOperator

if TYPE_CHECKING:
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId

_Held = dict["CheckpointId", list[ToOperator]]


class Gateways:
    """Holds back messages from operators' coordinators while a checkpoint cuts."""

    def __init__(self) -> None:
        self._gateways: dict[tuple[OperatorId, ExecutionId], _Held] = {}

    def close(
        self,
        checkpoint: CheckpointId,
        operator: OperatorId,
        executions: tuple[ExecutionId, ...],
    ) -> None:
        """The coordinator's snapshot is there, these subtasks' are not yet."""
        for execution in executions:
            held = self._gateways.setdefault((operator, execution), {})
            assert checkpoint not in held, "a gateway closes once for a checkpoint"
            held[checkpoint] = []

    def send(self, message: ToOperator) -> list[ToOperator]:
        """Messages to send now: this one, or none if it is held back."""
        held = self._gateways.get((message.operator, message.execution))
        if not held or message.event.confirms:
            return [message]
        held[max(held)].append(message)
        return []

    def acknowledged(self, checkpoint: CheckpointId, execution: ExecutionId) -> list[ToOperator]:
        """Messages to send now that the subtask has taken its snapshot for this checkpoint.

        It has then passed all earlier ones too, for barriers come in order.
        """
        released: list[ToOperator] = []
        for key in [key for key in self._gateways if key[1] == execution]:
            held = self._gateways[key]
            for passed in sorted(known for known in held if known <= checkpoint):
                released.extend(held.pop(passed))
            assert all(known > checkpoint for known in held), "barriers come in order"
            self._forget_if_open(key)
        return released

    def aborted(self, checkpoint: CheckpointId) -> list[ToOperator]:
        """Messages to send now that the checkpoint is aborted."""
        released: list[ToOperator] = []
        for key in [key for key, held in self._gateways.items() if checkpoint in held]:
            held = self._gateways[key]
            messages = held.pop(checkpoint)
            older = [known for known in held if known < checkpoint]
            if older:
                held[max(older)].extend(messages)
            else:
                released.extend(messages)
            self._forget_if_open(key)
        return released

    def drop(self, execution: ExecutionId) -> None:
        """The attempt is gone, and what was held back for it with it."""
        for key in [key for key in self._gateways if key[1] == execution]:
            del self._gateways[key]

    def holds_before(self, checkpoint: CheckpointId) -> bool:
        """True if a held message belongs before the cut of this checkpoint."""
        return any(
            messages and known < checkpoint
            for held in self._gateways.values()
            for known, messages in held.items()
        )

    def _forget_if_open(self, key: tuple[OperatorId, ExecutionId]) -> None:
        if not self._gateways[key]:
            del self._gateways[key]
