"""The world outside of a simulated job: what its sinks committed, what its functions have seen.

Functions travel to slots as bytes, so they find the world of their run by its number.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from tests.simulation.loop import CURRENT, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.model.ids import CheckpointId


@dataclass(slots=True)
class Attempt:
    """One user function in one attempt of a subtask, and what it was told of checkpoints.

    calls_s: when its calls that take long began. in_hand: rows that are polled at once, of a
    function in the chain of a source.
    """

    name: str
    subtask: int
    number: int
    process: Process
    opened_s: float
    closed_s: float | None = None
    snapshots: list[CheckpointId] = field(default_factory=list)
    completed: list[tuple[float, CheckpointId]] = field(default_factory=list)
    aborted: dict[CheckpointId, float] = field(default_factory=dict)
    calls_s: list[float] = field(default_factory=list)
    in_hand: int = 0

    @property
    def deployment(self) -> tuple[str, int]:
        """What was deployed together: pipelines fail apart, so each counts its own attempts."""
        return self.name.split()[0], self.number


LONG_S = 0.02
"""A call that takes so long is one for itself."""


@dataclass(slots=True)
class Outside:
    """One run's world. committed: by the name of a committable. durable: names of what was flushed.
    faults: what must never happen.

    breaking: numbers at which a function raises, each just once. pointed: every checkpoint that a
    pointer has ever named, with who wrote that. block: lets a call of a function take its time;
    gives how long other calls of the same callback of the loop took before it. begun: when calls
    that take long began, by process. triggered: when a trigger came to a slot, for which subtask.
    """

    now_s: Callable[[], float] = lambda: 0.0
    block: Callable[[float], float] = lambda _: 0.0
    begun: defaultdict[Process, list[float]] = field(default_factory=lambda: defaultdict(list))
    triggered: dict[tuple[Process, int, CheckpointId], float] = field(default_factory=dict)
    committed: dict[str, bytes] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    breaking: set[int] = field(default_factory=set)
    pointed: defaultdict[int, set[Process]] = field(default_factory=lambda: defaultdict(set))

    def opened(self, name: str, subtask: int, number: int) -> Attempt:
        """A function begins. number: of the attempt."""
        attempt = Attempt(name, subtask, number, CURRENT.get(), self.now_s())
        self.attempts.append(attempt)
        return attempt

    def took(self, attempt: Attempt, checkpoint: CheckpointId) -> None:
        """Its snapshot is taken."""
        self._cut_in_time(attempt, checkpoint)
        if attempt.snapshots and attempt.snapshots[-1] >= checkpoint:
            self._fault(attempt, f"snapshot {checkpoint} comes after {attempt.snapshots[-1]}")
        if checkpoint in attempt.aborted:
            self._fault(attempt, f"snapshot {checkpoint} is taken though it was given up")
        attempt.snapshots.append(checkpoint)

    def told_complete(self, attempt: Attempt, checkpoint: CheckpointId) -> None:
        """It hears that a checkpoint is durable."""
        if attempt.completed and attempt.completed[-1][1] >= checkpoint:
            self._fault(attempt, f"{checkpoint} is complete after {attempt.completed[-1][1]}")
        if checkpoint not in attempt.snapshots:
            self._fault(attempt, f"{checkpoint} is complete without its snapshot")
        if checkpoint in attempt.aborted:
            self._fault(attempt, f"{checkpoint} is complete though it was given up")
        if checkpoint not in self.pointed:
            self._fault(attempt, f"{checkpoint} is complete though no pointer names it")
        attempt.completed.append((self.now_s(), checkpoint))

    def told_aborted(self, attempt: Attempt, checkpoint: CheckpointId) -> None:
        """It hears that a checkpoint was given up."""
        if checkpoint in attempt.aborted:
            self._fault(attempt, f"{checkpoint} is given up twice")
        if any(known == checkpoint for _, known in attempt.completed):
            self._fault(attempt, f"{checkpoint} is given up though it is complete")
        attempt.aborted[checkpoint] = self.now_s()

    def call(self, for_s: float, attempt: Attempt | None = None) -> None:
        """A function's call takes so long. Nothing waits for two calls that take long."""
        if not for_s:
            return
        began_s = self.now_s()
        before_s = self.block(for_s)
        if for_s >= LONG_S:
            self.begun[CURRENT.get()].append(began_s)
            if attempt is not None:
                attempt.calls_s.append(began_s)
            if before_s >= LONG_S:
                self.faults.append(f"a call began {before_s:.3f} s after others, without a gap")

    @property
    def calls(self) -> int:
        """How many took long."""
        return sum(map(len, self.begun.values()))

    def waited(self, process: Process, since_s: float) -> None:
        """What has come to a process gets its turn: one more call may have begun meanwhile."""
        begun = sum(
            1 for _ in takewhile(lambda at_s: at_s >= since_s, reversed(self.begun[process]))
        )
        if begun > 1:
            self.faults.append(f"a message to {process} waited for {begun} calls")

    def _cut_in_time(self, attempt: Attempt, checkpoint: CheckpointId) -> None:
        """Behind a trigger, no call begins but those for rows that the source has given already."""
        since_s = self.triggered.get((attempt.process, attempt.subtask, checkpoint))
        if since_s is not None and attempt.in_hand:
            begun = sum(at_s >= since_s for at_s in attempt.calls_s)
            if begun > attempt.in_hand:
                self._fault(attempt, f"the barrier of {checkpoint} waited for {begun} calls")

    def breaks_at(self, value: int) -> None:
        """Raise where this value is to break its function."""
        if self.breaking and value in self.breaking:
            self.breaking.discard(value)
            raise RuntimeError(f"simulated: {value} breaks the function")

    def commits(self, name: str, committable: bytes) -> None:
        """A committable is committed, for the first time or again."""
        if name not in self.durable:
            self.faults.append(f"{name} is committed before it is durable")
        if self.committed.setdefault(name, committable) != committable:
            self.faults.append(f"{name} has two contents")

    def rows(self) -> Iterator[list[object]]:
        """All that was committed, with the sink that wrote it."""
        for data in self.committed.values():
            _, sink, rows = json.loads(data)
            for row in rows:
                yield [sink, *row]

    def _fault(self, attempt: Attempt, what: str) -> None:
        self.faults.append(f"{attempt.name} {attempt.subtask} in {attempt.process}: {what}")


OUTSIDE: defaultdict[int, Outside] = defaultdict(Outside)
"""Of each run, by its number."""
