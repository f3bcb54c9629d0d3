"""Savepoints as folders: listed below a target folder, and deleted.

A savepoint belongs to its owner alone: no job deletes it, unless it was started from it and has
claimed it. All its files lie in its folder, wherever that has been moved to.
"""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from flinkformat import metadata
from flinkformat.frozen import frozen
from flinkformat.snapshots import CheckpointProperties, SavepointType
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.checkpoint.provenance import check_seal, provenance_of
from tidegate.errors import ConfigError, FormatError
from tidegate.storage import paths
from tidegate.storage.secret_file import signing_key
from tidegate.storage.state_files import StateFiles, resolve_relative
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.snapshots import CheckpointMetadata, SavepointFormatType
    from tidegate.model.ids import CheckpointId

_SHOWN_MAX = 3


@frozen
class SavepointInfo:
    """A savepoint in its folder.

    checkpoint: its number within its job. job_name: None if Flink wrote it. kind: as Flink calls
    it, such as ``Suspend Savepoint``. size_bytes: of its files.
    """

    path: str
    checkpoint: CheckpointId
    job_name: str | None
    kind: str
    format: SavepointFormatType
    size_bytes: int


def list_savepoints(
    directory: str | PathLike[str], *, on_damaged: Callable[[FormatError], None] | None = None
) -> list[SavepointInfo]:
    """Savepoints in the subfolders of a folder, sorted by path.

    A folder without ``_metadata`` is none: its savepoint was never completed. on_damaged: is told
    of each whose ``_metadata`` cannot be read, and the others are given; without it the first of
    them is raised. Raises ConfigError if there is no such folder.
    """
    root = paths.absolute(fspath(directory))
    store, name = Stores().locate(root)
    if not store.is_folder(name):
        raise ConfigError(
            f"There is no folder {root}",
            where="list of savepoints",
            remedy="Name the folder in which savepoints get theirs, as in "
            "execution.checkpointing.savepoint-dir.",
        )
    inside = store.list(name)
    found = sorted(
        paths.join(store.root, paths.parent(file.path))
        for file in inside
        if paths.name(file.path) == paths.METADATA and paths.parent(paths.parent(file.path)) == name
    )
    infos: list[SavepointInfo] = []
    for path in found:
        try:
            info = _info(path)
        except FormatError as error:
            if on_damaged is None:
                raise
            on_damaged(error)
            continue
        if info is not None:
            infos.append(info)
    return infos


def dispose_savepoint(path: str | PathLike[str]) -> None:
    """Deletes a savepoint: its ``_metadata``, its files and its folder.

    path: the folder, or the ``_metadata`` in it. Raises RestoreRefused if there is none, and
    ConfigError, having deleted nothing, for a checkpoint, which is its job's, for a symbolic link,
    and for a folder that holds other files too.
    """
    location, read = read_snapshot(fspath(path))
    if not properties_of(read).is_savepoint:
        raise ConfigError(
            f"{location} is a checkpoint, no savepoint: it is deleted by its job",
            where="disposal of a savepoint",
            remedy="Where its job is over, delete the folder by hand; files in the job's folder "
            "'shared' may belong to other checkpoints.",
        )
    if paths.is_local(location) and Path(location).is_symlink():
        raise ConfigError(
            f"{location} is a symbolic link",
            where="disposal of a savepoint",
            remedy=f"Name the folder itself, {Path(location).resolve()}; nothing has been deleted.",
        )
    store, folder = Stores().locate(location)
    files = files_of(location, read)
    foreign = [
        file.path
        for file in store.list(folder)
        if paths.name(file.path) != paths.METADATA
        and paths.join(store.root, file.path) not in files
        and paths.epoch_of(file.path) is None
    ]
    if foreign:
        more = " …" if len(foreign) > _SHOWN_MAX else ""
        raise ConfigError(
            f"The folder of the savepoint holds {len(foreign)} files of others: "
            f"{', '.join(map(paths.name, foreign[:_SHOWN_MAX]))}{more}",
            where=location,
            remedy="Move them elsewhere; nothing has been deleted.",
        )
    own = [file for file in files if paths.parent(file) == location]
    StateFiles().discard(location, own)


def _info(path: str) -> SavepointInfo | None:
    location, read = read_snapshot(path)
    kind = properties_of(read).snapshot_type
    if not isinstance(kind, SavepointType):
        return None
    name, size = job_name_of(read), read.state_size
    return SavepointInfo(location, read.checkpoint_id, name, kind.name, kind.format, size)


def read_snapshot(pointer: str, key_file: str | None = None) -> tuple[str, CheckpointMetadata]:
    """Folder of a snapshot and the content of its ``_metadata``, every file by its place.

    key_file: holds the key with which it has to be signed. Raises RestoreRefused if there is
    none, or it is not signed so, FormatError for one that can't be read.
    """
    key = signing_key(key_file)
    file = StateFiles().read_metadata(pointer)
    with file.being_decoded():
        decoded = metadata.decode(file.data)
        check_seal(file.data, decoded, key)
    return file.directory, resolve_relative(decoded, file.directory)


def job_name_of(read: CheckpointMetadata) -> str | None:
    provenance = provenance_of(read)
    name = None if provenance is None else provenance.facts.get("job_name")
    return name if isinstance(name, str) else None


def properties_of(read: CheckpointMetadata) -> CheckpointProperties:
    return read.properties or CheckpointProperties.for_unclaimed_snapshot()


def files_of(location: str, read: CheckpointMetadata) -> frozenset[str]:
    snapshot = CompletedCheckpoint(
        read.checkpoint_id, location, location, read, properties_of(read)
    )
    return frozenset(snapshot.paths())
