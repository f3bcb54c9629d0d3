"""Record chains in memory: for jobs without a checkpoint folder, and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryHaStore:
    """A store of one job's chain that lives as long as its process."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def create(self, path: str, data: bytes) -> bool:
        if path in self.files:
            return False
        self.files[path] = data
        return True

    async def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    async def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.files if path.startswith(prefix))

    async def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
