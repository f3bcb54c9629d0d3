"""Running jobs as text and tables that a terminal draws again and again."""

from __future__ import annotations

import contextlib
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.clock import SystemClock
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.errors import TidegateError
from tidegate.telemetry.findings import HELD_BACK
from tidegate.telemetry.picture import picture, progress_text

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rich.console import RenderableType
    from rich.live import Live

    from tidegate.jobmaster.view import JobView

    Picture = Mapping[str, Any]

EVERY_S: Final = 1.0
_LOOK_S: Final = 5.0
"""How long a last look is waited for."""
_LAST: Final = 5
"""Checkpoints that are shown."""

_MINUTE_MS: Final = 60_000
_WIDTHS: Final = {
    "tasks": 5,
    "in/s": 9,
    "out/s": 9,
    "busy": 4,
    "backpressured": 13,
    "event time": 16,
}


@contextmanager
def watching() -> Generator[None]:
    """Draws the jobs of this process as they run, on the terminal of standard error.

    Raises UsageError where that is no terminal.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        raise click.UsageError("--watch draws on a terminal, and standard error is none.")
    over = threading.Event()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        drawer = threading.Thread(
            target=_draw_until, args=(over, live), name="tidegate-watch", daemon=True
        )
        drawer.start()
        try:
            yield
        finally:
            over.set()
            drawer.join(_LOOK_S)


def _draw_until(over: threading.Event, live: Live) -> None:
    from rich.console import Group

    while not over.wait(EVERY_S):
        now_ms = SystemClock().wall_ms()
        views: list[JobView] = []
        for client in running_jobs().clients:
            # It ends, or its driver is busy; the next look will do.
            with contextlib.suppress(TidegateError, TimeoutError):
                views.append(client.view())
        live.update(Group(*(drawn(picture(view, now_ms, since=0)) for view in views)), refresh=True)


def drawn(seen: Picture) -> RenderableType:
    """The job as text and tables."""
    from rich.console import Group

    parts: list[RenderableType] = [_head(seen["job"]), _steps(seen)]
    if seen["checkpoints"]["history"]:
        parts.append(_checkpoints(seen["checkpoints"]))
    parts += [
        f"[yellow bold]{one['subject']}[/]  {_plain(one['what'])} [dim]{_plain(one['remedy'])}[/]"
        for one in seen["findings"]
    ]
    if seen["job"]["costs"]:
        parts.append(f"[dim]{seen['job']['costs']}[/]")
    return Group(*parts)


def _head(job: Mapping[str, Any]) -> str:
    count = job["restarts"]
    restarts = f", {count} restart{'s' if count > 1 else ''}" if count else ""
    return (
        f"[bold]{_plain(job['name'])}[/]  {job['state']} for "
        f"{_duration((job['ended'] or job['now']) - job['began'])}, {progress_text(job)}{restarts}"
    )


def _steps(seen: Picture) -> RenderableType:
    from rich.table import Table

    now_ms = seen["job"]["now"]
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("step", overflow="ellipsis", no_wrap=True, ratio=1)
    for name, width in _WIDTHS.items():
        table.add_column(name, justify="right", no_wrap=True, width=width)
    for vertex in seen["vertices"]:
        tasks = vertex["subtasks"]
        # Of a batch it counts what is done, of a stream what runs.
        at = "FINISHED" if seen["job"].get("tasks") else "RUNNING"
        running = sum(task["state"] == at for task in tasks)
        busy, held = (max((task[name] for task in tasks), default=0) for name in ("busy", "held"))
        table.add_row(
            _plain(vertex["name"]),
            f"{running}/{vertex['parallelism']}",
            f"{sum(task['in_a_second'] for task in tasks):,.0f}",
            f"{sum(task['out_a_second'] for task in tasks):,.0f}",
            f"{busy:.0%}",
            f"[red]{held:.0%}[/]" if held > HELD_BACK else f"{held:.0%}",
            _behind([task["watermark"] for task in tasks], now_ms),
        )
    return table


def _checkpoints(checkpoints: Mapping[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True)
    for name, width in (("checkpoint", 13), ("status", 11), ("took", 8), ("size", 16)):
        table.add_column(name, no_wrap=True, width=width)
    table.add_column("last share", overflow="ellipsis", no_wrap=True, ratio=1)
    for one in sorted(checkpoints["history"], key=lambda each: -each["id"])[:_LAST]:
        latest = one["latest"]
        table.add_row(
            f"{'savepoint ' if one['savepoint'] else ''}{one['id']}",
            one["status"].lower().replace("_", " "),
            _duration(one["duration"]) if one["duration"] >= 0 else "",
            f"{one['state_size']:,} bytes",
            _plain(one["failure"] or (latest["task"] if latest else "")),
        )
    return table


def _behind(watermarks: list[object], now_ms: int) -> str:
    times = [ms for ms in watermarks if isinstance(ms, int)]
    if None in watermarks or not watermarks:
        return ""
    return f"{_duration(now_ms - min(times))} behind" if times else "at its end"


def _duration(ms: int) -> str:
    if abs(ms) < 1_000:
        return f"{ms} ms"
    if abs(ms) < 2 * _MINUTE_MS:
        return f"{ms / 1_000:.1f} s"
    return f"{ms // _MINUTE_MS:,} min"


def _plain(text: str) -> str:
    """A text of the user's, in which nothing is taken for a style."""
    from rich.markup import escape

    return escape(text)
