"""Display of a demonstration: live on a terminal, plain lines anywhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.box import HEAVY_HEAD
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.demo.news import (
    AllRunning,
    CheckpointCompleted,
    CheckpointFailed,
    Failure,
    JobRestored,
    SlotGone,
    SlotUp,
    StatusChanged,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from examples.demo.conduct import Display
    from examples.demo.news import News
    from examples.demo.timeline import Kill, Timeline

CHECKPOINTS_SHOWN: Final = 5
PLAIN_RATE_MS: Final = 5_000


def display(console: Console, title: str) -> Display:
    if console.is_terminal:
        return LiveDisplay(console, title)
    return PlainDisplay(console, title)


def in_words(news: News, timeline: Timeline) -> str | None:
    """A line on what was told; None for what is not worth one."""
    match news:
        case SlotUp():
            return f"slot up: pid {news.pid} on {news.host}"
        case SlotGone():
            return f"slot gone: pid {news.pid}"
        case AllRunning() if timeline.back_after_ms:
            return f"all running again {timeline.back_after_ms[-1] / 1000:.2f} s after the kill"
        case AllRunning():
            return "all running: the flights take off"
        case StatusChanged():
            return f"job {news.status}"
        case JobRestored():
            return f"restored from checkpoint {news.checkpoint}"
        case CheckpointCompleted():
            return (
                f"checkpoint {news.checkpoint} complete: {news.duration_ms} ms, "
                f"{size(news.bytes_written)} written"
            )
        case CheckpointFailed():
            return f"checkpoint {news.checkpoint} given up: {news.failure}"
        case Failure():
            return f"failure{' in ' + news.task if news.task else ''}: {first_line(news.error)}"
        case _:
            return None


def kill_in_words(kill: Kill) -> str:
    what = "the driver" if kill.victim == "driver" else "a worker"
    during = "" if kill.checkpoint is None else f", during checkpoint {kill.checkpoint}"
    return f"SIGKILL to {what}, pid {kill.pid}{during}"


def first_line(text: str) -> str:
    """The first line of a text; "" of none."""
    return text.split("\n", 1)[0]


def size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"


def day(time_ms: int | None) -> str:
    """The day of an event time, in UTC."""
    return "…" if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"


def print_ranking(console: Console, ranking: Sequence[tuple[str, int, float]]) -> None:
    """The carriers, the latest first."""
    table = _table(console, "Carriers by mean departure delay")
    table.add_column("", justify="right")
    table.add_column("carrier")
    table.add_column("flights", justify="right")
    table.add_column("minutes", justify="right")
    for place, (name, flights, minutes) in enumerate(ranking, 1):
        table.add_row(str(place), name, f"{flights:,}", f"{minutes:.1f}")
    console.print(table)


def print_days(console: Console, days: Sequence[tuple[str, str, int, int, float]]) -> None:
    """The worst days, as the windows have them."""
    table = _table(console, "Days with the greatest mean departure delay")
    table.add_column("airport")
    table.add_column("day")
    table.add_column("flights", justify="right")
    table.add_column("in bad weather", justify="right")
    table.add_column("minutes", justify="right")
    for airport, date, flights, bad_weather, minutes in days:
        table.add_row(airport, date, f"{flights:,}", f"{bad_weather:,}", f"{minutes:.1f}")
    console.print(table)


def _table(console: Console, title: str) -> Table:
    return Table(title=title, box=HEAVY_HEAD if console.is_terminal else None, title_justify="left")


class PlainDisplay:
    """A line for each thing that happens, with the seconds since the job was first running."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._rate_at_ms = 0
        console.print(title, highlight=False)

    def stage(self, text: str) -> None:
        """Say what takes a while."""
        self._print("", text)

    def told(self, news: News, timeline: Timeline) -> None:
        """A line on what was told, and now and then one on the rate."""
        if (text := in_words(news, timeline)) is not None:
            self._print(_moment(news.at_ms, timeline), text)
        elif timeline.running and timeline.rate and news.at_ms - self._rate_at_ms >= PLAIN_RATE_MS:
            self._rate_at_ms = news.at_ms
            self._print(
                _moment(news.at_ms, timeline),
                f"{timeline.read:,} of {timeline.rows:,} flights, {timeline.rate:,.0f} a second, "
                f"event time {day(timeline.watermark_ms)}",
            )

    def killed(self, kill: Kill, timeline: Timeline) -> None:
        self._print(_moment(kill.at_ms, timeline), kill_in_words(kill))

    def close(self) -> None: ...

    def _print(self, moment: str, text: str) -> None:
        self._console.print(f"{moment:>8}  {text}", highlight=False, markup=False, soft_wrap=True)


class LiveDisplay:
    """The run of things above; slots, rate and checkpoints below, kept up to date."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._stage = ""
        self._live = Live(console=console, auto_refresh=False, transient=True)
        console.print(Text(title, style="bold"))
        self._live.start()

    def stage(self, text: str) -> None:
        """Show what takes a while."""
        self._stage = text
        self._live.update(Text(f"{text} …", style="dim"), refresh=True)

    def told(self, news: News, timeline: Timeline) -> None:
        text = in_words(news, timeline)
        if text is not None and not isinstance(news, CheckpointCompleted):
            self._print(_moment(news.at_ms, timeline), text, _style(news))
        self._live.update(self._picture(timeline), refresh=True)

    def killed(self, kill: Kill, timeline: Timeline) -> None:
        self._print(_moment(kill.at_ms, timeline), kill_in_words(kill), "bold red")

    def close(self) -> None:
        """Leave the terminal as it was, below what was kept."""
        self._live.stop()

    def _print(self, moment: str, text: str, style: str) -> None:
        self._console.print(Text.assemble((f"{moment:>8}  ", "dim"), (text, style)))

    def _picture(self, timeline: Timeline) -> RenderableType:
        if timeline.first_running_ms is None:
            return Text(f"{self._stage} …", style="dim")
        read = min(timeline.read, timeline.rows)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=timeline.rows, completed=read, width=30),
            f"{read:,} flights",
            Text(f"event time {day(timeline.watermark_ms)}", style="magenta"),
            Text(f"{timeline.rate:,.0f}/s", style="bold cyan"),
            Text(timeline.status or "…", style="green" if timeline.running else "yellow"),
        )
        slots = "  ".join(f"● {pid}" for pid in timeline.slots.values())
        return Group("", Text(f"slots  {slots}", style="green"), bar, _checkpoints(timeline))


def _checkpoints(timeline: Timeline) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("checkpoint", "took", "written", "state"):
        table.add_column(header, justify="right")
    for done in timeline.completed[-CHECKPOINTS_SHOWN:]:
        table.add_row(
            str(done.checkpoint),
            f"{done.duration_ms} ms",
            size(done.bytes_written),
            size(done.state_bytes),
        )
    return table


def _moment(at_ms: int, timeline: Timeline) -> str:
    if timeline.first_running_ms is None:
        return ""
    return f"{(at_ms - timeline.first_running_ms) / 1000:.2f} s"


def _style(news: News) -> str:
    match news:
        case Failure() | SlotGone() | CheckpointFailed():
            return "red"
        case AllRunning():
            return "bold green"
        case _:
            return ""
