"""A running job gets another parallelism: which shape that gives it, and when the change begins.

A rescale asks for the slots that it needs, then waits for the next completed checkpoint, so that
little is read twice. Until then the job runs on as it is; a failure meanwhile restarts it as it
is. Only then is everything stopped, and deployed from the newest checkpoint in the new shape.

The chains stay those of the submission, and so do the ids of operators, whatever the parallelism.

Source: Flink's adaptive scheduler, its rescale trigger on completed checkpoints (FLIP-461).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.errors import RescaleRefused, UserError
from tidegate.jobmaster.commands import RescaleDone, Rescaling, SendToSlot
from tidegate.jobmaster.redeployment import fitted
from tidegate.jobmaster.slots import SlotWait
from tidegate.model.control import Release
from tidegate.model.topology import Edge, Partitioner, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.checkpoint.coordinator.absent import NoCheckpoints
    from tidegate.checkpoint.coordinator.commands import CheckpointEnded
    from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
    from tidegate.errors import TidegateError
    from tidegate.jobmaster.commands import JobCommand
    from tidegate.jobmaster.events import RescaleRequested
    from tidegate.jobmaster.slots import SlotPool
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Vertex


def rescaled(topology: Topology, parallelism: int) -> Topology:
    """The job at another parallelism: what a start of the program with it would decide.

    Vertices take it unless the program chose the parallelism of a step in them; between two steps
    for which it chose no partitioning rows go straight on where both sides are equal, and round
    where they are not. Raises RescaleRefused.
    """
    if all(vertex.parallelism_set for vertex in topology.vertices):
        raise RescaleRefused(
            "Each step of the job has a parallelism of its own, or is chained to one that has",
            remedy="Remove set_parallelism from steps that should follow the job's parallelism.",
        )
    vertices = tuple(
        vertex if vertex.parallelism_set else replace(vertex, parallelism=parallelism)
        for vertex in topology.vertices
    )
    _check_bounds(vertices, parallelism)
    within = all(vertex.parallelism <= vertex.max_parallelism for vertex in vertices)
    assert within, "each subtask has key groups of its own"
    unfitted = Topology(vertices, topology.edges)
    return Topology(vertices, tuple(_partitioned(unfitted, edge) for edge in topology.edges))


def _check_bounds(vertices: tuple[Vertex, ...], parallelism: int) -> None:
    lowest = min(v.max_parallelism for v in vertices if not v.parallelism_set)
    if not 1 <= parallelism <= lowest:
        named = [v.name for v in vertices if not v.parallelism_set and v.max_parallelism == lowest]
        raise RescaleRefused(
            f"The job's parallelism can be from 1 to {lowest}, not {parallelism}",
            where="max parallelism of " + ", ".join(f"'{name}'" for name in named),
            remedy="Ask for one within these bounds; the max parallelism of state cannot change.",
        )


def _partitioned(topology: Topology, edge: Edge) -> Edge:
    source, target = topology.vertex(edge.source), topology.vertex(edge.target)
    if edge.by_parallelism:
        between = Partitioner.between(source.parallelism, target.parallelism)
        return replace(edge, partitioner=between)
    if edge.partitioner is Partitioner.FORWARD and source.parallelism != target.parallelism:
        raise RescaleRefused(
            f"'{source.name}' would run {source.parallelism} times and '{target.name}' "
            f"{target.parallelism} times, but rows go forward from one to the other",
            remedy="Leave out forward() or set_parallelism on one of the two steps.",
        )
    return edge


@dataclass(slots=True)
class _Rescale:
    """A parallelism that somebody wants the job to have, until it runs at it.

    topology: what comes of it. since_ms: when all slots were there and the wait for a checkpoint
    began. failures: of checkpoints, since then. due: it waits for none any more. stopping: the
    subtasks are being stopped for it. deployed: they have been deployed at it.
    """

    asked: RescaleRequested
    topology: Topology
    slots: SlotWait = field(default_factory=SlotWait)
    since_ms: int | None = None
    failures: int = 0
    due: bool = False
    stopping: bool = False
    deployed: bool = False


class Rescaler:
    """Has at most one rescale at a time, and says when the job is to be stopped for it.

    pool: is told how many slots are wanted. tell: takes the commands, in order.
    """

    def __init__(
        self,
        job_name: str,
        pool: SlotPool,
        checkpoints: CheckpointCoordinator | NoCheckpoints,
        settings: JobSettings,
        tell: Callable[[JobCommand], None],
    ) -> None:
        self._job_name = job_name
        self._pool = pool
        self._checkpoints = checkpoints
        self._settings = settings
        self._tell = tell
        self._rescale: _Rescale | None = None
        self.rescales = 0

    @property
    def stopping(self) -> bool:
        """True while the job is being stopped for a rescale, before anything has changed."""
        return self._rescale is not None and self._rescale.stopping

    @property
    def slots(self) -> SlotWait:
        return self._rescale.slots if self._rescale is not None else SlotWait()

    @property
    def due_ms(self) -> int | None:
        """When it waits no longer for a checkpoint; None while it does not wait for one."""
        rescale = self._rescale
        if rescale is None or rescale.since_ms is None or rescale.due:
            return None
        return rescale.since_ms + self._settings.rescale.max_delay_ms

    def requested(self, asked: RescaleRequested, topology: Topology, *, running: bool) -> None:
        """Somebody wants another parallelism; what was wanted before counts no more.

        topology: the present one. running: whether the job is neither ending nor over.
        """
        try:
            if not running or self.stopping:
                raise RescaleRefused(
                    "The job is ending, or is being rescaled: it cannot be rescaled now",
                    remedy="Ask again when it runs.",
                )
            wanted = rescaled(topology, asked.parallelism)
        except RescaleRefused as error:
            error.where = error.where or f"job '{self._job_name}'"
            self._tell(RescaleDone(asked.request, asked.parallelism, error))
            return
        self.end(RescaleRefused(f"Parallelism {asked.parallelism} was asked for instead"))
        assert self._rescale is None, "what was wanted before has been answered"
        self._rescale = _Rescale(asked, wanted, deployed=wanted == topology)
        self._pool.want(wanted.slots_needed())

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """A snapshot has completed or failed; savepoints do not count."""
        rescale = self._rescale
        if rescale is None or rescale.since_ms is None or ended.kind.is_savepoint:
            return
        if ended.reason is None:
            rescale.due = True
        elif ended.reason.counts:
            rescale.failures += 1
            rescale.due |= rescale.failures >= self._settings.rescale.checkpoint_failures_max

    def go_on(self, now_ms: int, *, all_run: bool) -> Rescaling | None:
        """The job runs: begin once slots and checkpoint are there; end when all subtasks run."""
        rescale = self._rescale
        if rescale is None:
            return None
        if rescale.deployed:
            if all_run:
                self.end(None)
            return None
        assert not rescale.stopping, "a job that is being stopped does not run"
        count = rescale.topology.slots_needed()
        for command in rescale.slots.go_on(self._pool, count, now_ms):
            self._tell(command)
        if len(self._pool) < count:
            # Once another slot has come, the newest checkpoint may be an old one again.
            rescale.since_ms, rescale.due = None, False
            return None
        if rescale.since_ms is None:
            rescale.since_ms = now_ms
        rescale.due |= now_ms - rescale.since_ms >= self._settings.rescale.max_delay_ms
        if not (rescale.due and self._checkpoints.settled):
            return None
        try:
            self._fitted(rescale)
        except UserError as error:
            self.end(error)
            return None
        rescale.stopping = True
        return Rescaling(rescale.asked.parallelism)

    def stopped(self) -> Topology | None:
        """Nothing runs any more: the job's new shape. None if it has to keep the old one.

        That is where a checkpoint that completed meanwhile does not fit.
        """
        rescale = self._rescale
        assert rescale is not None and rescale.stopping, "the job was stopped for a rescale"
        rescale.stopping = False
        try:
            topology = self._fitted(rescale)
        except UserError as error:
            self.end(error)
            return None
        rescale.deployed = True
        self.rescales += 1
        self._pool.resize(topology.slots_needed())
        self._let_slots_go()
        return topology

    def end(self, error: TidegateError | None) -> None:
        rescale, self._rescale = self._rescale, None
        if rescale is not None:
            self._tell(RescaleDone(rescale.asked.request, rescale.asked.parallelism, error))
            self._let_slots_go()
        assert self._pool.wanted == self._pool.needed, "slots beyond the need are for a rescale"

    def _fitted(self, rescale: _Rescale) -> Topology:
        newest = self._checkpoints.latest_completed()
        if newest is not None:
            return fitted(newest, rescale.topology, self._settings.restore)
        failed = f"; {rescale.failures} have failed meanwhile" if rescale.failures else ""
        raise RescaleRefused(
            f"There is no completed checkpoint to rescale the job from{failed}",
            where=f"job '{self._job_name}'",
            remedy="Set execution.checkpointing.interval, or take one with trigger_checkpoint, "
            "and ask again; jobmanager.adaptive-scheduler.rescale-trigger.max-delay says how long "
            "a rescale waits for one.",
        )

    def _let_slots_go(self) -> None:
        for slot in self._pool.let_go():
            self._tell(SendToSlot(slot, Release("the job needs fewer slots")))
