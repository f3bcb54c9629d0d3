"""The files of a simulated run: watched, and torn where a write is to be cut short."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation.loop import CURRENT
from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.loop import Process


class WatchedFiles(dict[str, bytes]):
    """All files of a run; holds the records of who leads against what came before them.

    faults: checkpoints that went back, ids given out twice. written_s, writers: when files came,
    and from whom. pointed: called with each checkpoint that a pointer names for the first time, and
    where it is. job: that counts. newest: of its checkpoints. status: as its last record tells.
    goes_back: whether it may go back behind damaged checkpoints. tear: the next file of state is
    cut short, and its write fails. leader: who wrote the last record.
    """

    def __init__(self, now_s: Callable[[], float], pointed: Callable[[int, str], None]) -> None:
        super().__init__()
        self.written_s: dict[str, float] = {}
        self.writers: dict[str, Process] = {}
        self._now_s = now_s
        self.faults: list[str] = []
        self.tear = False
        self.pointers: dict[int, str] = {}
        self._pointed = pointed
        self._records: dict[str, bytes] = {}
        self.job = ""
        self.newest = self._next_id = 0
        self.status = ""
        self.goes_back = False
        self.leader: Process | None = None

    def __setitem__(self, path: str, data: bytes) -> None:
        self.written_s[path] = self._now_s()
        self.writers[path] = CURRENT.get()
        if self.tear and "/.jobs/" not in path and not path.endswith("/_metadata"):
            self.tear = False
            super().__setitem__(path, data[: len(data) // 2])
            raise StorageFailed("simulated: the write was cut short", where=path)
        super().__setitem__(path, data)
        if "/.jobs/" in path and "/chains/" in path:
            self._chained(path, data)

    def _chained(self, path: str, data: bytes) -> None:
        # A leader that stood still may repeat a write that went well, after its chain was swept.
        before = self._records.get(path)
        self._records[path] = data
        if before not in (None, data):
            self.faults.append(f"{path} has changed from {before!r} to {data!r}")
        elif before is None and "seal" not in (record := json.loads(data)):
            self._record(record)

    def restored(self, checkpoint: int) -> None:
        """A leader deploys subtasks with the state of this checkpoint, 0 for none."""
        newest = max(self.pointers, default=0)
        if self.leader is CURRENT.get() and checkpoint < newest and not self.goes_back:
            self.faults.append(f"{checkpoint} is restored while the pointer of {newest} stands")

    def _record(self, record: dict[str, object]) -> None:
        if record["job"] != self.job:  # a fresh submission counts anew
            self.job = str(record["job"])
            self.newest = self._next_id = 0
            self.pointers = {}
        self.status = str(record["status"])
        self.leader = CURRENT.get()
        completed: list[tuple[int, str, *tuple[bool, ...]]] = record["completed"]  # type: ignore[assignment]
        ids = [checkpoint for checkpoint, *_ in completed]
        back = bool(ids) and ids[-1] < self.newest and not self.goes_back
        if back or ids != sorted(ids):
            self.faults.append(f"completed checkpoints go back: {ids} after {self.newest}")
        next_id: int = record["next_id"]  # type: ignore[assignment]
        # The last record of a job gives back the id that was reserved and not taken.
        if record["status"] == "RUNNING" and next_id < self._next_id:
            self.faults.append(f"ids go back: {next_id} after {self._next_id}")
        self.newest = max([self.newest, *ids])
        self._next_id = max(self._next_id, next_id)
        new = [(n, place) for n, place, *_ in completed if n not in self.pointers]
        self.pointers = {n: place for n, place, *_ in completed}
        for checkpoint, place in new:
            self._pointed(checkpoint, place)
