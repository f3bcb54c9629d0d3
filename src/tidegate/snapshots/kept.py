"""Kept checkpoints of a checkpoint folder, and which of them nobody needs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.model.ids import CheckpointId


class Standing(Enum):
    """Need for a checkpoint."""

    LIVES = "of jobs that live"
    UNKNOWN = "of jobs without records here"
    NEWEST = "of ended jobs that can go on"
    FORMER = "of earlier runs"


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A completed checkpoint in its job's folder.

    job: the job's name. written_ms: wall time at which it was completed; None if the store
    does not tell.
    """

    path: str
    job: str
    number: CheckpointId
    standing: Standing
    written_ms: int | None


@dataclass(frozen=True, slots=True)
class PruneRule:
    """Choice of checkpoints to remove.

    older_than_ms: those written so long ago or longer. keep: all but the newest so many of each
    job. With neither of them, all that no job goes on from.
    """

    older_than_ms: int | None = None
    keep: int | None = None

    @property
    def takes_newest(self) -> bool:
        """True if checkpoints that a job could continue from are included."""
        return self.older_than_ms is not None or self.keep is not None


_REMOVABLE: Final = frozenset({Standing.NEWEST, Standing.FORMER})


def to_prune(
    kept: Iterable[KeptCheckpoint], rule: PruneRule, now_ms: int
) -> tuple[KeptCheckpoint, ...]:
    """Checkpoints that the rule removes, sorted by path.

    A checkpoint of unknown age is never old enough. Checkpoints of a living job count among its
    newest, but are not removed.
    """
    if not rule.takes_newest:
        doomed = [each for each in kept if each.standing is Standing.FORMER]
        return tuple(sorted(doomed, key=lambda each: each.path))
    of_job: defaultdict[str, list[KeptCheckpoint]] = defaultdict(list)
    for each in kept:
        of_job[each.job].append(each)
    return tuple(
        sorted(
            (
                each
                for checkpoints in of_job.values()
                for each in sorted(checkpoints, key=_newness, reverse=True)[rule.keep or 0 :]
                if each.standing in _REMOVABLE and _is_old(each, rule, now_ms)
            ),
            key=lambda each: each.path,
        )
    )


def _newness(checkpoint: KeptCheckpoint) -> tuple[bool, int, int]:
    """Sort key: later runs come after earlier ones, whatever their checkpoint numbers."""
    current = checkpoint.standing is not Standing.FORMER
    return current, checkpoint.written_ms or 0, checkpoint.number


def _is_old(checkpoint: KeptCheckpoint, rule: PruneRule, now_ms: int) -> bool:
    if rule.older_than_ms is None:
        return True
    written_ms = checkpoint.written_ms
    return written_ms is not None and now_ms - written_ms >= rule.older_than_ms
