"""Conducts a demonstration: starts the driver, kills what is to be killed, waits for the end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from examples.demo.news import Broken, CheckpointBegun, Ended, from_lines
from examples.demo.timeline import Kill, Timeline
from tidegate.errors import ConfigError, JobCanceled, JobFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from random import Random
    from typing import BinaryIO

    from examples.demo.driver import DriverSettings
    from examples.demo.news import AnyNews, News

ROOT: Final = Path(__file__).resolve().parents[2]
"""Folder of the repository, from which drivers and slots import this package."""

SILENCE_S: Final = 180.0
"""How long a driver may tell nothing before it is given up; starting Spark takes the longest."""

LATE_S: Final = 300.0
"""How much longer than the whole replay a driver may run."""

GOODBYE_S: Final = 30.0
"""How long a driver may take to end after Ctrl-C."""

NEXT_KILL_S: Final = 0.5
"""Least time from the job's return to the next kill."""


LOG_LINES: Final = 20
"""Last lines of the log that are shown where the driver could not say what is wrong."""


@dataclass(frozen=True, slots=True)
class KillPlan:
    """Processes to kill, and the moments.

    moments_s: seconds from the first moment at which the job was running. driver: kill the
    driver, else the process of a slot. during_checkpoint: wait for a checkpoint to be under way.
    """

    moments_s: Sequence[float]
    driver: bool = False
    during_checkpoint: bool = False


class Display(Protocol):
    """Shows a demonstration while it runs."""

    def stage(self, text: str) -> None:
        """Something that takes a while begins."""
        ...

    def told(self, news: News, timeline: Timeline) -> None:
        """The driver has told something."""
        ...

    def killed(self, kill: Kill, timeline: Timeline) -> None: ...

    def close(self) -> None:
        """Nothing more is shown."""
        ...


def kill_moments(count: int, first_s: float | None, span_s: float, chance: Random) -> list[float]:
    """Seconds at which to kill: the first where it is wanted, all within a replay of ``span_s``.

    Without a wish each falls somewhere in the middle of its share of the time. Raises ConfigError
    for a first kill that would come after the end.
    """
    if first_s is not None and first_s >= span_s:
        raise ConfigError(
            f"The replay ends after about {span_s:.1f} s, so nothing can be killed at {first_s} s",
            where="--kill-at",
            remedy="Kill earlier, or replay more slowly with --rate.",
        )
    start_s = 0.0 if first_s is None else first_s
    share_s = (span_s - start_s) / max(count, 1)
    moments = [start_s + (i + chance.uniform(0.25, 0.75)) * share_s for i in range(count)]
    return moments if first_s is None or not count else [first_s, *moments[1:]]


@dataclass(slots=True)
class Conductor:
    """Runs one demonstration. log: file for what the drivers print."""

    settings: DriverSettings
    kills: KillPlan
    chance: Random
    display: Display
    log: Path
    timeline: Timeline = field(init=False)
    drivers: int = 0
    _back_at_s: float = 0.0
    _ended_s: float = 0.0

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.settings.replay.rows)

    def run(self) -> float:
        """Seconds from the start of the first driver to the end of the job.

        Raises JobFailed, ConfigError or JobCanceled where the job did not finish.
        """
        begun_s = time.monotonic()
        while not self._one_driver():
            self.timeline.driver_lost()
        return self._ended_s - begun_s

    def _one_driver(self) -> bool:
        first = self.drivers == 0
        replay = replace(self.settings.replay, driver=self.drivers)
        settings = msgspec.structs.replace(self.settings, replay=replay, resume=not first)
        inside = ", and Spark in it" if self.settings.runtime == "spark" else ""
        self.display.stage(f"starting {'the' if first else 'another'} driver{inside}")
        self.drivers += 1
        with self._driver_process(settings) as (process, news):
            return self._follow(process, news)

    def _follow(
        self, process: subprocess.Popen[bytes], incoming: queue.Queue[AnyNews | None]
    ) -> bool:
        begun_s = heard_s = time.monotonic()
        while True:
            self._check_patience(begun_s, heard_s)
            try:
                news = incoming.get(timeout=self._patience_s())
            except queue.Empty:
                news = None
            else:
                heard_s = time.monotonic()
                if news is None:
                    raise self._no_end(_how_it_ended(process))
                self._take(news)
                if isinstance(news, Ended):
                    return self._finished(news)
            if self._is_time(news) and self._kill(process) and self.kills.driver:
                return False

    def _check_patience(self, begun_s: float, heard_s: float) -> None:
        now_s = time.monotonic()
        if now_s - heard_s > SILENCE_S:
            raise self._no_end(f"The driver has told nothing for {SILENCE_S:.0f} s")
        if now_s - begun_s > self.settings.replay.span_s + LATE_S:
            raise self._no_end(f"The job is {LATE_S:.0f} s late")

    def _take(self, news: AnyNews) -> None:
        was_running = self.timeline.running
        self.timeline.add(news)
        if self.timeline.running and not was_running:
            self._back_at_s = time.monotonic()
        self.display.told(news, self.timeline)
        if isinstance(news, Broken):
            if news.by_user:
                raise ConfigError(news.what, where=news.where, remedy=news.remedy)
            raise self._no_end(news.what, news.text)

    def _finished(self, news: Ended) -> bool:
        self._ended_s = time.monotonic()
        if news.status == "FINISHED":
            return True
        raise JobCanceled(f"The job has ended: {news.status}")

    # Kills

    def _patience_s(self) -> float:
        """How long to wait for news before looking at the time."""
        due_in_s = self._due_in_s()
        return due_in_s if due_in_s is not None and 0 < due_in_s < 1 else 1.0

    def _due_in_s(self) -> float | None:
        """Seconds to the next kill; None where none can be done now."""
        done = len(self.timeline.kills)
        first_ms = self.timeline.first_running_ms
        if done == len(self.kills.moments_s) or first_ms is None or not self.timeline.running:
            return None
        due_s = first_ms / 1000 + self.kills.moments_s[done] - time.time()
        since_back_s = time.monotonic() - self._back_at_s
        return max(due_s, NEXT_KILL_S - since_back_s if done else 0.0)

    def _is_time(self, news: AnyNews | None) -> bool:
        due_in_s = self._due_in_s()
        if due_in_s is None or due_in_s > 0:
            return False
        return not self.kills.during_checkpoint or isinstance(news, CheckpointBegun)

    def _kill(self, process: subprocess.Popen[bytes]) -> bool:
        if self.kills.driver:
            victim, pid = "driver", process.pid
        else:
            victim, pid = self.chance.choice(sorted(self.timeline.slots.items()))
        kill = Kill(time.time_ns() // 1_000_000, victim, pid, self.timeline.under_way)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False  # it has ended by itself; the news of it are under way
        self.timeline.killed(kill)
        self.display.killed(kill, self.timeline)
        return True

    # The driver's process

    @contextmanager
    def _driver_process(
        self, settings: DriverSettings
    ) -> Generator[tuple[subprocess.Popen[bytes], queue.Queue[AnyNews | None]]]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo.driver", _text(settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(settings),
                start_new_session=True,  # Ctrl-C is for us to pass on
            )
        incoming: queue.Queue[AnyNews | None] = queue.Queue()
        pipe = cast("BinaryIO", process.stdout)
        reader = Thread(target=_read, args=(pipe, incoming), name="demo-news", daemon=True)
        reader.start()
        try:
            yield process, incoming
        finally:
            _end(process)
            reader.join()
            pipe.close()

    def _no_end(self, what: str, cause: str = "") -> JobFailed:
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return JobFailed(
            what, where=f"the driver's log, {self.log}", cause_text=cause or "\n".join(tail)
        )


def _read(pipe: BinaryIO, incoming: queue.Queue[AnyNews | None]) -> None:
    for news in from_lines(pipe):
        incoming.put(news)
    incoming.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Sees to it that the process has ended: by itself, else by Ctrl-C, else by force."""
    ending = sys.exc_info()[0] is not None
    try:
        if ending:
            process.send_signal(signal.SIGINT)
        process.wait(GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        return f"The driver has ended with code {process.wait(GOODBYE_S)}"
    except subprocess.TimeoutExpired:
        return "The driver has stopped telling anything, and does not end"


def _text(settings: DriverSettings) -> str:
    return msgspec.json.encode(settings).decode()


def _environment(settings: DriverSettings) -> dict[str, str]:
    """Environment of a driver, and of the Spark that it starts."""
    python = sys.executable
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONUNBUFFERED": "1",
    }
