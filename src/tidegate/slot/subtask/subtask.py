"""One subtask: what its parts do in turns, and what happens to it from outside.

Everything here runs on the slot's loop, in turns: a turn handles one piece of input, then lets the
others have theirs. What may not be interrupted (one call of a function, a snapshot's quick part) is
one turn. A failure anywhere ends the subtask and reaches the driver.

Its parts have a state of their own; what one of them finds is handed on to the others here:

- `checkpointing`: barriers, the cut, data that barriers overtake;
- `ending`: operators that finish, and what the end waits for;
- `input`: the gate or the source;
- `turns`: how long turns last.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidegate.checkpoint.barriers.protocol import BarrierArrived, CancelArrived, ChannelEnded
from tidegate.config.warnings import Warn
from tidegate.model.control import ExecutionState, Remark, RowCounts, SubtaskFigures
from tidegate.model.elements import Barrier, CancelBarrier, EndOfData, EndOfPartition
from tidegate.slot.driver_link import as_ours
from tidegate.slot.subtask.checkpointing import Checkpointing
from tidegate.slot.subtask.ending import Ending
from tidegate.slot.subtask.input import Input
from tidegate.slot.subtask.metering import SubtaskMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.errors import TidegateError
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import Element, OperatorEvent
    from tidegate.model.ids import ChannelId, CheckpointId, OperatorId
    from tidegate.slot.channels.gate import Gate
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.in_flight import InFlightPlaces
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.host import Host
    from tidegate.slot.subtask.turns import Turns


class Subtask:
    """A subtask that is restored and waits for `start`. places: where its in-flight data go."""

    def __init__(
        self,
        deployment: Deployment,
        host: Host,
        gate: Gate,
        chain: Chain,
        outputs: Outputs,
        turns: Turns,
        places: InFlightPlaces,
    ) -> None:
        self.deployment = deployment
        self.execution = deployment.execution  # asked for several times a turn
        self.state = ExecutionState.INITIALIZING
        self.chain = chain
        self.outputs = outputs
        self.turns = turns
        self.input = Input(deployment, host.clock, gate, chain, outputs.room)
        self.ending = Ending(deployment, chain, gate, outputs)
        self.metrics = SubtaskMetrics(host.clock, self.input, chain, outputs, turns)
        self._host = host
        self._checkpointing = Checkpointing(
            deployment, host, gate, chain, outputs, self.ending, places
        )
        self._sends_early = deployment.settings.slot.buffer_timeout_ms >= 0
        self._started = False
        self._woken = self._front_woken = False

    # --- turns ---

    def next_work(self) -> Callable[[], None] | None:
        """The next piece of work, for a turn at once; None if there is nothing to do."""
        ending, chain = self.ending, self.chain
        if not self._started or self.state.is_terminal:
            return None
        if ending.released:
            return self._leave if ending.can_leave else None
        if (urgent := self._checkpointing.next()) is not None:
            return urgent
        if ending.when.stopped:
            # Marks alone may come: nothing enters the operators behind their last snapshot.
            return self._read_gate if self.input.gate.readable else None
        if chain.can_go_on:
            return self._go_on
        if self._woken:
            return self._tell_ready
        if not chain.idle:
            return None
        if self._front_woken:
            return self._tell_ready
        if ending.can_go_on:
            return ending.go_on
        return self._next_input()

    def _next_input(self) -> Callable[[], None] | None:
        ending, input = self.ending, self.input
        if not input.has_room:
            return None
        if input.is_source and not ending.operators_finished:
            return self._poll_source if input.source_ready and not ending.has_begun else None
        return self._read_gate if input.gate.readable else None

    @property
    def runnable(self) -> bool:
        return self.next_work() is not None

    @property
    def is_urgent(self) -> bool:
        """True if the next turn is for a checkpoint, not for rows."""
        return self._checkpointing.is_urgent

    def turn(self, work: Callable[[], None]) -> None:
        """Do the piece of work that is next. Errors are the subtask's failure."""
        is_urgent, turns = self._checkpointing.is_urgent, self.turns
        began_s = turns.begin()
        work()
        if self.state is ExecutionState.INITIALIZING:
            self._run_if_recovered()
        if self.ending.may_come:
            self._end_if_it_may()
        idle = self.chain.idle and self.input.is_idle
        if idle or (self._sends_early and turns.is_long):
            self.outputs.flush()
        ended_s = turns.end(is_urgent=is_urgent)
        if self.input.debloater is not None:
            self.input.debloater.turned(began_s, ended_s, idle=idle)

    # --- pieces of work ---

    def _tell_ready(self) -> None:
        """Tell the operators that they are woken, as far as they are not at work."""
        self._woken = False
        self._front_woken = not self.chain.ready()

    def _go_on(self) -> None:
        # A cut may be possible before the work is done, at a pause of an operator: a barrier that
        # is next is read all the same.
        if not self._checkpointing.is_cutting:
            self._act_on(self.input.gate.poll_barrier())
        self.input.go_on()

    def _poll_source(self) -> None:
        if self.input.poll_source():
            self.ending.end_data()

    def _read_gate(self) -> None:
        self._act_on(self.input.read_gate())

    def _act_on(self, mark: tuple[ChannelId, Element] | None) -> None:
        """Act on a mark that has come in a channel and is not for the operators."""
        if mark is None:
            return
        channel, element = mark
        match element:
            case Barrier():
                self._checkpointing.happened(BarrierArrived(channel, element))
            case CancelBarrier(checkpoint):
                self._checkpointing.happened(CancelArrived(channel, checkpoint))
            case EndOfData():
                self.ending.data_ended_on(channel)
            case EndOfPartition():
                self.ending.when.channel_ended(channel)
                self._checkpointing.happened(ChannelEnded(channel))
            case _:
                raise AssertionError(f"{type(element).__name__} does not travel in channels")

    # --- life ---

    def start(self) -> None:
        """All subtasks of the job are restored: begin."""
        if self._started or self.state.is_terminal:
            return
        self._started = True
        self._run_if_recovered()
        if self.deployment.deploy.finished and self.input.is_source:
            self.ending.end_data()
            self._end_if_it_may()
        self.input.begin()
        if self.input.debloater is not None:
            self.input.debloater.begin(self._host, self._host.clock)
        self._host.ready()

    def _run_if_recovered(self) -> None:
        """Reports RUNNING once restored in-flight data are read, or need not be."""
        during = self.deployment.settings.checkpoints.during_recovery
        if during or not self.input.gate.recovering:
            self._change(ExecutionState.RUNNING)

    def wake(self) -> None:
        self._woken = not self.ending.operators_finished
        self.poll_soon()

    def poll_soon(self) -> None:
        self.input.wake()
        self._host.ready()

    def granted(self) -> None:
        self._checkpointing.granted()

    def event(self, operator: OperatorId, event: OperatorEvent) -> None:
        for chained in self.chain.operators:
            if chained.context.info.operator == operator:
                chained.operator.on_event(event)
        self.wake()

    def _end_if_it_may(self) -> None:
        if not self.ending.may_come or self._checkpointing.is_cutting:
            return
        self._checkpointing.close()
        if self._host.busy:
            return  # no further snapshot begins, so this comes to an end
        self.ending.release()
        if self.ending.can_leave:
            self._leave()

    def _leave(self) -> None:
        self._change(ExecutionState.FINISHED)

    def idle_again(self) -> None:
        """A snapshot or coroutine of this subtask is done."""
        if self.state is ExecutionState.RUNNING:
            self._end_if_it_may()

    def end(self, state: ExecutionState, error: TidegateError | None = None) -> None:
        if not self.state.is_terminal:
            if error is not None:
                self._flush_what_can_leave()
            self._change(state, error)

    def _flush_what_can_leave(self) -> None:
        """Send what came before a failure; a row that cannot be sent is no news any more."""
        for channel in self.outputs.channels:
            with contextlib.suppress(Exception, SystemExit):
                channel.flush()

    def fail(self, error: Exception) -> None:
        """End with an error, as the driver is told."""
        if self.deployment.settings.slot.replay is not None and not self.state.is_terminal:
            self._host.failing(error)
        self.end(ExecutionState.FAILED, as_ours(error, self.deployment.task_name))

    def _change(self, state: ExecutionState, error: TidegateError | None = None) -> None:
        assert not self.state.is_terminal, "a subtask ends once"
        self.state = state
        self._host.changed(state, error)

    # --- checkpoints ---

    def trigger(self, barrier: Barrier) -> None:
        self._checkpointing.trigger(barrier)

    def abort(self, checkpoint: CheckpointId, latest_completed: CheckpointId | None) -> None:
        """The driver has given a checkpoint up; the latest completed one repairs a lost message."""
        if latest_completed is not None:
            self.complete(latest_completed, None)
        self._checkpointing.give_up(checkpoint)
        if self.ending.released or self.state is not ExecutionState.RUNNING:
            return  # the channels are over: nobody waits for a barrier of this subtask
        self._checkpointing.abort(checkpoint)
        for chained in self.chain.operators:
            chained.backend.on_aborted(checkpoint)
        self.chain.tell(lambda operator: operator.on_aborted(checkpoint))
        self.ending.when.given_up(checkpoint)

    def complete(self, checkpoint: CheckpointId, subsumed: CheckpointId | None) -> None:
        """A checkpoint is durable: tell the operators, tail to head; ids ascend."""
        if self.state is not ExecutionState.RUNNING or not self.ending.when.completed(checkpoint):
            return
        if self.input.unpause():
            self._host.ready()
        for chained in self.chain.operators:
            chained.backend.on_complete(checkpoint)
        self.chain.tell(lambda operator: operator.on_complete(checkpoint))
        if subsumed is not None:
            self.chain.tell(lambda operator: operator.on_subsumed(subsumed))
        self._end_if_it_may()

    def owes(self, checkpoint: CheckpointId) -> bool:
        """True if it has still to be cut for a checkpoint, or its share to be written."""
        return self.state is ExecutionState.RUNNING and self._checkpointing.owes(checkpoint)

    # --- figures ---

    @property
    def figures(self) -> SubtaskFigures:
        debloater, valve, operators = self.input.debloater, self.input.valve, self.chain.operators
        size = debloater.size if debloater is not None else None
        is_source = self.input.is_source
        return SubtaskFigures(
            rows_in=self.input.rows,
            rows_out=operators[-1].out.rows,
            batches_in=self.input.batches,
            busy_ms=round(self.turns.busy_s * 1000),
            blocked_ms=round(self.outputs.room.waited_s * 1000),
            at_ms=round(self._host.clock.precise_s() * 1000),
            watermark_ms=None if is_source else valve.current_ms,
            furthest_ms=None if is_source else valve.furthest_ms,
            held_by=valve.held_by,
            counts=RowCounts(
                read=operators[0].out.rows if is_source else 0,
                written=sum(each.rows for each in operators if each.operator.writes),
                skipped=self.input.rows_skipped,
                late=self._counted("numLateRecordsDropped"),
                dead_letters=self._counted("numDeadLetters"),
            ),
            remarks=tuple(self._remarks()),
            buffer_rows=size.rows if size else None,
            in_flight_ms=size.in_flight_ms if size else None,
        )

    def _counted(self, metric: str) -> int:
        return sum(each.context.tasks.metrics.counted(metric) for each in self.chain.operators)

    def _remarks(self) -> Iterator[Remark]:
        for each in self.chain.operators:
            for tag in each.out.unread:
                yield Remark(Warn.UNREAD_SIDE_OUTPUT.value, each.context.info.name, tag)
        for each in self.chain.operators:
            yield from each.context.tasks.remarks
        yield from self.metrics.remarks()
