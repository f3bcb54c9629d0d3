"""What a job starts from: its own checkpoints, else the snapshot that was named.

A job goes on from its newest checkpoint or not at all. Once its pointer stands, sinks may have
committed what came up to it, and nobody can know whether they have: from an older one they would
write that again. So where the newest is damaged the job is refused, and told what can be done. An
older one that is damaged is only given up, with a warning: nothing is restored from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from tidegate.checkpoint import metadata
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.errors import FileMissing, FormatError, RestoreRefused, TidegateError
from tidegate.model.control import JobStatus
from tidegate.model.snapshots import CheckpointProperties
from tidegate.storage.checkpoints import resolve_relative
from tidegate.storage.paths import METADATA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import structlog

    from tidegate.ha.chain import Pointer
    from tidegate.ha.leadership import Leadership
    from tidegate.model.settings import JobSettings
    from tidegate.storage.checkpoints import CheckpointStorage

T = TypeVar("T")

LATEST: Final = "latest"
"""Restore path that means: go on with the last run of the job of this name."""

DAMAGED: Final = (RestoreRefused, FormatError, FileMissing)
"""What is wrong for good; a store that does not answer is another matter, and worth a new try."""

_NAMED_MAX: Final = 5


class StartReader:
    """Reads what one job starts from. run_blocking: runs off the loop."""

    def __init__(
        self,
        settings: JobSettings,
        storage: CheckpointStorage,
        leadership: Leadership,
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        new_id: Callable[[], str],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._leadership = leadership
        self._run_blocking = run_blocking
        self._new_id = new_id
        self._log = log
        self.damaged: tuple[Pointer, ...] = ()

    async def read(self) -> list[CompletedCheckpoint]:
        """Oldest first; none where the job starts empty. ``damaged`` are those given up.

        Raises RestoreRefused, FormatError or StorageFailed where what it has to start from cannot
        be read.
        """
        pointers, path = self._leadership.completed, self._settings.restore.path
        if pointers:
            found = await self._own(pointers)
            newest = found[-1]
            self._log.info(
                "starting from checkpoint",
                path=newest.pointer,
                checkpoint=newest.checkpoint,
                retained=[one.checkpoint for one in found],
            )
            if path not in (None, LATEST):
                self._log.info("the job's own checkpoint counts, not the one named", named=path)
        elif path in (None, LATEST) or self._leadership.status is not JobStatus.RUNNING:
            return []
        else:
            newest = await self._named(path)
            found = [newest]
        self._log.info("reset checkpoint id", next_id=self._leadership.next_id)
        return found

    async def _own(self, pointers: Sequence[Pointer]) -> list[CompletedCheckpoint]:
        found: list[CompletedCheckpoint] = []
        for pointer in pointers[:-1]:
            try:
                found.append(await self._read_own(pointer))
            except DAMAGED as error:
                self.damaged = (*self.damaged, pointer)
                self._log.warning(
                    "an older checkpoint is damaged and given up; nothing is restored from it, "
                    "and what is left of it stays until the job ends",
                    checkpoint=pointer.checkpoint,
                    path=pointer.location,
                    error=str(error),
                )
        try:
            return [*found, await self._read_own(pointers[-1])]
        except DAMAGED as error:
            raise self._refused(pointers[-1], error, found) from error

    async def _read_own(self, pointer: Pointer) -> CompletedCheckpoint:
        read = await self._read(pointer.location)
        # What lies elsewhere is a snapshot that the job was started from, or stopped with.
        ours = read.location == self._storage.location(pointer.checkpoint)
        retention = self._settings.checkpoints.retention
        properties = (
            CheckpointProperties.for_checkpoint(retention)
            if ours
            else CheckpointProperties.for_unclaimed_snapshot()
        )
        return replace(read, properties=properties)

    async def _named(self, path: str) -> CompletedCheckpoint:
        """The snapshot that was named, which from now on is the job's newest one."""
        read = await self._read(path)
        self._log.info("starting from savepoint", path=read.pointer, checkpoint=read.checkpoint)
        # A driver that dies before the first checkpoint is followed by one that starts from it.
        await self._leadership.add(read.checkpoint, read.pointer)
        return replace(read, properties=CheckpointProperties.for_unclaimed_snapshot())

    async def _read(self, pointer: str) -> CompletedCheckpoint:
        def read() -> CompletedCheckpoint:
            file = self._storage.read_metadata(pointer)
            try:
                decoded = metadata.decode(file.data, self._new_id)
            except FormatError as error:
                error.where = ", ".join(filter(None, [f"{file.directory}/{METADATA}", error.where]))
                error.remedy = error.remedy or "Put the file back, or name another snapshot."
                raise
            decoded = resolve_relative(decoded, file.directory)
            completed = CompletedCheckpoint(
                decoded.checkpoint_id,
                file.directory,
                file.directory,
                decoded,
                decoded.properties or CheckpointProperties.for_unclaimed_snapshot(),
            )
            self._check_files(completed)
            return completed

        return cast("CompletedCheckpoint", await self._run_blocking(read))

    def _check_files(self, completed: CompletedCheckpoint) -> None:
        """All files of state are there; so a lost one is told before anything has been begun."""
        missing = self._storage.missing(completed.paths())
        if missing:
            shown = ", ".join(missing[:_NAMED_MAX]) + (" …" if len(missing) > _NAMED_MAX else "")
            raise RestoreRefused(
                f"Checkpoint {completed.checkpoint} lacks {len(missing)} of its files of state: "
                f"{shown}",
                where=completed.pointer,
                remedy="Put the files back, or start from another checkpoint.",
            )

    def _refused(
        self, newest: Pointer, error: TidegateError, older: Sequence[CompletedCheckpoint]
    ) -> RestoreRefused:
        named = "execution.state-recovery.path"
        if older:
            anew = f"start it from {older[-1].pointer} with {named}"
        else:
            anew = "start it without a checkpoint"
        if self._settings.zookeeper is not None:
            anew += ", under another high-availability.cluster-id"
        return RestoreRefused(
            f"The job's newest checkpoint, {newest.checkpoint}, cannot be read: {error.what}",
            where=error.where,
            remedy="Put back what is missing and start again. An older checkpoint is not taken in "
            "its place: sinks may have committed what came up to this one, and would write it "
            f"again. Where that can be borne, {anew}.",
        )
