"""Removes checkpoints that ended jobs have kept, and their left-over records: ``tidegate prune``.

The plan is made first, from the records and from what each snapshot names
(`tidegate.snapshots.jobs`). Files that a remaining snapshot names stay, whoever wrote them. Records
that name a removed checkpoint are rewritten by leading the job for a moment: a driver that starts
meanwhile is told that the job is running, and one that was frozen is deposed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError, FileMissing
from tidegate.ha.leadership import LEASE_MS, HaWorld, lead
from tidegate.model.chance import SeededChance
from tidegate.model.control import JobStatus
from tidegate.snapshots.checking.snapshot_check import SnapshotChecker, job_in
from tidegate.snapshots.jobs import KeptCheckpoint, Life, RecordedJobs, Standing, to_prune
from tidegate.storage import paths
from tidegate.storage.state_files import StateFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.clock import Clock
    from tidegate.ha.chain import Pointer
    from tidegate.model.ids import CheckpointId, Epoch
    from tidegate.snapshots.jobs import PruneRule, RecordedJob
    from tidegate.storage.stores import Stores


@frozen
class Removal:
    """Files of one kind to remove, or an empty folder.

    what: ``checkpoint``, ``shared files``, ``records`` or ``empty folder``. job: its name, where
    that is known. written_ms: of a checkpoint, where the store tells.
    """

    what: str
    path: str
    files: tuple[str, ...]
    size_bytes: int
    job: str = ""
    written_ms: int | None = None


@frozen
class PrunePlan:
    """A plan of removal. notes: sentences on what is kept, and why."""

    removals: tuple[Removal, ...]
    notes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)


class Pruning:
    """Prunes one checkpoint folder. Blocking.

    lease_ms: how long a job's sign of life is waited for. Raises ConfigError if the folder holds
    no job's checkpoints or records, StorageFailed where it can't be listed.
    """

    def __init__(
        self,
        stores: Stores,
        folder: str,
        rule: PruneRule,
        clock: Clock,
        *,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._stores = stores
        self._root = paths.absolute(folder)
        self._clock = clock
        self._lease_ms = lease_ms
        store = stores.open(self._root)
        self._files = {paths.join(self._root, info.path): info for info in store.list()}
        self._homes = _homes(self._root, self._files)
        self._jobs = RecordedJobs(stores, self._root, lease_ms)
        if not (self._homes or self._jobs.all):
            raise ConfigError(
                "There are no jobs here whose checkpoints could be removed",
                where=self._root,
                remedy="Name the checkpoint folder (execution.checkpointing.dir).",
            )
        checker = SnapshotChecker(stores, lambda _: None)
        self._checks = {
            paths.parent(file): checker.opened(paths.parent(file))
            for file in sorted(self._files)
            if paths.name(file) == paths.METADATA
        }
        self._lost = self._jobs.with_lost(self._checks)
        self._led: dict[str, Epoch] = {}
        self._living = frozenset(self._living_homes())
        kept = list(self._kept())
        self._doomed = {each.path: each for each in to_prune(kept, rule, clock.wall_ms())}
        self.plan = PrunePlan(tuple(self._removals()), tuple(self._notes(kept, rule)))

    def remove(self) -> None:
        """Executes a plan, and first what needs no new record: the disk may be full.

        Raises ConfigError for a job that was started meanwhile.
        """
        losing = [job for job in self._jobs.all if self._loses_pointers(job)]
        late: list[Removal] = []
        for removal in self.plan.removals:
            files = self._files_behind_records(removal, losing)
            if early := set(removal.files) - files:
                self._execute(replace(removal, files=tuple(sorted(early))))
            if files or not removal.files:
                late.append(replace(removal, files=tuple(sorted(files))))
        for number, job in enumerate(losing, 1):
            self._forget_pointers(job)
            others = losing[number:]
            free = [e for e in late if e.files and not self._files_behind_records(e, others)]
            for removal in free:
                self._execute(removal)
            late = [removal for removal in late if removal not in free]
        for removal in late:
            self._execute(removal)

    def _files_behind_records(self, removal: Removal, losing: list[RecordedJob]) -> set[str]:
        """Files that go once the records of these jobs name their checkpoints no more."""
        files, pointed = set(removal.files), self._pointed(losing)
        if removal.what == "records":
            job = next((job for job in losing if job.folder == removal.path), None)
            return set() if job is None or self._left(job) else files - _older(job, files)
        if removal.path in pointed:
            return files
        used = {paths.name(place) for folder in pointed for place in self._checks[folder].named}
        behind = {file for file in files if paths.name(file) in used}
        return files if behind and removal.what == "checkpoint" else behind

    def _pointed(self, jobs: Iterable[RecordedJob]) -> set[str]:
        """Folders of doomed checkpoints that records of these jobs name."""
        completed = (job.record.completed for job in jobs if job.record is not None)
        folders = (self._here(pointer) for pointers in completed for pointer in pointers)
        return {folder for folder in folders if folder in self._doomed}

    def _execute(self, removal: Removal) -> None:
        match removal.what:
            case "checkpoint":
                self._discard(removal)
            case "empty folder":
                _remove_empty(Path(removal.path))
            case "records":
                self._remove_records(removal)
            case _:
                self._delete(removal.files)
                self._remove_if_empty(removal.path)

    # --- the decision ---

    def _living_homes(self) -> Iterator[str]:
        """Job folders with checkpoints, or the initial snapshot, of a living job."""
        for job in self._jobs.all:
            if job.record is not None and self._jobs.is_alive(job):
                used = [pointer.location for pointer in job.record.completed]
                homes = (paths.name(paths.parent(at)) for at in (*used, *job.record.claimed))
                yield from (paths.join(self._root, home) for home in (job.record.job, *homes))

    def _kept(self) -> Iterator[KeptCheckpoint]:
        for folder in self._checks:
            number, home = paths.checkpoint_of(folder), paths.parent(folder)
            if number is not None and home in self._homes:
                written_ms = self._files[paths.join(folder, paths.METADATA)].modified_ms
                standing = self._standing(folder, number)
                yield KeptCheckpoint(folder, self._job_of(home), number, standing, written_ms)

    def _standing(self, folder: str, number: CheckpointId) -> Standing:
        home = paths.parent(folder)
        if home in self._living:
            return Standing.LIVES
        if paths.within_root(folder) in self._jobs.pointers:
            return Standing.NEWEST
        if not self._is_over(home):
            return Standing.UNKNOWN
        under_way = self._jobs.is_under_way(paths.name(home), number)
        return Standing.UNDER_WAY if under_way else Standing.FORMER

    def _job_of(self, home: str) -> str:
        """Name of the job that wrote a folder, from its snapshots or records; else ""."""
        led = self._jobs.led_as(paths.name(home))
        return job_in(home, self._checks) if led is None else led.name

    def _is_over(self, home: str) -> bool:
        if home in self._living:
            return False
        return self._jobs.life_of(paths.name(home)) is Life.OVER

    def _removals(self) -> Iterator[Removal]:
        needed = {
            paths.name(place)
            for folder, check in self._checks.items()
            if folder not in self._doomed
            for place in check.named
        }
        for each in self._doomed.values():
            inside = filter(_is_ours, self._below(each.path))
            files = [file for file in inside if paths.name(file) not in needed]
            yield self._removal("checkpoint", each.path, files, each.job, each.written_ms)
        remain = self._checks.keys() - self._doomed.keys()
        # A snapshot that can't be read may name any of them.
        if all(self._checks[folder].trusted for folder in remain):
            yield from self._left_in_homes(needed)
        for job in self._jobs.all:
            if files := self._superfluous(job):
                yield self._removal("records", job.folder, files, job.name)
        yield from self._empty_folders()

    def _left_in_homes(self, needed: set[str]) -> Iterator[Removal]:
        for home in sorted(self._homes):
            if not self._is_over(home) or paths.name(home) in self._lost:
                continue
            left = {
                file
                for file in self._below(home)
                if paths.name(file) not in needed
                and paths.parent(file) not in self._checks
                and (epoch := paths.epoch_of(file)) is not None
                and self._jobs.is_left(paths.name(home), epoch)
                and not paths.is_below(file, paths.join(home, paths.STAGED))
            }
            if left:
                yield self._removal("shared files", home, left, self._job_of(home))

    def _superfluous(self, job: RecordedJob) -> set[str]:
        if job.record is None or not job.record.released:
            return set()
        files = {file for file in self._below(job.folder) if not self._is_anothers(file, job)}
        if job.record.status.is_terminal and not self._left(job):
            return files
        if self._loses_pointers(job):
            return _older(job, files) if self._left(job) else files
        doors = paths.join(job.folder, "doors")
        return _older(job, files) | {file for file in files if paths.parent(file) == doors}

    def _is_anothers(self, file: str, job: RecordedJob) -> bool:
        """True for the sign of a driver whose records are elsewhere, as in ZooKeeper."""
        if paths.parent(file) != paths.join(job.folder, "doors"):
            return False
        store, name = self._stores.locate(file)
        try:
            sign: object = json.loads(store.read(name))
        except (FileMissing, ValueError):
            return True
        led = None if job.record is None else job.record.job
        told = cast("dict[str, object]", sign).get("job") if isinstance(sign, dict) else led
        return bool(told) and told != led

    def _left(self, job: RecordedJob) -> tuple[Pointer, ...]:
        """Existing files that a job's records name, apart from the doomed checkpoints."""
        assert job.record is not None, "its records can be read"
        return tuple(
            pointer
            for pointer in job.record.completed
            if (folder := self._here(pointer)) not in self._doomed
            and (
                folder in self._checks
                or self._stores.open(pointer.location).info(paths.METADATA) is not None
            )
        )

    def _loses_pointers(self, job: RecordedJob) -> bool:
        return job.record is not None and any(
            self._here(pointer) in self._doomed for pointer in job.record.completed
        )

    def _here(self, pointer: Pointer) -> str:
        """Folder of a checkpoint in this checkpoint folder, whatever it was when it was written."""
        return paths.join(self._root, paths.within_root(pointer.location))

    def _empty_folders(self) -> Iterator[Removal]:
        """Job folders without files; object stores have none."""
        if not paths.is_local(self._root):
            return
        for folder in sorted(Path(self._root).iterdir()):
            home = str(folder)
            if paths.is_job_folder(home) and home not in self._homes | self._living:
                yield Removal("empty folder", home, (), 0)

    def _notes(self, kept: list[KeptCheckpoint], rule: PruneRule) -> Iterator[str]:
        stay = Counter(each.standing for each in kept if each.path not in self._doomed)
        for standing in Standing:
            if count := stay[standing]:
                asked = standing is Standing.NEWEST and not rule.takes_newest
                more = "; --older-than or --keep remove them too" if asked else ""
                yield f"checkpoints that stay: {count}, {standing.value}{more}"
        for folder, check in self._checks.items():
            if not (check.trusted or folder in self._doomed):
                yield f"shared files are not removed: {folder} is damaged and may name them"
        for home in sorted(self._homes - self._living):
            if paths.name(home) in self._lost:
                yield (
                    f"shared files are not removed: a checkpoint of {home} is missing, and a job "
                    "with another checkpoint folder may have claimed it"
                )

    def _removal(
        self,
        what: str,
        path: str,
        files: Iterable[str],
        job: str,
        written_ms: int | None = None,
    ) -> Removal:
        places = tuple(sorted(files))
        size = sum(self._files[place].size for place in places)
        return Removal(what, path, places, size, job, written_ms)

    def _below(self, folder: str) -> list[str]:
        return [file for file in self._files if file.startswith(f"{folder}/")]

    # --- the deleting ---

    def _forget_pointers(self, job: RecordedJob) -> None:
        record, left = job.record, self._left(job)
        assert record is not None, "it names a checkpoint"
        if not left:
            # A job that goes on without a checkpoint would read everything again.
            status = record.status if record.status.is_terminal else JobStatus.CANCELED
        else:
            status = record.status if record.released else JobStatus.SUSPENDED

        async def forget() -> None:
            world = HaWorld(
                job.chain,
                self._clock,
                SeededChance(secrets.randbits(64)),
                lambda duration_ms: asyncio.sleep(duration_ms / 1_000),
                lease_ms=self._lease_ms,
            )
            leadership = await lead(world, job.name, resume=True)
            self._led[job.folder] = leadership.epoch
            async with leadership.starting():
                if leadership.completed != record.completed:
                    raise ConfigError(
                        f"Job '{job.name}' has run meanwhile",
                        where=job.folder,
                        remedy="Start the command again, which looks at its new checkpoints then.",
                    )
            await leadership.end(status, retained={pointer.checkpoint for pointer in left})
            await leadership.conclude()

        asyncio.run(forget())

    def _discard(self, removal: Removal) -> None:
        if set(self._below(removal.path)) <= set(removal.files):
            StateFiles(self._stores).discard(removal.path, removal.files)
        else:
            self._delete(removal.files)
        self._remove_if_empty(paths.parent(removal.path))

    def _remove_records(self, removal: Removal) -> None:
        files, led = set(removal.files), self._led.get(removal.path)
        if led is not None:
            # Delete this run's own records too, but nothing of a driver that started after it.
            listed = self._stores.open(removal.path).list()
            ours = [info.path for info in listed if _epoch_of_record(info.path) <= led]
            job = next(job for job in self._jobs.all if job.folder == removal.path)
            places = (paths.join(removal.path, path) for path in ours)
            files |= {place for place in places if not self._is_anothers(place, job)}
        # Claims last: while one stands, no driver takes its number again.
        claims = {file for file in files if paths.name(paths.parent(file)) == "claims"}
        self._delete(sorted(files - claims))
        self._delete(sorted(claims))
        self._remove_if_empty(removal.path)

    def _delete(self, files: Iterable[str]) -> None:
        for file in files:
            store, name = self._stores.locate(file)
            store.delete([name])

    def _remove_if_empty(self, folder: str) -> None:
        if paths.is_local(folder) and not any(self._stores.open(folder).list()):
            _remove_empty(Path(folder))


def _homes(root: str, files: Iterable[str]) -> frozenset[str]:
    folders = (paths.join(root, file.removeprefix(f"{root}/").partition("/")[0]) for file in files)
    return frozenset(folder for folder in folders if paths.is_job_folder(folder))


def _older(job: RecordedJob, files: Iterable[str]) -> set[str]:
    """Records among the files of a job that another one of their chain comes behind."""
    chains: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        chains[paths.parent(file)].append(file)
    # The last record of each chain keeps its leader of then from writing another.
    places = paths.join(job.folder, "chains")
    return {file for at, chain in chains.items() if at.startswith(places) for file in chain[:-1]}


def _is_ours(file: str) -> bool:
    return paths.epoch_of(file) is not None or paths.name(file) == paths.METADATA


def _remove_empty(folder: Path) -> None:
    """Removes a tree of folders without files; stops at a file that appears meanwhile."""
    inside = [each for each in folder.rglob("*") if each.is_dir()]
    for each in (*sorted(inside, reverse=True), folder):
        with contextlib.suppress(OSError):
            each.rmdir()


def _epoch_of_record(path: str) -> int:
    return int(path.split("/")[1].partition("-")[0])
