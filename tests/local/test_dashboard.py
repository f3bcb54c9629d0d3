"""Flink's own web dashboard, unchanged, over a job of ours: each of its pages in a browser."""

from dataclasses import replace

import pytest
import structlog

from tests.e2e.browser import Browser
from tests.e2e.dashboard import NAME, look, pages_of_cluster, pages_of_job
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.maven import flink_dashboard
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.watch import view, wait_completed
from tests.rest.served import Served, made
from tests.rest.world import JOB
from tidegate import JobCanceled, JobStatus
from tidegate.model.ids import Epoch

pytestmark = pytest.mark.slow


@pytest.mark.feature("F072")
def test_every_page_shows_a_running_job_and_cancels_it(jobs: Jobs, browser: Browser) -> None:
    env = jobs.checkpointed(2, 200, **SERVED, **{"rest.web.jar": str(flink_dashboard())})
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, NAME)
    wait_completed(client, 2)
    rest = Rest.of(client)
    pages = pages_of_job(rest, "running")
    look(browser, rest.url, {**pages, **pages_of_cluster(view(client).slots[0].id)})
    job = rest.job.replace("/jobs", "/job/running")
    browser.open(f"{rest.url}/index.html#{job}/overview", "Cancel Job")
    browser.click("Cancel Job")
    browser.click("Yes")
    assert isinstance(failure_of(client), JobCanceled)


@pytest.mark.feature("F072")
def test_every_page_shows_a_finished_job(jobs: Jobs, browser: Browser) -> None:
    env = jobs.checkpointed(2, 100)
    running_counts(env, 400, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, NAME)
    finished(client)
    # The interface of a job ends with it, so that one of the test's own shows how it ended.
    over = Served()
    over.shown = replace(view(client), job=JOB)
    assert over.shown.status is JobStatus.FINISHED
    with structlog.testing.capture_logs():
        server = made(jar=str(flink_dashboard()))
        server.open(over, Epoch(1))  # type: ignore[arg-type]
    try:
        rest = Rest(server.url)
        lists = {"overview": (NAME, "FINISHED"), "job/completed": (NAME, "FINISHED")}
        look(browser, server.url, {**lists, **pages_of_job(rest, "completed")})
    finally:
        server.shut()
