"""Opens a key space on disk as a restore would, for reading."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flinkformat.handles import FileStateHandle, RelativeFileStateHandle
from tidegate.model.ids import JobId, SlotId
from tidegate.model.settings import RocksDBSettings, StateFileSettings
from tidegate.state.backend import LocalPlace
from tidegate.state.disk.files import SHAREABLE
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.state.disk.restore import restored_space
from tidegate.state.disk.store import RocksDBMemory

if TYPE_CHECKING:
    from collections.abc import Generator

    from flinkformat.handles import KeyedStateHandle, StreamStateHandle
    from tidegate.state.disk.restore import RestoredSpace
    from tidegate.storage.reading import StateReader


@contextmanager
def key_space(
    handle: KeyedStateHandle, reader: StateReader, *, cache_bytes: int
) -> Generator[RestoredSpace]:
    """Files of a handle, and the changes in its log, in a temporary folder.

    Raises RestoreRefused, FormatError and StorageFailed, as a restore does.
    """
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-read-"))
    settings = RocksDBSettings(memory_bytes=cache_bytes, compaction_style="NONE")
    folders = LocalFolders(JobId("read"), SlotId("read"), [scratch])
    local = LocalPlace(folders, "read", RocksDBMemory(settings), StateFileSettings())
    try:
        linking = _LinkingReader(reader)
        space = restored_space([handle], handle.key_groups, local, linking, reader.where)
        try:
            yield space
        finally:
            space.store.close()
    finally:
        folders.close(over=True)
        shutil.rmtree(scratch, ignore_errors=True)


class _LinkingReader:
    """Links local tables instead of copying them, since they are only read.

    RocksDB's own checksums detect damage in what is read of them.
    """

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self.where = reader.where
        self.read = reader.read
        self.view = reader.view
        self.holds = reader.holds

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        file = Path(handle.physical_id.removeprefix("file://"))
        alone = isinstance(handle, FileStateHandle | RelativeFileStateHandle)
        here = alone and target.suffix == SHAREABLE and file.is_absolute() and file.is_file()
        if here and file.stat().st_size == handle.state_size:
            target.symlink_to(file)
        else:
            self._reader.copy(handle, target)
