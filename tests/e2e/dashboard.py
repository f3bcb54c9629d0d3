"""Pages of Flink's own web dashboard, with what each is to show."""

import re
import socket

from tests.e2e.browser import Browser
from tests.e2e.rest import Rest

NAME = "orders"
PASSED_OVER = re.compile(
    r"/(taskmanagers/[^/]*/profiler|jobmanager/(stdout|profiler)) .* 404 "
    r"|HumanizeWatermarkToDatetimePipe"
    r"|assets/favicon/manifest\.json"
)
"""Answers of 404 on purpose, what the dashboard makes of the watermark of the end, and the file
with its icons, which browsers fetch without any cookie."""


def pages_of_job(rest: Rest, kind: str, name: str = NAME) -> dict[str, tuple[str, ...]]:
    """Pages of a job and its application, with texts that each is to show."""
    job = rest.job.removeprefix("/jobs/")
    vertex = rest.get(rest.job)["vertices"][-1]["id"]
    one, application = f"job/{kind}/{job}", f"application/{kind}/{job}"
    at = f"{one}/overview/{vertex}"
    host = socket.gethostname()
    return {
        f"{application}/overview": (name, "Job List"),
        f"{application}/exceptions": ("No Root Exception",),
        f"{one}/overview": (name, "Parallelism: 2", "Records Received"),
        f"{at}/detail": ("Max Parallelism", "Bytes Sent"),
        f"{at}/subtasks": (host, "Aggregated Metrics"),
        f"{at}/taskmanagers": (host, "Records received"),
        f"{at}/watermarks": ("Datetime of Watermark Timestamp",),
        f"{at}/accumulators": ("SubTask Accumulators", "No Data"),
        f"{at}/backpressure": ("SubTask", "Backpressure Status"),
        f"{at}/metrics": ("Select Metric",),
        f"{at}/flamegraph": ("On-CPU", "Off-CPU", "Mixed"),
        f"{one}/exceptions": ("No Root Exception",),
        f"{one}/dataskew": ("Data Skew Percentage", "%"),
        f"{one}/timeline": ("Vertex TimeLine",),
        f"{one}/checkpoints": ("Checkpoint Counts", "Latest Completed Checkpoint"),
        f"{one}/configuration": ("Execution Configuration",),
    }


def pages_of_cluster(slot: str) -> dict[str, tuple[str, ...]]:
    return {
        "overview": ("Running Application List", "Task Managers2", NAME),
        "application/running": (NAME,),
        "application/completed": ("No Data",),
        "job/running": (NAME,),
        "job/completed": ("No Data",),
        "task-manager": (slot,),
        f"task-manager/{slot}/metrics": (slot, "Assigned Tasks"),
        f"task-manager/{slot}/logs": (slot,),
        f"task-manager/{slot}/stdout": (slot,),
        f"task-manager/{slot}/log-list": ("slot.log", "slot.out"),
        f"task-manager/{slot}/thread-dump": ("MainThread",),
        f"task-manager/{slot}/profiler": (slot,),
        "job-manager/metrics": ("Garbage Collection",),
        "job-manager/config": ("rest.web.jar",),
        "job-manager/logs": ("slot offered itself",),
        "job-manager/stdout": ("Stdout",),
        "job-manager/log": ("driver.log",),
        "job-manager/thread-dump": ("MainThread",),
        "job-manager/profiler": ("Profiler",),
    }


def look(browser: Browser, url: str, pages: dict[str, tuple[str, ...]]) -> None:
    """Each page shows its texts, and nothing complains."""
    for page, texts in pages.items():
        browser.open(f"{url}/index.html#/{page}", *texts)
        assert browser.address.startswith(page), f"{page} has become {browser.address}"
        assert not browser.toasts(), f"{page}: {browser.toasts()}"
    errors = [each for each in browser.errors() if not PASSED_OVER.search(each)]
    assert not errors, errors
