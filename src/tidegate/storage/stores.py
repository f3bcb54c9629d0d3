"""Finds the store for a path or URL."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError
from tidegate.storage import paths
from tidegate.storage.local import LocalStore
from tidegate.storage.store import Trials

if TYPE_CHECKING:
    from tidegate.storage.memory import MemoryFiles
    from tidegate.storage.store import Store

MEMORY_SCHEME: Final = "memory"

_ARROW_SCHEMES: Final = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
# These drivers can create a file on condition that there is none, which Arrow cannot.
_BETTER_DRIVERS: Final = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
_OPEN_MAX: Final = 64


class Stores:
    """Opens stores by path or URL and keeps the last ones; may be used from several threads.

    memory: the world that ``memory:`` URLs mean; None refuses them.
    """

    def __init__(self, memory: MemoryFiles | None = None) -> None:
        self._memory = memory
        self._opened: dict[str, Store] = {}
        self._trials = Trials()
        self._lock = threading.Lock()

    def open(self, location: str) -> Store:
        """The store rooted at a folder. Raises ConfigError if no driver handles it."""
        root = paths.absolute(location)
        with self._lock:
            store = self._opened.pop(root, None) or self._new(root)
            self._opened[root] = store
            if len(self._opened) > _OPEN_MAX:
                del self._opened[next(iter(self._opened))]
        return store

    def locate(self, file: str) -> tuple[Store, str]:
        """The store of a file's folder, and the file's name in it."""
        file = paths.absolute(file)
        return self.open(paths.parent(file)), paths.name(file)

    def _new(self, root: str) -> Store:
        scheme = paths.scheme_of(root)
        if paths.is_local(root):
            return LocalStore(root, trials=self._trials)
        if scheme == MEMORY_SCHEME:
            if self._memory is None:
                raise ConfigError(
                    "There are no files in memory here",
                    where=root,
                    remedy="Name a folder, or a URL such as 's3://bucket/checkpoints'.",
                )
            return self._memory.store(root)
        driver = _BETTER_DRIVERS.get(scheme)
        if scheme in _ARROW_SCHEMES and (driver is None or find_spec(driver) is None):
            from tidegate.storage.arrow_fs import ArrowStore

            return ArrowStore.open(root)
        from tidegate.storage.fsspec_fs import FsspecStore

        return FsspecStore.open(root, trials=self._trials)
