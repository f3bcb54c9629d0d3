"""Finds orphans: files in folders of snapshots and jobs that nobody names.

It counts as an orphan only where that can be known:

- not where a snapshot beside it is damaged, which may be the one that names it;
- not of a job that lives, which may be about to name it, nor of one of which nothing is known.

Deleted is what the records, the names of files and of their folders show to be of a run that is
over, and which no later run can come to name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.snapshots.checking.findings import Fault, Finding
from tidegate.snapshots.checking.snapshot_check import told
from tidegate.snapshots.jobs import Life
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidegate.snapshots.checking.snapshot_check import SnapshotCheck
    from tidegate.snapshots.jobs import RecordedJobs
    from tidegate.storage.stores import Stores

_UNDER_WAY: Final = f"{paths.METADATA}.part"


@frozen
class Scope:
    """Extent of a search for orphans.

    judged: the folder. listed: one around it, where others may name files of it. root: the
    checkpoint folder with the jobs' records, if it is known.
    """

    judged: str
    listed: str
    root: str | None

    def __contains__(self, place: str) -> bool:
        return place == self.judged or place.startswith(f"{self.judged}/")


class Orphans:
    """Judges the files of a scope. files: sizes by place. checks: of all snapshots, by folder.

    notes: what could not be judged; filled by `findings`.
    """

    def __init__(
        self,
        stores: Stores,
        scope: Scope,
        files: Mapping[str, int],
        checks: Mapping[str, SnapshotCheck],
        jobs: RecordedJobs,
    ) -> None:
        self._stores = stores
        self._scope = scope
        self._files = files
        self._checks = checks
        self._jobs = jobs
        named = (place for check in checks.values() for place in check.named)
        self._named = {paths.METADATA, *map(paths.name, named)}
        self._deletable: set[str] = set()
        self._passed_over: Counter[tuple[str, str]] = Counter()
        self.notes: list[str] = []

    def findings(self) -> list[Finding]:
        found = [*self._records(), *self._unnamed_snapshots(), *self._unnamed_files()]
        self.notes += [
            f"{count} files that no snapshot names are not judged: {why} ({folder})"
            for (folder, why), count in sorted(self._passed_over.items())
        ]
        return found

    def deleted(self, findings: Iterable[Finding]) -> list[Finding]:
        """Deletes orphans, as far as allowed; returns the findings, marked."""
        done: list[Finding] = []
        for finding in findings:
            if finding.fault is Fault.ORPHAN and finding.path in self._deletable:
                store, name = self._stores.locate(finding.path)
                store.delete([name])
                finding = replace(finding, deleted=True)
            done.append(finding)
        return done

    def _records(self) -> Iterator[Finding]:
        """Unreadable records, and pointers to missing snapshots."""
        for job in self._jobs.of(self._scope):
            for place, error in job.damage.items():
                yield Finding(Fault.RECORD, place, told(error))
            for pointer in () if job.record is None else job.record.completed:
                folder = paths.absolute(pointer.location)
                if folder in self._checks or self._stores.open(folder).info(paths.METADATA):
                    continue
                if self._jobs.still_names(job, pointer):
                    yield Finding(
                        Fault.MISSING,
                        paths.join(folder, paths.METADATA),
                        f"The records of job '{job.name}' name checkpoint {pointer.checkpoint} "
                        "there, which does not exist",
                    )

    def _unnamed_snapshots(self) -> Iterator[Finding]:
        """Checkpoints that were written but never recorded."""
        for folder, check in self._checks.items():
            number = paths.checkpoint_of(folder)
            home = paths.name(paths.parent(folder))
            job = self._jobs.led_as(home)
            if number is None or job is None or job.record is None or folder not in self._scope:
                continue
            if paths.within_root(folder) in self._jobs.pointers:
                continue
            if self._life(paths.parent(folder)) is not Life.OVER:
                continue
            if self._jobs.is_under_way(home, number):
                continue
            file = paths.join(folder, paths.METADATA)
            what = f"The records of job '{job.name}' do not name this checkpoint"
            for place in (file, *sorted(check.own)):
                if self._files.get(place) is not None and paths.parent(place) == folder:
                    self._deletable.add(place)
                    yield Finding(Fault.ORPHAN, place, what, size_bytes=self._files[place])

    def _unnamed_files(self) -> Iterator[Finding]:
        incomplete: dict[str, int] = {}
        for file, size in self._files.items():
            if file not in self._scope or paths.name(file) in self._named:
                continue
            folder = paths.parent(file)
            if paths.checkpoint_of(folder) is not None and paths.try_of(file) is not None:
                continue  # of a micro-batch; it goes with its folder
            if folder in self._checks:
                yield from self._beside_snapshot(file, size, self._checks[folder])
            elif (home := self._job_folder(file)) is not None:
                inside = file.removeprefix(f"{home}/")
                if paths.checkpoint_of(folder) is not None and inside.count("/") == 1:
                    yield from self._without_metadata(file, size, home, incomplete)
                else:
                    yield from self._of_job(file, size, home, inside)
            elif _is_state(file) and (folder == self._scope.judged or _is_snapshot_name(folder)):
                incomplete[folder] = incomplete.get(folder, 0) + 1
        for folder, count in incomplete.items():
            yield Finding(
                Fault.INCOMPLETE,
                folder,
                f"It holds {count} files of state and no {paths.METADATA}: it was never completed, "
                "or has lost it. Delete the folder once no job writes it any more",
            )

    def _beside_snapshot(self, file: str, size: int, check: SnapshotCheck) -> Iterator[Finding]:
        if not check.trusted:
            return
        if paths.name(file) == paths.COMMITTED:
            return
        if not _is_state(file):
            yield _foreign(file)
            return
        home = self._job_folder(file)
        if home is not None and self._life(home) is Life.LIVES:
            self._pass_over(home, "the job lives")
            return
        # A complete snapshot is never rewritten, so nobody will ever name these files.
        self._deletable.add(file)
        yield _orphan(file, size)

    def _without_metadata(
        self, file: str, size: int, home: str, incomplete: dict[str, int]
    ) -> Iterator[Finding]:
        """A file in the folder of a checkpoint that has no metadata."""
        folder = paths.parent(file)
        if paths.within_root(folder) in self._jobs.pointers:
            return  # the record that names it tells of it
        life = self._life(home)
        if life is Life.LIVES:
            self._pass_over(home, "the job lives")
        elif life is Life.UNKNOWN:
            incomplete[folder] = incomplete.get(folder, 0) + 1
        elif _is_state(file):
            yield from self._judged(file, size, home)
        else:
            yield _foreign(file)

    def _of_job(self, file: str, size: int, home: str, inside: str) -> Iterator[Finding]:
        part = inside.partition("/")[0]
        if part == paths.STAGED:
            return  # what sources read is removed with its job, and named in bytes of their own
        if part not in (paths.SHARED, paths.TASK_OWNED) or not _is_state(file):
            yield _foreign(file)
            return
        life = self._life(home)
        if life is Life.LIVES:
            self._pass_over(home, "the job lives")
        elif life is Life.UNKNOWN:
            self._pass_over(home, "no record tells whether the job lives")
        elif paths.name(home) in self._blind:
            self._pass_over(home, "a snapshot that may name them is damaged or missing")
        else:
            yield from self._judged(file, size, home)

    def _judged(self, file: str, size: int, home: str) -> Iterator[Finding]:
        epoch, job = paths.epoch_of(file), self._jobs.led_as(paths.name(home))
        if job is None or (epoch is not None and self._jobs.is_left(paths.name(home), epoch)):
            self._deletable.add(file)
        elif job.record is not None and not job.record.released:
            self._pass_over(home, "the next run deletes what the last one has not completed")
            return
        yield _orphan(file, size)

    @cached_property
    def _blind(self) -> frozenset[str]:
        """Ids of jobs with a snapshot that is unreadable, changed or missing."""
        untrusted = (folder for folder, check in self._checks.items() if not check.trusted)
        homes = (paths.name(paths.parent(folder)) for folder in untrusted)
        return self._jobs.with_lost(self._checks).union(homes)

    def _life(self, home: str) -> Life:
        return self._jobs.life_of(paths.name(home))

    def _job_folder(self, file: str) -> str | None:
        base = self._scope.root or self._scope.listed
        folder = paths.parent(file)
        while len(folder) > len(base):
            if paths.is_job_folder(folder):
                return folder
            folder = paths.parent(folder)
        return None

    def _pass_over(self, home: str, why: str) -> None:
        self._passed_over[home, why] += 1


def _is_state(file: str) -> bool:
    return paths.epoch_of(file) is not None or paths.name(file) == _UNDER_WAY


def _is_snapshot_name(folder: str) -> bool:
    return paths.is_savepoint_folder(folder) or paths.checkpoint_of(folder) is not None


def _orphan(file: str, size: int) -> Finding:
    return Finding(Fault.ORPHAN, file, "No snapshot names it", size_bytes=size)


def _foreign(file: str) -> Finding:
    return Finding(Fault.FOREIGN, file, "Tidegate did not write it, and does not delete it")
