"""Finds the snapshot that a job starts from: its own newest checkpoint, else the named one.

A job goes on from its newest checkpoint or not at all. Once its pointer stands, sinks may have
committed what came up to it, and nobody can know whether they have: from an older one they would
write that again. So where the newest is damaged the job is refused, and told what can be done. An
older one that is damaged is only given up, with a warning: nothing is restored from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flinkformat import metadata
from flinkformat.handles import FileStateHandle
from flinkformat.snapshots import FINISHED, CheckpointProperties
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.checkpoint.provenance import check_seal, checksums_of, name_of, provenance_of
from tidegate.errors import FileMissing, FormatError, RestoreRefused, StorageFailed, TidegateError
from tidegate.ha.chain import Pointer
from tidegate.model.settings import ClaimMode
from tidegate.storage import paths
from tidegate.storage.secret_file import signing_key
from tidegate.storage.state_files import resolve_relative
from tidegate.storage.store import Checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import structlog

    from flinkformat.snapshots import OperatorState
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.ha.leadership import Leadership
    from tidegate.model.ids import JobId, OperatorId
    from tidegate.model.settings import JobSettings
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.storage.state_files import StateFiles

LATEST: Final = "latest"
"""Restore path that means: go on with the last run of the job of this name."""

DAMAGED: Final = (RestoreRefused, FormatError, FileMissing)
"""What is wrong for good; a store that does not answer is another matter, and worth a new try."""

_NAMED_MAX: Final = 5


class StartReader:
    """Reads what one job starts from. storage: the job's. run_blocking: runs off the loop."""

    def __init__(
        self,
        settings: JobSettings,
        storage: Callable[[JobId], CheckpointStorage],
        run_blocking: RunBlocking,
        new_id: Callable[[], str],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._run_blocking = run_blocking
        self._new_id = new_id
        self._log = log
        self._named: CompletedCheckpoint | None = None
        self.damaged: tuple[Pointer, ...] = ()

    @property
    def names_snapshot(self) -> bool:
        """True if a snapshot is named for a job that has no checkpoint of its own."""
        return self._settings.restore.path not in (None, LATEST)

    async def named(self, job: JobId) -> Pointer:
        """Read the snapshot that is named; from now on it is the job's newest one.

        Raises RestoreRefused, FormatError or StorageFailed if it cannot be read.
        """
        path, mode = self._settings.restore.path, self._settings.restore.claim_mode
        assert path is not None and self.names_snapshot, "no snapshot is named"
        read = await self._read(self._storage(job), path)
        self._log.info(
            "starting from savepoint",
            path=read.pointer,
            checkpoint=read.checkpoint,
            claim_mode=mode.value,
        )
        claimed = mode is ClaimMode.CLAIM
        ours = paths.folders_of(read.pointer) if claimed else ()
        self._named = await self._run_blocking(lambda: self._owned(read, ours=ours))
        return Pointer(read.checkpoint, read.pointer, claimed)

    async def read(self, leadership: Leadership) -> list[CompletedCheckpoint]:
        """Oldest first; none where the job starts empty. ``damaged`` are those given up.

        Raises RestoreRefused, FormatError or StorageFailed if what it has to start from cannot
        be read.
        """
        pointers = leadership.completed
        if not pointers:
            return []
        if self._named is not None:
            found = [self._named]
        else:
            found = await self._own(self._storage(leadership.job), pointers, leadership.claimed)
            newest = found[-1]
            self._log.info(
                "starting from checkpoint",
                path=newest.pointer,
                checkpoint=newest.checkpoint,
                retained=[one.checkpoint for one in found],
            )
            if self.names_snapshot:
                named = self._settings.restore.path
                self._log.info("the job's own checkpoint counts, not the one named", named=named)
        self._log.info("reset checkpoint id", next_id=leadership.next_id)
        return found

    async def keyed_names(
        self, job: JobId, states: Sequence[OperatorState]
    ) -> dict[OperatorId, list[str]]:
        """The names of these operators' keyed states, as far as they can be read; for errors."""
        files = self._storage(job).files

        def read() -> dict[OperatorId, list[str]]:
            return {state.operator_id: _keyed_names(state, files) for state in states}

        return await self._run_blocking(read) if states else {}

    async def _own(
        self, storage: CheckpointStorage, pointers: Sequence[Pointer], claimed: Sequence[str]
    ) -> list[CompletedCheckpoint]:
        found: list[CompletedCheckpoint] = []
        for pointer in pointers[:-1]:
            try:
                found.append(await self._read_own(storage, pointer, claimed))
            except DAMAGED as error:
                self.damaged = (*self.damaged, pointer)
                self._log.warning(
                    "an older checkpoint is damaged; nothing is restored from it, and its "
                    "remains stay until the job ends",
                    checkpoint=pointer.checkpoint,
                    path=pointer.location,
                    error=str(error),
                )
        try:
            return [*found, await self._read_own(storage, pointers[-1], claimed)]
        except DAMAGED as error:
            if not (found and self._settings.restore.fall_back):
                raise self._refused(pointers[-1], error, found) from error
            self.damaged = (*self.damaged, pointers[-1])
            self._log.warning(
                "the newest checkpoint is damaged, and the job falls back to an older one: output "
                "that sinks have committed since is written again",
                damaged=pointers[-1].checkpoint,
                checkpoint=found[-1].checkpoint,
                error=str(error),
            )
            return found

    async def _read_own(
        self, storage: CheckpointStorage, pointer: Pointer, claimed: Sequence[str]
    ) -> CompletedCheckpoint:
        read = await self._read(storage, pointer.location)
        location = storage.location(pointer.checkpoint)
        taken = [folder for snapshot in claimed for folder in paths.folders_of(snapshot)]

        def owned() -> CompletedCheckpoint:
            # What lies elsewhere is a snapshot that the job was started from, or stopped with.
            own = paths.resolved(read.pointer) == paths.resolved(location)
            ours = (paths.parent(location), *taken) if own or pointer.claimed else ()
            return self._owned(read, ours=ours)

        return await self._run_blocking(owned)

    def _owned(self, read: CompletedCheckpoint, *, ours: Collection[str]) -> CompletedCheckpoint:
        """The snapshot, to be deleted like the job's own checkpoints, or never. Blocking.

        ours: the folders that are the job's; none of a snapshot that stays its owner's. Files that
        it names elsewhere are read, but not deleted: a snapshot may name any file.
        """
        if not ours:
            return replace(read, properties=CheckpointProperties.for_unclaimed_snapshot())
        named = read.paths()
        inside = {folder: _is_inside(folder, ours) for folder in set(map(paths.parent, named))}
        foreign = (file for file in named if not inside[paths.parent(file)])
        properties = CheckpointProperties.for_checkpoint(self._settings.checkpoints.retention)
        return replace(read, properties=properties, foreign=frozenset(foreign))

    async def _read(self, storage: CheckpointStorage, pointer: str) -> CompletedCheckpoint:
        return await self._run_blocking(lambda: read_for_start(storage, pointer, self._new_id))

    def _refused(
        self, newest: Pointer, error: TidegateError, older: Sequence[CompletedCheckpoint]
    ) -> RestoreRefused:
        named = "execution.state-recovery.path"
        if older:
            anew = f"start it from {older[-1].pointer} with {named}, or with "
            anew += "tidegate.restore.fall-back: true"
        else:
            anew = "start it without a checkpoint"
        if self._settings.zookeeper is not None:
            anew += ", under another high-availability.cluster-id"
        return RestoreRefused(
            f"The job's newest checkpoint, {newest.checkpoint}, cannot be read: {error.what}",
            where=error.where,
            remedy="Put back what is missing and start again. An older checkpoint is not taken in "
            "its place: sinks may have committed what came up to this one, and would write it "
            f"again. If that is acceptable, {anew}.",
        )


def _is_inside(folder: str, ours: Collection[str]) -> bool:
    """True if a folder is one of these or below one, however they are spelled. Blocking."""
    if any(paths.is_below(paths.join(folder, paths.METADATA), each) for each in ours):
        return True
    place = paths.join(paths.resolved(folder), paths.METADATA)
    return any(paths.is_below(place, paths.resolved(each)) for each in ours)


def _keyed_names(state: OperatorState, files: StateFiles) -> list[str]:
    """Names of the first subtask with keyed state; empty if they can't be read."""
    from tidegate.state.format.streams import keyed_names  # that few drivers ever need

    for subtask in state.subtasks.values():
        if subtask is not FINISHED and subtask.managed_keyed is not None:
            try:
                return keyed_names(subtask.managed_keyed, files)
            except (FormatError, StorageFailed):
                return []
    return []


def read_for_start(
    storage: CheckpointStorage, pointer: str, new_id: Callable[[], str]
) -> CompletedCheckpoint:
    """A snapshot that a job can start from: it is ours, and its files are there. Blocking.

    new_id: as of `read_snapshot`. Raises what that and the checks raise.
    """
    completed = read_snapshot(storage.files, pointer, new_id, storage.key_file)
    check_own(completed)
    check_files(storage.files, completed)
    return completed


def read_snapshot(
    files: StateFiles, pointer: str, new_id: Callable[[], str], key_file: str | None
) -> CompletedCheckpoint:
    """Content of the ``_metadata`` that a pointer names; reads no other file. Blocking.

    new_id: names handles that have none. key_file: holds the key that has to have signed it; None
    where it need not be signed. Raises RestoreRefused if there is none, or one that is not
    signed so, FormatError for one that cannot be read, StorageFailed.
    """
    key = signing_key(key_file)
    file = files.read_metadata(pointer)
    with file.being_decoded():
        decoded = metadata.decode(file.data, new_id)
        checksums_of(decoded)  # whoever restores from it takes them for granted
        check_seal(file.data, decoded, key)
    decoded = resolve_relative(decoded, file.directory)
    return CompletedCheckpoint(
        decoded.checkpoint_id,
        file.directory,
        file.directory,
        decoded,
        decoded.properties or CheckpointProperties.for_unclaimed_snapshot(),
    )


def check_own(completed: CompletedCheckpoint) -> None:
    """The state is in our form, so far as the snapshot says who wrote it; raises RestoreRefused."""
    if provenance_of(completed.metadata) is None and completed.metadata.state_size:
        raise RestoreRefused(
            "The snapshot was written by Flink, whose state has a different format",
            where=completed.pointer,
            remedy="Make one of ours from it: tidegate migrate "
            f"{completed.pointer} TARGET, and start from TARGET.",
        )


def check_files(files: StateFiles, completed: CompletedCheckpoint) -> None:
    """All files of state are there; so a lost one is told before anything has been begun.

    Blocking. Raises RestoreRefused.
    """
    operators = completed.paths()
    missing = files.missing(operators)
    if missing:
        named = [f"{file} of {_name(operators[file])}" for file in missing[:_NAMED_MAX]]
        shown = ", ".join(named) + (" …" if len(missing) > _NAMED_MAX else "")
        raise RestoreRefused(
            f"Checkpoint {completed.checkpoint} lacks {len(missing)} of its files of state: "
            f"{shown}",
            where=completed.pointer,
            remedy="Put the files back, or start from another checkpoint.",
        )


def _name(operator: OperatorState) -> str:
    return f"operator '{operator.name or operator.uid or operator.operator_id.hex()}'"


_PART_BYTES: Final = 1 << 20


def newest_whole(
    files: StateFiles, checkpoints: Sequence[CompletedCheckpoint]
) -> CompletedCheckpoint | None:
    """The newest whose files are all there, with the bytes that were written. Blocking.

    checkpoints: oldest first. Reads every file of those that it looks at.
    """
    return next((each for each in reversed(checkpoints) if is_whole(files, each)), None)


def is_whole(files: StateFiles, checkpoint: CompletedCheckpoint) -> bool:
    """True if all files of a checkpoint exist as they were written. Blocking; reads them."""
    known = checksums_of(checkpoint.metadata)
    for path in checkpoint.paths():
        written = known.get(name_of(path))
        if files.signed and (written is None or not written.sha256):
            return False
        found = Checksum(sha256=written is not None and bool(written.sha256))
        try:
            with files.open_handle(FileStateHandle(path, 0)) as stream:
                while part := stream.read(_PART_BYTES):
                    found.add(part)
        except StorageFailed:
            return False
        if written is not None and written != found.file:
            return False
    return True
