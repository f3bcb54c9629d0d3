"""Job status listeners: user code that learns of a job's status changes.

A listener lives in the driver. It is told each change of the job's status, one after another, in
order. Its calls may block, for they are made on the driver's pool; the job does not wait for them.
Source: Flink, ``JobStatusChangedListener`` and ``JobExecutionStatusEvent``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.control import JobStatus
    from tidegate.model.ids import JobId


@dataclass(frozen=True, slots=True)
class JobExecutionStatusEvent:
    """A change of a job's status.

    timestamp_ms: when, wall clock; the same as in ``JobView.timestamps_ms``, and never less than in
    the event before. error: the failure behind it; None if there is none.
    """

    job_id: JobId
    job_name: str
    old_status: JobStatus
    new_status: JobStatus
    timestamp_ms: int
    error: TidegateError | None = None


class JobStatusChangedListener(ABC):
    """Learns of a job's status changes; register it with ``env.register_job_listener``."""

    @abstractmethod
    def on_event(self, event: JobExecutionStatusEvent) -> None:
        """Called when the job's status has changed.

        Called for the next change only when this one's call is over. An exception is logged. The
        last call, for a job that has ended, is over before its result is given out.
        """
