"""Events of a demonstration so far, for its displays and its conductor."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from examples.demo.news import (
    AllRunning,
    CheckpointBegun,
    CheckpointCompleted,
    JobRestored,
    Progress,
    SlotGone,
    SlotUp,
    StatusChanged,
)

if TYPE_CHECKING:
    from examples.demo.news import News

RATE_WINDOW_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed on purpose. checkpoint: the one under way, if any."""

    at_ms: int
    victim: str
    pid: int
    checkpoint: int | None


@dataclass(slots=True)
class Timeline:
    """The job as the news have it.

    rows: flights that there are to read. slots: pid by slot. status: of the job, as in Flink.
    running: whether all subtasks run, so far as is known. first_running_ms: wall clock.
    under_way: the checkpoint that has begun and not ended. back_after_ms: of each kill, the time
    until all subtasks were running again. watermark_ms: how far event time has come.
    """

    rows: int
    slots: dict[str, int] = field(default_factory=dict)
    status: str = ""
    running: bool = False
    first_running_ms: int | None = None
    kills: list[Kill] = field(default_factory=list)
    back_after_ms: list[int] = field(default_factory=list)
    under_way: int | None = None
    completed: list[CheckpointCompleted] = field(default_factory=list)
    watermark_ms: int | None = None
    _rows: int = 0
    _rows_before: int = 0
    _rows_at: dict[int, int] = field(default_factory=dict)
    _recent: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, news: News) -> None:
        """Take in what was told."""
        match news:
            case SlotUp():
                self.slots[news.slot] = news.pid
            case SlotGone():
                self.slots.pop(news.slot, None)
            case StatusChanged():
                self.status, self.running, self.under_way = news.status, False, None
            case AllRunning():
                self._all_running(news)
            case CheckpointBegun():
                self.under_way = news.checkpoint
                self._rows_at[news.checkpoint] = self.read
            case CheckpointCompleted():
                self.completed.append(news)
                self._ended(news.checkpoint)
            case JobRestored():
                self._rows_before, self._rows = self._rows_at.get(news.checkpoint, 0), 0
                self._recent.clear()
            case Progress():
                self._progressed(news)
            case _:
                pass  # a failure changes nothing by itself; the status does

    def killed(self, kill: Kill) -> None:
        """Take in a kill; the job does not run until it is told."""
        self.kills.append(kill)
        self.running = False

    def driver_lost(self) -> None:
        """The driver is gone, and with it everything that it knew."""
        self.slots.clear()
        self.under_way = None

    @property
    def read(self) -> int:
        """Flights read, about: those before the checkpoint of the last restore, and since."""
        return self._rows_before + self._rows

    @property
    def rate(self) -> float:
        """Flights a second of late."""
        if len(self._recent) < 2:
            return 0.0
        (begun_ms, first), (ended_ms, last) = self._recent[0], self._recent[-1]
        return (last - first) * 1000 / max(ended_ms - begun_ms, 1)

    @property
    def _awaits_return(self) -> bool:
        return len(self.back_after_ms) < len(self.kills)

    def _all_running(self, news: AllRunning) -> None:
        if self.first_running_ms is None:
            self.first_running_ms = news.at_ms
        elif self._awaits_return:
            if news.at_ms < self.kills[-1].at_ms:
                return  # told late: it is from before the kill
            self.back_after_ms.append(news.at_ms - self.kills[-1].at_ms)
        self.running = True

    def _ended(self, checkpoint: int) -> None:
        if self.under_way == checkpoint:
            self.under_way = None

    def _progressed(self, news: Progress) -> None:
        if news.rows < self._rows:
            self._recent.clear()  # subtasks were deployed anew
        self._rows = news.rows
        self.watermark_ms = news.watermark_ms or self.watermark_ms
        self._recent.append((news.at_ms, news.rows))
        while self._recent[0][0] < news.at_ms - RATE_WINDOW_MS:
            self._recent.popleft()
