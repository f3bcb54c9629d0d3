"""Describes which checkpoints a job left, for the reader of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.model.settings import CheckpointSettings

RETENTION: Final = "execution.checkpointing.externalized-checkpoint-retention"


def fate_of_checkpoints(
    status: JobStatus,
    checkpoints: CompletedCheckpoints,
    settings: CheckpointSettings,
    *,
    deposed: bool,
) -> str:
    """Which are kept, which were deleted and by which option; "" where there never were any.

    checkpoints: as the end of the job has left them. deposed: whether another driver has the job.
    """
    kept, dropped = checkpoints.retained, checkpoints.dropped
    if deposed:
        return "Its checkpoints are the other driver's now."
    if not (kept or dropped):
        return "It had completed no checkpoint yet." if settings.periodic else ""
    if settings.directory is None and all(each.ours for each in kept):
        return (
            "Its checkpoints were in the driver's memory and are gone with it; "
            "execution.checkpointing.dir keeps them."
        )
    told: list[str] = []
    if dropped:
        why = "a finished job needs none" if status is JobStatus.FINISHED else _option(settings)
        told.append(f"{_named(dropped)} {_was(dropped)} deleted ({why}).")
    if kept and checkpoints.damaged and checkpoints.damaged[-1] > kept[-1].checkpoint:
        told.append(f"{_kept(kept)}, the newest in {kept[-1].pointer}.{_damaged(checkpoints)}")
    elif kept and not (dropped and dropped[-1].checkpoint > kept[-1].checkpoint):
        told.append(f"{_kept(kept)}, the newest in {kept[-1].pointer}: go on with '--from latest'.")
    return " ".join(told)


def fate_of_refused(
    checkpoints: CompletedCheckpoints, refused: int, whole: CompletedCheckpoint | None
) -> str:
    """Text about snapshots to start from, where checkpoint ``refused`` could not be restored.

    whole: the newest with all its files, as they were written; None if there is none.
    """
    kept = f"Nothing is deleted. {_kept(checkpoints.retained)}.{_damaged(checkpoints)}"
    if whole is None:
        return f"{kept} None of them is whole."
    if whole.checkpoint == refused:
        return f"{kept} The files of {refused} are whole: go on with '--from latest' once it fits."
    return (
        f"{kept} The newest whole one is {whole.checkpoint}: start from it with '--from "
        f"{whole.pointer}', or go back to it with tidegate.restore.fall-back: true. What sinks "
        "have committed since is written again then."
    )


def _option(settings: CheckpointSettings) -> str:
    return f"{RETENTION}: {settings.retention.value}"


def _named(checkpoints: Sequence[CompletedCheckpoint]) -> str:
    kind = "Savepoint" if all(each.is_savepoint for each in checkpoints) else "Checkpoint"
    numbers = ", ".join(str(each.checkpoint) for each in checkpoints)
    return f"{kind}{'' if len(checkpoints) == 1 else 's'} {numbers}"


def _kept(checkpoints: Sequence[CompletedCheckpoint]) -> str:
    return f"{_named(checkpoints)} {'is' if len(checkpoints) == 1 else 'are'} kept"


def _damaged(checkpoints: CompletedCheckpoints) -> str:
    if not checkpoints.damaged:
        return ""
    numbers = ", ".join(map(str, checkpoints.damaged))
    one = len(checkpoints.damaged) == 1
    return (
        f" Checkpoint{'' if one else 's'} {numbers} {'is' if one else 'are'} damaged and kept too: "
        "put back what is missing and go on with '--from latest', or set "
        "tidegate.restore.fall-back again."
    )


def _was(checkpoints: Sequence[CompletedCheckpoint]) -> str:
    return "was" if len(checkpoints) == 1 else "were"
