"""Messages of a demonstration's driver to the process that watches it: a JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


class News(msgspec.Struct, frozen=True, tag=True):
    """Something that happened to the job. at_ms: wall clock."""

    at_ms: int


class SlotUp(News, frozen=True, tag=True):
    """A slot has joined the job."""

    slot: str
    host: str
    pid: int


class SlotGone(News, frozen=True, tag=True):
    """A slot is part of the job no more."""

    slot: str
    pid: int


class StatusChanged(News, frozen=True, tag=True):
    """The job has entered a status, one of Flink's."""

    status: str


class AllRunning(News, frozen=True, tag=True):
    """The last subtask runs: records flow. A job is RUNNING as soon as it is being deployed."""


class JobRestored(News, frozen=True, tag=True):
    """The job goes on from this checkpoint."""

    checkpoint: int


class CheckpointBegun(News, frozen=True, tag=True):
    """A checkpoint is under way."""

    checkpoint: int


class CheckpointCompleted(News, frozen=True, tag=True):
    """A checkpoint is durable. bytes_written: new bytes; state_bytes: all that it refers to."""

    checkpoint: int
    duration_ms: int
    bytes_written: int
    state_bytes: int


class CheckpointFailed(News, frozen=True, tag=True):
    """A checkpoint was given up."""

    checkpoint: int
    failure: str


class Progress(News, frozen=True, tag=True):
    """Flights read by the subtasks that run now, since they were deployed.

    watermark_ms: how far event time has come in all of the job; None before it is known.
    """

    rows: int
    watermark_ms: int | None = None


class Failure(News, frozen=True, tag=True):
    """Something failed, and the job is being restored. task: where, "" for the job."""

    error: str
    task: str


class Ended(News, frozen=True, tag=True):
    """The job is over. status: FINISHED, FAILED or CANCELED."""

    status: str


class Broken(News, frozen=True, tag=True):
    """The driver ends with an error; its parts as in ``TidegateError``.

    text: all that it says. by_user: the caller can put it right.
    """

    what: str
    where: str
    remedy: str
    text: str
    by_user: bool


AnyNews = (
    SlotUp
    | SlotGone
    | StatusChanged
    | AllRunning
    | JobRestored
    | CheckpointBegun
    | CheckpointCompleted
    | CheckpointFailed
    | Progress
    | Failure
    | Ended
    | Broken
)

_DECODER: Final[msgspec.json.Decoder[AnyNews]] = msgspec.json.Decoder(AnyNews)


def to_line(news: News) -> bytes:
    """One line, its end included."""
    return msgspec.json.encode(news) + b"\n"


def from_lines(lines: BinaryIO) -> Iterator[AnyNews]:
    """The news as they come in, until the other side ends. Half a last line is nobody's."""
    for line in lines:
        if line.endswith(b"\n"):
            yield _DECODER.decode(line)
