"""One subtask: reads its gate or polls its source, drives its chain, takes its snapshots.

Everything here runs on the slot's loop, in turns: a turn handles one piece of input, then lets the
others have theirs. What may not be interrupted (one call of a function, a snapshot's quick part) is
one turn. A failure anywhere ends the subtask and reaches the driver.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, assert_never, cast

from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import Polled, SourceOperator
from tidegate.checkpoint.barriers.aligned import (
    AbortedByDriver,
    BarrierArrived,
    BarrierCommand,
    BarrierEvent,
    Block,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    FinishPersisting,
    GiveUp,
    Persist,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)
from tidegate.checkpoint.barriers.modes import make_barrier_handler
from tidegate.config.warnings import Warn
from tidegate.model.control import (
    CheckpointDeclined,
    ExecutionState,
    Remark,
    RowCounts,
    SubtaskFigures,
)
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    ArrowBatch,
    Barrier,
    CancelBarrier,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.slot.alignment import ProcessedBytes
from tidegate.slot.channels.gate import WatermarkValve
from tidegate.slot.in_flight import InFlight, OutputTimeout
from tidegate.slot.subtask.snapshot import SnapshotTimes, SubtaskSnapshot
from tidegate.slot.subtask.subtask_end import SubtaskEnd
from tidegate.slot.subtask.turns import LONG_TURN_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from tidegate.clock import Clock
    from tidegate.errors import TidegateError
    from tidegate.model.elements import Batch, Element, Mark, OperatorEvent
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import OperatorInfo
    from tidegate.slot.channels.asked_size import AskedSize
    from tidegate.slot.channels.debloat import Debloater
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.output import ChannelOutput
    from tidegate.slot.channels.room import Room
    from tidegate.slot.in_flight import InFlightPlaces
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.ports import SubtaskPorts
    from tidegate.slot.subtask.snapshot import PendingState
    from tidegate.slot.subtask.turns import Turn
    from tidegate.state.backend import OperatorBackend


class Subtask:
    """A hosted subtask, restored and waiting for `start`."""

    def __init__(
        self,
        execution: ExecutionId,
        operators: Sequence[OperatorInfo],
        chain: Chain,
        turn: Turn,
        backends: Sequence[OperatorBackend],
        gate: Gate,
        outputs: Sequence[ChannelOutput],
        room: Room,
        settings: JobSettings,
        ports: SubtaskPorts,
        clock: Clock,
        *,
        in_flight: InFlightPlaces,
        asked: AskedSize,
        finished_on_restore: bool,
        restored: CheckpointId | None,
        debloater: Debloater | None = None,
    ) -> None:
        self.execution = execution
        self.state = ExecutionState.INITIALIZING
        self.finished_on_restore = finished_on_restore
        self.operators_finished = finished_on_restore
        self._operators = operators
        self._chain = chain
        self.pace = turn
        self._backends = backends
        self._gate = gate
        self._outputs = outputs
        self._room = room
        self._ends = (in_flight.head, in_flight.sender)
        self._settings = settings
        self._ports = ports
        self._clock = clock
        self._valve = WatermarkValve(gate.channels)
        self._barriers = make_barrier_handler(settings.checkpoints, gate.channels)
        self._end = SubtaskEnd(gate.channels, settings.checkpoints, restored)
        self._processed = ProcessedBytes(gate.inputs)
        self._asked = asked
        self._debloater = debloater
        self._in_flight = InFlight(gate, outputs, in_flight, self._soon, self._age_ms)
        if settings.checkpoints.unaligned:
            gate.heard = self._in_flight.heard
        self._started = False
        self._urgent: deque[BarrierEvent | OutputTimeout] = deque()
        self._timer_ms: int | None = None
        self._snapshot: SubtaskSnapshot | None = None
        self._commands: deque[BarrierCommand] = deque()
        self._cutting: Iterator[None] | None = None
        self._given_up: set[CheckpointId] = set()  # while a cut waits for the chain
        self._woken = self._front_woken = False
        self._ending: Iterator[None] | None = None
        self._closing = self._released = self._drains = False
        self._source_ready = not gate.channels
        self._paused = settings.checkpoints.pause_sources and self._is_source
        self._intake = chain.intake(settings.slot, room.portion(), is_source=not gate.channels)
        self._rows_in = self._batches_in = 0
        self._busy_s = 0.0
        self.rows_skipped = 0

    # --- turns ---

    @property
    def runnable(self) -> bool:
        """Whether a turn would do something."""
        if not self._started or self.state.is_terminal:
            return False
        if self._released:
            return self._has_sent
        if self._urgent:
            return True
        if self._end.stopped:
            return self._gate.readable
        if self._woken or self._can_go_on_cutting or self._chain.can_go_on:
            return True
        if not self._chain.idle:
            return False
        if self._can_end or self._front_woken:
            return True
        if not self._has_room or not self.takes_input:
            return False
        if self._is_source and not self.operators_finished:
            return self._source_ready and not self._paused and self._ending is None
        return self._gate.readable

    @property
    def is_urgent(self) -> bool:
        """Whether the next turn is for a checkpoint, not for rows."""
        return bool(self._urgent) or self._can_go_on_cutting

    def turn(self) -> None:
        """Do one piece of work. What is raised is the subtask's failure."""
        began = self._clock.precise_s()
        is_urgent = self.is_urgent
        self.pace.begin()
        if self._released:
            self._leave_if_sent()
        elif self._urgent:
            self._be_urgent(self._urgent.popleft())
        elif self._can_go_on_cutting:
            self._go_on_cutting()
        elif self._end.stopped:
            self._read_gate()
        elif self._chain.can_go_on:
            self._read_barrier()
            self._chain.advance()
            self._intake.worked(self._clock.precise_s() - began)
        elif self._woken or self._front_woken:
            self._woken = False
            self._front_woken = not self._chain.ready()
        elif self._can_end:
            self._go_on_ending()
        elif self._is_source and not self.operators_finished:
            self._poll_source()
        else:
            self._read_gate()
        idle = self._chain.idle and not self._gate.readable and not self._source_ready
        if idle or self._is_long(self._clock.precise_s() - began):
            self.flush()
        ended = self._clock.precise_s()
        self._busy_s += ended - began
        if not is_urgent:
            self.pace.lasted(ended - began)
        if self._debloater is not None:
            self._debloater.turned(began, ended, idle=idle)

    def _is_long(self, turn_s: float) -> bool:
        """Whether what a turn has made leaves at once: to send it costs nothing beside the turn."""
        return turn_s > LONG_TURN_S and self._settings.slot.buffer_timeout_ms >= 0

    def start(self) -> None:
        """All subtasks of the job are restored: begin."""
        if self._started or self.state.is_terminal:
            return
        self._started = True
        self._run_if_recovered()
        if self.finished_on_restore and self._is_source:
            self._end_data()
        self._asked.fits(self._intake.batch_rows)
        if self._debloater is not None:
            self._debloater.begin(self._ports.at, self._clock)
        self._ports.ready()

    def _run_if_recovered(self) -> None:
        """It runs, for others to see, once restored in-flight data are read, or need not be."""
        if not self._gate.recovering or self._settings.checkpoints.during_recovery:
            self._change(ExecutionState.RUNNING)

    def wake(self) -> None:
        """An operator has asked for a turn."""
        self._source_ready = self._is_source
        self._woken = not self.operators_finished
        self._ports.ready()

    def granted(self) -> None:
        """Credit has come for one of its outputs."""
        self._in_flight.finish_output_if_left()
        self._ports.ready()

    def flush(self) -> None:
        """Send what has been gathered."""
        for output in self._outputs:
            output.flush()

    def flush_older_than(self, monotonic_ms: int) -> None:
        """Send what has been gathered since before then."""
        for output in self._outputs:
            since = output.gathering_since_ms
            if since is not None and since <= monotonic_ms:
                output.flush()

    # --- input ---

    @property
    def _is_source(self) -> bool:
        return not self._gate.channels

    @property
    def takes_input(self) -> bool:
        """Whether no operator holds the input back."""
        return self._chain.takes_input

    @property
    def _has_sent(self) -> bool:
        """Whether nothing waits for credit; calls under way are no matter of its own."""
        return self._room.waiting == 0

    @property
    def _has_room(self) -> bool:
        return self._chain.head.out.has_room

    def _poll_source(self) -> None:
        head = self._chain.head
        self._source_ready = False  # before the poll: a wake-up within it counts
        self._intake.settle()
        head.out.piece_rows = self._intake.rows
        rows, worked_s = head.out.rows, head.out.worked_s
        polled = cast("SourceOperator", head.operator).poll(head.out)
        # The source's own time is left out: it may be as long for one row as for many.
        self._intake.take(head.out.rows - rows)
        self._intake.worked(head.out.worked_s - worked_s)
        if polled is Polled.MORE:
            self._source_ready = True
        elif polled is Polled.END:
            self._end_data()

    def _read_gate(self) -> None:
        self._intake.settle()
        self._asked.fits(self._intake.batch_rows)
        rows_max = self._intake.rows
        found = self._gate.poll(rows_max)
        if found is None:
            return
        channel, element = found
        if isinstance(element, RowBatch | ArrowBatch):
            self._batch(channel, element)
        else:
            self._mark(channel, element)
        if self.state is ExecutionState.INITIALIZING:
            self._run_if_recovered()

    def _read_barrier(self) -> None:
        """Read a barrier that is next while there is work in hand: a cut may be possible before."""
        if self._cutting is None and (found := self._gate.poll_barrier()) is not None:
            self._mark(*found)

    def _batch(self, channel: InputChannel, batch: Batch) -> None:
        """Process a batch, and learn from how long it took how many rows to take next."""
        rows = len(batch)
        self._batches_in += 1
        self._rows_in += rows
        if isinstance(batch, RowBatch):
            channel.rows_read += rows
        else:
            channel.arrow_bytes_read += batch.batch.nbytes
        self._intake.take(rows)
        began = self._clock.precise_s()
        self._chain.head.accept(batch, channel.port)
        self._intake.worked(self._clock.precise_s() - began)

    def _mark(self, channel: InputChannel, element: Element) -> None:
        match element:
            case Watermark(ms):
                advanced = self._valve.watermark(channel.id, ms)
                if advanced is not None:
                    self._chain.head.accept_watermark(advanced)
            case WatermarkStatus(idle):
                for passed in self._valve.status(channel.id, idle):
                    self._chain.head.accept_watermark(passed)
            case Barrier():
                self._barrier_event(BarrierArrived(channel.id, element))
            case CancelBarrier(checkpoint):
                self._barrier_event(CancelArrived(channel.id, checkpoint))
            case EndOfData():
                if self._end.data_ended_on(channel.id):
                    self._end_data()
            case EndOfPartition():
                self._end.channel_ended(channel.id)
                self._barrier_event(ChannelEnded(channel.id))
                self._end_if_released()
            case _:
                raise AssertionError(f"{type(element).__name__} does not travel in channels")

    # --- the end ---

    def _end_data(self) -> None:
        """All input has come: end event time, finish the operators, say so downstream."""
        if self._is_source:
            # Event time ends, also for readers that have passed over an idle source so far.
            self._chain.head.out.emit_watermark(WatermarkStatus(idle=False))
            self._chain.head.out.emit_watermark(Watermark(MAX_WATERMARK_MS))
        self._ending = iter(()) if self.finished_on_restore else self._chain.finish()
        self._go_on_ending()

    @property
    def _can_end(self) -> bool:
        return self._ending is not None and (self._chain.finishing or self._chain.drained)

    def _go_on_ending(self) -> None:
        ending = self._ending
        assert ending is not None, "the end has begun"
        for _ in ending:
            return
        self._ending = None
        self.operators_finished = self._end.data_ended = True
        self._broadcast(EndOfData())
        self._end_if_released()

    def _end_if_released(self) -> None:
        if not self._end.may_come or self._released or self._cutting is not None:
            return
        self._closing = True
        for event in self._urgent:
            if isinstance(event, TriggeredByDriver):
                self._decline_closing(event.barrier)
        # A barrier that waits to leave still may overtake; nothing else begins.
        self._urgent = deque(each for each in self._urgent if isinstance(each, OutputTimeout))
        if self._ports.busy():
            return  # no further snapshot begins, so this comes to an end
        self._released = True
        self._broadcast(EndOfPartition())
        self._leave_if_sent()

    def _leave_if_sent(self) -> None:
        """Finish once the last element has left: what waits for credit would be lost."""
        if self._has_sent:
            self._change(ExecutionState.FINISHED)

    def idle_again(self) -> None:
        """A snapshot or coroutine of this subtask is done."""
        if self.state is ExecutionState.RUNNING:
            self._end_if_released()

    def end(self, state: ExecutionState, error: TidegateError | None = None) -> None:
        """End as CANCELED or FAILED."""
        if not self.state.is_terminal:
            if error is not None:
                self.flush()  # what came before the failure leaves before it
            self._change(state, error)

    def _change(self, state: ExecutionState, error: TidegateError | None = None) -> None:
        self.state = state
        self._ports.changed(state, error)

    # --- checkpoints ---

    def trigger(self, barrier: Barrier) -> None:
        """The driver asks for a checkpoint."""
        if self._closing:
            self._decline_closing(barrier)
        else:
            self._soon(TriggeredByDriver(barrier, self._age_ms(barrier)))

    def _soon(self, event: BarrierEvent | OutputTimeout) -> None:
        """Handle it in a turn of its own, ahead of all other work."""
        self._urgent.append(event)
        self._ports.ready()

    def _be_urgent(self, event: BarrierEvent | OutputTimeout) -> None:
        if isinstance(event, OutputTimeout):
            self._in_flight.hasten(event.checkpoint)
        else:
            self._barrier_event(event)

    def _age_ms(self, barrier: Barrier) -> int:
        return max(0, self._clock.wall_ms() - barrier.triggered_ms)

    def _decline_closing(self, barrier: Barrier) -> None:
        reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        self._ports.decline(CheckpointDeclined(self.execution, barrier.checkpoint, reason))

    def abort(self, checkpoint: CheckpointId, latest_completed: CheckpointId | None) -> None:
        """The driver has given a checkpoint up; the latest completed one repairs a lost message."""
        if latest_completed is not None:
            self.complete(latest_completed, None)
        self._ports.aborted(checkpoint)
        self._in_flight.give_up(checkpoint, "the driver has given the checkpoint up")
        if self._released or self.state is not ExecutionState.RUNNING:
            return  # the channels are over: nobody waits for a barrier of this subtask
        if self._cutting is not None:
            self._given_up.add(checkpoint)
        self._barrier_event(AbortedByDriver(checkpoint))
        for backend in self._backends:
            backend.on_aborted(checkpoint)
        self._chain.tell(lambda operator: operator.on_aborted(checkpoint))
        self._end.given_up(checkpoint)

    def complete(self, checkpoint: CheckpointId, subsumed: CheckpointId | None) -> None:
        """A checkpoint is durable: tell the operators, tail to head; ids ascend."""
        if self.state is not ExecutionState.RUNNING or not self._end.completed(checkpoint):
            return
        if self._paused:
            self._paused = False
            self._ports.ready()
        for backend in self._backends:
            backend.on_complete(checkpoint)
        self._chain.tell(lambda operator: operator.on_complete(checkpoint))
        if subsumed is not None:
            self._chain.tell(lambda operator: operator.on_subsumed(subsumed))
        self._end_if_released()

    def event(self, operator: OperatorId, event: OperatorEvent) -> None:
        """An event from an operator's coordinator."""
        for info, chained in zip(self._operators, self._chain.operators, strict=True):
            if info.id == operator:
                chained.operator.on_event(event)
        self.wake()

    def _barrier_event(self, event: BarrierEvent) -> None:
        self._commands += self._barriers.handle(event, self._clock.monotonic_ms())
        if self._barriers.aligning is not None:
            self._processed.begin(self._barriers.aligning)
        wake_at_ms = self._barriers.wake_at_ms
        if wake_at_ms is not None and wake_at_ms != self._timer_ms:
            self._timer_ms = wake_at_ms
            self._ports.at(wake_at_ms, lambda: self._soon(TimeReached()))
        self._perform_commands()

    def _perform_commands(self) -> None:
        while self._commands and self._cutting is None:
            self._perform(self._commands.popleft())
        if self._cutting is None:
            self._given_up.clear()

    def _perform(self, command: BarrierCommand) -> None:
        match command:
            case Block(channel):
                self._gate.block(channel)
            case Unblock(channels):
                self._gate.unblock(channels)
            case Snapshot(barrier, alignment_ms):
                self._stop_at(barrier)
                self._cutting = self._cut(barrier, alignment_ms)
                self._go_on_cutting()
            case Persist(checkpoint, channels):
                self._in_flight.persist(checkpoint, channels)
            case FinishPersisting(checkpoint, alignment_ms):
                self._in_flight.finish_input(checkpoint)
                if self._snapshot is not None and self._snapshot.checkpoint == checkpoint:
                    self._snapshot.aligned_in(alignment_ms, self._processed.of(checkpoint))
                self._processed.end(checkpoint)
            case GiveUp(checkpoint):
                self._in_flight.give_up(checkpoint, "the subtask has given the checkpoint up")
                self._ports.aborted(checkpoint)
            case Decline(checkpoint, reason):
                self._ports.decline(CheckpointDeclined(self.execution, checkpoint, reason))
            case Cancel(checkpoint):
                self._processed.end(checkpoint)
                self._broadcast(CancelBarrier(checkpoint))
            case _:
                assert_never(command)

    def _stop_at(self, barrier: Barrier) -> None:
        """A savepoint that stops the job, and drains it, ends the data of its sources."""
        self._end.stop_at(barrier)
        self._drains = barrier.options.kind is SnapshotKind.TERMINATE
        if (
            self._drains
            and self._is_source
            and not self.operators_finished
            and self._ending is None
        ):
            self._end_data()

    @property
    def _can_go_on_cutting(self) -> bool:
        return self._cutting is not None and self._chain.can_be_cut and not self._ends_first

    @property
    def _ends_first(self) -> bool:
        """Whether the end comes before a snapshot; not while it waits for calls."""
        return self._ending is not None and (self._drains or self._chain.finishing)

    def _go_on_cutting(self) -> None:
        assert self._cutting is not None, "a snapshot is being taken"
        for _ in self._cutting:
            return
        self._cutting = None
        self._perform_commands()
        self._end_if_released()  # a cut that was given up has nothing else behind it

    def _cut(self, barrier: Barrier, alignment_ms: int) -> Iterator[None]:
        """Prepare, broadcast the barrier, snapshot, in that order; yields while operators work.

        A checkpoint that is given up before its cut has begun is not cut any more.
        """
        began = self._clock.precise_s()
        delay_ms = max(0, self._age_ms(barrier) - alignment_ms)
        options = barrier.options
        self._room.overdraft = options.is_unaligned or options.is_timeoutable
        while not self._chain.can_be_cut or self._ends_first:
            yield
        if barrier.checkpoint in self._given_up:
            self._room.overdraft = False
            if (cancel := Cancel(barrier.checkpoint)) not in self._commands:
                self._perform(cancel)
            return
        live = () if self.finished_on_restore else self._chain.operators
        for operator in live:
            operator.operator.before_barrier(barrier.checkpoint, operator.out)
            while not self._chain.can_be_cut:
                yield
        self._room.overdraft = False
        self._send_barrier(barrier)
        context = SnapshotContext(barrier.checkpoint, barrier.triggered_ms)
        pieces: list[tuple[OperatorId, PendingState]] = []
        durable: list[Awaitable[None]] = []
        for index in range(len(live) - 1, -1, -1):
            waited = live[index].operator.snapshot(context)
            if waited is not None:
                durable.append(waited)
            pending = self._backends[index].snapshot(barrier.checkpoint, options)
            pieces.append((self._operators[index].id, pending))
        self._end.cut(barrier.checkpoint, operators_finished=self.operators_finished)
        self._snapshot = SubtaskSnapshot(
            barrier,
            pieces,
            durable,
            self._in_flight.result(barrier),
            self._ends,
            SnapshotTimes(
                began,
                self._clock.precise_s(),
                alignment_ms,
                delay_ms,
                self._processed.of(barrier.checkpoint),
            ),
            part_bytes=self._settings.slot.part_bytes,
            after_finish=self.operators_finished,
        )
        if not options.is_unaligned:
            self._processed.end(barrier.checkpoint)
        self._ports.snapshot(self._snapshot)

    def _send_barrier(self, barrier: Barrier) -> None:
        self._in_flight.send(barrier)
        timeout_ms = barrier.options.aligned_timeout_ms
        if self._in_flight.leaving and timeout_ms is not None:
            wait_ms = max(0, timeout_ms - self._age_ms(barrier))
            timeout = OutputTimeout(barrier.checkpoint)
            self._ports.at(self._clock.monotonic_ms() + wait_ms, lambda: self._soon(timeout))

    def _broadcast(self, mark: Mark) -> None:
        for output in self._outputs:
            output.mark(mark)

    # --- figures ---

    @property
    def figures(self) -> SubtaskFigures:
        """Counters since the deployment."""
        size = self._debloater.size if self._debloater is not None else None
        return SubtaskFigures(
            rows_in=self._rows_in,
            rows_out=sum(operator.out.rows for operator in self._chain.operators[-1:]),
            batches_in=self._batches_in,
            busy_ms=round(self._busy_s * 1000),
            blocked_ms=round(self._room.waited_s * 1000),
            at_ms=round(self._clock.precise_s() * 1000),
            watermark_ms=self._valve.current_ms if self._gate.channels else None,
            furthest_ms=self._valve.furthest_ms if self._gate.channels else None,
            held_by=self._valve.held_by,
            counts=RowCounts(
                read=self._chain.head.out.rows if self._is_source else 0,
                written=sum(each.rows for each in self._chain.operators if each.operator.writes),
                skipped=self.rows_skipped,
            ),
            remarks=tuple(
                Remark(Warn.UNREAD_SIDE_OUTPUT.value, info.name, tag)
                for info, each in zip(self._operators, self._chain.operators, strict=True)
                for tag in each.out.unread
            ),
            buffer_rows=size.rows if size else None,
            in_flight_ms=size.in_flight_ms if size else None,
        )
