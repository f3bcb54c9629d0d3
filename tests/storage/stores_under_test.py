"""The stores that pass the same contract tests, each over an empty place of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pyarrow.fs as pafs
from fsspec.implementations.local import LocalFileSystem

from tidegate.storage.arrow_fs import ArrowStore
from tidegate.storage.fsspec_fs import FsspecStore
from tidegate.storage.local import LocalStore
from tidegate.storage.memory import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.storage.store import Store


class ConditionalFiles(LocalFileSystem):
    """Local files behind a driver that creates on condition, as that of S3 does."""

    protocol = ("s3",)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("xb" if mode == "create" else "wb") as file:
            file.write(value)


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
    "conditional": lambda folder: FsspecStore(
        ConditionalFiles(auto_mkdir=True, skip_instance_cache=True),
        str(folder / "root"),
        f"s3:{folder}/root",
    ),
}
