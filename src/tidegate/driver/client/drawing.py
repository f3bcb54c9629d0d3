"""A job as a notebook shows it: its graph with figures, its last checkpoint, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.clock import SystemClock
from tidegate.datastream.process.notebook import Shown, show_live
from tidegate.errors import TidegateError
from tidegate.graph.html import Arrow, Box, link, paragraph, svg
from tidegate.telemetry.picture import picture, progress_text
from tidegate.telemetry.units import size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidegate.api.job import JobClient
    from tidegate.jobmaster.view import JobView

    Picture = Mapping[str, Any]


def show_job(client: JobClient, text: str) -> None:
    """Show a job in a notebook, anew each second until it has ended. text: where there is none."""

    def look() -> Shown:  # on the display's thread
        try:
            return drawn(client.view(), client.get_web_interface_url())
        except TidegateError as error:
            return not_known(error, final=client.get_job_execution_result().done())

    show_live(look, text)


def drawn(job: JobView, url: str | None) -> Shown:
    """The job as it is now. url: of its page, if it has one."""
    seen = cast("Picture", picture(job, SystemClock().wall_ms(), since=0))
    parts = [
        _head(seen["job"]),
        svg(
            [_box(vertex) for vertex in seen["vertices"]],
            [Arrow(edge["from"], edge["to"], edge["how"]) for edge in seen["edges"]],
        ),
        *_below(seen),
        *([] if url is None else [link(url, "The job's page")]),
    ]
    return Shown("".join(parts), final=job.status.is_terminal)


def not_known(error: TidegateError, *, final: bool) -> Shown:
    """The error, in place of a job that cannot be asked."""
    return Shown(paragraph(str(error)), final)


def _head(job: Mapping[str, Any]) -> str:
    since_ms = (job["ended"] or job["now"]) - job["began"]
    restarts = f", {job['restarts']} restarts" if job["restarts"] else ""
    text = f"{job['state']} for {time_text(1_000 * since_ms)}, {progress_text(job)}{restarts}"
    return paragraph(text, bold=job["name"])


def _box(vertex: Mapping[str, Any]) -> Box:
    tasks = vertex["subtasks"]
    running = sum(task["state"] == "RUNNING" for task in tasks)
    into, out = (sum(task[name] for task in tasks) for name in ("in_a_second", "out_a_second"))
    busy, held = (max((task[name] for task in tasks), default=0.0) for name in ("busy", "held"))
    rows = sum(task["rows_in"] or task["rows_out"] for task in tasks)
    return Box(
        vertex["id"],
        vertex["name"],
        (
            f"{running} of {vertex['parallelism']} run, {rows:,} rows",
            f"{into:,.0f}/s in, {out:,.0f}/s out",
            f"{busy:.0%} busy, {held:.0%} backpressured",
        ),
        busy=busy,
    )


def _below(seen: Picture) -> Iterator[str]:
    for each in seen["findings"]:
        yield paragraph(f"{each['what']} {each['remedy']}", bold=each["subject"])
    complete = [one for one in seen["checkpoints"]["history"] if one["status"] == "COMPLETED"]
    if complete:
        last = max(complete, key=lambda one: one["id"])
        text = f"{time_text(1_000 * last['duration'])}, {size_text(last['state_size'])}"
        yield paragraph(text, bold=f"checkpoint {last['id']}")
    if seen["failures"]:
        yield paragraph(seen["failures"][0]["error"].splitlines()[0], bold="last failure")
    if seen["job"]["costs"]:
        yield paragraph(seen["job"]["costs"], bold="costs")
