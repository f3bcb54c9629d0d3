"""Failure enrichers: user code that labels failures with what they are about.

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
    """Source of a failure: a subtask, the slot that hosted some, or the job in its driver."""

    TASK = "TASK"
    SLOT = "SLOT"
    GLOBAL = "GLOBAL"


@dataclass(frozen=True, slots=True)
class FailureContext:
    """Place of a failure. task: the vertex, "" if it is of none; slot: None likewise."""

    kind: FailureKind
    job: JobId
    job_name: str
    task: str
    slot: SlotId | None


class FailureEnricher(ABC):
    """Labels failures; register it with ``env.add_failure_enricher``."""

    @abstractmethod
    def get_output_keys(self) -> Set[str]:
        """Keys of its labels; no two enrichers of a job share one."""

    @abstractmethod
    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        """Labels for a failure; empty if it has nothing to say.

        cause: what a user's function raised is a ``UserCodeFailed``, with its traceback as
        ``trace``.
        """
