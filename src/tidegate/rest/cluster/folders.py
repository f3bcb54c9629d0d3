"""Jobs by what they leave in folders: the signs of running drivers, and archives."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from tidegate.driver.client.door import read_sign_at
from tidegate.errors import FileMissing, FormatError, StorageFailed
from tidegate.model.control import JobStatus
from tidegate.rest.cluster.reading import OVERVIEW, checked_overview, read_archive
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidegate.driver.client.door import DoorSign
    from tidegate.storage.store import FileInfo, Store

Place = tuple[str, str]
"""A folder, and a file in it."""

WHOLE_MAX: Final = 8
"""Archives that are remembered whole; of the others what a list of jobs shows."""

_TERMINAL: Final = frozenset(status.value for status in JobStatus if status.is_terminal)


@frozen
class ArchivedJob:
    """A job's last view of itself. overview: as in ``/jobs/overview``. written_ms: wall clock."""

    place: Place
    size_bytes: int
    written_ms: int | None
    overview: Mapping[str, Any]

    @property
    def over(self) -> bool:
        return self.overview["state"] in _TERMINAL

    @property
    def run(self) -> tuple[int, int]:
        """Begin and end of the run that it shows; a later run has a greater one."""
        return int(self.overview["start-time"]), int(self.overview["end-time"])


@frozen
class FoundJob:
    """A job that has left a sign of its driver, or an archive, or both. name: as files have it."""

    id: str
    name: str
    sign: DoorSign | None = None
    archived: ArchivedJob | None = None

    def joined(self, other: FoundJob) -> FoundJob:
        """Adds what was found later of the same job, and keeps the archive of its latest run."""
        archives = [each for each in (self.archived, other.archived) if each is not None]
        newest = max(archives, key=lambda each: each.run, default=None)
        return replace(self, sign=other.sign or self.sign, archived=newest)


class JobFolders:
    """Looks for jobs, on one thread at a time.

    checkpoints: checkpoint folders. archives: further folders of archives. retained: archives of
    ended jobs that are left in each folder; -1 for all.
    """

    def __init__(
        self, checkpoints: Sequence[str], archives: Sequence[str], *, retained: int = -1
    ) -> None:
        self.checkpoints: Final = tuple(checkpoints)
        histories = (paths.join(folder, paths.history_folder()) for folder in checkpoints)
        self.archives: Final = tuple(dict.fromkeys((*histories, *archives)))
        self._named = tuple(dict.fromkeys((*checkpoints, *archives)))
        self._retained = retained
        stores = Stores()
        self._stores = {each: stores.open(each) for each in (*self.checkpoints, *self.archives)}
        self._lock = threading.Lock()
        self._signs: dict[Place, DoorSign] = {}
        self._archived: dict[Place, ArchivedJob] = {}
        self._whole: dict[tuple[Place, int, int | None], Mapping[str, str]] = {}

    def look(self) -> tuple[list[FoundJob], list[str]]:
        """All jobs, and what stood in the way of finding more. Blocking."""
        troubles = [f"there is no folder {each} yet" for each in self.missing()]
        found: dict[str, FoundJob] = {}
        for one in (*self._all_archived(troubles), *self._all_signed(troubles)):
            known = found.get(one.id)
            found[one.id] = one if known is None else known.joined(one)
        return list(found.values()), troubles

    def missing(self) -> list[str]:
        """Folders that were named and are not there: not yet, or by mistake. Blocking."""
        missing: list[str] = []
        for folder in self._named:
            with contextlib.suppress(StorageFailed):  # which is told when it is looked through
                if not self._stores[folder].is_folder(""):
                    missing.append(folder)
        return missing

    def answers(self, archived: ArchivedJob) -> Mapping[str, str]:
        """Answers of an archive as JSON, by path; on any thread. Blocking.

        Raises FormatError, StorageFailed.
        """
        key = archived.place, archived.size_bytes, archived.written_ms
        with self._lock:
            if (known := self._whole.pop(key, None)) is None:
                folder, file = archived.place
                known = read_archive(self._stores[folder].read(file), paths.join(folder, file))
            self._whole[key] = known  # the newest, so that the oldest use is forgotten first
            while len(self._whole) > WHOLE_MAX:
                del self._whole[next(iter(self._whole))]
            return known

    def _all_signed(self, troubles: list[str]) -> Iterator[FoundJob]:
        signs: dict[Place, DoorSign] = {}
        for folder in self.checkpoints:
            store = self._stores[folder]
            files = (info.path for info in _listed(store, paths.jobs_folder(), troubles))
            for quoted, file in paths.signs_by_job(files).items():
                sign = self._signs.get((folder, file)) or _read_sign(store, file, troubles)
                if sign is None:
                    continue
                signs[folder, file] = sign
                if sign.job:
                    yield FoundJob(sign.job, paths.shown_name(quoted), sign)
        self._signs = signs

    def _all_archived(self, troubles: list[str]) -> Iterator[FoundJob]:
        seen: dict[Place, ArchivedJob] = {}
        for folder in self.archives:
            store = self._stores[folder]
            here: list[ArchivedJob] = []
            for info in _listed(store, "", troubles):
                if paths.is_archive(info.path):
                    one = self._read(store, (folder, info.path), info, troubles)
                    here += [] if one is None else [one]
            for one in self._kept(store, here, troubles):
                seen[one.place] = one
                overview = one.overview
                yield FoundJob(overview["jid"], overview["name"], archived=one)
        self._archived = seen

    def _read(
        self, store: Store, place: Place, info: FileInfo, troubles: list[str]
    ) -> ArchivedJob | None:
        known = self._archived.get(place)
        same = known is not None and known.size_bytes == info.size
        # A store that tells no times shows a change by the size, which all but surely differs.
        if same and known is not None and known.written_ms == info.modified_ms:
            return known
        where = paths.join(*place)
        try:
            answers = read_archive(store.read(info.path), where)
            [overview] = json.loads(answers[OVERVIEW])["jobs"]
            overview = checked_overview(overview)
        except FileMissing:
            return None
        except (FormatError, StorageFailed, KeyError, TypeError, ValueError) as error:
            troubles.append(f"{where} is no archive that can be read: {error}")
            return None
        return ArchivedJob(place, info.size, info.modified_ms, overview)

    def _kept(
        self, store: Store, here: list[ArchivedJob], troubles: list[str]
    ) -> list[ArchivedJob]:
        """Deletes archives of ended jobs beyond the limit; returns the others."""
        over = sorted(
            (one for one in here if one.over),
            key=lambda one: cast("int", one.overview["end-time"]),
            reverse=True,
        )
        doomed = [] if self._retained < 0 else over[self._retained :]
        if not doomed:
            return here
        try:
            store.delete([one.place[1] for one in doomed])
        except StorageFailed as error:
            troubles.append(f"archives could not be deleted: {error}")
        return [one for one in here if one not in doomed]


def _listed(store: Store, folder: str, troubles: list[str]) -> list[FileInfo]:
    try:
        return list(store.list(folder))
    except StorageFailed as error:
        troubles.append(f"{store.root} could not be looked through: {error}")
        return []


def _read_sign(store: Store, file: str, troubles: list[str]) -> DoorSign | None:
    try:
        return read_sign_at(store, file)
    except FileMissing:  # the job has just ended
        return None
    except (FormatError, StorageFailed) as error:
        troubles.append(str(error))
        return None
