"""Shared files of checkpoints: which there are, and which nothing needs any more.

An incremental checkpoint names files that an older one has written. Nobody counts references: each
file knows the last checkpoint that used it, and once every retained checkpoint is newer than that,
the file goes. So a lost message can make a file live longer, never shorter.

A file is registered when the acknowledgement that names it arrives, before anything else is decided
about that acknowledgement: a file of a checkpoint that is then given up is released, like any
other, once a later checkpoint is complete without it.

Source: checkpoint coordination §10.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from flinkformat.handles import (
    FileStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from flinkformat.snapshots import FINISHED, SharingFilesStrategy
from flinkformat.state_streams import file_of, files_of, replace_streams, shared_handles
from tidegate.checkpoint.provenance import checksums_of, name_of
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.snapshots import CheckpointMetadata, CheckpointProperties, SubtaskState
    from flinkformat.state_streams import Stream
    from tidegate.errors import CheckpointAborted
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId

_Keyed = TypeVar("_Keyed", bound="KeyedStateHandle")


@dataclass(slots=True)
class _Entry:
    handle: StreamStateHandle
    created_by: CheckpointId
    last_used_by: CheckpointId
    keeps_folder: bool
    checksum: FileChecksum | None


class SharedStateRegistry:
    """Every shared file of the job, with the checkpoints that made it and last used it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._foreign: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def register(
        self,
        key: str,
        handle: StreamStateHandle,
        checkpoint: CheckpointId,
        *,
        keeps_folder: bool = False,
        checksum: FileChecksum | None = None,
    ) -> StreamStateHandle:
        """Note that a checkpoint uses a shared file; the result stands for it from now on.

        key: logical name of the file. handle: a placeholder where the file was registered before.
        keeps_folder: the file lies in the folder of the checkpoint that made it, which must stay
        as long as it is used. Raises `CheckpointAborted` for a placeholder of an unknown file and
        for another file of a known name.
        """
        entry = self._entries.get(key)
        if entry is None:
            if isinstance(handle, PlaceholderStreamStateHandle):
                raise _refused(checkpoint, f"it names the shared file {key!r}, which nobody has")
            self._entries[key] = _Entry(handle, checkpoint, checkpoint, keeps_folder, checksum)
            return handle
        if not isinstance(handle, PlaceholderStreamStateHandle) and handle != entry.handle:
            raise _refused(checkpoint, f"it names another shared file {key!r} than the one known")
        # Acknowledgements of two checkpoints may cross: the newer one's use counts.
        entry.last_used_by = max(entry.last_used_by, checkpoint)
        entry.checksum = checksum or entry.checksum
        return entry.handle

    def register_state(
        self,
        state: SubtaskState,
        checkpoint: CheckpointId,
        checksums: dict[str, FileChecksum] | None = None,
    ) -> SubtaskState:
        """Note all shared files of a subtask's state; the same state without placeholders.

        checksums: of files that were written for it, by path.
        """
        note = _Note(self, checkpoint, (checksums or {}).get)
        return replace(
            state,
            managed_keyed=None if state.managed_keyed is None else note.keyed(state.managed_keyed),
            raw_keyed=None if state.raw_keyed is None else note.keyed(state.raw_keyed),
        )

    def register_late(self, state: SubtaskState, checkpoint: CheckpointId) -> None:
        """Note the files that came with a state that nobody will use, so that they are released.

        What it refers to may be gone by now, and is not looked for.
        """
        for handle in shared_handles(state):
            if not isinstance(handle, PlaceholderStreamStateHandle):
                self._entries.setdefault(
                    shared_key(handle), _Entry(handle, checkpoint, checkpoint, False, None)
                )

    def register_restored(
        self,
        metadata: CheckpointMetadata,
        properties: CheckpointProperties,
        foreign: frozenset[str] = frozenset(),
    ) -> None:
        """Note the shared files of a checkpoint that was there at the start.

        properties: those under which the job has it. foreign: files that may be used, and are never
        among those to delete. Files that are not ours to delete are left
        out: the next checkpoint is a full one, which uses none of them. Raises FormatError if
        what the metadata says of its files cannot be read.
        """
        if not properties.discard_subsumed:
            return
        self._foreign |= foreign
        checkpoint = metadata.checkpoint_id
        written = metadata.properties
        alone = written is not None and (
            written.snapshot_type.sharing is SharingFilesStrategy.NO_SHARING
        )
        known = checksums_of(metadata)
        note = _Note(self, checkpoint, lambda path: known.get(name_of(path)), keeps_folder=alone)
        for operator in metadata.operators:
            for state in operator.subtasks.values():
                if state is not FINISHED:
                    note.all_of(state)

    def release_below(self, lowest: CheckpointId | None) -> list[str]:
        """Forget files that no checkpoint from this one on has used; the paths to delete.

        lowest: the oldest retained checkpoint that is no savepoint; None if none is retained.
        """
        return self._release(
            key
            for key, entry in self._entries.items()
            if lowest is None or entry.last_used_by < lowest
        )

    def release_all_but(self, kept: Iterable[CheckpointMetadata]) -> list[str]:
        """Forget all files that these do not use, since no checkpoint follows them."""
        used = {
            shared_key(handle)
            for metadata in kept
            for operator in metadata.operators
            for state in operator.subtasks.values()
            if state is not FINISHED
            for handle in shared_handles(state)
        }
        return self._release(key for key in self._entries if key not in used)

    def _release(self, keys: Iterable[str]) -> list[str]:
        released = [self._entries.pop(key) for key in list(keys)]
        needed = {path for entry in self._entries.values() for path in files_of(entry.handle)}
        paths = dict.fromkeys(path for entry in released for path in files_of(entry.handle))
        deleted = [path for path in paths if path not in needed | self._foreign]
        assert not needed.intersection(deleted), "a file that is used stays"
        return deleted

    def paths(self) -> tuple[str, ...]:
        """All files that are noted, each once."""
        return tuple(
            dict.fromkeys(
                path for entry in self._entries.values() for path in files_of(entry.handle)
            )
        )

    def folders_in_use(self) -> frozenset[CheckpointId]:
        """Checkpoints whose folders hold a file that is still used."""
        return frozenset(entry.created_by for entry in self._entries.values() if entry.keeps_folder)

    def checksums(self, state: SubtaskState) -> dict[str, FileChecksum]:
        """Checksums of the shared files of a registered state, by path."""
        known: dict[str, FileChecksum] = {}
        for handle in shared_handles(state):
            entry = self._entries.get(shared_key(handle))
            if entry is not None and entry.checksum is not None:
                known.update(dict.fromkeys(files_of(handle), entry.checksum))
        return known


@dataclass(slots=True)
class _Note:
    """Walks through a state and registers what is shared in it."""

    registry: SharedStateRegistry
    checkpoint: CheckpointId
    checksum_of: Callable[[str], FileChecksum | None]
    keeps_folder: bool = False

    def all_of(self, state: SubtaskState) -> None:
        for keyed in (state.managed_keyed, state.raw_keyed):
            if keyed is not None:
                self.keyed(keyed)

    def keyed(self, handle: _Keyed) -> _Keyed:
        """The handle without placeholders."""
        return replace_streams(handle, self._stream)

    def _stream(self, stream: Stream) -> StreamStateHandle:
        handle = stream.handle
        if not stream.shared:
            return handle
        path = file_of(handle)
        return self.registry.register(
            shared_key(handle),
            _wherever(handle),
            self.checkpoint,
            keeps_folder=self.keeps_folder,
            checksum=None if path is None else self.checksum_of(path),
        )


def _wherever(handle: StreamStateHandle) -> StreamStateHandle:
    """The handle in a form valid in another folder's metadata."""
    match handle:
        case RelativeFileStateHandle(state_size=size, file_path=str(path)):
            return FileStateHandle(path, size)
        case _:
            return handle


def shared_key(handle: StreamStateHandle) -> str:
    """Logical name under which a shared file is registered."""
    if isinstance(handle, SegmentFileStateHandle):
        return f"{handle.logical_file_id}@{handle.start_position}"
    return handle.physical_id


def _refused(checkpoint: CheckpointId, why: str) -> CheckpointAborted:
    return FailureReason.CHECKPOINT_ASYNC_EXCEPTION.aborted(
        f"An acknowledgement of checkpoint {checkpoint} can't be used: {why}",
    )
