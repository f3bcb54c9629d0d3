"""Metrics of functions, from Spark to REST and to reporters."""

from tests.e2e.metered import check_metrics_arrive
from tests.e2e.reported import check_reporters
from tests.e2e.runtimes import Jobs


def test_metrics_of_functions_arrive(jobs: Jobs) -> None:
    check_metrics_arrive(jobs)


def test_metrics_are_reported(jobs: Jobs) -> None:
    check_reporters(jobs)
