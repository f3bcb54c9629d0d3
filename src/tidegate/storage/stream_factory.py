"""Destination of the streams of one checkpoint: files of a folder, or the handles themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.storage import paths
from tidegate.storage.streams import CheckpointStateOutputStream, OwnFile

if TYPE_CHECKING:
    from tidegate.storage.merging import FileMerging
    from tidegate.storage.store import Store
    from tidegate.storage.streams import StateFile


@dataclass(frozen=True, slots=True)
class CheckpointStreamFactory:
    """Makes the streams of one checkpoint.

    store: of the folder; None if state stays in its handle. relative: whether handles name files
    by their place in the folder. buffer_max: bytes up to which state stays in its handle. signed:
    whether the SHA-256 of files is to be known.
    """

    folder: str
    store: Store | None
    relative: bool
    buffer_max: int
    signed: bool

    def create_stream(
        self, name: str, *, merging: FileMerging | None = None
    ) -> CheckpointStateOutputStream:
        store = self.store
        place = paths.join(self.folder, name)
        if store is None:
            return CheckpointStateOutputStream(place, None, buffer_max=self.buffer_max)

        def open_file() -> StateFile:
            if merging is not None:
                return merging.segment(name)
            return OwnFile(store, self.folder, name, relative=self.relative, signed=self.signed)

        return CheckpointStateOutputStream(place, open_file, buffer_max=self.buffer_max)
