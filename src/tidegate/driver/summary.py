"""What a job did, told at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.client import JobSummary

if TYPE_CHECKING:
    from tidegate.jobmaster.view import JobView


def summary_of(view: JobView, runtime_ms: int) -> JobSummary:
    """Of the last view of a job. runtime_ms: from its submission."""
    checkpoints = view.checkpoints
    return JobSummary(
        view.name,
        view.status,
        runtime_ms,
        view.counts,
        checkpoints.counts.completed,
        checkpoints.counts.failed,
        view.restarts,
    )
