"""A source that plays a script: rows, pauses, and the death of its slot at a row of one's choice.

Slots import this module by its name, so it imports little.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate import EnumeratorContext, ReaderContext
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId


@dataclass(frozen=True)
class Pause:
    """Nothing comes for so long."""

    ms: int


class Death(Enum):
    """What befalls the slot."""

    KILL = "SIGKILL, once a checkpoint is complete that holds the rows before and none behind"


KILL = Death.KILL
Script = Sequence[object]


class StagedSource:
    """The script's rows, in order, by one reader."""

    bounded = True
    produced_type = None

    def __init__(self, script: Script) -> None:
        self._script = list(script)
        self._made_in = os.getpid()

    def enumerator(
        self, context: EnumeratorContext[int], restored: bytes | None
    ) -> SplitListEnumerator[int]:
        return SplitListEnumerator(context, [0], restored)

    def reader(self, context: ReaderContext) -> "StagedReader":
        return StagedReader(self._script, context, self._made_in)


class StagedReader:
    """Splits are positions in the script; there is one."""

    def __init__(self, script: Script, context: ReaderContext, spared_pid: int) -> None:
        self._script = script
        self._context = context
        self._spared_pid = spared_pid
        self._next = len(script)
        self._no_more = False
        self._go_on_ms: int | None = None
        self._restored_at = -1
        self._saved_at = -1

    def add_splits(self, splits: Sequence[int]) -> None:
        (self._next,) = splits
        self._restored_at = self._next

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> RowBatch | None:
        rows: list[object] = []
        while self._next < len(self._script) and len(rows) < self._context.rows:
            step = self._script[self._next]
            if isinstance(step, Pause):
                if rows or not self._is_over(step):
                    break
            elif step is KILL:
                if self._next != self._restored_at:
                    break
            else:
                rows.append(step)
            self._next += 1
        return RowBatch(rows) if rows else None

    def _is_over(self, pause: Pause) -> bool:
        now_ms = self._context.monotonic_ms()
        if self._go_on_ms is None:
            self._go_on_ms = now_ms + pause.ms
        if now_ms < self._go_on_ms:
            self._context.wake_at(self._go_on_ms)
            return False
        self._go_on_ms = None
        return True

    @property
    def finished(self) -> bool:
        return self._no_more and self._next == len(self._script)

    @property
    def wants_splits(self) -> bool:
        return self._next == len(self._script) and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[int]:
        self._saved_at = self._next
        return (self._next,) if self._next < len(self._script) else ()

    def on_complete(self, checkpoint: CheckpointId) -> None:
        # Checkpoints come one at a time, so it is the one of the last snapshot.
        doomed = self._saved_at == self._next != self._restored_at
        if doomed and self._next < len(self._script) and self._script[self._next] is KILL:
            assert os.getpid() != self._spared_pid, "the slot is in the process of the test"
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        pass
