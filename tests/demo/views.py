"""A view of a job in which nothing has happened."""

from tidegate.checkpoint.coordinator.statistics import (
    StatisticsTracker,
)
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.jobmaster.view import JobView
from tidegate.model.control import JobStatus
from tidegate.model.ids import Epoch, JobId

EMPTY = JobView(
    job=JobId("0" * 32),
    name="delays",
    epoch=Epoch(1),
    status=JobStatus.CREATED,
    timestamps_ms={JobStatus.CREATED: 1},
    restarts=0,
    restored=None,
    vertices=(),
    edges=(),
    failures=(),
    slots=(),
    slots_wanted=2,
    checkpoints=StatisticsTracker(10).view(),
    settings=job_settings(Configuration()),
)
