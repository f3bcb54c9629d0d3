"""The status of a job, and when it came to each."""

from __future__ import annotations

from tidegate.model.control import JobStatus


class Life:
    """Begins when the driver leads the job; monotonic time becomes that of the wall clock here."""

    def __init__(self) -> None:
        self.status = JobStatus.INITIALIZING
        self._entered_ms: dict[JobStatus, int] = {}
        self._wall_offset_ms = 0

    def start(self, wall_ms: int, now_ms: int) -> None:
        """The driver leads the job."""
        assert not self._entered_ms, "a job starts once"
        self._wall_offset_ms = wall_ms - now_ms
        self._entered_ms[JobStatus.INITIALIZING] = now_ms

    def enter(self, status: JobStatus, now_ms: int) -> JobStatus:
        """Changes the status; the result is the former one."""
        assert not self.over, f"a job that is {self.status.value} becomes nothing else"
        assert status not in (self.status, JobStatus.INITIALIZING), "a status is entered anew"
        former, self.status = self.status, status
        self._entered_ms[status] = now_ms
        return former

    @property
    def begun(self) -> bool:
        return self.status is not JobStatus.INITIALIZING

    @property
    def over(self) -> bool:
        """True if nothing more happens to the job under this driver."""
        return self.status.is_terminal_state()

    def wall_ms(self, now_ms: int) -> int:
        return now_ms + self._wall_offset_ms

    @property
    def timestamps_ms(self) -> dict[JobStatus, int]:
        """When the job last entered each status, by the wall clock."""
        return {status: self.wall_ms(at_ms) for status, at_ms in self._entered_ms.items()}
