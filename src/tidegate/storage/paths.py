"""Every path that Tidegate makes, and how paths and URLs are taken apart.

Layout below a checkpoint folder, Flink's save for the last three lines::

    <job-id>/chk-<n>/_metadata            a checkpoint, with the files that are its own
    <job-id>/shared/                      files that several checkpoints use
    <job-id>/taskowned/                   files that slots own
    <job-id>/staged/                      files written once for sources to read
    .jobs/<job name>/                     who leads the job, and its checkpoints (tidegate.ha)
    savepoint-<6 of job id>-<12 random>/  a savepoint, below its own target folder

A local place is written as an absolute path, any other as a URL.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from tidegate.model.ids import Attempt, CheckpointId, Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.model.ids import JobId

METADATA: Final = "_metadata"
"""Name of the file that makes a checkpoint of a folder."""

SHARED: Final = "shared"
TASK_OWNED: Final = "taskowned"
STAGED: Final = "staged"

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
_EXCLUSIVE: Final = re.compile(r"chk-(\d+)")
_JOB: Final = re.compile(r"[0-9a-f]{32}")
_SAVEPOINT: Final = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
_STATE_FILE: Final = re.compile(r"(\d+)-(\d+)-[0-9a-f]{16}")
_NAME_MAX: Final = 180


def absolute(location: str) -> str:
    """The one form of a place: an absolute path, or a URL; no slash at the end.

    ``file:`` URLs become paths; relative paths are taken from the current folder.
    """
    if is_local(location):
        return str(Path(_local_path(location)).absolute()).rstrip("/") or "/"
    scheme, _, rest = location.partition(":")
    return f"{scheme.lower()}:{rest.rstrip('/')}"


def is_local(location: str) -> bool:
    """Whether this names a file or folder of this machine."""
    return _SCHEME.match(location) is None or scheme_of(location) == "file"


def scheme_of(location: str) -> str:
    """The scheme of a URL in lower case; ``file`` for a path."""
    return location.partition(":")[0].lower() if _SCHEME.match(location) else "file"


def _local_path(location: str) -> str:
    if scheme_of(location) == "file" and _SCHEME.match(location):
        return unquote(urlsplit(location).path)
    return location


def join(folder: str, *names: str) -> str:
    """A place below a folder."""
    return "/".join([folder.rstrip("/"), *names])


def parent(location: str) -> str:
    """The folder that holds this file or folder."""
    return location.rstrip("/").rpartition("/")[0] or "/"


def name(location: str) -> str:
    """The last part of a path."""
    return location.rstrip("/").rpartition("/")[2]


def job_folder(job: JobId) -> str:
    """Where a job keeps its checkpoints, below the checkpoint folder."""
    return job


def is_job_folder(folder: str) -> bool:
    """Whether this is named like the folder of a job."""
    return _JOB.fullmatch(name(folder)) is not None


def exclusive_folder(job: JobId, checkpoint: CheckpointId) -> str:
    """Where a checkpoint keeps what is its own."""
    return join(job_folder(job), exclusive_name(checkpoint))


def exclusive_name(checkpoint: CheckpointId) -> str:
    """Name of a folder for what is one checkpoint's own."""
    return f"chk-{checkpoint}"


def checkpoint_of(folder: str) -> CheckpointId | None:
    """The checkpoint whose `exclusive_folder` this is; None of any other folder."""
    found = _EXCLUSIVE.fullmatch(name(folder))
    return CheckpointId(int(found[1])) if found else None


def folders_of(snapshot: str) -> tuple[str, ...]:
    """The folders in which a snapshot's own files are: its own, and those that its job shares."""
    if checkpoint_of(snapshot) is None:
        return (snapshot,)
    job = parent(snapshot)
    return (snapshot, join(job, SHARED), join(job, TASK_OWNED))


def is_below(place: str, folder: str) -> bool:
    """Whether a file is in a folder or deeper, as their names say it."""
    place, folder = absolute(place), absolute(folder)
    return place.startswith(f"{folder.rstrip('/')}/") and ".." not in place.split("/")


def shared_folder(job: JobId) -> str:
    """Where a job keeps files that several checkpoints use."""
    return join(job_folder(job), SHARED)


def task_owned_folder(job: JobId) -> str:
    """Where a job's slots keep files of their own."""
    return join(job_folder(job), TASK_OWNED)


def staged_folder(job: JobId) -> str:
    """Where a job keeps what was written once for its sources to read."""
    return join(job_folder(job), STAGED)


def savepoint_folder(job: JobId, bits64: int) -> str:
    """Name of a new savepoint, below its target folder. bits64: 64 random bits."""
    return f"savepoint-{job[:6]}-{bits64 & (2**48 - 1):012x}"


def is_savepoint_folder(folder: str) -> bool:
    """Whether this is named like a `savepoint_folder`."""
    return _SAVEPOINT.fullmatch(name(folder)) is not None


def state_file(epoch: Epoch, attempt: Attempt, bits64: int) -> str:
    """Name of a new file of state: unique, and telling who wrote it. bits64: 64 random bits."""
    return f"{epoch}-{attempt}-{bits64:016x}"


def epoch_of(file: str) -> Epoch | None:
    """The run that wrote a `state_file`; None of any other file."""
    found = _STATE_FILE.fullmatch(name(file))
    return Epoch(int(found[1])) if found else None


def attempt_of(file: str) -> tuple[Epoch, Attempt] | None:
    """The run, and the attempt in it, that wrote a `state_file`; None of any other file."""
    found = _STATE_FILE.fullmatch(name(file))
    return (Epoch(int(found[1])), Attempt(int(found[2]))) if found else None


def chain_folder(job_name: str) -> str:
    """Where the record chain of a named job lies, below the checkpoint folder."""
    return join(jobs_folder(), quoted_name(job_name))


def jobs_folder() -> str:
    """Where the record chains of named jobs lie, below the checkpoint folder."""
    return ".jobs"


def job_names(files: Iterable[str]) -> list[str]:
    """The jobs that have files among these, below `jobs_folder`; a very long name is shortened."""
    return list(dict.fromkeys(unquote(file.split("/")[1]) for file in files if "/" in file))


def door_file(job_name: str, epoch: Epoch) -> str:
    """Where a job's driver says how other processes reach it, below the checkpoint folder."""
    return join(doors_folder(job_name), f"{epoch:010d}")


def doors_folder(job_name: str) -> str:
    """Where these are."""
    return join(chain_folder(job_name), "doors")


def quoted_name(text: str) -> str:
    """A text as the name of one file: readable, safe everywhere, different for each text."""
    quoted = quote(text, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _NAME_MAX:
        return quoted or "%"
    return f"{quoted[:_NAME_MAX]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
