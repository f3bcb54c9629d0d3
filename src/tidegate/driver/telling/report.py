"""Reports at the ends of a job: on the run before it, on what it did, and on what it leaves."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.api.job import JobSummary
from tidegate.config.log import print_line, process_log
from tidegate.errors import StorageFailed
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    import structlog

    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.ha.chain import JobRecord
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.jobmaster.view import JobView
    from tidegate.model.ids import JobId
    from tidegate.model.settings import CheckpointSettings, JobSettings
    from tidegate.storage.checkpoints import CheckpointStorage


async def tell_of_former(
    former: JobRecord,
    storage: CheckpointStorage,
    starts_from: str | None,
    run_blocking: RunBlocking,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Warns of a run that could have been resumed, and of checkpoints that nobody uses.

    storage: of the former run. starts_from: the snapshot that is named; None where there is none.
    """
    try:
        kept, size = await run_blocking(storage.kept)
    except StorageFailed as error:
        log.warning("checkpoints of the earlier run could not be listed", error=str(error))
        kept, size = [], 0
    start = "the job starts from nothing"
    facts: dict[str, object] = {}
    if starts_from is not None:
        start, facts["starts_from"] = "the job starts from the snapshot that is named", starts_from
    if kept:
        facts |= {
            "kept_checkpoints": kept,
            "size_bytes": size,
            "removed_by": f"tidegate prune {storage.root}",
        }
    if former.completed and not former.status.is_terminal:
        log.warning(
            f"{start}, though its earlier run had not ended; '--from latest' would have "
            "resumed that run",
            newest_checkpoint=former.completed[-1].location,
            **facts,
        )
    elif kept:
        log.warning(f"{start}; its earlier run kept checkpoints", **facts)


def summary_of(view: JobView, runtime_ms: int) -> JobSummary:
    """Summary from the last view of a job. runtime_ms: from its submission."""
    checkpoints = view.checkpoints
    return JobSummary(
        view.name,
        view.status,
        runtime_ms,
        view.counts,
        checkpoints.counts.completed,
        checkpoints.counts.failed,
        view.restarts,
    )


def tell_end(job: JobId, summary: JobSummary, settings: JobSettings) -> None:
    """Say what a job did wherever its settings want it. Raises nothing: its result is still due."""
    if settings.summary:
        print_line(sys.stderr, str(summary))
    if settings.summary_file is not None:
        try:
            with Path(settings.summary_file).open("a", encoding="utf-8") as file:
                file.write(f"{_as_json(job, summary)}\n")
        except OSError as error:
            process_log().warning(
                "the summary of the job could not be written; set tidegate.job.summary-file to a "
                "file that can be",
                job=job,
                error=str(error),
            )


def _as_json(job: JobId, summary: JobSummary) -> str:
    return json.dumps({"id": job, **asdict(summary), "status": summary.status.value})


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
