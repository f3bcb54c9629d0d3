"""The job master's commands, performed.

Each command that is answered is answered just once, with the event that its docstring names;
failure is an event too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.api.job import CheckpointDone
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
from tidegate.driver.telling.commands import tell
from tidegate.driver.user_code.callbacks import FailureEnrichers, MasterHooks, StatusListeners
from tidegate.errors import JobCanceled, OutcomeUnknown, StorageFailed, TidegateError
from tidegate.jobmaster import commands
from tidegate.jobmaster.events import FailureLabelled, HooksNotRestored, HooksRestored
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    ToOperator,
    TriggerCheckpoint,
)
from tidegate.model.descriptors import as_ours

if TYPE_CHECKING:
    from tidegate.driver.checkpoint_files import CheckpointFiles, Written
    from tidegate.driver.inbox import Answers, Inbox
    from tidegate.driver.links import SlotLinks
    from tidegate.driver.user_code.hosts import CoordinatorHosts
    from tidegate.driver.world import DriverWorld
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.leadership import Leadership


class Performer:
    """Performs the commands of one run of a job."""

    def __init__(
        self,
        graph: JobGraph,
        world: DriverWorld,
        leadership: Leadership,
        files: CheckpointFiles,
        inbox: Inbox,
        slots: SlotLinks,
        hosts: CoordinatorHosts,
        answers: Answers,
    ) -> None:
        job, calls, log = (leadership.job, graph.name), world.call_user, world.log
        self._leadership = leadership
        self._files = files
        self._inbox = inbox
        self._slots = slots
        self._hosts = hosts
        self._answers = answers
        self._hooks = MasterHooks(graph.hooks, calls, log)
        self._enrichers = FailureEnrichers(graph.enrichers, job, calls, log)
        self._listeners = StatusListeners(graph.listeners, job, calls, inbox.spawn, log)
        self._timeout_ms = graph.settings.checkpoints.timeout_ms
        self._clock = world.clock
        self._log = log

    async def close(self) -> None:
        await self._hooks.close()

    def perform(self, command: commands.JobCommand) -> None:  # noqa: C901 - only dispatches
        """Performs a command, or starts to."""
        match command:
            case commands.SendToSlot(slot, message):
                self._slots.send(slot, message)
            case commands.RequestSlots(count):
                self._slots.request(count)
            case commands.ReleaseSlots(reason):
                self._slots.release(reason)
            case commands.DropSlot(slot, reason):
                self._log.warning("slot dropped", slot=slot, reason=reason)
                self._slots.drop(slot)
            case commands.StartCoordinators(checkpoint, states, executions):
                self._hosts.start(checkpoint, states, executions)
            case commands.ResetSubtasks(checkpoint, executions):
                self._hosts.reset(checkpoint, executions)
            case commands.SubtaskReady(execution, operators):
                self._hosts.ready(execution, operators)
            case SnapshotCoordinator(checkpoint, operator):
                self._hosts.snapshot(operator, checkpoint)
            case NotifyCoordinatorComplete(operator, checkpoint):
                self._hosts.complete(operator, checkpoint)
            case NotifyCoordinatorAborted(operator, checkpoint):
                self._hosts.aborted(operator, checkpoint)
            case commands.CloseCoordinators():
                self._hosts.close()
            case commands.RestoreHooks(checkpoint, states, allow):
                self._inbox.answer(
                    lambda: self._hooks.restore(checkpoint, states, allow_unmatched=allow),
                    lambda _: HooksRestored(),
                    HooksNotRestored,
                )
            # Nothing of the user's is called, so that no thread of the pool is waited for.
            case TriggerHooks(checkpoint) if not len(self._hooks):
                self._inbox.post(HooksTriggered(checkpoint))
            case TriggerHooks(checkpoint, wall_ms):
                self._inbox.answer(
                    lambda: self._hooks.trigger(checkpoint, wall_ms),
                    lambda states: HooksTriggered(checkpoint, states),
                    lambda error: HookFailed(checkpoint, error),
                )
            case TakeNextId(trigger, above):
                self._inbox.answer(
                    lambda: self._leadership.next_checkpoint_id(above=above),
                    lambda taken: NextIdTaken(trigger, taken, self._clock.wall_ms()),
                    lambda error: NextIdFailed(trigger, error),
                )
            case PrepareLocation(checkpoint):
                self._inbox.answer(
                    lambda: self._files.prepare(command),
                    lambda location: LocationReady(checkpoint, location),
                    lambda error: LocationFailed(checkpoint, error),
                )
            case WriteMetadata(checkpoint):
                self._inbox.answer(
                    lambda: self._write(command),
                    lambda written: MetadataWritten(
                        checkpoint, written.pointer, written.metadata[0]
                    ),
                    lambda error: MetadataFailed(checkpoint, error),
                )
            case AddPointer():
                self._inbox.spawn(self._add_pointer(command))
            case ForgetPointers(status, retained):
                self._inbox.answer(
                    lambda: self._leadership.end(status, retained=retained),
                    lambda _: PointersForgotten(),
                    PointersNotForgotten,
                )
            case DiscardCheckpoint():
                self._inbox.spawn(self._discard(command))
            case DeleteFiles(paths):
                self._inbox.spawn(self._files.delete(paths))
            case SweepShared(below, used):
                self._inbox.spawn(self._files.sweep_shared(below, used))
            case commands.LabelFailure():
                if len(self._enrichers):
                    self._inbox.spawn(self._label(command))
            case RequestDone(request, checkpoint, pointer, error):
                if error is None and checkpoint is not None:
                    self._answers.give(request, CheckpointDone(checkpoint, pointer or ""))
                else:
                    self._answers.give(request, error or JobCanceled("the job has ended"))
            case commands.RescaleDone(request, _, error):
                tell(command, self._log)
                self._answers.give(request, error)
            case commands.StatusChanged():
                tell(command, self._log)
                self._listeners.tell(command)
            case commands.SlotsAwaited():
                self._inbox.spawn(self._tell_awaited(command))
            case (
                commands.Restarting()
                | commands.FallingBack()
                | commands.Rescaling()
                | commands.Deployed()
                | commands.GuestsDeployed()
                | commands.GuestsReturn()
                | commands.GuestsStay()
                | CheckpointEnded()
                | MessageIgnored()
            ):
                tell(command, self._log)
            case commands.JobOver():
                self._inbox.end(command)
            case TriggerCheckpoint() | CheckpointComplete() | CheckpointAborted() | ToOperator():
                raise AssertionError("the job master addresses messages to slots")
            case FailJob() | FailExecution():
                raise AssertionError("the job master takes these as events")
            case _:
                assert_never(command)

    async def _write(self, command: WriteMetadata) -> Written:
        written = await self._files.write(command.metadata, command.location)
        properties = command.metadata.properties
        if properties is not None and properties.is_savepoint:
            # Slots are other processes, on other machines: what only its writer can read is none.
            await self._slots.read_backs.check(
                written.pointer, written.metadata, written.files, timeout_ms=self._timeout_ms
            )
        return written

    async def _add_pointer(self, command: AddPointer) -> None:
        checkpoint = command.checkpoint
        try:
            await self._leadership.add(checkpoint, command.pointer, retained=command.retained)
        except Exception as error:
            # Only a refusal of our own is certain: after any other error the pointer may stand.
            unknown = isinstance(error, OutcomeUnknown) or not isinstance(error, TidegateError)
            ours = as_ours(error, StorageFailed)
            if unknown:
                self._log.warning(
                    "it is unknown whether the record of a checkpoint was written; it is written "
                    "again, and nothing is restored before that is known",
                    checkpoint=checkpoint,
                    error=str(ours),
                )
            self._inbox.post(PointerFailed(checkpoint, ours, outcome_unknown=unknown))
        else:
            self._inbox.post(PointerAdded(checkpoint))

    async def _discard(self, command: DiscardCheckpoint) -> None:
        await self._files.discard(command)
        self._inbox.post(Cleaned(command.checkpoint))

    async def _tell_awaited(self, command: commands.SlotsAwaited) -> None:
        tell(command, self._log, hint=await self._slots.hint())

    async def _label(self, command: commands.LabelFailure) -> None:
        labels = await self._enrichers.labels(command.error, command.task, command.slot)
        if labels:
            self._inbox.post(FailureLabelled(command.number, labels))
