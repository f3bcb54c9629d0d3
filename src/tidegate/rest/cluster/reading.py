"""Archives of jobs, ours or of Flink, as answers by path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.errors import FormatError
from tidegate.model.control import JobStatus
from tidegate.typeinfo.decoders import json_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

OVERVIEW: Final = "/jobs/overview"
"""Path at which each archive has its job, as a list of one."""


class _Entry(msgspec.Struct, frozen=True):
    path: str
    json: str


class _Archive(msgspec.Struct, frozen=True):
    archive: list[_Entry]


def read_archive(data: bytes, where: str) -> Mapping[str, str]:
    """The answers of an archive as JSON, by path. Raises FormatError for bytes that are none."""
    try:
        found = json_decoder(_Archive).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(
            f"The archive of a job can't be read: {error}",
            where=where,
            remedy="Delete the file; the job's checkpoints do not need it.",
            expected="a JSON object with a list 'archive' of paths and their JSON",
        ) from error
    return {entry.path: entry.json for entry in found.archive}


def checked_overview(overview: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job as it stands in a list. Raises KeyError, TypeError, ValueError if it is none."""
    JobStatus(overview["state"])
    if not all(isinstance(overview[name], int) for name in _TIMES):
        raise TypeError(f"{', '.join(_TIMES)} are whole numbers")
    if not (isinstance(overview["jid"], str) and isinstance(overview["name"], str)):
        raise TypeError("a job has an id and a name")
    return overview


_TIMES: Final = ("start-time", "end-time", "duration")
