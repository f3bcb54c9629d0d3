"""The cut of a subtask: operators prepare, the barrier leaves, their state is held still.

What may not be interrupted is done at once. Before that the cut waits, turn by turn, until the
operators have nothing in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import SnapshotContext
from tidegate.slot.subtask.snapshot import SnapshotTimes, SubtaskSnapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from tidegate.clock import Clock
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.in_flight import InFlight
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.deployment import Deployment
    from tidegate.slot.subtask.ending import Ending
    from tidegate.slot.subtask.processed_bytes import ProcessedBytes
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
        self._made: SubtaskSnapshot | None = None
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

    def taken(self) -> SubtaskSnapshot | None:
        """The snapshot of the cut that is over; None if its checkpoint was given up before."""
        made, self._made = self._made, None
        return made

    def give_up(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up; one whose cut has not begun is not cut any more."""
        if self._under_way is not None:
            self._given_up.add(checkpoint)

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
        self.last = self._made = SubtaskSnapshot(
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


def age_ms(clock: Clock, barrier: Barrier) -> int:
    return max(0, clock.wall_ms() - barrier.triggered_ms)
