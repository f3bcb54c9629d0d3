"""Checkpoints of one subtask: barriers and words of the driver become cuts, blocks and refusals.

What is decided is decided by a machine of `checkpoint.barriers`; this performs its commands. Events
that must not wait behind rows are urgent: each is a turn of its own, ahead of all other work.

In a cut operators prepare, the barrier leaves, their state is held still. What may not be
interrupted is done at once. Before that the cut waits, turn by turn, until the operators have
nothing in progress.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, assert_never

from tidegate.api.operator import SnapshotContext
from tidegate.checkpoint.barriers.modes import make_barrier_handler
from tidegate.checkpoint.barriers.protocol import (
    AbortedByDriver,
    BarrierCommand,
    BarrierEvent,
    Block,
    Cancel,
    Decline,
    FinishPersisting,
    GiveUp,
    Persist,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)
from tidegate.model.control import CheckpointDeclined
from tidegate.model.elements import CancelBarrier
from tidegate.model.failure_reason import FailureReason
from tidegate.slot.channels.gate import ProcessedBytes
from tidegate.slot.in_flight import InFlight, OutputTimeout
from tidegate.slot.subtask.snapshot import SnapshotTimes, SubtaskSnapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidegate.clock import Clock
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.slot.channels.gate import Gate
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.in_flight import InFlightPlaces
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.ending import Ending
    from tidegate.slot.subtask.host import Host
    from tidegate.state.pending import PendingSnapshot


class Cutting:
    """Cuts one subtask, one checkpoint after the other.

    ends: the operators at which in-flight data come in and leave. last: the newest snapshot.
    """

    def __init__(
        self,
        deployment: Deployment,
        chain: Chain,
        outputs: Outputs,
        ending: Ending,
        in_flight: InFlight,
        ends: tuple[OperatorId, OperatorId],
        processed: ProcessedBytes,
        clock: Clock,
    ) -> None:
        self.last: SubtaskSnapshot | None = None
        self._deployment = deployment
        self._chain = chain
        self._outputs = outputs
        self._ending = ending
        self._in_flight = in_flight
        self._ends = ends
        self._processed = processed
        self._clock = clock
        self._under_way: tuple[Barrier, Iterator[None]] | None = None
        self._given_up: set[CheckpointId] = set()

    @property
    def under_way(self) -> bool:
        """True from `begin` until `go_on` says that the cut is over."""
        return self._under_way is not None

    @property
    def can_go_on(self) -> bool:
        return self._under_way is not None and self._can_cut

    @property
    def _can_cut(self) -> bool:
        return self._chain.can_be_cut and not self._ending.comes_first

    def begin(self, barrier: Barrier, alignment_ms: int) -> None:
        """The barrier has come as it should: cut as soon as that can be."""
        assert self._under_way is None, "a subtask is cut for one checkpoint at a time"
        self._under_way = (barrier, self._cut(barrier, alignment_ms))

    def go_on(self) -> Barrier | None:
        """Go on with the cut; the result is its barrier once the cut is over."""
        assert self._under_way is not None, "a snapshot is being taken"
        barrier, steps = self._under_way
        for _ in steps:
            return None
        self._under_way = None
        return barrier

    def snapshot_of(self, checkpoint: CheckpointId) -> SubtaskSnapshot | None:
        """The newest snapshot, if it is of that checkpoint: one that was given up has none."""
        last = self.last
        return last if last is not None and last.checkpoint == checkpoint else None

    def give_up(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up; one whose cut has not begun is not cut any more."""
        if self._under_way is not None:
            self._given_up.add(checkpoint)

    def is_given_up(self, checkpoint: CheckpointId) -> bool:
        """True if it was given up while an earlier one was cut."""
        return checkpoint in self._given_up

    def forget(self) -> None:
        """Nothing is left to be cut that could have been given up."""
        self._given_up.clear()

    def _cut(self, barrier: Barrier, alignment_ms: int) -> Iterator[None]:
        began_s = self._clock.precise_s()
        delay_ms = max(0, age_ms(self._clock, barrier) - alignment_ms)
        checkpoint, options = barrier.checkpoint, barrier.options
        self._outputs.room.overdraft = options.is_unaligned or options.is_timeoutable
        while not self._can_cut:
            yield
        if checkpoint in self._given_up:
            self._outputs.room.overdraft = False
            return
        live = () if self._deployment.deploy.finished else self._chain.operators
        for each in live:
            each.operator.before_barrier(checkpoint, each.out)
            while not self._chain.can_be_cut:
                yield
        self._outputs.room.overdraft = False
        # Nothing is emitted from here to the last snapshot: the barrier stands for this very state.
        self._in_flight.send(barrier)
        context = SnapshotContext(checkpoint, barrier.triggered_ms)
        pieces: list[tuple[OperatorId, PendingSnapshot]] = []
        durable: list[Awaitable[None]] = []
        for each in reversed(live):
            waited = each.operator.snapshot(context)
            if waited is not None:
                durable.append(waited)
            pending = each.backend.snapshot(checkpoint, options)
            pieces.append((each.context.info.operator, pending))
        self._ending.cut(checkpoint)
        self.last = SubtaskSnapshot(
            barrier,
            pieces,
            durable,
            self._in_flight.result(barrier),
            self._ends,
            SnapshotTimes(
                began_s,
                self._clock.precise_s(),
                alignment_ms,
                delay_ms,
                self._processed.of(checkpoint),
            ),
            part_bytes=self._deployment.settings.slot.part_bytes,
            after_finish=self._ending.operators_finished,
        )
        if not options.is_unaligned:
            self._processed.end(checkpoint)


class Checkpointing:
    """The part that one subtask takes in checkpoints. places: where its in-flight data go."""

    def __init__(
        self,
        deployment: Deployment,
        host: Host,
        gate: Gate,
        chain: Chain,
        outputs: Outputs,
        ending: Ending,
        places: InFlightPlaces,
    ) -> None:
        settings = deployment.settings.checkpoints
        self._execution = deployment.execution
        self._host = host
        self._gate = gate
        self._outputs = outputs
        self._ending = ending
        self._barriers = make_barrier_handler(settings, gate.channels)
        self._processed = ProcessedBytes(gate.inputs)
        self._in_flight = InFlight(gate, outputs.channels, places, self.soon, self._age_ms)
        self._cutting = Cutting(
            deployment,
            chain,
            outputs,
            ending,
            self._in_flight,
            (places.head, places.sender),
            self._processed,
            host.clock,
        )
        if settings.unaligned:
            gate.heard = self._in_flight.heard
        self._urgent: deque[BarrierEvent | OutputTimeout] = deque()
        self._commands: deque[BarrierCommand] = deque()
        self._timer_ms: int | None = None
        self._closed = False

    # --- turns ---

    @property
    def is_urgent(self) -> bool:
        """True if the next turn is for a checkpoint, not for rows."""
        return bool(self._urgent) or self._cutting.can_go_on

    def next(self) -> Callable[[], None] | None:
        if self._urgent:
            return self._be_urgent
        return self._go_on_cutting if self._cutting.can_go_on else None

    def soon(self, event: BarrierEvent | OutputTimeout) -> None:
        """Handle an event in a turn of its own, ahead of all other work."""
        self._urgent.append(event)
        self._host.ready()

    def _be_urgent(self) -> None:
        event = self._urgent.popleft()
        if isinstance(event, OutputTimeout):
            self._in_flight.hasten(event.checkpoint)
        else:
            self.happened(event)

    # --- what happens ---

    def trigger(self, barrier: Barrier) -> None:
        if self._closed:
            self._decline(barrier.checkpoint, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)
        else:
            self.soon(TriggeredByDriver(barrier, self._age_ms(barrier)))

    def give_up(self, checkpoint: CheckpointId) -> None:
        """The driver has given a checkpoint up: keep nothing more for it."""
        self._host.stop_snapshot(checkpoint)
        self._in_flight.give_up(checkpoint, "the driver has given the checkpoint up")

    def abort(self, checkpoint: CheckpointId) -> None:
        """Wait no longer for the barriers of a checkpoint that was given up."""
        self._cutting.give_up(checkpoint)
        self.happened(AbortedByDriver(checkpoint))

    def close(self) -> None:
        """Begin nothing more, as the end has come.

        A barrier that waits to leave still may overtake.
        """
        self._closed = True
        for event in self._urgent:
            if isinstance(event, TriggeredByDriver):
                reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
                self._decline(event.barrier.checkpoint, reason)
        self._urgent = deque(each for each in self._urgent if isinstance(each, OutputTimeout))

    def granted(self) -> None:
        self._in_flight.finish_output_if_left()

    @property
    def is_cutting(self) -> bool:
        return self._cutting.under_way

    def owes(self, checkpoint: CheckpointId) -> bool:
        """True if the subtask has still to be cut for a checkpoint, or its share to be written."""
        last = self._cutting.last
        is_cut = last is not None and last.checkpoint >= checkpoint
        return not is_cut or self._host.is_writing(checkpoint)

    def happened(self, event: BarrierEvent) -> None:
        self._commands += self._barriers.handle(event, self._host.clock.monotonic_ms())
        if self._barriers.aligning is not None:
            self._processed.begin(self._barriers.aligning)
        wake_at_ms = self._barriers.wake_at_ms
        if wake_at_ms is not None and wake_at_ms != self._timer_ms:
            self._timer_ms = wake_at_ms
            self._host.call_at(wake_at_ms, lambda: self.soon(TimeReached()))
        self._perform_all()

    # --- commands ---

    def _perform_all(self) -> None:
        # What stands behind a snapshot is done once that is cut.
        while self._commands and not self._cutting.under_way:
            self._perform(self._commands.popleft())
        if not self._cutting.under_way:
            self._cutting.forget()

    def _perform(self, command: BarrierCommand) -> None:
        match command:
            case Block(channel):
                self._gate.block(channel)
            case Unblock(channels):
                self._gate.unblock(channels)
            case Snapshot(barrier, alignment_ms):
                if not self._cutting.is_given_up(barrier.checkpoint):
                    self._ending.stop_at(barrier)
                self._cutting.begin(barrier, alignment_ms)
                self._go_on_cutting()
            case Persist(checkpoint, channels):
                self._in_flight.persist(checkpoint, channels)
            case FinishPersisting(checkpoint, alignment_ms):
                self._in_flight.finish_input(checkpoint)
                if (snapshot := self._cutting.snapshot_of(checkpoint)) is not None:
                    snapshot.aligned_in(alignment_ms, self._processed.of(checkpoint))
                self._processed.end(checkpoint)
            case GiveUp(checkpoint):
                self._in_flight.give_up(checkpoint, "the subtask has given the checkpoint up")
                self._host.stop_snapshot(checkpoint)
            case Decline(checkpoint, reason):
                self._decline(checkpoint, reason)
            case Cancel(checkpoint):
                self._processed.end(checkpoint)
                self._outputs.mark(CancelBarrier(checkpoint))
            case _:
                assert_never(command)

    def _go_on_cutting(self) -> None:
        barrier = self._cutting.go_on()
        if barrier is None:
            return
        snapshot = self._cutting.snapshot_of(barrier.checkpoint)
        if snapshot is not None:
            self._hasten_later(barrier)
            self._host.cut(snapshot)
        elif (cancel := Cancel(barrier.checkpoint)) not in self._commands:
            self._perform(cancel)
        self._perform_all()

    def _hasten_later(self, barrier: Barrier) -> None:
        timeout_ms = barrier.options.aligned_timeout_ms
        if self._in_flight.leaving and timeout_ms is not None:
            at_ms = self._host.clock.monotonic_ms() + max(0, timeout_ms - self._age_ms(barrier))
            timeout = OutputTimeout(barrier.checkpoint)
            self._host.call_at(at_ms, lambda: self.soon(timeout))

    def _decline(self, checkpoint: CheckpointId, reason: FailureReason) -> None:
        self._host.decline(CheckpointDeclined(self._execution, checkpoint, reason))

    def _age_ms(self, barrier: Barrier) -> int:
        return age_ms(self._host.clock, barrier)


def age_ms(clock: Clock, barrier: Barrier) -> int:
    return max(0, clock.wall_ms() - barrier.triggered_ms)
