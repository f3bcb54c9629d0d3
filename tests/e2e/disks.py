"""Disks that become full."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from tests.e2e.watch import pids, view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidegate import JobClient

ROOM = 64 << 20
FILE_MAX = 128 << 10


class SmallDisk(Protocol):
    """A folder on a disk that may become full. error: what writing there says then."""

    folder: Path
    error: str

    def fill(self, client: JobClient) -> None:
        """Leave no room on it for the slots of a job."""
        ...

    def free(self, client: JobClient) -> None:
        """Leave room again."""
        ...


class Mounted:
    """A small file system of its own."""

    error = "No space left on device"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, client: JobClient) -> None:
        del client
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 12)):
                pass

    def free(self, client: JobClient) -> None:
        del client
        self._ballast.unlink()


class Limited:
    """A folder where no file system can be mounted: slots may write no large file, wherever."""

    error = "File too large"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, client: JobClient) -> None:
        self._limit(client, FILE_MAX)

    def free(self, client: JobClient) -> None:
        self._limit(client, None)

    def _limit(self, client: JobClient, size: int | None) -> None:
        for pid in pids(view(client)) - {os.getpid()}:
            _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """A small disk in a new folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        yield Limited(folder)
        return
    try:
        yield Mounted(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)
