"""A job's checkpoint folders, with files that may be torn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import StorageFailed
from tidegate.model.ids import CheckpointId, JobId
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.storage.store import Writer
    from tidegate.storage.streams import CheckpointStateOutputStream, FileMerging


JOB = JobId("0123456789abcdef0123456789abcdef")


ONE, TWO = CheckpointId(1), CheckpointId(2)


EXCLUSIVE, SHARED = CheckpointScope.EXCLUSIVE, CheckpointScope.SHARED


def stream_of(
    storage: CheckpointStorage,
    checkpoint: CheckpointId,
    scope: CheckpointScope,
    name: str,
    *,
    target: str | None = None,
    merging: FileMerging | None = None,
) -> CheckpointStateOutputStream:
    """A stream for one state of one subtask."""
    if scope is SHARED and target is None:
        return storage.shared_streams.create_stream(name)
    return storage.streams(checkpoint, target=target).create_stream(name, merging=merging)


KIB, MIB = 1024, 1024 * 1024


def files_below(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


class TornFiles(MemoryFiles):
    """Files whose writers fail while closing, with half the bytes left behind."""

    def store(self, root: str = "memory:"):
        store = super().store(root)
        world = self

        def open_new(path: str) -> Writer:
            writer = type(store).open_new(store, path)

            def close() -> None:
                world.files[f"{root}/{path}"] = b"half"
                raise StorageFailed("The disk is full")

            def abort() -> None:
                store.delete([path])

            writer.close, writer.abort = close, abort
            return writer

        store.open_new = open_new
        return store
