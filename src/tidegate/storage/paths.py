"""All paths that Tidegate makes, and functions that take paths and URLs apart.

Layout below a checkpoint folder, Flink's save for the last four lines::

    <job-id>/chk-<n>/_metadata            a checkpoint, with the files that are its own
    <job-id>/shared/                      files that several checkpoints use
    <job-id>/taskowned/                   files that slots own
    <job-id>/staged/                      files written once for sources to read
    .jobs/<job name>/                     who leads the job, and its checkpoints (tidegate.ha)
    .history/<job id>                     what the job has last shown (tidegate.rest)
    savepoint-<6 of job id>-<12 random>/  a savepoint, below its own target folder

A local place is written as an absolute path, any other as a URL.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from tidegate.model.ids import Attempt, CheckpointId, Epoch, JobId

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA: Final = "_metadata"
"""Name of the file that makes a checkpoint of a folder."""

COMMITTED: Final = "committed"
"""A file beside a batch's metadata: all that it holds for sinks to commit has been committed.

No batch may ask for it again: files may have been moved on, and transactions forgotten.
"""

SHARED: Final = "shared"
TASK_OWNED: Final = "taskowned"
STAGED: Final = "staged"

_DOORS: Final = "doors"

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
_FILE_URL: Final = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)
"""Start of a URL of a path, which may hold ``#`` and ``?``: they are part of names there."""

_EXCLUSIVE: Final = re.compile(r"chk-(\d+)")
_JOB: Final = re.compile(r"[0-9a-f]{32}")
_SAVEPOINT: Final = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
_STATE_FILE: Final = re.compile(r"(\d+)-(\d+)-[0-9a-f]{16}")
_TRY: Final = re.compile(r"try-([0-9a-f]{32})")
_NAME_MAX: Final = 180
_SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}


def absolute(location: str) -> str:
    """The canonical form of a place: an absolute path, or a URL, without a slash at the end.

    ``file:`` URLs become paths; relative paths are taken from the current folder.
    """
    if is_local(location):
        return str(Path(_local_path(location)).absolute()).rstrip("/") or "/"
    scheme, _, rest = location.partition(":")
    return f"{scheme.lower()}:{rest.rstrip('/')}"


def is_relative(location: str) -> bool:
    """True for a path that is taken from the current folder."""
    return is_local(location) and not Path(_local_path(location)).is_absolute()


def is_local(location: str) -> bool:
    """True for a file or folder of this machine."""
    return _SCHEME.match(location) is None or scheme_of(location) == "file"


def scheme_of(location: str) -> str:
    """Scheme of a URL in lower case; ``file`` for a path."""
    return location.partition(":")[0].lower() if _SCHEME.match(location) else "file"


def _local_path(location: str) -> str:
    if scheme_of(location) == "file" and _SCHEME.match(location):
        return unquote(_FILE_URL.sub("", location))
    return location


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/"), *names])


def parent(location: str) -> str:
    return location.rstrip("/").rpartition("/")[0] or "/"


def name(location: str) -> str:
    return location.rstrip("/").rpartition("/")[2]


def job_folder(job: JobId) -> str:
    return job


def is_job_folder(folder: str) -> bool:
    return _JOB.fullmatch(name(folder)) is not None


def exclusive_folder(job: JobId, checkpoint: CheckpointId) -> str:
    return join(job_folder(job), exclusive_name(checkpoint))


def exclusive_name(checkpoint: CheckpointId) -> str:
    return f"chk-{checkpoint}"


def checkpoint_of(folder: str) -> CheckpointId | None:
    """Checkpoint of an `exclusive_folder`; None for any other folder."""
    found = _EXCLUSIVE.fullmatch(name(folder))
    return CheckpointId(int(found[1])) if found else None


def try_file(job: JobId) -> str:
    """Name of a file in an `exclusive_folder`: this job has tried to run its batch."""
    return f"try-{job}"


def try_of(file: str) -> JobId | None:
    """Job in the name of a `try_file`; None for any other file."""
    found = _TRY.fullmatch(name(file))
    return JobId(found[1]) if found else None


def within_root(snapshot: str) -> str:
    """A checkpoint's place in its checkpoint folder, ``<job id>/chk-<n>``, wherever that lies."""
    return join(name(parent(snapshot)), name(snapshot))


def folders_of(snapshot: str) -> tuple[str, ...]:
    """Folders of a snapshot's files: its own, and those shared within its job."""
    if checkpoint_of(snapshot) is None:
        return (snapshot,)
    job = parent(snapshot)
    return (snapshot, join(job, SHARED), join(job, TASK_OWNED))


def resolved(location: str) -> str:
    """A place as it is compared with others: without links and ``..`` on this machine. Blocking.

    Of a URL, one name stands for all schemes that mean the same files.
    """
    location = absolute(location)
    if is_local(location):
        return os.path.realpath(location)
    scheme, _, rest = location.partition(":")
    return f"{_SAME_SCHEMES.get(scheme, scheme)}:{rest}"


def is_below(place: str, folder: str) -> bool:
    """True if a file is in a folder or deeper, judged by names alone."""
    place, folder = absolute(place), absolute(folder)
    return place.startswith(f"{folder.rstrip('/')}/") and ".." not in place.split("/")


def shared_folder(job: JobId) -> str:
    return join(job_folder(job), SHARED)


def task_owned_folder(job: JobId) -> str:
    return join(job_folder(job), TASK_OWNED)


def staged_folder(job: JobId) -> str:
    return join(job_folder(job), STAGED)


def savepoint_folder(job: JobId, bits64: int) -> str:
    """Name of a new savepoint, below its target folder. bits64: 64 random bits."""
    return f"savepoint-{job[:6]}-{bits64 & (2**48 - 1):012x}"


def is_savepoint_folder(folder: str) -> bool:
    return _SAVEPOINT.fullmatch(name(folder)) is not None


def state_file(epoch: Epoch, attempt: Attempt, bits64: int) -> str:
    """Unique name of a new file of state, which tells who wrote it. bits64: 64 random bits."""
    return f"{epoch}-{attempt}-{bits64:016x}"


def epoch_of(file: str) -> Epoch | None:
    """Epoch in the name of a `state_file`; None for any other file."""
    found = _STATE_FILE.fullmatch(name(file))
    return Epoch(int(found[1])) if found else None


def attempt_of(file: str) -> tuple[Epoch, Attempt] | None:
    """Epoch and attempt in the name of a `state_file`; None for any other file."""
    found = _STATE_FILE.fullmatch(name(file))
    return (Epoch(int(found[1])), Attempt(int(found[2]))) if found else None


def chain_folder(job_name: str) -> str:
    return chain_folder_of(quoted_name(job_name))


def chain_folder_of(quoted_job_name: str) -> str:
    return join(jobs_folder(), quoted_job_name)


def jobs_folder() -> str:
    return ".jobs"


def history_folder() -> str:
    return ".history"


def is_archive(file: str) -> bool:
    """True for the name of a file in which a job has left what it has last shown."""
    return _JOB.fullmatch(name(file)) is not None


def quoted_job_names(files: Iterable[str]) -> list[str]:
    """Jobs with files among these, below `jobs_folder`, each as of `quoted_name`."""
    return list(dict.fromkeys(file.split("/")[1] for file in files if "/" in file))


def door_file(job_name: str, epoch: Epoch) -> str:
    return join(doors_folder(job_name), f"{epoch:010d}")


def signs_by_job(files: Iterable[str]) -> dict[str, str]:
    """Newest of the door files among these, below `jobs_folder`, by the quoted name of its job."""
    found: dict[str, str] = {}
    for file in sorted(files):
        parts = file.split("/")
        if len(parts) == 4 and parts[2] == _DOORS:
            found[parts[1]] = file
    return found


def doors_folder(job_name: str) -> str:
    return join(chain_folder(job_name), _DOORS)


def quoted_name(text: str) -> str:
    """File name for any text: readable, safe on every file system, different for each text."""
    quoted = quote(text, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _NAME_MAX:
        return quoted or "%"
    return f"{quoted[:_NAME_MAX]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def shown_name(quoted: str) -> str:
    """Text of a `quoted_name`; of a very long one its beginning, and digits that tell it apart."""
    return unquote(quoted, errors="ignore")
