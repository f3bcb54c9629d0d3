"""State on disk in a test: folders of their own, files in a dict, small caches."""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flinkformat.handles import (
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
    StreamStateHandle,
)
from flinkformat.snapshots import SharingFilesStrategy, SubtaskState
from tests.state.world import Subtask, restored
from tests.worlds.storage import FilesInDict
from tidegate.model.ids import JobId, SlotId
from tidegate.model.settings import RocksDBSettings, StateFileSettings
from tidegate.state.disk.files import LocalPlace
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.state.disk.store import RocksDBMemory
from tidegate.state.pending import PendingSnapshot
from tidegate.storage.places import CheckpointScope
from tidegate.storage.streams import CheckpointStateOutputStream

SMALL = RocksDBSettings(
    cache_entries=12, memory_bytes=4 << 20, write_buffer_bytes=1 << 20, threads=1
)
FILES = StateFileSettings(incremental=True, transfer_threads=1)


class Disk(FilesInDict):
    """Folders for key spaces; deleted by `close`. Files written to it are never lost."""

    sharing = SharingFilesStrategy.FORWARD_BACKWARD
    where = "a test's disk"

    def __init__(self, settings: RocksDBSettings = SMALL) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
        self.folders = LocalFolders(JobId("0" * 32), SlotId("slot"), [self.folder])
        self.memory = RocksDBMemory(settings)

    def close(self) -> None:
        self.folders.close(over=True)
        shutil.rmtree(self.folder)

    def local(self) -> LocalPlace:
        """Where one operator's key space may be."""
        number = next(self._numbers)
        backend = f"00000000-0000-0000-0000-{number:012d}"
        return LocalPlace(self.folders, backend, self.memory, FILES)

    # --- subtasks, as `world` makes them in memory ---

    def begun(self, parallelism: int) -> list[Subtask]:
        """New subtasks with nothing."""
        return [Subtask(index, parallelism, local=self.local()) for index in range(parallelism)]

    def uploaded(self, piece: PendingSnapshot) -> SubtaskState:
        """What a snapshot holds, as the driver keeps it."""
        return self.resolved(piece.upload(self))

    def gone_on(
        self, states: Sequence[SubtaskState], parallelism: int, **more: Any
    ) -> list[Subtask]:
        """New subtasks with what the old ones have put away."""
        return restored(states, parallelism, reader=self, local=self.local, **more)

    # --- where a snapshot is written ---

    def stream(self) -> CheckpointStateOutputStream:
        return CheckpointStateOutputStream(f"memory:/{self.new_name()}", None, buffer_max=1 << 40)

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        name, data = f"{scope.name}/{self.new_name()}", b"".join(parts)
        self.files[name] = data
        return FileStateHandle(name, len(data))

    def resolved(self, state: SubtaskState) -> SubtaskState:
        """A state as the driver keeps it: with files where it names those of other checkpoints."""
        keyed = state.managed_keyed
        if not isinstance(keyed, IncrementalRemoteKeyedStateHandle):
            return state
        files = tuple(
            HandleAndLocalPath(each.local_path, self._real(each.handle))
            for each in keyed.shared_state
        )
        return replace(state, managed_keyed=replace(keyed, shared_state=files))

    def _real(self, handle: StreamStateHandle) -> StreamStateHandle:
        if isinstance(handle, PlaceholderStreamStateHandle):
            return FileStateHandle(handle.physical_id, len(self.files[handle.physical_id]))
        return handle
