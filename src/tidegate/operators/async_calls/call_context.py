"""Context of a function that is called for many records at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidegate.api.functions import RuntimeContext
from tidegate.errors import UserError

if TYPE_CHECKING:
    from tidegate.api.operator import SubtaskInfo
    from tidegate.metrics import MetricGroup


class CallContext(RuntimeContext):
    """The `RuntimeContext` of an ``AsyncFunction``: it has no state.

    metrics: None in a process of its own, whose metrics nobody would read. All else can be pickled.
    """

    def __init__(self, info: SubtaskInfo, metrics: MetricGroup | None) -> None:
        self._info = info
        self._shared_metrics = metrics

    @property
    def name(self) -> str:
        """Name of the operator, for messages."""
        return self._info.name

    def get_metrics_group(self) -> MetricGroup:
        """Metrics of the operator. Raises UserError in a process of its own."""
        if self._shared_metrics is None:
            raise UserError(
                "a function that runs in a process of its own has no metrics",
                where=f"operator '{self.name}'",
                remedy="Give what you count as a part of the results, and count it in a step "
                "behind this one.",
            )
        return self._shared_metrics

    def get_operator_list_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_operator_list_state")

    def get_broadcast_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_broadcast_state")

    def _keyed_state(self, given: object, kind: object, call: str) -> NoReturn:
        self._refuse(call)

    def _refuse(self, call: str) -> NoReturn:
        raise UserError(
            f"{call}: an AsyncFunction has no state and no timers, since its calls end in any "
            "order and are made again after a failure",
            where=f"operator '{self.name}'",
            remedy="Keep state in a process function before or after this step.",
        )
