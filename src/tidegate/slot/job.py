"""The job that a slot has been accepted into: settings, storage, state on the local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import KeyCell
from tidegate.model.control import HasRead
from tidegate.slot.channel_state import ChannelStateStorage
from tidegate.slot.driver_link import as_ours
from tidegate.slot.local_state import LocalState, new_backend_id
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.log.changelog import ChangeLog
from tidegate.state.scope import StateScope
from tidegate.storage.checkpoints import CheckpointStorageWorkerView
from tidegate.storage.places import SharedPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.model.control import Accepted, ReadBack
    from tidegate.model.deployment import Deployment
    from tidegate.model.topology import OperatorInfo
    from tidegate.slot.loop.beside import Tasks
    from tidegate.slot.subtask.host import Host
    from tidegate.slot.world import World
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.typeinfo.types import TypeInformation


class SlotJob:
    """Everything that subtasks of one job share in one slot.

    view: of the storage. local: folders on the slot's disk. channel_state: makes writers of
    in-flight data, of which several share a file.
    """

    def __init__(self, accepted: Accepted, world: World, beside: Tasks) -> None:
        self.id = accepted.job
        self.slot = accepted.slot
        self.settings = accepted.settings
        storage = world.storage(accepted.job, accepted.settings.checkpoints)
        self.view = CheckpointStorageWorkerView(storage)
        self.local = LocalState(accepted, world.chance.bits64, world.run_blocking, beside.run)
        self.channel_state = ChannelStateStorage(
            lambda: self.view, world.run_blocking, world.chance.bits64, beside.run
        )
        self._world = world

    @property
    def storage(self) -> CheckpointStorage:
        return self.view.storage

    async def read_back(self, asked: ReadBack) -> HasRead:
        files, error = self.storage.files, None
        try:
            await self._world.run_blocking(
                lambda: files.check_snapshot(asked.pointer, asked.metadata, asked.files)
            )
        except Exception as failure:
            error = as_ours(failure, f"slot {self.slot}")
        return HasRead(asked.number, self.slot, error)

    def backend(
        self,
        deployment: Deployment,
        host: Host,
        info: OperatorInfo,
        key_type: TypeInformation | None,
    ) -> OperatorBackend:
        slot, draw = self.settings.slot, self._world.chance.bits64
        shares = slot.rocksdb is None and slot.state_files.incremental and slot.changelog is None
        scope = StateScope(
            operator=info.id,
            name=info.name,
            uid=info.uid,
            key_groups=deployment.key_groups,
            max_parallelism=deployment.vertex.max_parallelism,
            clock=self._world.clock,
            cell=KeyCell(),
            key_type=key_type,
            compression=self.settings.checkpoints.snapshot_compression,
        )
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
            lambda sharing: SharedPlace(self.storage, deployment.execution, draw, sharing),
            lambda call: host.start(_run(host, call)),
        )


async def _run(host: Host, call: Callable[[], None]) -> None:
    await host.run_blocking(call)
