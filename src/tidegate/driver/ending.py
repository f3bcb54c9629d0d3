"""The last phase of a job: its files are put in order, and people are told what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.driver.starting.restore import newest_whole
from tidegate.driver.telling.report import fate_of_checkpoints, fate_of_refused
from tidegate.errors import JobCanceled, JobFailed, JobSuspended
from tidegate.jobmaster.commands import JobOver
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch

if TYPE_CHECKING:
    import structlog

    from tidegate.checkpoint.completed import CompletedCheckpoints
    from tidegate.driver.checkpoint_files import CheckpointFiles
    from tidegate.driver.inbox import Inbox
    from tidegate.driver.starting.staging import Staging
    from tidegate.ha.leadership import Leadership
    from tidegate.model.settings import CheckpointSettings

SETTLE_TIMEOUT_S: Final = 30.0
"""How long a job that is over waits for its files to be in order."""


class Ending:
    """Ends one run of a job. checkpoints: those that are kept."""

    def __init__(
        self,
        leadership: Leadership,
        files: CheckpointFiles,
        checkpoints: CompletedCheckpoints,
        staging: Staging,
        settings: CheckpointSettings,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._leadership = leadership
        self._files = files
        self._checkpoints = checkpoints
        self._staging = staging
        self._settings = settings
        self._log = log

    async def conclude(self, inbox: Inbox, hint: str) -> None:
        """Waits for what was asked for at the end, sweeps, and says so in the job's records.

        hint: what may be the matter, where slots were missing. Raises the fault of our own that
        has ended the job, if that was one.
        """
        self._staging.stop()
        # After a fault of our own nothing is deleted: what the machine says may be wrong.
        if inbox.crash is None:
            try:
                async with asyncio.timeout(SETTLE_TIMEOUT_S):
                    await inbox.settle()
            except TimeoutError:
                self._log.warning(
                    "files of the ended job could not be cleaned up in time",
                    limit_s=SETTLE_TIMEOUT_S,
                )
            await self._sweep(inbox.ended)
        if inbox.crash is not None:
            raise inbox.crash
        assert inbox.ended is not None, "a job that is over without a fault has ended"
        await self._tell_fate(inbox.ended, hint)
        # Behind everything else: until then whoever finds the job takes its driver for a dead one.
        if self._leadership.status is not JobStatus.RUNNING:
            await self._leadership.conclude()

    async def conclude_again(self) -> JobOver:
        """An earlier driver died over the job's end: tidies up, and says how the job had ended."""
        status = self._leadership.status
        self._log.warning(
            "the job has already ended and does not run again; start it once more for a new run",
            status=status.value,
        )
        error = None
        if status is JobStatus.FAILED:
            error = JobFailed("the job has failed before; the log of its driver says why")
        elif status is JobStatus.CANCELED:
            error = JobCanceled("the job was canceled before")
        ended = JobOver(status, error)
        await self._sweep(ended)
        await self._leadership.conclude()
        return ended

    async def _sweep(self, ended: JobOver | None) -> None:
        """Once nobody goes on with the job, only what its kept checkpoints name is of use."""
        retained = self._checkpoints.retained
        pointers = {pointer.checkpoint for pointer in self._leadership.completed}
        known = not (self._leadership.is_lost or self._leadership.in_doubt)
        over = ended is not None and ended.status.is_terminal and known
        # A snapshot that the job started from is kept, though no pointer of this job names it. A
        # pointer to one that could not be read stands, and nobody knows which files it needs.
        if over and pointers <= {one.checkpoint for one in retained}:
            none_yet, none_earlier = self._leadership.next_id, Epoch(self._leadership.epoch + 1)
            await self._files.sweep(none_earlier, CheckpointId(none_yet), retained)
            if self._settings.directory is None or not retained:
                await self._staging.remove()

    async def _tell_fate(self, ended: JobOver, hint: str) -> None:
        """Adds the fate of the job's checkpoints to the report of its end."""
        error, kept = ended.error, self._checkpoints
        if isinstance(error, JobSuspended) and error.refused is not None:
            whole = await self._files.read(lambda files: newest_whole(files, kept.retained))
            fate = fate_of_refused(kept, error.refused, whole)
        else:
            deposed = self._leadership.is_lost
            fate = fate_of_checkpoints(ended.status, kept, self._settings, deposed=deposed)
        if error is None:
            self._log.info("the job's checkpoints at its end", fate=fate)
        else:
            remedy = f"{hint}. {error.remedy}".lstrip(". ") if hint else error.remedy
            error.remedy = " ".join(filter(None, (remedy, fate)))
