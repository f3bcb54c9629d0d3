"""A job without anything, for pages to be made of."""

from tidegate.checkpoint.statistics import StatisticsTracker
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.jobmaster.view import JobView
from tidegate.model.control import JobStatus
from tidegate.model.ids import Epoch, JobId

JOB = JobId("0123456789abcdef" * 2)
EMPTY = JobView(
    job=JOB,
    name="orders",
    epoch=Epoch(1),
    status=JobStatus.RUNNING,
    timestamps_ms={JobStatus.INITIALIZING: 1_000, JobStatus.RUNNING: 1_010},
    restarts=0,
    restored=None,
    vertices=(),
    edges=(),
    failures=(),
    slots=(),
    slots_wanted=1,
    checkpoints=StatisticsTracker(10).view(),
    settings=job_settings(
        Configuration.from_dict({"rest.port": "0", "tidegate.rest.savepoint-dirs": "/savepoints"})
    ),
)
