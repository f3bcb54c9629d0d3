"""The stores that pass the same contract tests, each over an empty place of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fsspec
import pyarrow.fs as pafs

from tidegate.storage.arrow_fs import ArrowStore
from tidegate.storage.fsspec_fs import FsspecStore
from tidegate.storage.local import LocalStore
from tidegate.storage.memory import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidegate.storage.store import Store

MAKERS: dict[str, Callable[[Path], Store]] = {
    "local": lambda folder: LocalStore(str(folder / "root")),
    "memory": lambda _: MemoryFiles().store("memory:/some/root"),
    "arrow": lambda folder: ArrowStore(
        pafs.LocalFileSystem(), str(folder / "root"), f"arrow:{folder}/root"
    ),
    "fsspec": lambda folder: FsspecStore(
        fsspec.filesystem("file", skip_instance_cache=True),
        str(folder / "root"),
        f"fsspec:{folder}/root",
    ),
}
