"""Record chains as files, below ``<checkpoint folder>/.jobs/<job name>/``.

Needs a file system that can create a file unless there is one, as local ones and mounted ones
mostly can, and S3 and Google Cloud Storage through their fsspec drivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from tidegate.errors import ConfigError, FileMissing, StorageFailed
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidegate.storage.store import Store
    from tidegate.storage.stores import Stores

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a blocking call off the loop and returns its result."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


class FileSystemHaStore:
    """One job's chain in a folder of a store with atomic create."""

    def __init__(self, store: Store, run_blocking: RunBlocking) -> None:
        self._store = store
        self._run_blocking = run_blocking

    async def create(self, path: str, data: bytes) -> bool:
        """Creates a file unless it exists. After StorageFailed the file may exist."""
        return await self._run_blocking(lambda: self._store.create(path, data))

    async def read(self, path: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                return self._store.read(path)
            except FileMissing:
                return None

        return await self._run_blocking(read)

    async def list(self, prefix: str) -> list[str]:
        folder = prefix.rstrip("/")
        return await self._run_blocking(lambda: [info.path for info in self._store.list(folder)])

    async def delete(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        if doomed:
            await self._run_blocking(lambda: self._store.delete(doomed))


async def open_chain(
    stores: Stores, directory: str, job_name: str, run_blocking: RunBlocking
) -> FileSystemHaStore:
    """The chain of a named job below a checkpoint folder.

    Raises ConfigError if the folder's store cannot create atomically, StorageFailed where the
    folder cannot be written.
    """
    folder = paths.join(paths.absolute(directory), paths.chain_folder(job_name))
    store = stores.open(folder)

    def probe() -> bool:
        try:
            store.make_folder("")
        except StorageFailed as error:
            raise StorageFailed(
                f"The checkpoint folder cannot be written: {error.what}",
                where=error.where or directory,
                remedy=error.remedy
                or "Check that execution.checkpointing.dir exists and can be written.",
            ) from error
        return store.guarantees.atomic_create

    if not await run_blocking(probe):
        raise ConfigError(
            "This file system cannot create a file only where there is none, so it cannot tell "
            "who leads a job",
            where=folder,
            remedy="Keep checkpoints on a file system that can (a local or NFS folder, or S3 and "
            "Google Cloud Storage with s3fs or gcsfs installed).",
        )
    return FileSystemHaStore(store, run_blocking)
