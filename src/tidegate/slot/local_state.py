"""Lets a slot's local folders follow the checkpoints of its job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.model.control import CheckpointAborted, CheckpointComplete, Release
from tidegate.state.disk.local_folders import LocalFolders, LocalPlace, default_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidegate.model.control import Accepted, ToSlot
    from tidegate.model.settings import SlotSettings
    from tidegate.state.disk.store import RocksDBMemory


def new_backend_id(draw: Callable[[], int]) -> str:
    """A UUID for a backend, as text. draw: 64 random bits."""
    bits = f"{draw():016x}{draw():016x}"
    return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"


class LocalState:
    """The local folders of a slot; nothing is made on the disk before it is asked for.

    draw: 64 random bits. run_blocking: runs a call on the slot's pool. run: runs a coroutine to its
    end, beside all else.
    """

    def __init__(
        self,
        accepted: Accepted,
        draw: Callable[[], int],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        run: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        settings = accepted.settings.slot.state_files
        copies = settings.copies_folder
        self.folders = LocalFolders(
            accepted.job,
            accepted.slot,
            [Path(folder) for folder in settings.folders] or [default_root()],
            copies=None if copies is None else Path(copies),
            keeps=settings.keeps_copies,
            takes=settings.takes_copies,
        )
        self._draw = draw
        self._run_blocking = run_blocking
        self._run = run
        self._over = False
        self._memory: RocksDBMemory | None = None

    def place(self, settings: SlotSettings) -> LocalPlace | None:
        """Place of an operator's keyed state on disk; None if it is in memory."""
        if settings.rocksdb is None:
            return None
        if self._memory is None:
            from tidegate.state.disk.store import RocksDBMemory

            self._memory = RocksDBMemory(settings.rocksdb)
        backend = new_backend_id(self._draw)
        return LocalPlace(self.folders, backend, self._memory, settings.state_files)

    def heard(self, message: ToSlot) -> None:
        match message:
            case CheckpointComplete(_, checkpoint):
                self._tidy(lambda folders: folders.on_complete(checkpoint))
            case CheckpointAborted(_, checkpoint):
                self._tidy(lambda folders: folders.on_aborted(checkpoint))
            case Release():
                self._over = True
            case _:
                pass

    def _tidy(self, tidy: Callable[[LocalFolders], None]) -> None:
        if self.folders.in_use:
            self._run(self._off_the_loop(lambda: tidy(self.folders)))

    async def _off_the_loop(self, tidy: Callable[[], None]) -> None:
        await self._run_blocking(tidy)

    async def close(self) -> None:
        if self.folders.in_use:
            await self._run_blocking(lambda: self.folders.close(over=self._over))
