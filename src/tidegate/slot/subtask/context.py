"""The slot as an open operator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import OperatorClock, OperatorContext, SubtaskInfo
from tidegate.metrics import MetricRegistry

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorStates
    from tidegate.model.control import Remark
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.topology import OperatorInfo
    from tidegate.slot.subtask.deployment import Deployment
    from tidegate.slot.subtask.operator_host import OperatorHost


def context_of(
    operator: OperatorInfo, deployment: Deployment, host: OperatorHost, state: OperatorStates
) -> OperatorContext:
    """Context of one operator; a slot, a harness and a dry run differ in the host and the state."""
    settings, vertex, execution = deployment.settings, deployment.vertex, deployment.execution
    info = SubtaskInfo(
        operator=operator.id,
        name=operator.name,
        keyed=operator.keyed,
        job=deployment.job,
        task=vertex.name,
        numbered_task=deployment.task_name,
        subtask=deployment.index,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        epoch=execution.epoch,
        attempt=execution.attempt,
        restored=deployment.deploy.restored,
        checkpointing=settings.checkpoints.periodic,
        settings=settings.slot,
        parameters=settings.parameters,
    )
    clock = OperatorClock(host.clock, host.wake_at)
    return OperatorContext(info, state, clock, _Tasks(operator, host))


class _Tasks:
    """The `OperatorTasks` of an operator on a host."""

    def __init__(self, operator: OperatorInfo, host: OperatorHost) -> None:
        self.metrics = MetricRegistry(host.clock.monotonic_ms).group()
        self.remarks: list[Remark] = []
        self.run_blocking = host.run_blocking
        self.threads = host.threads
        self.start = host.start
        self.wake = host.wake
        self.skipped = host.skipped
        self._operator = operator.id
        self._host = host

    def takes_input(self) -> bool:
        return self._host.takes_input

    def to_coordinator(self, event: OperatorEvent) -> None:
        self._host.to_coordinator(self._operator, event)
