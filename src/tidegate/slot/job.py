"""The job that a slot has been accepted into: settings, storage, state on the local disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.model.control import CheckpointAborted, CheckpointComplete, HasRead, Release
from tidegate.slot.channel_state import ChannelStateStorage
from tidegate.slot.driver_link import as_ours
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.disk.files import LocalPlace
from tidegate.state.disk.local_folders import LocalFolders, default_root
from tidegate.state.log.changelog import ChangeLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidegate.model.control import Accepted, ReadBack, ToSlot
    from tidegate.model.deployment import Deployment
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.loop.beside import Tasks
    from tidegate.slot.subtask.host import Host
    from tidegate.slot.world import World
    from tidegate.state.disk.store import RocksDBMemory
    from tidegate.state.scope import StateScope


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


class SlotJob:
    """Everything that subtasks of one job share in one slot.

    local: folders on the slot's disk. channel_state: makes writers of in-flight data, of which
    several share a file.
    """

    def __init__(self, accepted: Accepted, world: World, beside: Tasks) -> None:
        self.id = accepted.job
        self.slot = accepted.slot
        self.settings = accepted.settings
        self.storage = world.storage(accepted.job, accepted.settings.checkpoints)
        self.local = LocalState(accepted, world.chance.bits64, world.run_blocking, beside.run)
        self.channel_state = ChannelStateStorage(
            lambda: self.storage, world.run_blocking, world.chance.bits64, beside.run
        )
        self._world = world

    async def read_back(self, asked: ReadBack) -> HasRead:
        files, error = self.storage.files, None
        try:
            await self._world.run_blocking(
                lambda: files.check_snapshot(asked.pointer, asked.metadata, asked.files)
            )
        except Exception as failure:
            error = as_ours(failure, f"slot {self.slot}")
        return HasRead(asked.number, self.slot, error)

    def backend(self, scope: StateScope, deployment: Deployment, host: Host) -> OperatorBackend:
        slot, draw = self.settings.slot, self._world.chance.bits64
        shares = slot.rocksdb is None and slot.state_files.incremental and slot.changelog is None
        keyed = keyed_backend(
            scope,
            local=self.local.place(slot),
            shared_as=new_backend_id(draw) if shares else None,
            log=self._log(scope, deployment, host),
        )
        return OperatorBackend(scope, keyed)

    def _log(self, scope: StateScope, deployment: Deployment, host: Host) -> ChangeLog | None:
        settings, draw = self.settings.slot.changelog, self._world.chance.bits64
        if settings is None:
            return None
        return ChangeLog(
            scope,
            settings,
            partial(self.storage.shared_place, deployment.execution, draw),
            lambda call: host.start(_run(host, call)),
        )


async def _run(host: Host, call: Callable[[], None]) -> None:
    await host.run_blocking(call)
