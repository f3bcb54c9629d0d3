"""Jobs with records below a checkpoint folder: which ones live, and which checkpoints they keep."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from flinkformat.frozen import frozen
from tidegate.errors import FileMissing, FormatError
from tidegate.ha.chain import JobRecord, Pointer, decode, last_beat, newest_record
from tidegate.ha.filesystem import FileSystemHaStore
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Iterable

    from tidegate.model.ids import CheckpointId, Epoch
    from tidegate.storage.store import Store
    from tidegate.storage.stores import Stores

T = TypeVar("T")

_CHAINS: Final = "chains"
_LOOK_MS: Final = 250


class Life(Enum):
    """Answer to the question: may this job still write?"""

    LIVES = "lives"
    OVER = "over"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class RecordedJob:
    """A job, by its records. record: None if none is readable. damage: by place."""

    name: str
    folder: str
    record: JobRecord | None
    chain: FileSystemHaStore
    damage: dict[str, FormatError] = field(default_factory=dict[str, "FormatError"])


class RecordedJobs:
    """The jobs of a checkpoint folder. root: None if it is not known; then there are none.

    lease_ms: how long signs of life are waited for, once for all jobs, and only if it matters.
    """

    def __init__(self, stores: Stores, root: str | None, lease_ms: int) -> None:
        self._stores = stores
        self._root = root
        self._lease_ms = lease_ms

    @cached_property
    def all(self) -> list[RecordedJob]:
        if self._root is None:
            return []
        store = self._stores.open(self._root)
        files = [info.path for info in store.list(paths.jobs_folder())]
        return [self._recorded(store, each) for each in sorted(paths.quoted_job_names(files))]

    def of(self, scope: Container[str]) -> list[RecordedJob]:
        assert self._root is not None or not self.all, "records are below the root"
        return [
            job
            for job in self.all
            if job.folder in scope
            or (job.record and paths.join(str(self._root), job.record.job) in scope)
        ]

    @cached_property
    def pointers(self) -> frozenset[str]:
        """Checkpoints that records name, as of `paths.within_root`.

        So a folder that was moved or copied, or is reached by another path, holds them all.
        """
        return frozenset(
            paths.within_root(pointer.location)
            for job in self.all
            if job.record is not None
            for pointer in job.record.completed
        )

    def with_lost(self, checkpoints: Iterable[str]) -> frozenset[str]:
        """Ids of jobs of which records name a checkpoint that is none of these folders.

        Another job may have claimed it, in a checkpoint folder of its own, and use their files.
        """
        lost = self.pointers - set(map(paths.within_root, checkpoints))
        return frozenset(map(paths.parent, lost))

    def still_names(self, job: RecordedJob, pointer: Pointer) -> bool:
        """True if the records still name a snapshot; a running job may have dropped it."""
        record = _now(newest_record(job.chain))
        return record is not None and pointer in record.completed

    def led_as(self, job_id: str) -> RecordedJob | None:
        return next((job for job in self.all if job.record and job.record.job == job_id), None)

    def life_of(self, job_id: str) -> Life:
        """Tells if a run may still write. Its name proves nothing: others may be led elsewhere."""
        job = self.led_as(job_id)
        if job is not None:
            return Life.LIVES if self.is_alive(job) else Life.OVER
        followed = any(job.record and job_id in job.record.former for job in self.all)
        return Life.OVER if followed else Life.UNKNOWN

    def is_left(self, job_id: str, epoch: Epoch) -> bool:
        """True if no driver can come to name a file of an epoch; asked of jobs that are over.

        A driver that has not ended, and shows no life, may have stood still and go on.
        """
        job = self.led_as(job_id)
        if job is None or job.record is None:
            return True
        return epoch < job.record.epoch + job.record.released

    def is_under_way(self, job_id: str, checkpoint: CheckpointId) -> bool:
        """True if a record may yet name a checkpoint; asked of those that none names."""
        job = self.led_as(job_id)
        if job is None or job.record is None:
            return False
        return not job.record.released or checkpoint >= job.record.next_id

    def is_alive(self, job: RecordedJob) -> bool:
        """Waits once, for all jobs, as long for a sign of life as a new leader would."""
        assert job.record is not None, "its records can be read"
        return job.folder in self._living

    @cached_property
    def _living(self) -> frozenset[str]:
        """Folders of jobs that have not ended, and show life."""
        running = [job for job in self.all if job.record and not job.record.released]
        seen = {job.folder: (job, _now(last_beat(job.chain))) for job in running}
        living: set[str] = set()
        waited_ms, waiting = 0, threading.Event()
        while len(living) < len(seen) and waited_ms < self._lease_ms:
            waiting.wait(min(_LOOK_MS, self._lease_ms) / 1_000)
            waited_ms += _LOOK_MS
            living |= {
                folder
                for folder, (job, first) in seen.items()
                if folder not in living and _now(last_beat(job.chain)) != first
            }
        return frozenset(living)

    def _recorded(self, store: Store, quoted: str) -> RecordedJob:
        folder = paths.chain_folder_of(quoted)
        place = paths.join(store.root, folder)
        chain = FileSystemHaStore(self._stores.open(place), _at_once)
        damage: dict[str, FormatError] = {}
        for info in store.list(paths.join(folder, _CHAINS)):
            file = paths.join(store.root, info.path)
            try:
                decode(store.read(info.path), file)
            except FileMissing:
                continue  # its leader has gone on meanwhile
            except FormatError as error:
                damage[file] = error
        record = None if damage else _now(newest_record(chain))
        name = record.name if record is not None and record.name else paths.shown_name(quoted)
        return RecordedJob(name, place, record, chain, damage)


async def _at_once(call: Callable[[], T]) -> T:
    return call()


def _now(coroutine: Coroutine[None, None, T]) -> T:
    """Result of a coroutine that waits for nothing, with or without a running loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("files are read at once")


class Standing(Enum):
    """Need for a checkpoint."""

    LIVES = "of jobs that live"
    UNKNOWN = "of jobs without records here"
    UNDER_WAY = "that a driver which was killed may not have completed; the next one removes them"
    NEWEST = "of ended jobs that can go on"
    FORMER = "of earlier runs"


@frozen
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


@frozen
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
