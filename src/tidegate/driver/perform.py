"""The job master's commands, performed: one function a command.

Each command that is answered is answered just once, with the event that its docstring names;
failure is an event too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, assert_never, cast

from google_crc32c import value as crc32c

from tidegate.checkpoint.coordinator.commands import (
    AddPointer,
    CheckpointEnded,
    DeleteFiles,
    DiscardCheckpoint,
    FailExecution,
    FailJob,
    ForgetPointers,
    MessageIgnored,
    NotifyCoordinatorAborted,
    NotifyCoordinatorComplete,
    PrepareLocation,
    RequestDone,
    SnapshotCoordinator,
    SweepShared,
    TakeNextId,
    TriggerHooks,
    WriteMetadata,
)
from tidegate.checkpoint.coordinator.events import (
    Cleaned,
    HookFailed,
    HooksTriggered,
    LocationFailed,
    LocationReady,
    MetadataFailed,
    MetadataWritten,
    NextIdFailed,
    NextIdTaken,
    PointerAdded,
    PointerFailed,
    PointersForgotten,
    PointersNotForgotten,
)
from tidegate.checkpoint.provenance import provenance_of
from tidegate.checkpoint.signing import encoded
from tidegate.errors import ConfigError, OutcomeUnknown, StorageFailed, TidegateError
from tidegate.jobmaster.commands import (
    CloseCoordinators,
    Deployed,
    DropSlot,
    FallingBack,
    JobCommand,
    JobOver,
    LabelFailure,
    ReleaseSlots,
    RequestSlots,
    RescaleDone,
    Rescaling,
    ResetSubtasks,
    Restarting,
    RestoreHooks,
    SendToSlot,
    SlotsAwaited,
    StartCoordinators,
    StatusChanged,
    SubtaskReady,
)
from tidegate.jobmaster.events import FailureLabelled, HooksNotRestored, HooksRestored
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    Release,
    ToOperator,
    TriggerCheckpoint,
)
from tidegate.model.descriptors import shortage
from tidegate.model.failure_reason import FailureReason
from tidegate.storage.secret_file import signing_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.driver.driver import Driver, DriverWorld
    from tidegate.driver.links import SlotLinks
    from tidegate.driver.provider import SlotProvider
    from tidegate.driver.user_code.enrichers import FailureEnrichers
    from tidegate.driver.user_code.hooks import MasterHooks
    from tidegate.driver.user_code.hosts import CoordinatorHosts
    from tidegate.driver.user_code.listeners import StatusListeners
    from tidegate.ha.leadership import Leadership
    from tidegate.storage.checkpoints import CheckpointStorage


REPEATS_TOLD: Final = 3
"""The same failure so many times is no accident."""


class Performer:
    """Performs commands for one driver."""

    def __init__(
        self,
        driver: Driver,
        world: DriverWorld,
        provider: SlotProvider,
        storage: CheckpointStorage,
        leadership: Leadership,
        hosts: CoordinatorHosts,
        links: SlotLinks,
        hooks: MasterHooks,
        enrichers: FailureEnrichers,
        listeners: StatusListeners,
    ) -> None:
        self._driver = driver
        self._world = world
        self._provider = provider
        self._storage = storage
        self._leadership = leadership
        self._hosts = hosts
        self._links = links
        self._hooks = hooks
        self._enrichers = enrichers
        self._listeners = listeners
        self._log = world.log

    def perform(self, command: JobCommand) -> None:
        """Performs a command, or starts to."""
        match command:
            case SendToSlot(slot, message):
                self._links.send(slot, message)
            case RequestSlots(count):
                self._provider.request(count)
            case ReleaseSlots(reason):
                self._links.send_all(Release(reason))
                self._provider.release()
            case DropSlot(slot, reason):
                self._log.warning("slot dropped", slot=slot, reason=reason)
                self._links.drop(slot)
            case StartCoordinators(checkpoint, states, executions):
                self._hosts.start(checkpoint, states, executions)
            case ResetSubtasks(checkpoint, executions):
                self._hosts.reset(checkpoint, executions)
            case LabelFailure():
                self._begin_labels(command)
            case RestoreHooks():
                self._driver.spawn(self._restore_hooks(command))
            case SubtaskReady(execution, operators):
                self._hosts.ready(execution, operators)
            case CloseCoordinators():
                self._hosts.close()
            case Rescaling() | RescaleDone() | JobOver():
                self._perform_turn(command)
            case StatusChanged() | SlotsAwaited() | Restarting() | FallingBack() | Deployed():
                self._tell(command)
            case TriggerCheckpoint() | CheckpointComplete() | CheckpointAborted() | ToOperator():
                raise AssertionError("the job master addresses messages to slots")
            case FailJob() | FailExecution():
                raise AssertionError("the job master takes these as events")
            case _:
                self._perform_checkpoint(command)

    def _perform_checkpoint(
        self,
        command: TakeNextId
        | PrepareLocation
        | SnapshotCoordinator
        | TriggerHooks
        | WriteMetadata
        | AddPointer
        | ForgetPointers
        | DiscardCheckpoint
        | DeleteFiles
        | SweepShared
        | NotifyCoordinatorComplete
        | NotifyCoordinatorAborted
        | RequestDone
        | CheckpointEnded
        | MessageIgnored,
    ) -> None:
        match command:
            case TakeNextId():
                self._driver.spawn(self._take_next_id(command))
            case PrepareLocation():
                self._driver.spawn(self._prepare_location(command))
            case SnapshotCoordinator(checkpoint, operator):
                self._hosts.snapshot(operator, checkpoint)
            case TriggerHooks():
                self._begin_hooks(command)
            case WriteMetadata():
                self._driver.spawn(self._write_metadata(command))
            case AddPointer():
                self._driver.spawn(self._add_pointer(command))
            case ForgetPointers():
                self._driver.spawn(self._forget_pointers(command))
            case DiscardCheckpoint():
                self._driver.spawn(self._discard(command))
            case DeleteFiles() | SweepShared():
                self._driver.spawn(self._delete(partial(self._delete_files, command)))
            case NotifyCoordinatorComplete(operator, checkpoint):
                self._hosts.complete(operator, checkpoint)
            case NotifyCoordinatorAborted(operator, checkpoint):
                self._hosts.aborted(operator, checkpoint)
            case RequestDone(request, checkpoint, pointer, error):
                self._driver.checkpoint_done(request, checkpoint, pointer, error)
            case CheckpointEnded():
                self._log_checkpoint(command)
            case MessageIgnored(execution, checkpoint, why):
                self._log.debug(why.value, checkpoint=checkpoint, attempt=execution.attempt)
            case _:
                assert_never(command)

    # --- answered commands ---

    async def _take_next_id(self, command: TakeNextId) -> None:
        try:
            checkpoint = await self._leadership.next_checkpoint_id(above=command.above)
        except Exception as error:
            self._driver.post(NextIdFailed(command.trigger, _ours(error)))
        else:
            wall_ms = self._world.clock.wall_ms()
            self._driver.post(NextIdTaken(command.trigger, checkpoint, wall_ms))

    async def _prepare_location(self, command: PrepareLocation) -> None:
        def prepare() -> str:
            if not command.savepoint:
                return self._storage.initialize_location(command.checkpoint)
            target = command.target or self._driver.settings.checkpoints.savepoint_directory
            if target is None:
                raise ConfigError(
                    "a savepoint needs a directory and there is no default",
                    where="execution.checkpointing.savepoint-dir",
                    remedy="Name one with the request, or set this option.",
                )
            return self._storage.initialize_savepoint_location(target, self._world.chance.bits64())

        try:
            location = cast("str", await self._world.run_blocking(prepare))
        except Exception as error:
            self._driver.post(LocationFailed(command.checkpoint, _ours(error)))
        else:
            self._driver.post(LocationReady(command.checkpoint, location))

    def _begin_hooks(self, command: TriggerHooks) -> None:
        if len(self._hooks):
            self._driver.spawn(self._trigger_hooks(command))
        else:
            self._driver.post(HooksTriggered(command.checkpoint))

    async def _trigger_hooks(self, command: TriggerHooks) -> None:
        try:
            states = await self._hooks.trigger(command.checkpoint, command.wall_ms)
        except Exception as error:
            self._driver.post(HookFailed(command.checkpoint, _ours(error)))
        else:
            self._driver.post(HooksTriggered(command.checkpoint, states))

    async def _restore_hooks(self, command: RestoreHooks) -> None:
        try:
            await self._hooks.restore(
                command.checkpoint, command.states, allow_unmatched=command.allow_unmatched
            )
        except Exception as error:
            self._driver.post(HooksNotRestored(_ours(error)))
        else:
            self._driver.post(HooksRestored())

    def _begin_labels(self, command: LabelFailure) -> None:
        if len(self._enrichers):
            self._driver.spawn(self._label(command))

    async def _label(self, command: LabelFailure) -> None:
        labels = await self._enrichers.labels(command.error, command.task, command.slot)
        if labels:
            self._driver.post(FailureLabelled(command.number, labels))

    async def _write_metadata(self, command: WriteMetadata) -> None:
        def write() -> tuple[str, bytes]:
            data = encoded(command.metadata, signing_key(self._storage.key_file))
            return self._storage.files.write_metadata(command.location, data), data

        try:
            written = await self._world.run_blocking(write)
            pointer, data = cast("tuple[str, bytes]", written)
            properties = command.metadata.properties
            if properties is not None and properties.is_savepoint:
                await self._read_back(pointer, data, command.metadata)
        except Exception as error:
            self._driver.post(MetadataFailed(command.checkpoint, _ours(error)))
        else:
            self._driver.post(MetadataWritten(command.checkpoint, pointer, len(data)))

    async def _read_back(self, pointer: str, data: bytes, written: CheckpointMetadata) -> None:
        """Checks that the savepoint can be read, here and by other processes."""
        provenance = provenance_of(written)
        checksums = {} if provenance is None else provenance.checksums
        files = {path: file.size for path, file in checksums.items()}
        own = (len(data), crc32c(data))
        await self._world.run_blocking(
            lambda: self._storage.files.check_snapshot(pointer, own, files)
        )
        timeout_ms = self._driver.settings.checkpoints.timeout_ms
        await self._links.read_backs.check(pointer, own, files, timeout_ms=timeout_ms)

    async def _add_pointer(self, command: AddPointer) -> None:
        try:
            await self._leadership.add(
                command.checkpoint, command.pointer, retained=command.retained
            )
        except Exception as error:
            unknown = isinstance(error, OutcomeUnknown) or not isinstance(error, TidegateError)
            failed = PointerFailed(command.checkpoint, _ours(error), outcome_unknown=unknown)
            self._driver.post(failed)
        else:
            self._driver.post(PointerAdded(command.checkpoint))

    async def _forget_pointers(self, command: ForgetPointers) -> None:
        try:
            await self._leadership.end(command.status, retained=command.retained)
        except Exception as error:
            self._driver.post(PointersNotForgotten(_ours(error)))
        else:
            self._driver.post(PointersForgotten())

    async def _discard(self, command: DiscardCheckpoint) -> None:
        location, files = command.location, command.files
        if location is None:
            await self._delete(lambda: self._storage.files.delete_files(files))
        else:
            await self._delete(lambda: self._storage.files.discard(location, files))
        self._driver.post(Cleaned(command.checkpoint))

    def _delete_files(self, command: DeleteFiles | SweepShared) -> None:
        match command:
            case DeleteFiles(files):
                self._storage.files.delete_files(files)
            case SweepShared(below, used):
                self._storage.sweep_shared(self._leadership.epoch, below, used=frozenset(used))

    async def _delete(self, delete: Callable[[], object]) -> None:
        """Delete; what cannot be deleted is an orphan for a later sweep, no failure."""
        try:
            await self._world.run_blocking(delete)
        except Exception as error:
            ours = _ours(error)
            self._log.warning("files could not be deleted", error=ours.what, where=ours.where)

    # --- told ---

    def _tell(
        self, command: StatusChanged | SlotsAwaited | Restarting | FallingBack | Deployed
    ) -> None:
        match command:
            case StatusChanged(status=status, error=error):
                self._log.info("job status", status=status.value, error=error and error.what)
                self._listeners.tell(command)
            case SlotsAwaited(have, want, waited_ms):
                self._log.warning(
                    "waiting for slots",
                    have=have,
                    want=want,
                    waited_ms=waited_ms,
                    hint=self._provider.hint,
                )
            case Restarting():
                self._tell_restart(command)
            case FallingBack(damaged, older, error):
                self._log.warning(
                    "the newest checkpoint is damaged, and the job falls back to an older one: "
                    "output that sinks have committed since is written again",
                    damaged=damaged,
                    checkpoint=older,
                    error=str(error),
                )
            case Deployed(attempt, restored, subtasks):
                self._log.info(
                    "subtasks deployed", subtasks=subtasks, attempt=attempt, restored=restored
                )

    def _tell_restart(self, command: Restarting) -> None:
        times, error = command.times, command.error
        again = times > 1
        self._log.warning(
            "job restarts",
            restart=command.restart,
            delay_ms=command.delay_ms,
            error=f"the same again ({times}): {error.what}" if again else str(error),
        )
        if times == REPEATS_TOLD:
            self._log.warning(
                "the same failure occurs again and again. If a row causes it, a restart does not "
                "help: fix the function, or make it skip the row",
                times=times,
                where=error.where,
            )

    def _perform_turn(self, command: Rescaling | RescaleDone | JobOver) -> None:
        match command:
            case Rescaling(parallelism):
                self._log.info("job rescales", parallelism=parallelism)
            case RescaleDone(request, parallelism, error):
                if error is None:
                    self._log.info("job rescaled", parallelism=parallelism)
                else:
                    self._log.warning("job not rescaled", parallelism=parallelism, error=str(error))
                self._driver.rescale_done(request, error)
            case JobOver(status, error):
                self._driver.over(status, error)

    def _log_checkpoint(self, ended: CheckpointEnded) -> None:
        if ended.reason is None:
            self._log.info(
                "checkpoint completed",
                checkpoint=ended.checkpoint,
                duration_ms=ended.duration_ms,
                size_bytes=ended.size_bytes,
                written_bytes=ended.written_bytes,
            )
        else:
            reason = ended.reason
            tell = self._log.info
            if reason.counts:
                tell = self._log.warning
            elif reason is FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
                tell = self._log.debug  # put off, as the settings ask for: no failure
            # What does not count is part of a job's life: a restart, an end, a busy moment.
            tell(
                "checkpoint failed",
                checkpoint=ended.checkpoint,
                reason=reason.name,
                message=ended.message,
                where=ended.where,
                remedy=reason.remedy,
            )


def _ours(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    return shortage(error) or StorageFailed(f"{type(error).__name__}: {error}")
