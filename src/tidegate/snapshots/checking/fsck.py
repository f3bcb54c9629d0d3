"""Checks snapshots, and finds files beside them that nobody needs: ``tidegate fsck``.

Everything that a snapshot names is there, as large and with the bytes that were written, and says
what it is said to be (`snapshot_check`); what lies in a snapshot's or a job's folder is named by
somebody (`orphans`). If its job runs, a snapshot may vanish during the check: a snapshot whose
``_metadata`` is gone by then does not count.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError
from tidegate.ha.leadership import LEASE_MS
from tidegate.snapshots.checking.findings import Fault, Finding, FsckReport
from tidegate.snapshots.checking.orphans import Orphans, Scope
from tidegate.snapshots.checking.snapshot_check import SnapshotChecker
from tidegate.snapshots.jobs import RecordedJobs
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.secret_file import signing_key
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.snapshots.checking.snapshot_check import SnapshotCheck


def fsck(
    path: str | PathLike[str],
    *,
    delete_orphans: bool = False,
    key_file: str | PathLike[str] | None = None,
    on_file: Callable[[str], object] | None = None,
) -> FsckReport:
    """Checks snapshots and their folders. Blocking; reads every file once.

    path: a checkpoint or savepoint, the folder of a job, or one in which these are. delete_orphans:
    delete what nobody needs, unless the job that wrote it lives, or it is not known whether it
    does. key_file: holds the key with which the snapshots have to be signed. on_file: called with
    the place of each file before it is read.

    Raises ConfigError if there is nothing that could be checked, StorageFailed where a folder
    can't be listed, or an orphan not be deleted.
    """
    stores = Stores(MemoryFiles())
    key = signing_key(None if key_file is None else fspath(key_file))
    return check(stores, fspath(path), delete_orphans=delete_orphans, on_file=on_file, key=key)


def check(
    stores: Stores,
    path: str,
    *,
    delete_orphans: bool = False,
    lease_ms: int = LEASE_MS,
    on_file: Callable[[str], object] | None = None,
    key: bytes | None = None,
) -> FsckReport:
    """Does the work of `fsck`, in any world of files. lease_ms: wait for a job's sign of life."""
    scope = _scope_of(stores, paths.absolute(path))
    store = stores.open(scope.listed)
    files = {paths.join(store.root, info.path): info.size for info in store.list()}
    checker = SnapshotChecker(stores, on_file or (lambda _: None), key)
    checks = {
        folder: checker.opened(folder)
        for folder in sorted(
            paths.parent(file) for file in files if paths.name(file) == paths.METADATA
        )
    }
    judged = [check for folder, check in checks.items() if folder in scope]
    for check in judged:
        checker.look_at_files(check)
    jobs = RecordedJobs(stores, scope.root, lease_ms)
    orphans = Orphans(stores, scope, files, checks, jobs)
    findings = [*_merged(_still_there(stores, judged)), *_shared_twice(judged), *orphans.findings()]
    if not (judged or findings or orphans.notes or jobs.of(scope)):
        raise ConfigError(
            "There is nothing here that could be checked",
            where=scope.judged,
            remedy="Name the folder of a checkpoint or savepoint, of a job, or the checkpoint "
            "folder that holds them (execution.checkpointing.dir).",
        )
    if delete_orphans:
        findings = orphans.deleted(findings)
    sizes = checker.sizes
    return FsckReport(
        scope.judged,
        tuple(check.summary(sizes) for check in judged),
        len(sizes),
        sum(sizes.values()),
        tuple(findings),
        tuple(orphans.notes),
    )


def _scope_of(stores: Stores, location: str) -> Scope:
    if paths.name(location) == paths.METADATA:
        location = paths.parent(location)
    if not stores.open(location).is_folder(""):
        raise ConfigError(
            f"There is no folder {location}",
            where="check of snapshots",
            remedy="Name the folder of a checkpoint or savepoint, of a job, or the checkpoint "
            "folder that holds them (execution.checkpointing.dir).",
        )
    above = paths.parent(location)
    if paths.is_job_folder(location):
        return Scope(location, above, above)
    if paths.checkpoint_of(location) is not None:
        root = paths.parent(above) if paths.is_job_folder(above) else None
        return Scope(location, location, root)
    return Scope(location, location, location)


def _still_there(stores: Stores, checks: Iterable[SnapshotCheck]) -> Iterator[Finding]:
    """Findings about snapshots that their job has not deleted meanwhile."""
    for check in checks:
        if check.findings and stores.open(check.path).info(paths.METADATA) is not None:
            yield from check.findings


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merges equal findings of several snapshots about one file."""
    merged: dict[tuple[Fault, str, str], Finding] = {}
    for finding in findings:
        key = finding.fault, finding.path, finding.what
        before = merged.get(key)
        merged[key] = (
            finding
            if before is None
            else replace(before, snapshots=(*before.snapshots, *finding.snapshots))
        )
    return list(merged.values())


def _shared_twice(checks: Iterable[SnapshotCheck]) -> Iterator[Finding]:
    """Files that two snapshots both own: the first one to be deleted would take them along."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for check in checks:
        for place in check.own:
            owners[place].append(check.path)
    for place, folders in sorted(owners.items()):
        if len(folders) > 1:
            what = "Several snapshots take it for their own, and it goes with the first of them"
            yield Finding(Fault.OUTSIDE, place, what, tuple(folders))
