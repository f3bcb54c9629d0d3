"""The job graph expanded into attempts: which subtask runs where, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.jobmaster.view import SubtaskView, VertexView
from tidegate.model.control import Deploy, ExecutionState, RowCounts, SubtaskFigures
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId
from tidegate.model.settings import FailoverStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tidegate.checkpoint.restore.assignment import SubtaskRestore
    from tidegate.model.ids import ChannelId, CheckpointId, OperatorId, SlotId
    from tidegate.model.metrics import Metrics
    from tidegate.model.topology import Topology


@dataclass(slots=True)
class Execution:
    """One attempt at running one subtask. entered_ms: monotonic time of each state."""

    id: ExecutionId
    slot: SlotId
    state: ExecutionState = ExecutionState.CREATED
    restored: bool = False
    restore_ms: int = 0
    figures: SubtaskFigures = field(default_factory=SubtaskFigures)
    metrics: Metrics = field(default_factory=dict)
    entered_ms: dict[ExecutionState, int] = field(default_factory=dict)

    def enter(self, state: ExecutionState, now_ms: int) -> None:
        assert not self.state.is_terminal, f"an attempt that is {self.state.value} stays so"
        self.state = state
        self.entered_ms[state] = now_ms


class ExecutionGraph:
    """The current attempt of every subtask of a job.

    A subtask's attempts are counted for itself. Connected subtasks are always deployed together, so
    they share the number, which distinguishes both ends of a channel from earlier deployments. In
    another shape all begin above every number there was.
    """

    def __init__(self, topology: Topology, epoch: Epoch, failover: FailoverStrategy) -> None:
        self.topology = topology
        self.epoch = epoch
        self.regions = Regions(topology, failover)
        self._failover = failover
        self._unstarted: tuple[SubtaskId, ...] = ()
        self._executions: dict[SubtaskId, Execution] = {}
        self._first = Attempt(0)
        self._former_counts = RowCounts()

    def deploy(
        self, subtasks: Iterable[SubtaskId], slots: Sequence[SlotId], now_ms: int
    ) -> list[Execution]:
        """A new attempt of each of these subtasks. slots: the one of each index."""
        deployed: list[Execution] = []
        for subtask in subtasks:
            assert subtask.index < len(slots), "each index of a subtask has its slot"
            former = self._executions.get(subtask)
            attempt = self._first if former is None else Attempt(former.id.attempt + 1)
            if former is not None:
                # Two living attempts of one subtask would both write its output.
                assert former.state.is_terminal, "its former attempt is alive"
                self._former_counts += former.figures.counts
            execution = Execution(ExecutionId(subtask, attempt, self.epoch), slots[subtask.index])
            execution.enter(ExecutionState.CREATED, now_ms)
            self._executions[subtask] = execution
            deployed.append(execution)
        self._unstarted += tuple(execution.id.subtask for execution in deployed)
        return deployed

    def startable(self) -> list[Execution]:
        """Those that were deployed and are all restored by now, given out once; else none.

        What was deployed together starts together; what has failed meanwhile holds up nobody.
        """
        restoring = [e for e in self.of(self._unstarted) if e.state is ExecutionState.INITIALIZING]
        if all(execution.restored for execution in restoring):
            self._unstarted = ()
            return restoring
        return []

    def reshape(self, topology: Topology) -> None:
        """Nothing runs any more, and what is deployed next has another shape."""
        assert self.all_ended, "subtasks of the former shape are alive"
        highest = max((execution.id.attempt for execution in self), default=self._first - 1)
        self._first = Attempt(highest + 1)
        self._former_counts = self.counts
        self._executions = {}
        self.topology, self.regions = topology, Regions(topology, self._failover)

    def current(self, execution: ExecutionId) -> Execution | None:
        """The execution of that id; None if it is of an older attempt or another epoch."""
        found = self._executions.get(execution.subtask)
        return found if found is not None and found.id == execution else None

    def show(
        self,
        figures: Mapping[ExecutionId, SubtaskFigures],
        metrics: Mapping[ExecutionId, Metrics],
    ) -> None:
        """Figures and changed metrics of some attempts; those that have ended keep their last."""
        for execution_id, seen in figures.items():
            execution = self.current(execution_id)
            if execution is not None and not execution.state.is_terminal:
                execution.figures = seen
                execution.metrics = {**execution.metrics, **metrics.get(execution_id, {})}

    @property
    def counts(self) -> RowCounts:
        """Row counts of all attempts: repeated rows count each time."""
        return sum((each.figures.counts for each in self), self._former_counts)

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._executions.values())

    def of(self, subtasks: Iterable[SubtaskId]) -> list[Execution]:
        return [self._executions[subtask] for subtask in subtasks if subtask in self._executions]

    def on_slot(self, slot: SlotId) -> list[Execution]:
        return [execution for execution in self if execution.slot == slot]

    @property
    def all_ended(self) -> bool:
        return all(execution.state.is_terminal for execution in self)

    @property
    def all_run(self) -> bool:
        running = (ExecutionState.RUNNING, ExecutionState.FINISHED)
        return bool(self._executions) and all(e.state in running for e in self)

    @property
    def all_finished(self) -> bool:
        return bool(self._executions) and all(e.state is ExecutionState.FINISHED for e in self)

    def cancel_by_ms(self, timeout_ms: int) -> int | None:
        """When the first of the cancelled subtasks has to have ended; None without one."""
        canceling = ExecutionState.CANCELING
        by_ms = (e.entered_ms[canceling] + timeout_ms for e in self if e.state is canceling)
        return min(by_ms, default=None)

    def canceling_since(self, until_ms: int) -> list[SlotId]:
        """The slots of subtasks that were cancelled until then and have not ended."""
        canceling = ExecutionState.CANCELING
        late = (e for e in self if e.state is canceling and e.entered_ms[canceling] <= until_ms)
        return list(dict.fromkeys(execution.slot for execution in late))

    def deployment(
        self,
        execution: Execution,
        plan: bytes,
        address: Callable[[SlotId], str],
        restored: CheckpointId | None,
        restore: SubtaskRestore | None,
    ) -> Deploy:
        """Deployment message for a slot. restore: its share of the checkpoint; None: nothing."""
        peers = self._peers(execution)
        return Deploy(
            execution.id,
            plan,
            self.topology,
            peers,
            {slot: address(slot) for slot in peers.values()},
            restore.operators if restore else {},
            restored,
            finished=restore.finished if restore else False,
            in_flight=restore.in_flight if restore else (),
            checksums=restore.checksums if restore else {},
        )

    def _peers(self, execution: Execution) -> dict[ChannelId, SlotId]:
        """Slot at the other end of each channel of a subtask."""
        subtask = execution.id.subtask
        found: dict[ChannelId, SlotId] = {}
        for edge in self.topology.inputs(subtask.vertex):
            source = self.topology.edges[edge].source
            for channel in self.topology.channels(edge):
                if channel.consumer == subtask.index:
                    found[channel] = self._peer(execution, SubtaskId(source, channel.producer))
        for edge in self.topology.outputs(subtask.vertex):
            target = self.topology.edges[edge].target
            for channel in self.topology.channels(edge):
                if channel.producer == subtask.index:
                    found[channel] = self._peer(execution, SubtaskId(target, channel.consumer))
        return found

    def _peer(self, execution: Execution, subtask: SubtaskId) -> SlotId:
        peer = self._executions[subtask]
        # The number of the attempt is all that tells a channel from the one before it.
        together = peer.id.attempt == execution.id.attempt
        assert together, "both ends of a channel are deployed together"
        return peer.slot

    def coordinated(
        self, executions: Iterable[Execution]
    ) -> dict[OperatorId, tuple[ExecutionId, ...]]:
        """Per operator with a coordinator those of these attempts that run it, by index."""
        found: dict[OperatorId, list[ExecutionId]] = {}
        for execution in executions:
            for operator in self.topology.vertex(execution.id.subtask.vertex).operators:
                if operator.has_coordinator:
                    found.setdefault(operator.id, []).append(execution.id)
        return {operator: tuple(attempts) for operator, attempts in found.items()}

    def name(self, execution: ExecutionId) -> str:
        """Step and number of a subtask, as in Flink."""
        vertex = self.topology.vertex(execution.subtask.vertex)
        return f"{vertex.name} ({execution.subtask.index + 1}/{vertex.parallelism})"

    def view(self, wall_offset_ms: int, guests: Collection[Execution]) -> tuple[VertexView, ...]:
        """The subtasks as frozen values. guests: attempts in the slot of another index."""
        hosted = {guest.id for guest in guests}
        return tuple(
            VertexView(
                vertex.id,
                vertex.name,
                vertex.parallelism,
                vertex.max_parallelism,
                tuple(
                    _subtask_view(self._executions[subtask], wall_offset_ms, hosted)
                    for subtask in vertex.subtasks()
                    if subtask in self._executions
                ),
                vertex.operators,
                vertex.parallelism_set,
            )
            for vertex in self.topology.vertices
        )


def _subtask_view(
    execution: Execution, wall_offset_ms: int, guests: Collection[ExecutionId]
) -> SubtaskView:
    entered: Mapping[ExecutionState, int] = {
        state: at_ms + wall_offset_ms for state, at_ms in execution.entered_ms.items()
    }
    return SubtaskView(
        execution.id.subtask.index,
        execution.id.attempt,
        execution.state,
        execution.slot,
        entered,
        execution.figures,
        execution.restore_ms,
        guest=execution.id in guests,
        metrics=execution.metrics,
    )


class Regions:
    """The regions of a job. strategy: FULL makes one of all, whatever connects them."""

    def __init__(self, topology: Topology, strategy: FailoverStrategy) -> None:
        self.all = tuple(topology.subtasks())
        self._of: dict[SubtaskId, tuple[SubtaskId, ...]] = {}
        if strategy is FailoverStrategy.FULL:
            self._of = dict.fromkeys(self.all, self.all)
            return
        joined = {subtask: {subtask} for subtask in self.all}

        def join(one: SubtaskId, other: SubtaskId) -> None:
            fewer, more = sorted((joined[one], joined[other]), key=len)
            if fewer is not more:
                more |= fewer
                joined.update(dict.fromkeys(fewer, more))

        for index, edge in enumerate(topology.edges):
            producers = topology.vertex(edge.source).subtasks()
            consumers = topology.vertex(edge.target).subtasks()
            if edge.partitioner.is_pointwise:
                for channel in topology.channels(index):
                    join(producers[channel.producer], consumers[channel.consumer])
            else:
                for subtask in (*producers, *consumers):
                    join(producers[0], subtask)
        members: dict[int, list[SubtaskId]] = {}
        for subtask in self.all:
            members.setdefault(id(joined[subtask]), []).append(subtask)
        for region in members.values():
            self._of.update(dict.fromkeys(region, tuple(region)))
        assert self._of.keys() == set(self.all), "each subtask is of one region"

    def closure(self, subtasks: Iterable[SubtaskId]) -> tuple[SubtaskId, ...]:
        """All that has to be restored when these have failed, in the order of the topology."""
        failed = {member for subtask in subtasks for member in self._of[subtask]}
        return tuple(subtask for subtask in self.all if subtask in failed)
