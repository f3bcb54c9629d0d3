"""Failure enrichers: something of the user's that says what a failure is about.

An enricher lives in the driver. It gets each failure of the job and gives labels, which stand
beside it in ``JobView.failures``. Its calls may block, for they are made on the driver's pool; the
restart does not wait for them. Source: Flink, ``FailureEnricher``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from tidegate.errors import TidegateError
    from tidegate.model.ids import JobId, SlotId


class FailureKind(Enum):
    """What failed: a subtask, the slot that hosted some, or the job in its driver."""

    TASK = "TASK"
    SLOT = "SLOT"
    GLOBAL = "GLOBAL"


@dataclass(frozen=True, slots=True)
class FailureContext:
    """Where a failure happened. task: the vertex, "" where it is none's; slot: None likewise."""

    kind: FailureKind
    job: JobId
    job_name: str
    task: str
    slot: SlotId | None


class FailureEnricher(ABC):
    """Labels failures; register it with ``env.add_failure_enricher``."""

    @abstractmethod
    def get_output_keys(self) -> Set[str]:
        """The keys of its labels; no two enrichers of a job share one."""

    @abstractmethod
    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        """The labels of a failure; none where it has nothing to say.

        cause: what a user's function raised is a ``UserCodeFailed``, with its traceback as
        ``trace``.
        """
