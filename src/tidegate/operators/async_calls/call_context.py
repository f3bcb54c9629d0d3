"""Context of a function that is called for many records at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from tidegate.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.api.functions import RuntimeContext
    from tidegate.metrics import MetricGroup


@dataclass(frozen=True, slots=True)
class CallContext:
    """The `RuntimeContext` of an ``AsyncFunction``: it has no state.

    operator: its name, for messages. metrics: None in a process of its own, whose metrics nobody
    would read. All else can be pickled.
    """

    operator: str
    job: str
    task: str
    task_with_subtasks: str
    parallelism: int
    max_parallelism: int
    index: int
    attempt: int
    parameters: Mapping[str, str]
    metrics: MetricGroup | None

    @classmethod
    def of(cls, runtime: RuntimeContext, operator: str, *, shipped: bool) -> CallContext:
        """Copy of a context. shipped: for a process of its own."""
        return cls(
            operator,
            runtime.get_job_id(),
            runtime.get_task_name(),
            runtime.get_task_name_with_subtasks(),
            runtime.get_number_of_parallel_subtasks(),
            runtime.get_max_number_of_parallel_subtasks(),
            runtime.get_index_of_this_subtask(),
            runtime.get_attempt_number(),
            dict(runtime.get_job_parameters()),
            None if shipped else runtime.get_metrics_group(),
        )

    def get_job_id(self) -> str:
        return self.job

    def get_task_name(self) -> str:
        return self.task

    def get_task_name_with_subtasks(self) -> str:
        return self.task_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int:
        return self.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self.index

    def get_attempt_number(self) -> int:
        return self.attempt

    def get_job_parameters(self) -> Mapping[str, str]:
        return self.parameters

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        return self.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Metrics of the operator. Raises UserError in a process of its own."""
        if self.metrics is None:
            raise UserError(
                "a function that runs in a process of its own has no metrics",
                where=f"operator '{self.operator}'",
                remedy="Give what you count as a part of the results, and count it in a step "
                "behind this one.",
            )
        return self.metrics

    def get_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_state")

    def get_list_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_list_state")

    def get_map_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_map_state")

    def get_reducing_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_reducing_state")

    def get_aggregating_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_aggregating_state")

    def get_operator_list_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_operator_list_state")

    def get_broadcast_state(self, state_descriptor: object) -> NoReturn:
        self._refuse("get_broadcast_state")

    def _refuse(self, call: str) -> NoReturn:
        raise UserError(
            f"{call}: an AsyncFunction has no state and no timers, since its calls end in any "
            "order and are made again after a failure",
            where=f"operator '{self.operator}'",
            remedy="Keep state in a process function before or after this step.",
        )
