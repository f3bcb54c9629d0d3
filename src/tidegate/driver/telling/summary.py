"""Report on a job at its end."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.api.job import JobSummary
from tidegate.config.log import process_log

if TYPE_CHECKING:
    from tidegate.jobmaster.view import JobView
    from tidegate.model.ids import JobId
    from tidegate.model.settings import JobSettings


def summary_of(view: JobView, runtime_ms: int) -> JobSummary:
    """Summary from the last view of a job. runtime_ms: from its submission."""
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


def tell_end(job: JobId, summary: JobSummary, settings: JobSettings) -> None:
    """Say what a job did wherever its settings want it. Raises nothing: its result is still due."""
    if settings.summary:
        with contextlib.suppress(OSError, ValueError):  # whoever reads it may have gone
            sys.stderr.write(f"{summary}\n")
            sys.stderr.flush()
    if settings.summary_file is not None:
        try:
            with Path(settings.summary_file).open("a", encoding="utf-8") as file:
                file.write(f"{_as_json(job, summary)}\n")
        except OSError as error:
            process_log().warning(
                "the summary of the job could not be written; set tidegate.job.summary-file to a "
                "file that can be",
                job=job,
                error=str(error),
            )


def _as_json(job: JobId, summary: JobSummary) -> str:
    return json.dumps({"id": job, **asdict(summary), "status": summary.status.value})
