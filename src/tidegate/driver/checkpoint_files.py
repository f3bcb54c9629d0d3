"""The files of a job's checkpoints and savepoints, as its driver makes and deletes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from google_crc32c import value as crc32c

from flinkformat.frozen import frozen
from tidegate.checkpoint.provenance import encoded, provenance_of
from tidegate.errors import ConfigError, StorageFailed
from tidegate.ha.patience import told
from tidegate.model.descriptors import as_ours
from tidegate.storage.secret_file import signing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import structlog

    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.checkpoint.coordinator.commands import DiscardCheckpoint, PrepareLocation
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Attempt, CheckpointId, Epoch
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.storage.state_files import StateFiles

T = TypeVar("T")


@frozen
class Written:
    """What was written. metadata: size and crc32c of that file. files: sizes of others, by path."""

    pointer: str
    metadata: tuple[int, int]
    files: Mapping[str, int]


class CheckpointFiles:
    """Writes on the pool what makes a checkpoint durable, and deletes what is not needed any more.

    epoch: of this run, whose own files are never swept.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        settings: CheckpointSettings,
        epoch: Epoch,
        chance: Chance,
        run_blocking: RunBlocking,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._epoch = epoch
        self._chance = chance
        self._run_blocking = run_blocking
        self._log = log

    async def prepare(self, command: PrepareLocation) -> str:
        """Makes the folder of a checkpoint or savepoint. Raises ConfigError, StorageFailed."""

        def prepare() -> str:
            if not command.savepoint:
                return self._storage.initialize_location(command.checkpoint)
            target = command.target or self._settings.savepoint_directory
            if target is None:
                raise ConfigError(
                    "a savepoint needs a directory and there is no default",
                    where="execution.checkpointing.savepoint-dir",
                    remedy="Name one with the request, or set this option.",
                )
            return self._storage.initialize_savepoint_location(target, self._chance.bits64())

        where = command.target or self._settings.directory or ""
        return await self._told(prepare, f"make the folder of {command.checkpoint}", where)

    async def write(self, metadata: CheckpointMetadata, location: str) -> Written:
        """Calls `write_snapshot` on the pool."""
        return await self._told(
            lambda: write_snapshot(self._storage, metadata, location), "write _metadata", location
        )

    async def _told(self, call: Callable[[], T], what: str, where: str) -> T:
        """A call on the pool that is told of while it does not return."""
        answer = asyncio.ensure_future(self._run_blocking(call))
        await told(answer, what, where, self._log)
        return answer.result()

    async def discard(self, command: DiscardCheckpoint) -> None:
        location, files = command.location, command.files
        if location is None:
            await self.delete(files)
        else:
            await self._delete(lambda: self._storage.files.discard(location, files))

    async def delete(self, files: Sequence[str]) -> None:
        await self._delete(lambda: self._storage.files.delete_files(files))

    async def read(self, look: Callable[[StateFiles], T]) -> T:
        return await self._run_blocking(lambda: look(self._storage.files))

    async def sweep_shared(self, below: Attempt, used: Collection[str]) -> None:
        """Deletes shared files that former attempts have written and no kept checkpoint names."""
        kept = frozenset(used)
        await self._delete(lambda: self._storage.sweep_shared(self._epoch, below, used=kept))

    async def _delete(self, delete: Callable[[], object]) -> None:
        """What cannot be deleted is an orphan for a later sweep, no failure."""
        try:
            await self._run_blocking(delete)
        except Exception as error:
            ours = as_ours(error, StorageFailed)
            self._log.warning("files could not be deleted", error=ours.what, where=ours.where)

    async def sweep(
        self, epoch: Epoch, next_id: CheckpointId, completed: Sequence[CompletedCheckpoint]
    ) -> None:
        """Deletes what earlier runs have left: a driver that died, slots that were given up.

        epoch, next_id: the first that are no earlier run's. completed: checkpoints that are kept.
        """
        kept = {one.checkpoint for one in completed}
        used = {path for one in completed for path in one.paths()}
        try:
            await self._run_blocking(
                lambda: self._storage.sweep(epoch, next_id, kept=kept, used=used)
            )
        except StorageFailed as error:
            self._log.warning(
                "files that an earlier run has left could not be deleted", error=str(error)
            )


def write_snapshot(
    storage: CheckpointStorage, metadata: CheckpointMetadata, location: str
) -> Written:
    """Writes ``_metadata``; a savepoint has to be readable here before it counts.

    Raises StorageFailed.
    """
    data = encoded(metadata, signing_key(storage.key_file))
    pointer = storage.files.write_metadata(location, data)
    provenance = provenance_of(metadata)
    checksums = {} if provenance is None else provenance.checksums
    files = {path: file.size for path, file in checksums.items()}
    written = Written(pointer, (len(data), crc32c(data)), files)
    if metadata.properties is not None and metadata.properties.is_savepoint:
        storage.files.check_snapshot(pointer, written.metadata, files)
    return written
