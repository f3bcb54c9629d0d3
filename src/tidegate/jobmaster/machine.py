"""The job master: brings a job to life, restarts it, and brings it to its end. Without IO.

One path leads to running subtasks, whatever went before: enough slots, nothing of the former
attempt alive, no checkpoint in flight, the wait over; then the newest completed checkpoint is
spread over a new attempt. A first start, a failure, a lost slot and a rescale only differ in what
they wait for, and in how many subtasks they concern: what `failover` says belongs together is
restarted together, the rest goes on. There is one restart at a time; what fails before it is
deployed joins it. The checkpoint coordinator is part of this machine: one inbox, one clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from tidegate.checkpoint.coordinator.commands import (
    CheckpointEnded,
    FailExecution,
    FailJob,
    RequestDone,
)
from tidegate.checkpoint.coordinator.events import (
    CheckpointEvent,
    CheckpointRequested,
    ExecutionChanged,
    FailoverStarted,
    JobEnded,
    JobStatusChanged,
    Rescaled,
    Restored,
    Woke,
)
from tidegate.errors import RescaleRefused, SlotLost, TidegateError
from tidegate.jobmaster import commands, events
from tidegate.jobmaster.execution_graph import Execution, ExecutionGraph
from tidegate.jobmaster.failures import Failure, FailureHistory, Judge, is_damage
from tidegate.jobmaster.life import Ending, Life, cancelled, failed_for_good, suspended
from tidegate.jobmaster.redeployment import Redeployment, restore_hooks, shares, start_coordinators
from tidegate.jobmaster.rescaling import Rescaler
from tidegate.jobmaster.slots import LATE_WAKE_MS, SlotPool, SlotWait
from tidegate.jobmaster.stopping import Stopper
from tidegate.jobmaster.survivors import Survivors
from tidegate.jobmaster.view import JobView, StopView
from tidegate.model.control import (
    Accepted,
    Cancel,
    CheckpointAborted,
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    Offer,
    Pulse,
    Refused,
    Start,
    SubtaskChanged,
    ToOperator,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidegate.checkpoint.coordinator.absent import NoCheckpoints
    from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.chance import Chance
    from tidegate.model.ids import (
        CheckpointId,
        Epoch,
        JobId,
        SlotId,
        SubtaskId,
        VertexId,
    )
    from tidegate.model.settings import JobSettings

CANCEL_TIMEOUT_MS: Final = 30_000
"""A slot that has not ended its subtasks after this is given up."""

_TO_SUBTASK = (TriggerCheckpoint, CheckpointComplete, CheckpointAborted, ToOperator)
_TO_THE_LAST = (*get_args(CheckpointEvent), events.FailureLabelled)


class JobMaster:
    """Decides all that happens to one job in one run (epoch).

    program: fitted to what the job starts from. coordinator: knows the checkpoints that the job may
    start from.
    """

    def __init__(
        self,
        program: JobGraph,
        job: JobId,
        epoch: Epoch,
        coordinator: CheckpointCoordinator | NoCheckpoints,
        chance: Chance,
    ) -> None:
        settings = program.settings
        self._program = program
        self._job = job
        self._checkpoints = coordinator
        self._graph = ExecutionGraph(program.topology, epoch, settings.failover)
        self._slots = SlotPool(program.topology.slots_needed(), settings.slot.lease_ms)
        self._rescaler = Rescaler(program.name, self._slots, coordinator, settings, self._tell)
        self._stopper = Stopper(program.name, self._tell)
        self._survivors = Survivors(self._slots, self._graph, self._tell, on=settings.on_survivors)
        self._judge = Judge(program.name, settings, chance)
        self._failures = FailureHistory(settings.exception_history_max)
        self._life = Life()
        self._ending: Ending | None = None
        self._redeployment: Redeployment | None = None
        self._restored: CheckpointId | None = None
        self._commands: list[commands.JobCommand] = []

    @property
    def _settings(self) -> JobSettings:
        return self._program.settings

    # --- the machine ---

    def handle(self, event: events.JobEvent, now_ms: int) -> list[commands.JobCommand]:
        self._commands = []
        if not self._life.over or isinstance(event, _TO_THE_LAST):
            self._dispatch(event, now_ms)
            self._go_on(now_ms)
        assert not self._life.over or self._graph.all_ended, "nothing runs of a job that is over"
        return self._commands

    @property
    def wake_at_ms(self) -> int | None:
        """Time for the next `Woke`; None for never."""
        times = [self._checkpoints.wake_at_ms]
        if self._life.begun and not self._life.over:
            times += [self._graph.cancel_by_ms(CANCEL_TIMEOUT_MS), self._slots.next_expiry_ms]
        if self._runs:
            wait, _ = self._awaited
            times.append(wait.wake_at_ms(self._slots, self._settings.slots_timeout_ms))
            if self._redeployment is not None and not self._redeployment.waited:
                times.append(self._redeployment.due_ms)
            if self._redeployment is None:
                times += [self._rescaler.due_ms, self._survivors.wake_at_ms]
        return min((time for time in times if time is not None), default=None)

    @property
    def _runs(self) -> bool:
        return self._ending is None and not self._life.over

    def _dispatch(self, event: events.JobEvent, now_ms: int) -> None:
        match event:
            case Woke():
                self._woke(now_ms)
            case events.JobStarted(wall_ms):
                self._started(wall_ms, now_ms)
            case events.StartFailed(error):
                self._end_with(failed_for_good(self._program.name, error), now_ms)
            case Offer():
                self._offered(event, now_ms)
            case Pulse():
                self._slots.pulsed(event, now_ms)
                self._graph.show(event.figures, event.metrics)
            case events.SlotLeft(slot, error):
                self._slot_left(slot, error, now_ms)
            case events.SlotRequestFailed(error, final):
                self._request_failed(error, final, now_ms)
            case SubtaskChanged():
                self._subtask_changed(event, now_ms)
            case events.CoordinatorFailed(error=error) | events.DriverHindered(error):
                self._failed(Failure(error), None, now_ms)
            case events.FailureLabelled(number, labels):
                self._failures.label(number, labels)
            case events.HooksRestored() | events.HooksNotRestored():
                self._hooks_answered(event, now_ms)
            case events.CancelRequested(reason):
                self._end_with(cancelled(self._program.name, reason), now_ms)
            case events.SuspendRequested(reason):
                self._end_with(suspended(self._program.name, reason), now_ms)
            case events.RescaleRequested():
                running = self._runs and not self._stopper.under_way
                self._rescaler.requested(event, self._graph.topology, running=running)
            case _:
                self._checkpoint(event, now_ms)

    def _checkpoint(self, event: CheckpointEvent, now_ms: int) -> None:
        """Give an event to the checkpoint coordinator, and its commands to whom they concern."""
        if isinstance(event, CheckpointRequested):
            self._stopper.requested(event, now_ms)
            if self._stopper.under_way:
                self._rescaler.end(RescaleRefused("The job is to end with a savepoint"))
        for command in self._checkpoints.handle(event, now_ms):
            match command:
                case FailJob(error):
                    self._failed(Failure(error), None, now_ms)
                case FailExecution(execution, error):
                    failure = Failure(error, self._task(execution.subtask.vertex))
                    self._failed(failure, (execution.subtask,), now_ms)
                case RequestDone():
                    restarting = self._redeployment is not None
                    if self._stopper.answered(command, restarting=restarting):
                        self._take_along(None, now_ms)
                    elif self._stopper.cancels:
                        self._end_with(
                            cancelled(self._program.name, "its savepoint is complete"), now_ms
                        )
                case _ if isinstance(command, _TO_SUBTASK):
                    self._to_subtask(command)
                case _:
                    if isinstance(command, CheckpointEnded):
                        self._rescaler.checkpoint_ended(command)
                        self._survivors.checkpoint_ended(command)
                        self._judge.checkpoint_ended(command)
                    self._tell(command)

    def _to_subtask(
        self, message: TriggerCheckpoint | CheckpointComplete | CheckpointAborted | ToOperator
    ) -> None:
        execution = self._graph.current(message.execution)
        if execution is not None and not execution.state.is_terminal:
            self._tell(commands.SendToSlot(execution.slot, message))

    def _tell(self, command: commands.JobCommand) -> None:
        self._commands.append(command)

    def _become(self, status: JobStatus, now_ms: int, error: TidegateError | None = None) -> None:
        if status is self._life.status:
            return
        former = self._life.enter(status, now_ms)
        self._tell(commands.StatusChanged(former, status, self._life.wall_ms(now_ms), error))
        self._checkpoint(JobStatusChanged(status), now_ms)

    # --- start and slots ---

    def _started(self, wall_ms: int, now_ms: int) -> None:
        self._life.start(wall_ms, now_ms)
        self._become(JobStatus.CREATED, now_ms)
        self._become(JobStatus.RUNNING, now_ms)
        self._redeployment = Redeployment(self._graph.regions.all)

    def _offered(self, offer: Offer, now_ms: int) -> None:
        if offer.slot in self._slots:
            return
        if not self._runs or not self._slots.offered(offer, now_ms):
            self._tell(commands.SendToSlot(offer.slot, Refused("the job has slots enough")))
            self._tell(commands.DropSlot(offer.slot, "not needed"))
            return
        accepted = Accepted(offer.slot, self._job, self._graph.epoch, self._settings)
        self._tell(commands.SendToSlot(offer.slot, accepted))

    def _slot_left(self, slot: SlotId, error: TidegateError | None, now_ms: int) -> None:
        if not self._slots.left(slot):
            return
        lost = error or SlotLost(f"slot {slot} has left")
        hosted = self._graph.on_slot(slot)
        for execution in hosted:
            if not execution.state.is_terminal:
                self._enter(execution, ExecutionState.FAILED, now_ms, lost)
        alive = [execution for execution in hosted if not execution.state.is_terminal]
        assert not alive, "nothing runs in a slot that has left"
        # A subtask that has finished has passed everything on, and is not missed.
        failed = [e.id.subtask for e in hosted if e.state is not ExecutionState.FINISHED]
        self._slots.error = lost
        if failed:
            self._failed(Failure(lost, slot=slot), failed, now_ms)
        elif self._redeployment is not None:
            self._note(Failure(lost, slot=slot), now_ms, root=False)

    def _request_failed(self, error: TidegateError, final: bool, now_ms: int) -> None:
        self._slots.request_failed(error, now_ms)
        # Where asking again does not help, and the job has too few slots to go on, waiting is vain.
        if final and self._runs and not self._survivors.enough(self._redeployment):
            self._end_with(self._judge.without_slots(error, lasting=self._lasting), now_ms)
        elif final and not self._slots.complete:
            self._rescaler.end(error)
            self._survivors.no_slot_will_come(error)

    def _woke(self, now_ms: int) -> None:
        planned = self.wake_at_ms
        # Slots have sent their pulses meanwhile; this process alone has not read them.
        if planned is not None and now_ms - planned > LATE_WAKE_MS:
            self._slots.stood_still(now_ms - planned, now_ms)
            self._awaited[0].stood_still(now_ms)
        self._checkpoint(Woke(), now_ms)
        for slot in self._slots.expired(now_ms):
            self._give_up(slot, f"no sign of life for {self._settings.slot.lease_ms} ms", now_ms)
        for slot in self._graph.canceling_since(now_ms - CANCEL_TIMEOUT_MS):
            self._give_up(slot, "its subtasks did not end when they were cancelled", now_ms)
        self._report_missing_slots(now_ms)

    def _give_up(self, slot: SlotId, why: str, now_ms: int) -> None:
        self._tell(commands.DropSlot(slot, why))
        self._slot_left(slot, SlotLost(f"slot {slot} is given up: {why}"), now_ms)

    def _report_missing_slots(self, now_ms: int) -> None:
        wait, count = self._awaited
        within_ms = self._settings.slots_timeout_ms
        if self._redeployment is None:
            self._survivors.report(now_ms)
        if wait.since_ms is None or len(self._slots) >= count:
            return
        if now_ms - wait.grown_ms < within_ms:
            self._commands += wait.report(self._slots, count, now_ms)
        elif self._redeployment is not None:
            shortage = self._slots.shortage(count, within_ms)
            self._slots_missing(self._redeployment, shortage, now_ms)
        else:
            self._rescaler.end(self._slots.shortage(count, within_ms))

    def _slots_missing(self, redeployment: Redeployment, error: TidegateError, now_ms: int) -> None:
        """A failure like others, once the job has run: the restart under way waits anew."""
        self._note(Failure(error), now_ms, root=True)
        match self._judge.slots_missing(error, now_ms, lasting=self._lasting):
            case Ending() as ending:
                self._end_with(ending, now_ms)
            case again:
                redeployment.slots, redeployment.due_ms = SlotWait(), now_ms + again.delay_ms
                self._tell(again)

    @property
    def _lasting(self) -> bool:
        """True if there is, or may be, a checkpoint to resume the job from."""
        return not self._checkpoints.settled or self._checkpoints.latest_completed() is not None

    @property
    def _awaited(self) -> tuple[SlotWait, int]:
        """The wait for slots that counts now, with their number."""
        if self._redeployment is not None:
            return self._redeployment.slots, self._survivors.least(self._redeployment)
        return self._rescaler.slots, self._slots.wanted

    # --- subtasks ---

    def _subtask_changed(self, change: SubtaskChanged, now_ms: int) -> None:
        execution = self._graph.current(change.execution)
        if execution is None or execution.state.is_terminal:
            return
        execution.figures = change.figures or execution.figures
        execution.metrics = change.metrics or execution.metrics
        match change.state:
            case ExecutionState.INITIALIZING:
                execution.restored = True
                execution.restore_ms = change.restore_ms
            case ExecutionState.FAILED:
                error = change.error or SlotLost("a subtask failed without saying why")
                self._enter(execution, ExecutionState.FAILED, now_ms, error)
                self._execution_failed(execution, error, now_ms)
            case ExecutionState.RUNNING:
                if execution.state is ExecutionState.INITIALIZING:
                    self._enter(execution, ExecutionState.RUNNING, now_ms)
                    if operators := tuple(self._graph.coordinated((execution,))):
                        self._tell(commands.SubtaskReady(execution.id, operators))
                    self._judge.ran = self._judge.ran or self._graph.all_run
            case _:
                asked = execution.state is ExecutionState.CANCELING
                self._enter(execution, change.state, now_ms)
                if change.state is ExecutionState.CANCELED and not asked:
                    lost = SlotLost("a slot ended a subtask unasked")
                    self._execution_failed(execution, lost, now_ms)

    def _execution_failed(self, execution: Execution, error: TidegateError, now_ms: int) -> None:
        subtask = execution.id.subtask
        failure = Failure(
            error, self._task(subtask.vertex), execution.slot, restores=not execution.restored
        )
        self._failed(failure, (subtask,), now_ms)

    def _enter(
        self,
        execution: Execution,
        state: ExecutionState,
        now_ms: int,
        error: TidegateError | None = None,
    ) -> None:
        execution.enter(state, now_ms)
        self._checkpoint(ExecutionChanged(execution.id, state, error), now_ms)

    def _start_if_restored(self) -> None:
        """Start what was deployed together, together; what has failed meanwhile holds up nobody."""
        for execution in self._graph.startable():
            self._tell(commands.SendToSlot(execution.slot, Start(execution.id)))

    def _task(self, vertex: VertexId) -> str:
        return self._graph.topology.vertex(vertex).name

    # --- failure and the end ---

    def _failed(self, failure: Failure, subtasks: Iterable[SubtaskId] | None, now_ms: int) -> None:
        """Something has failed: restart what has to be, or end, unless that is under way already.

        subtasks: those that failed; None for the job as a whole.
        """
        behind_savepoint = self._stopper.failed(failure)
        if behind_savepoint is not None:
            failure, subtasks = behind_savepoint, None
        restarting = self._redeployment is not None and self._redeployment.due_ms is not None
        if not self._runs or restarting:
            planned = self._redeployment is not None and self._redeployment.planned
            self._note(failure, now_ms, root=self._runs and planned)
            apart = self._runs and self._take_along(subtasks, now_ms)
            # Damage is met again at the next deployment, which may then fall back.
            if apart and not self._may_fall_back(failure):
                final = self._judge.final(failure, self._restored)
                if final is not None:
                    self._end_with(final, now_ms)  # no consequence of what is restarted already
            return
        self._note(failure, now_ms, root=True)
        if self._fell_back(failure, now_ms):
            return
        match self._judge.judge(failure, self._restored, now_ms):
            case Ending() as ending:
                self._end_with(ending, now_ms)
            case restarting:
                self._restart(restarting, subtasks, now_ms)

    def _may_fall_back(self, failure: Failure) -> bool:
        return self._settings.restore.fall_back and is_damage(failure)

    def _fell_back(self, failure: Failure, now_ms: int) -> bool:
        """True if the job is restored from an older checkpoint instead, as configured."""
        damaged = self._restored
        if damaged is None or not self._may_fall_back(failure):
            return False
        older = self._checkpoints.give_up(damaged)
        if older is not None:
            assert older.checkpoint != damaged, "what is given up is not restored again"
            why = commands.FallingBack(damaged, older.checkpoint, failure.error)
            self._restart(why, None, now_ms)
        return older is not None

    def _restart(
        self,
        why: commands.Restarting
        | commands.Rescaling
        | commands.FallingBack
        | commands.GuestsReturn,
        subtasks: Iterable[SubtaskId] | None,
        now_ms: int,
    ) -> None:
        """Stops what must restart, to deploy it again. subtasks: as of `_failed`."""
        delay_ms = why.delay_ms if isinstance(why, commands.Restarting) else 0
        planned = isinstance(why, commands.Rescaling | commands.GuestsReturn)
        error = None if planned else why.error
        assert self._redeployment is None or self._redeployment.due_ms is None, "one at a time"
        assert self._runs, "a job that ends is not restarted"
        self._redeployment = Redeployment((), due_ms=now_ms + delay_ms, planned=planned)
        self._checkpoint(FailoverStarted(), now_ms)
        self._become(JobStatus.RESTARTING, now_ms, error)
        self._tell(why)
        self._take_along(subtasks, now_ms)

    def _note(self, failure: Failure, now_ms: int, *, root: bool) -> None:
        number = self._failures.add(failure, self._life.wall_ms(now_ms), root=root)
        if number is not None:
            self._tell(commands.LabelFailure(number, failure.error, failure.task, failure.slot))

    def _take_along(self, failed: Iterable[SubtaskId] | None, now_ms: int) -> bool:
        """Have all restarted that has to be with these; whether that is more than before."""
        redeployment = self._redeployment
        assert redeployment is not None, "a restart is under way"
        before = redeployment.subtasks
        whole = self._graph.regions.all
        redeployment.subtasks = (
            whole if failed is None else self._graph.regions.closure((*before, *failed))
        )
        assert set(before) <= set(redeployment.subtasks), "what is stopped is deployed again"
        if len(redeployment.subtasks) == len(before):
            return False
        # Where some subtasks go on, so do the coordinators: they hear which of them were reset.
        if redeployment.subtasks == whole:
            self._tell(commands.CloseCoordinators())
        self._stop(self._graph.of(redeployment.subtasks), now_ms)
        return True

    def _end_with(self, ending: Ending, now_ms: int) -> None:
        """Abort what checkpoints are under way, close coordinators, cancel what still runs."""
        if not self._runs:
            return
        self._ending = ending
        if ending.until_then is not None:
            self._become(ending.until_then, now_ms, ending.cause)
        # Checkpoints first: their subtasks are cancelled next, and none would be acknowledged.
        self._checkpoint(FailoverStarted(), now_ms)
        self._tell(commands.CloseCoordinators())
        self._stop(self._graph, now_ms)

    def _stop(self, executions: Iterable[Execution], now_ms: int) -> None:
        for execution in executions:
            ending = execution.state.is_terminal or execution.state is ExecutionState.CANCELING
            if not ending:
                self._enter(execution, ExecutionState.CANCELING, now_ms)
                self._tell(commands.SendToSlot(execution.slot, Cancel(execution.id)))

    # --- going on ---

    def _go_on(self, now_ms: int) -> None:
        if not self._life.begun or self._life.over:
            return
        self._start_if_restored()
        if self._ending is not None:
            if self._graph.all_ended:
                self._end(self._ending.status, now_ms, self._ending.error)
        elif self._redeployment is not None:
            self._deploy_if_possible(self._redeployment, now_ms)
        elif self._graph.all_finished:
            self._end(JobStatus.FINISHED, now_ms, None)
        else:
            rescaling = self._rescaler.go_on(now_ms, all_run=self._graph.all_run)
            settled = self._checkpoints.settled and not self._stopper.under_way
            if rescaling is not None:
                self._restart(rescaling, None, now_ms)
            elif (returning := self._survivors.go_on(now_ms, settled=settled)) is not None:
                self._restart(returning, returning.subtasks, now_ms)

    def _deploy_if_possible(self, redeployment: Redeployment, now_ms: int) -> None:
        ended = all(e.state.is_terminal for e in self._graph.of(redeployment.subtasks))
        # A checkpoint that is being completed may yet be the newest one, from which to restore.
        ready = ended and self._checkpoints.settled
        if ready and self._rescaler.stopping:
            self._reshape(redeployment, now_ms)
        least = self._survivors.least(redeployment)
        self._commands += redeployment.slots.go_on(self._slots, least, now_ms)
        if len(self._slots) >= least and not self._slots.enough:
            self._commands += self._slots.ask(now_ms)
        redeployment.waited = redeployment.due_ms is None or now_ms >= redeployment.due_ms
        if not (ready and redeployment.waited and self._survivors.enough(redeployment)):
            return
        if self._program.hooks and not redeployment.hooks_ready:
            self._restore_hooks(redeployment)
            return
        # It is over before the status changes: a failure that comes of that is one of its own.
        self._redeployment = None
        self._slots.error = None
        self._become(JobStatus.RUNNING, now_ms)
        self._deploy(redeployment.subtasks, now_ms)

    def _restore_hooks(self, redeployment: Redeployment) -> None:
        if redeployment.hooks_asked:
            return
        redeployment.hooks_asked = True
        # The first start has refused state of a hook that is missing, or was told to drop it.
        again = self._judge.restarts + self._rescaler.rescales > 0
        allow = again or self._settings.restore.allow_non_restored
        latest = self._checkpoints.latest_completed()
        self._tell(restore_hooks(latest, allow_unmatched=allow))

    def _hooks_answered(
        self, event: events.HooksRestored | events.HooksNotRestored, now_ms: int
    ) -> None:
        """A failure is one of its own, though another one's restart is under way."""
        if isinstance(event, events.HooksNotRestored):
            if self._runs:
                self._redeployment = None
                self._failed(Failure(event.error), None, now_ms)
        elif self._redeployment is not None:
            self._redeployment.hooks_ready = True

    def _deploy(self, subtasks: Collection[SubtaskId], now_ms: int) -> None:
        """Spread the newest completed checkpoint over a new attempt of each of these subtasks."""
        regions = self._graph.regions.closure(subtasks)
        assert set(regions) == set(subtasks), "connected subtasks are deployed together"
        latest = self._checkpoints.latest_completed()
        topology = self._graph.topology
        assigned = shares(latest, topology, self._settings.restore)
        self._restored = latest.checkpoint if latest else None
        self._checkpoint(Restored(self._restored, self._life.wall_ms(now_ms)), now_ms)
        living = (e for e in self._graph if not e.state.is_terminal)
        places = self._slots.places((e.id.subtask.index, e.slot) for e in living)
        executions = self._graph.deploy(subtasks, places, now_ms)
        for execution in executions:
            self._checkpoint(ExecutionChanged(execution.id, ExecutionState.CREATED), now_ms)
        assert len(executions) == len(subtasks), "each subtask is deployed once"
        attempt = max(execution.id.attempt for execution in executions)
        self._tell(commands.Deployed(attempt, self._restored, len(executions)))
        coordinated = self._graph.coordinated(executions)
        if subtasks == self._graph.regions.all:
            restore = self._settings.restore
            self._tell(start_coordinators(latest, topology, coordinated, restore))
        else:
            self._tell(commands.ResetSubtasks(self._restored, coordinated))
        for execution in executions:
            subtask = execution.id.subtask
            plan, restore = self._program.plans[subtask.vertex], assigned.get(subtask)
            deploy = self._graph.deployment(
                execution, plan, self._slots.address, self._restored, restore
            )
            for state in (ExecutionState.SCHEDULED, ExecutionState.DEPLOYING):
                execution.enter(state, now_ms)
            self._enter(execution, ExecutionState.INITIALIZING, now_ms)
            self._tell(commands.SendToSlot(execution.slot, deploy))
        self._survivors.deployed()

    def _reshape(self, redeployment: Redeployment, now_ms: int) -> None:
        """Nothing runs any more: the job takes the shape that it is rescaled to, if it can."""
        topology = self._rescaler.stopped()
        if topology is not None:
            self._graph.reshape(topology)
            self._checkpoint(Rescaled(topology), now_ms)
            redeployment.subtasks = self._graph.regions.all

    def _end(self, status: JobStatus, now_ms: int, error: TidegateError | None) -> None:
        assert self._graph.all_ended, "subtasks of a job that is over are alive"
        finished = status is not JobStatus.FINISHED or self._graph.all_finished
        assert finished, "a job has finished when each of its subtasks has"
        self._become(status, now_ms, error)
        self._checkpoint(JobEnded(status), now_ms)
        self._stopper.ended(status)
        self._tell(commands.CloseCoordinators())
        self._tell(commands.ReleaseSlots(f"the job is {status.value}"))
        self._tell(commands.JobOver(status, error))

    # --- what others may see ---

    @property
    def settled(self) -> bool:
        """True if the job is over, its checkpoints are in order, and nothing is awaited."""
        return self._life.over and self._checkpoints.settled

    def view(self, now_ms: int) -> JobView:
        return JobView(
            job=self._job,
            name=self._program.name,
            epoch=self._graph.epoch,
            status=self._life.status,
            timestamps_ms=self._life.timestamps_ms,
            restarts=self._judge.restarts,
            restored=self._restored,
            vertices=self._graph.view(self._life.wall_ms(0), self._survivors.guests),
            edges=self._graph.topology.edges,
            failures=self._failures.view(),
            slots=self._slots.view(now_ms, self._graph.name),
            slots_wanted=self._slots.wanted,
            checkpoints=self._checkpoints.statistics,
            settings=self._settings,
            rescales=self._rescaler.rescales,
            counts=self._graph.counts,
            stopping=self._stopping(now_ms),
        )

    def _stopping(self, now_ms: int) -> StopView | None:
        """Reason why a stop with savepoint waits; None if there is no such stop."""
        since_ms, saved = self._stopper.since_ms, self._stopper.saved
        if since_ms is None or self._life.over:
            return None
        waits = tuple(
            self._slots.waits(execution.id, execution.slot, self._graph.name(execution.id), now_ms)
            for execution in self._graph
            if not execution.state.is_terminal
            and (saved is not None or self._checkpoints.waits_for(execution.id))
        )
        return StopView(now_ms - since_ms, saved, waits)
