"""Which checkpoint can be started from where the newest was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.handles import FileStateHandle
from tidegate.checkpoint.provenance import checksums_of, name_of
from tidegate.errors import StorageFailed
from tidegate.storage.store import Checksum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.storage.state_files import StateFiles

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
