"""The checkpoint coordinator: decides when checkpoints are taken, completed and given up.

It performs nothing: events go in, commands come out. One trigger sequence runs at a time, though
several checkpoints may be pending:

    request → plan → id → folder → operators' coordinators → hooks → subtasks

and one checkpoint at a time is finished, each step durable before the next:

    all acknowledged → metadata written → pointer added → subtasks told → older ones deleted

A checkpoint exists once its pointer stands. Until then it can be given up, with one exception:
while a pointer is being added nobody knows, so nothing aborts it and whoever wants to restore
waits until ``settled``. Where the outcome is unknown the pointer is added again, until the job
ends. The timeout runs from the trigger to the last acknowledgement, and anew while metadata is
written, for a store may hang.

Source: checkpoint coordination §2 to §10, §16. What differs from Flink:

- The savepoint with which a job stops gets a pointer too, before anybody is told: sinks commit on
  it, so a later failure has to restore from it (§7.3, §9.5).
- A job that is restored from a savepoint that it may not delete takes a full checkpoint next,
  whoever made the savepoint.
- When subtasks have to be restored, nothing is triggered until `Restored`.
- A subtask that ends or fails without having acknowledged gives its checkpoint up at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.disposal import Disposal
from tidegate.checkpoint.coordinator.finishing import Finished, Finisher
from tidegate.checkpoint.coordinator.gateways import Gateways
from tidegate.checkpoint.coordinator.pending import AcknowledgeResult, PendingCheckpoint, Stage
from tidegate.checkpoint.coordinator.readiness import Readiness
from tidegate.checkpoint.coordinator.reports import Reports, reason_of
from tidegate.checkpoint.coordinator.requests import options_of, periodic_request
from tidegate.checkpoint.coordinator.schedule import Schedule
from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
from tidegate.checkpoint.coordinator.triggers import TooSoon, Triggers, asked_request
from tidegate.errors import CheckpointAborted as Aborted
from tidegate.model.control import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    ExecutionState,
    ToOperator,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.checkpoint.coordinator.plan import CheckpointPlan
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.checkpoint.coordinator.statistics import StatisticsView
    from tidegate.checkpoint.registry import SharedStateRegistry
    from tidegate.errors import TidegateError
    from tidegate.model.chance import Chance
    from tidegate.model.control import JobStatus
    from tidegate.model.ids import ExecutionId, JobId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.model.topology import Topology


class CheckpointCoordinator:
    """Checkpoints of one job under one leader.

    completed: what was found at the start. registry: empty; what the completed ones share is noted.
    facts: what ``_metadata`` is to say beside the state, such as job name and versions; JSON.
    """

    def __init__(
        self,
        job: JobId,
        settings: CheckpointSettings,
        topology: Topology,
        completed: CompletedCheckpoints,
        registry: SharedStateRegistry,
        chance: Chance,
        *,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = settings
        self._completed = completed
        self._out: list[commands.CheckpointCommand] = []
        self._now_ms = 0
        self._readiness = Readiness(topology)
        self._schedule = Schedule(settings, chance)
        self._force_full = False
        highest = max((c.checkpoint for c in completed.retained), default=CheckpointId(0))
        self._triggers = Triggers(settings, highest)
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._gateways = Gateways()
        self._statistics = StatisticsTracker(settings.history_max)
        self._reports = Reports(job, settings.tolerable_failures, self._statistics)
        self._disposal = Disposal(completed, registry, self._statistics)
        self._finisher = Finisher(completed, registry, facts or {})
        for known in completed.retained:
            registry.register_restored(known.metadata, known.properties, known.foreign)

    @property
    def statistics(self) -> StatisticsView:
        return replace(self._statistics.view(), backlog=self._schedule.backlog)

    @property
    def settled(self) -> bool:
        """True if it is known which checkpoint is the latest: no pointer is being added."""
        return self._finisher.settled

    @property
    def ended(self) -> bool:
        """True if the job has ended and nothing is left to do about its checkpoints."""
        return self._disposal.ended

    @property
    def wake_at_ms(self) -> int | None:
        """Time for the next `Woke`; None for never."""
        deadlines = [p.deadline_ms for p in self._pending.values() if p.may_expire()]
        if self._schedule.next_ms is not None:
            deadlines.append(self._schedule.next_ms)
        if self._finisher.again_ms is not None:
            deadlines.append(self._finisher.again_ms)
        return min(deadlines, default=None)

    def give_up(self, checkpoint: CheckpointId) -> CompletedCheckpoint | None:
        """Drops a damaged checkpoint; returns its replacement, if any."""
        return self._completed.give_up(checkpoint)

    def waits_for(self, execution: ExecutionId) -> bool:
        """True if a pending savepoint has still to hear from this attempt."""
        pending = self._pending.values()
        return any(
            each.is_savepoint and each.acknowledgements.waits_for(execution) for each in pending
        )

    def latest_completed(self) -> CompletedCheckpoint | None:
        """The checkpoint to restore from; None if there is none. Ask only while ``settled``.

        Raises AssertionError once the job has ended, under ``python -O`` too: its checkpoints may
        be deleted by then.
        """
        if self._readiness.ended is not None or not self.settled:
            raise AssertionError("it is shut down, or the latest is not known")
        return self._completed.latest

    def handle(
        self, event: events.CheckpointEvent, now_ms: int
    ) -> list[commands.CheckpointCommand]:
        """Commands for an event, in order; a restart comes last."""
        assert now_ms >= self._now_ms, "time does not go back"
        self._out = []
        self._now_ms = now_ms
        if isinstance(event, CheckpointAcknowledged):
            self._acknowledged(event)
        elif isinstance(event, CheckpointDeclined):
            self._declined(event)
        elif isinstance(event, events.NextIdTaken | events.NextIdFailed):
            self._id_answered(event)
        elif isinstance(event, events.JobEvent):
            self._job_event(event)
        elif isinstance(event, events.TriggerAnswer):
            self._trigger_answered(event)
        else:
            self._store_answered(event)
        self._advance()
        # Whoever asked has an answer, and files to delete are named, before the job restarts: what
        # a restart makes of the rest of the commands need not be asked.
        return [*self._out, *self._reports.take_restarts()]

    def _advance(self) -> None:
        """Performs all steps that the event has made possible."""
        self._finish_next()
        self._trigger_subtasks()
        self._choose_requests()
        self._forget_pointers()

    # --- the job ------------------------------------------------------------------------------

    def _job_event(self, event: events.JobEvent) -> None:
        match event:
            case events.Woke():
                self._woke()
            case events.JobStatusChanged(status):
                self._readiness.status_changed(status)
                self._activate()
            case events.ExecutionChanged(execution, state, error):
                self._execution_changed(execution, state, error)
            case events.FailoverStarted():
                self._readiness.failover_started()
                self._abort_all(FailureReason.JOB_FAILOVER_REGION)
                self._activate()
            case events.Restored(checkpoint, wall_ms):
                self._restored(checkpoint, wall_ms)
            case events.Rescaled(topology):
                self._readiness.rescaled(topology)
            case events.BacklogReported(operator, backlog):
                self._schedule.report_backlog(operator, backlog, self._now_ms)
            case events.OperatorEventSent(execution, operator, sent):
                self._out.extend(self._gateways.send(ToOperator(execution, operator, sent)))
            case events.CheckpointRequested():
                self._requested(event)
            case events.JobEnded(status):
                self._job_ended(status)
            case _:
                assert_never(event)

    def _woke(self) -> None:
        for pending in list(self._pending.values()):
            if pending.may_expire() and pending.deadline_ms <= self._now_ms:
                self._abort(pending, FailureReason.CHECKPOINT_EXPIRED)
        again_ms = self._finisher.again_ms
        if again_ms is not None and again_ms <= self._now_ms:
            self._out.append(self._finisher.add_again())
        if self._schedule.due(self._now_ms):
            self._submit(periodic_request(self._settings, self._now_ms))

    def _activate(self) -> None:
        """Take checkpoints while the whole job runs and nothing keeps them off."""
        wanted = self._readiness.wanted
        if wanted and not self._schedule.running:
            self._schedule.start(self._now_ms)
        elif not wanted and self._schedule.running:
            self._suspend(FailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        # Asked again: a request that was refused here may have let the job continue.
        assert self._schedule.running is self._readiness.wanted, "triggers go with the job"

    def _suspend(self, reason: FailureReason) -> None:
        """Stop the periodic triggers and give up all that waits or is under way."""
        self._schedule.stop()
        for request in self._triggers.drain():
            self._refuse(request, reason)
        self._abort_all(reason)

    def _abort_all(self, reason: FailureReason) -> None:
        for pending in list(self._pending.values()):
            if pending.stage is not Stage.ADDING:
                self._abort(pending, reason)

    def _execution_changed(
        self, execution: ExecutionId, state: ExecutionState, error: TidegateError | None
    ) -> None:
        if not self._readiness.execution_changed(execution, state):
            return
        if state.is_terminal:
            reason = FailureReason.TASK_FAILURE
            if state is ExecutionState.FINISHED:
                reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
            else:
                self._gateways.drop(execution)
            cause = "" if error is None else str(error)
            for pending in list(self._pending.values()):
                if pending.acknowledgements.waits_for(execution):
                    self._abort(pending, reason, cause, execution=execution)
        self._activate()

    def _restored(self, checkpoint: CheckpointId | None, wall_ms: int) -> None:
        self._readiness.restored()
        if checkpoint is not None:
            completed = self._completed.find(checkpoint)
            assert completed is not None, f"checkpoint {checkpoint} is not retained"
            self._statistics.restored(completed, wall_ms)
            # A file of a snapshot that is not ours may go at any time: nothing may be based on it.
            self._force_full = not completed.ours
        self._activate()

    def _job_ended(self, status: JobStatus) -> None:
        if self._readiness.ended is not None:
            return
        self._readiness.end(status)
        self._reports.job_ended()
        self._suspend(FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN)
        if (doubtful := self._finisher.doubtful()) is not None:
            self._disposal.doubted(self._finisher.in_question)
            self._abort(doubtful, FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, keep=True)
        if (request := self._triggers.end()) is not None:
            self._fail(request, FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN)
        assert not self._triggers.waiting, "nothing begins after the end"

    def _forget_pointers(self) -> None:
        """Once the job has ended and the last pointer is settled, keep what outlives it."""
        ended = self._readiness.ended
        if ended is not None and not self._disposal.ending and self.settled:
            self._out.append(self._disposal.end(ended))

    # --- requests -----------------------------------------------------------------------------

    def _requested(self, asked: events.CheckpointRequested) -> None:
        request = asked_request(asked, self._settings, self._now_ms)
        refusal = self._readiness.refusal(request)
        if refusal is not None:
            self._refuse(request, refusal)
        elif asked.kind.is_savepoint and not (asked.target or self._settings.savepoint_directory):
            self._out.append(self._reports.no_folder(asked.request))
        else:
            if request.holds:
                self._readiness.hold(request)
                self._suspend(FailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
            self._submit(request)

    def _submit(self, request: Request) -> None:
        evicted = self._triggers.submit(request)
        if evicted is not None:
            self._refuse(evicted, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS)

    def _choose_requests(self) -> None:
        while True:
            match self._triggers.choose(len(self._pending), self._disposal.cleaning, self._now_ms):
                case None:
                    return
                case TooSoon(request, next_ms):
                    self._refuse(request, FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)
                    self._schedule.postpone(next_ms)
                    return
                case request:
                    if self._plan(request) is not None:
                        self._out.append(self._triggers.begin(request))

    def _plan(self, request: Request) -> CheckpointPlan | None:
        """Participants; None if the request has failed, and was answered."""
        reason = self._readiness.hindrance(request)
        if request.periodic and not self._schedule.running:
            reason = FailureReason.PERIODIC_SCHEDULER_SHUTDOWN
        if reason is not None:
            self._fail(request, reason)
            return None
        try:
            return self._readiness.plan(after_tasks_finish=self._settings.after_tasks_finish)
        except Aborted as aborted:
            self._fail(request, FailureReason.of(aborted), str(aborted))
            return None

    def _refuse(self, request: Request, reason: FailureReason) -> None:
        """Answers a request that was never started."""
        self._let_go(request)
        self._out.extend(self._reports.refused(request, reason))

    def _fail(self, request: Request, reason: FailureReason, cause: str = "") -> None:
        """Aborts a trigger that has no checkpoint id yet."""
        self._let_go(request)
        self._out.extend(self._reports.failed_before(request, reason, cause))

    def _let_go(self, request: Request) -> None:
        """A request is over without success: what it held back may go on."""
        if self._readiness.let_go(request):
            self._activate()

    # --- the trigger sequence -----------------------------------------------------------------

    def _id_answered(self, event: events.NextIdTaken | events.NextIdFailed) -> None:
        request = self._triggers.answered(event)
        if request is None:
            return
        match event:
            case events.NextIdFailed(_, error):
                reason = reason_of(error, FailureReason.TRIGGER_CHECKPOINT_FAILURE)
                self._fail(request, reason, str(error))
            case events.NextIdTaken(_, checkpoint, wall_ms):
                # The job may have changed while the id was being taken.
                plan = self._plan(request)
                if plan is not None:
                    self._triggers.go_on(request, checkpoint)
                    self._create(checkpoint, request, plan, wall_ms)

    def _create(
        self, checkpoint: CheckpointId, request: Request, plan: CheckpointPlan, wall_ms: int
    ) -> None:
        pending = PendingCheckpoint(
            checkpoint=checkpoint,
            request=request,
            plan=plan,
            topology=self._readiness.topology,
            triggered_ms=wall_ms,
            begun_ms=self._now_ms,
            deadline_ms=self._now_ms + self._settings.timeout_ms,
        )
        assert checkpoint not in self._pending, "an id is taken once"
        self._pending[checkpoint] = pending
        self._statistics.triggered(
            checkpoint, request, pending.topology, triggered_ms=wall_ms, begun_ms=self._now_ms
        )
        self._out.append(commands.PrepareLocation(checkpoint, pending.is_savepoint, request.target))

    def _trigger_answered(self, event: events.TriggerAnswer) -> None:
        pending = self._pending.get(event.checkpoint)
        if pending is None:
            self._answered_too_late(event)
            return
        match event:
            case events.LocationReady(_, location):
                self._out.extend(pending.location_ready(location))
            case events.CoordinatorSnapshotTaken(_, operator, data):
                subtasks = pending.awaited_of(operator)
                self._gateways.close(pending.checkpoint, operator, subtasks)
                self._out.extend(pending.coordinator_acknowledged(operator, data))
            case events.HooksTriggered(_, states):
                pending.hooks_triggered(states)
            case (
                events.LocationFailed(error=error)
                | events.CoordinatorSnapshotFailed(error=error)
                | events.HookFailed(error=error)
                | events.TriggerFailed(error=error)
            ):
                reason = reason_of(error, FailureReason.TRIGGER_CHECKPOINT_FAILURE)
                answered = isinstance(event, events.LocationFailed)
                self._abort(pending, reason, str(error), answered=answered)
            case _:
                assert_never(event)

    def _answered_too_late(self, event: events.TriggerAnswer | events.StoreAnswer) -> None:
        """Answers about an aborted checkpoint: the things it names are dropped too."""
        match event:
            case events.LocationReady(checkpoint, location):
                self._out.extend(self._disposal.answered(checkpoint, location))
            case (
                events.LocationFailed(checkpoint)
                | events.MetadataWritten(checkpoint)
                | events.MetadataFailed(checkpoint)
            ):
                self._out.extend(self._disposal.answered(checkpoint, None))
            case _:
                pass

    def _trigger_subtasks(self) -> None:
        """Send the triggers, unless something held back belongs before this checkpoint's cut."""
        checkpoint = self._triggers.checkpoint
        if checkpoint is None:
            return
        pending = self._pending[checkpoint]
        if pending.stage is not Stage.READY or self._gateways.holds_before(pending.checkpoint):
            return
        assert pending.location is not None, "the folder comes first"
        options = options_of(
            pending.request, self._settings, full=self._force_full, location=pending.location
        )
        self._triggers.over(checkpoint)
        self._out.extend(pending.trigger(options))

    def _acknowledged(self, message: CheckpointAcknowledged) -> None:
        pending = self._pending.get(message.checkpoint)
        if pending is None or not pending.acknowledgements.takes_part(message.execution):
            self._ignore(message, self._disposal.why_in_vain(message.checkpoint, pending))
            self._out.extend(self._disposal.acknowledged_in_vain(message, pending))
            return
        try:
            states = self._disposal.register(message, savepoint=pending.is_savepoint)
        except Aborted as aborted:
            reason = FailureReason.of(aborted)
            self._abort(pending, reason, str(aborted), execution=message.execution)
            self._out.extend(self._disposal.acknowledged_in_vain(message, pending))
            return
        result = pending.acknowledge(message, states)
        if result is AcknowledgeResult.DUPLICATE:
            self._ignore(message, commands.Ignored.DUPLICATE)
            return
        assert result is AcknowledgeResult.SUCCESS, "the attempt takes part, and it is pending"
        self._statistics.acknowledged(message, self._now_ms)
        self._out.extend(self._gateways.acknowledged(message.checkpoint, message.execution))
        if pending.all_acknowledged:
            self._finisher.all_acknowledged(pending)

    def _declined(self, message: CheckpointDeclined) -> None:
        pending = self._pending.get(message.checkpoint)
        if pending is None or not pending.acknowledgements.takes_part(message.execution):
            self._ignore(message, self._disposal.why_in_vain(message.checkpoint, pending))
        elif pending.acknowledgements.complete:
            self._ignore(message, commands.Ignored.DUPLICATE)
        else:
            self._abort(pending, message.reason, message.message, execution=message.execution)

    def _ignore(
        self, message: CheckpointAcknowledged | CheckpointDeclined, why: commands.Ignored
    ) -> None:
        self._out.append(commands.MessageIgnored(message.execution, message.checkpoint, why))

    # --- completion ---------------------------------------------------------------------------

    def _finish_next(self) -> None:
        """Writes the metadata of the next checkpoint that all have acknowledged."""
        while (pending := self._finisher.next()) is not None:
            try:
                self._out.append(self._finisher.write(pending))
                # A savepoint is read back behind that, for which slots have as long once more.
                times = 2 if pending.is_savepoint else 1
                pending.deadline_ms = self._now_ms + times * self._settings.timeout_ms
            except Aborted as aborted:
                self._abort(pending, FailureReason.of(aborted), str(aborted))

    def _store_answered(self, event: events.StoreAnswer) -> None:
        match event:
            case events.MetadataWritten() | events.MetadataFailed() if (
                event.checkpoint not in self._pending
            ):
                self._answered_too_late(event)
            case events.MetadataWritten():
                self._metadata_written(event)
            case events.MetadataFailed(checkpoint, error):
                self._finish_failed(checkpoint, Stage.WRITING, error)
            case events.PointerAdded(checkpoint):
                self._complete(self._finisher.added(checkpoint))
            case events.PointerFailed():
                self._pointer_failed(event)
            case events.PointersForgotten():
                self._out.extend(self._disposal.forgotten())
            case events.PointersNotForgotten():
                self._disposal.not_forgotten()
            case events.Cleaned(checkpoint):
                self._disposal.cleaned(checkpoint)
            case _:
                assert_never(event)

    def _pointer_failed(self, event: events.PointerFailed) -> None:
        if event.outcome_unknown and self._readiness.ended is None:
            self._finisher.in_doubt(event.checkpoint, self._now_ms)
            return
        # A later refusal, as of a deposed leader, says nothing of the first try.
        keep = event.outcome_unknown or self._finisher.may_stand
        if keep:
            self._disposal.doubted(self._finisher.in_question)
        self._finish_failed(event.checkpoint, Stage.ADDING, event.error, keep=keep)

    def _finish_failed(
        self, checkpoint: CheckpointId, stage: Stage, error: TidegateError, *, keep: bool = False
    ) -> None:
        pending = self._finisher.failed(checkpoint, stage)
        reason = FailureReason.FINALIZE_CHECKPOINT_FAILURE
        self._abort(pending, reason, str(error), keep=keep, answered=True)

    def _metadata_written(self, event: events.MetadataWritten) -> None:
        match self._finisher.written(event):
            case commands.AddPointer() as add:
                self._out.append(add)
            case Finished() as finished:
                self._complete(finished)

    def _complete(self, finished: Finished) -> None:
        """The checkpoint exists: say so, then delete what it makes needless."""
        pending, completed = finished.pending, finished.completed
        self._remove(pending)
        self._triggers.completed(self._now_ms)
        self._out.extend(
            self._reports.completed(pending, completed, finished.metadata_size, self._now_ms)
        )
        if not pending.is_savepoint or pending.is_synchronous:
            self._supersede(pending, completed)

    def _supersede(self, pending: PendingCheckpoint, completed: CompletedCheckpoint) -> None:
        subsumed = self._completed.add(completed)
        if not pending.is_savepoint:
            self._force_full = False
        for older in list(self._pending.values()):
            if older.checkpoint < pending.checkpoint and not older.is_savepoint:
                self._abort(older, FailureReason.CHECKPOINT_SUBSUMED)
        last = max((one.checkpoint for one in subsumed if one.ours), default=None)
        executions = self._readiness.executions
        self._out.extend(pending.tell_complete(executions, last))
        self._out.extend(self._disposal.subsumed(subsumed, executions.oldest_attempt))

    # --- giving up ----------------------------------------------------------------------------

    def _abort(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        cause: str = "",
        *,
        execution: ExecutionId | None = None,
        keep: bool = False,
        answered: bool = False,
    ) -> None:
        """Give a checkpoint up.

        execution: the attempt at which it failed. keep: whether its pointer stands is not known, so
        nothing is deleted and no subtask is told. answered: no answer about it is to come.
        """
        unanswered = not answered and pending.stage in (Stage.LOCATION, Stage.WRITING)
        self._remove(pending)
        self._out.extend(self._gateways.aborted(pending.checkpoint))
        if not keep:
            latest = self._completed.latest_id
            self._out.extend(pending.tell_aborted(self._readiness.executions, latest))
            self._out.extend(self._disposal.give_up(pending, reason, unanswered=unanswered))
        self._let_go(pending.request)
        self._out.extend(self._reports.failed(pending, reason, cause, execution, self._now_ms))

    def _remove(self, pending: PendingCheckpoint) -> None:
        pending.enter(Stage.DISPOSED)
        del self._pending[pending.checkpoint]
        self._finisher.remove(pending)
        self._triggers.over(pending.checkpoint)
