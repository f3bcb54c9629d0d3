"""A key space on disk as a restore would have it, for as long as it is looked into."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.model.ids import JobId, SlotId
from tidegate.model.settings import RocksDBSettings, StateFileSettings
from tidegate.state.backend import LocalPlace
from tidegate.state.local_folders import LocalFolders
from tidegate.state.rocksdb.restore import restored_space
from tidegate.state.rocksdb.store import RocksDBMemory

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidegate.model.handles import KeyedStateHandle
    from tidegate.state.rocksdb.restore import RestoredSpace
    from tidegate.storage.reading import StateReader


@contextmanager
def key_space(
    handle: KeyedStateHandle, reader: StateReader, *, cache_bytes: int
) -> Generator[RestoredSpace]:
    """The files of a handle, and what its log says beyond them, in a temporary folder.

    Raises RestoreRefused, FormatError and StorageFailed, as a restore does.
    """
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-read-"))
    settings = RocksDBSettings(memory_bytes=cache_bytes, compaction_style="NONE")
    folders = LocalFolders(JobId("read"), SlotId("read"), [scratch])
    local = LocalPlace(folders, "read", RocksDBMemory(settings), StateFileSettings())
    try:
        space = restored_space([handle], handle.key_groups, local, reader, reader.where)
        try:
            yield space
        finally:
            space.store.close()
    finally:
        folders.close(over=True)
        shutil.rmtree(scratch, ignore_errors=True)
