"""A subtask's share of checkpoints in a test: real storage, and the driver's registry."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from flinkformat.handles import IncrementalRemoteKeyedStateHandle
from flinkformat.snapshots import SharingFilesStrategy, SubtaskState
from flinkformat.state_streams import private_paths
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.model.elements import Barrier, CheckpointOptions, SnapshotKind
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.checkpoints import (
    CheckpointStorage,
)
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.reading import StateReader
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.storage.places import Place

JOB = JobId("0123456789abcdef0123456789abcdef")
EXECUTION = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
SETTINGS = CheckpointSettings(
    storage="filesystem", directory="memory:/checkpoints", inline_threshold_bytes=16
)


class Driver:
    """The storage of a job, and what its driver keeps of shared files."""

    def __init__(
        self,
        settings: CheckpointSettings = SETTINGS,
        stores: Stores | None = None,
        world: MemoryFiles | None = None,
    ) -> None:
        self.world = world or MemoryFiles()
        stores = stores or Stores(self.world)
        self.storage: CheckpointStorage = CheckpointStorage(JOB, settings, stores)
        self.registry = SharedStateRegistry()
        self.checksums: dict[str, tuple[int, int]] = {}
        self._draw = random.Random(7).getrandbits

    def shared_place(self, execution: ExecutionId, sharing: SharingFilesStrategy) -> Place:
        """Where an attempt writes what is of no checkpoint."""
        return self.storage.shared_place(execution, lambda: self._draw(64), sharing)

    def place(
        self,
        checkpoint: int,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        target: str | None = None,
        execution: ExecutionId = EXECUTION,
        storage: CheckpointStorage | None = None,
    ) -> Place:
        options = CheckpointOptions(kind=kind, target=target)
        return (storage or self.storage).place(
            Barrier(CheckpointId(checkpoint), 0, options),
            execution,
            lambda: self._draw(64),
            merged=True,
        )

    def acknowledged(
        self, handle: IncrementalRemoteKeyedStateHandle, place: Place
    ) -> IncrementalRemoteKeyedStateHandle:
        """The handle without placeholders, as it comes to stand in the metadata."""
        place.close()
        self.checksums.update(place.checksums)
        state = SubtaskState(managed_keyed=handle)
        known = self.registry.register_state(
            state, CheckpointId(handle.checkpoint_id), place.checksums
        )
        assert isinstance(known.managed_keyed, IncrementalRemoteKeyedStateHandle)
        return known.managed_keyed

    def subsume(self, handle: IncrementalRemoteKeyedStateHandle) -> None:
        """A newer checkpoint is complete: delete what this one had for itself, and shared."""
        self.storage.files.delete_files(private_paths(SubtaskState(managed_keyed=handle)))
        lowest = CheckpointId(handle.checkpoint_id + 1)
        self.storage.files.delete_files(self.registry.release_below(lowest))

    def reader(self) -> StateReader:
        return StateReader(self.storage.files, self.checksums).at("operator 'counts', checkpoint 1")

    @property
    def files(self) -> set[str]:
        return set(self.world.files)


def merging(settings: CheckpointSettings = SETTINGS) -> CheckpointSettings:
    return replace(settings, merged_file_max_bytes=1 << 20)


def fill(folder: Path, **files: bytes) -> Path:
    """A folder as a database leaves it: ``_1`` is 000001.sst, any other name a private file."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        named = f"{int(name[1:]):06}.sst" if name.startswith("_") else name
        (folder / named).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
