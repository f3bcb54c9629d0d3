"""A checkpoint folder that is slow, held up or broken on demand: ``faulty:///folder``.

Latches beside the folder rule it: ``slow`` (holds milliseconds), ``held``, ``held-chk-1`` (that
checkpoint alone), ``broken`` and ``kept`` (no checkpoint's folder is deleted). Only files of state
obey them; the records of who leads the job and ``_metadata`` are written as ever.
Other processes know nothing of it, so jobs that use it run in the test's own.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tests.e2e.journal import Journal, Latch


class FaultyFileSystem(LocalFileSystem):
    """The local file system, at the mercy of latches. It creates files on condition, as S3 does."""

    protocol = ("faulty", "s3")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("faulty://").rstrip("/") or "/"

    def unstrip_protocol(self, name: str) -> str:
        return f"faulty://{self._strip_protocol(name)}"

    def _open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        if "w" in mode:
            obey_latches(Path(path))
        return super()._open(path, mode=mode, **settings)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        folder = Path(str(path))
        if recursive and folder.name.startswith("chk-"):
            Latch(folder.parents[2] / "kept").wait()
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **settings: Any) -> None:
        file = Path(self._strip_protocol(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}-{os.urandom(6).hex()}")
        partial.write_bytes(value)
        try:
            if mode == "create":
                file.hardlink_to(partial)
            else:
                partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


def obey_latches(file: Path) -> None:
    """What befalls a file of state."""
    if not file.parent.name.startswith("chk-") or file.name == "_metadata":
        return
    beside = file.parents[3]  # <beside>/<checkpoints>/<job>/chk-<n>/<file>
    slow = beside / "slow"
    if slow.exists():
        time.sleep(int(slow.read_text()) / 1000)
    Latch(beside / "held").wait()
    Latch(beside / f"held-{file.parent.name}").wait()
    Journal(beside / "writes").note("write", thread=threading.get_ident())
    if (beside / "broken").exists():
        raise OSError("the disk is told to be broken")


@contextmanager
def faulty_files() -> Iterator[None]:
    """The scheme ``faulty:`` is known."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    try:
        yield
    finally:
        FaultyFileSystem.clear_instance_cache()
