"""A world for the checkpoint coordinator: answers its commands at once, unless told to hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from flinkformat.handles import FileStateHandle, KeyGroupsStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    RetentionPolicy,
    SubtaskState,
)
from tests.worlds.chance import FixedChance
from tests.worlds.clock import WALL_MS
from tests.worlds.store import CheckpointStore
from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointComplete,
    CheckpointDeclined,
    CheckpointFigures,
    ExecutionState,
    JobStatus,
    ToOperator,
    TriggerCheckpoint,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.checkpoint.coordinator.commands import CheckpointCommand
    from tidegate.checkpoint.coordinator.events import CheckpointEvent
    from tidegate.model.failure_reason import FailureReason

Command = TypeVar("Command")
BY_HAND = CheckpointSettings(retained_max=1, retention=RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS)
EVERY_SECOND = replace(BY_HAND, interval_ms=1_000)
TOLERANT = replace(EVERY_SECOND, tolerable_failures=100)


def vertex(name: str, parallelism: int, *, coordinator: bool = False) -> Vertex:
    operator = OperatorInfo(
        OperatorId(name.encode().ljust(16, b".")), name, has_coordinator=coordinator
    )
    return Vertex(VertexId(bytes(operator.id)), name, (operator,), parallelism, 128)


def chain(*vertices: Vertex, partitioner: Partitioner = Partitioner.HASH) -> Topology:
    edges = tuple(
        Edge(source.id, target.id, partitioner, 0) for source, target in pairwise(vertices)
    )
    return Topology(vertices, edges)


THREE = chain(vertex("source", 2), vertex("map", 3), vertex("sink", 1))


def keyed_state(path: str, size: int = 10) -> SubtaskState:
    """Keyed state in a file of its own."""
    key_groups = KeyGroupRange(0, 0)
    return SubtaskState(
        managed_keyed=KeyGroupsStateHandle(key_groups, (0,), FileStateHandle(path, size), path)
    )


def restored_checkpoint(
    checkpoint: int, properties: CheckpointProperties | None = None
) -> CompletedCheckpoint:
    kept = properties or CheckpointProperties.for_checkpoint(BY_HAND.retention)
    number = CheckpointId(checkpoint)
    metadata = CheckpointMetadata(checkpoint_id=number, operators=(), properties=kept)
    return CompletedCheckpoint(number, f"/old-{checkpoint}", f"/old-{checkpoint}", metadata, kept)


class World:
    """The coordinator and what surrounds it.

    holds: kinds of commands that stay unanswered until `release`. acknowledges: whether every
    subtask of the plan acknowledges at once. log: every command so far.
    """

    def __init__(
        self,
        settings: CheckpointSettings | None = None,
        topology: Topology = THREE,
        *,
        completed: Iterable[CompletedCheckpoint] = (),
        chance: FixedChance | None = None,
        acknowledges: bool = False,
        holds: Iterable[type] = (),
    ) -> None:
        self.settings = settings or EVERY_SECOND
        self.topology = topology
        self.completed = CompletedCheckpoints(self.settings.retained_max, completed)
        self.registry = SharedStateRegistry()
        self.chance = chance or FixedChance()
        self.coordinator = CheckpointCoordinator(
            JobId("j" * 32),
            self.settings,
            topology,
            self.completed,
            self.registry,
            self.chance,
            facts={"job": "flights"},
        )
        self.now_ms = 0
        self.log: list[CheckpointCommand] = []
        self.held: list[CheckpointCommand] = []
        self.holds = tuple(holds)
        self.acknowledges = acknowledges
        self.store = CheckpointStore()
        self.attempts = {subtask: 0 for subtask in topology.subtasks()}
        self.states: dict[SubtaskId, SubtaskState] = {}

    # --- what happens -------------------------------------------------------------------------

    def send(self, *sent: CheckpointEvent) -> list[CheckpointCommand]:
        """Let events happen, and all that follows at once; the commands of all that."""
        inbox = list(sent)
        given: list[CheckpointCommand] = []
        while inbox:
            event = inbox.pop(0)
            issued = self.coordinator.handle(event, self.now_ms)
            given.extend(issued)
            for command in issued:
                if isinstance(command, self.holds):
                    self.held.append(command)
                else:
                    inbox.extend(self.answers(command))
        self.log.extend(given)
        return given

    def advance(self, ms: int) -> list[CheckpointCommand]:
        """Let time pass, waking the coordinator when it asks for it."""
        given: list[CheckpointCommand] = []
        until_ms = self.now_ms + ms
        while (wake_at_ms := self.coordinator.wake_at_ms) is not None and wake_at_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_at_ms)
            given.extend(self.send(events.Woke()))
        self.now_ms = until_ms
        return given

    def start(self) -> list[CheckpointCommand]:
        """The job and all its subtasks run."""
        given = self.send(events.JobStatusChanged(JobStatus.RUNNING))
        for subtask in self.topology.subtasks():
            given += self.change(subtask, ExecutionState.RUNNING)
        return given

    def change(self, subtask: SubtaskId, state: ExecutionState) -> list[CheckpointCommand]:
        return self.send(events.ExecutionChanged(self.execution(subtask), state))

    def redeploy(self) -> None:
        """Restart every subtask, as after a failure of the whole job."""
        latest = self.coordinator.latest_completed()
        restored = None if latest is None else latest.checkpoint
        for subtask in self.topology.subtasks():
            self.change(subtask, ExecutionState.CANCELED)
            self.attempts[subtask] += 1
            self.change(subtask, ExecutionState.CREATED)
        self.send(events.Restored(restored, self.wall_ms))
        self.start()

    def request(
        self,
        number: int = 1,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        target: str | None = "/sp",
    ) -> list[CheckpointCommand]:
        return self.send(
            events.CheckpointRequested(number, kind, target if kind.is_savepoint else None)
        )

    def acknowledge(
        self,
        checkpoint: int,
        *subtasks: SubtaskId,
        state: Mapping[OperatorId, SubtaskState] | None = None,
        figures: CheckpointFigures | None = None,
    ) -> list[CheckpointCommand]:
        """Acknowledge, all subtasks by default."""
        given: list[CheckpointCommand] = []
        for subtask in subtasks or tuple(self.topology.subtasks()):
            given += self.send(self.acknowledgement(checkpoint, subtask, state, figures))
        return given

    def decline(
        self, checkpoint: int, subtask: SubtaskId, reason: FailureReason, message: str = ""
    ) -> list[CheckpointCommand]:
        return self.send(
            CheckpointDeclined(self.execution(subtask), CheckpointId(checkpoint), reason, message)
        )

    def release(self, kind: type, *, error: CheckpointEvent | None = None) -> list:
        """Answer the oldest held command of that kind, with a failure if one is given."""
        command = next(held for held in self.held if isinstance(held, kind))
        self.held.remove(command)
        return self.send(*([error] if error is not None else self.answers(command)))

    # --- what the world answers ---------------------------------------------------------------

    def answers(self, command: CheckpointCommand) -> list[CheckpointEvent]:
        match command:
            case TriggerCheckpoint(execution, checkpoint):
                return self.acknowledged_at_once(execution, checkpoint)
            case _:
                return self.store.answers(command, self.now_ms)

    def acknowledged_at_once(
        self, execution: ExecutionId, checkpoint: CheckpointId
    ) -> list[CheckpointEvent]:
        first = next(iter(self.topology.subtasks()))
        if not self.acknowledges or execution.subtask != first:
            return []
        return [self.acknowledgement(checkpoint, s) for s in self.topology.subtasks()]

    def acknowledgement(
        self,
        checkpoint: int,
        subtask: SubtaskId,
        state: Mapping[OperatorId, SubtaskState] | None = None,
        figures: CheckpointFigures | None = None,
    ) -> CheckpointAcknowledged:
        if state is None and subtask in self.states:
            state = {OperatorId(bytes(subtask.vertex)): self.states[subtask]}
        return CheckpointAcknowledged(
            self.execution(subtask),
            CheckpointId(checkpoint),
            state,
            figures or CheckpointFigures(bytes_written=1),
        )

    # --- looking ------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def execution(self, subtask: SubtaskId) -> ExecutionId:
        return ExecutionId(subtask, Attempt(self.attempts[subtask]), Epoch(1))

    def executions(self) -> list[ExecutionId]:
        return [self.execution(subtask) for subtask in self.topology.subtasks()]

    def subtask(self, name: str, index: int = 0) -> SubtaskId:
        return SubtaskId(VertexId(name.encode().ljust(16, b".")), index)

    def all(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.log if isinstance(command, kind)]

    def counts(self) -> tuple[int, int, int, int]:
        """Total, in progress, completed, failed."""
        counts = self.coordinator.statistics.counts
        return (counts.total, counts.in_progress, counts.completed, counts.failed)


def started(settings: CheckpointSettings = EVERY_SECOND, **more: object) -> World:
    """A world in which the job and all its subtasks run."""
    world = World(settings, **more)  # type: ignore[arg-type]
    world.start()
    return world


def only(given: list[CheckpointCommand], kind: type[Command]) -> list[Command]:
    return [command for command in given if isinstance(command, kind)]


def reasons(given: list[CheckpointCommand]) -> list[str | None]:
    """Of the checkpoints that ended, why; None for those that completed."""
    ended = only(given, commands.CheckpointEnded)
    return [None if each.reason is None else each.reason.name for each in ended]


def render(command: CheckpointCommand) -> str:  # noqa: C901 one line a command
    """A command in a line of a transcript."""
    match command:
        case TriggerCheckpoint(execution, checkpoint, _, options):
            rest = "" if options.target is None else f" to {options.target}"
            what = f"{options.kind.value}, {options.alignment.value}"
            return f"trigger {name_of(execution)} for {checkpoint} ({what}){rest}"
        case CheckpointComplete(execution, checkpoint, subsumed):
            rest = "" if subsumed is None else f", {subsumed} subsumed"
            return f"tell {name_of(execution)}: {checkpoint} complete{rest}"
        case CheckpointAborted(execution, checkpoint, latest):
            return f"tell {name_of(execution)}: {checkpoint} aborted, latest is {latest}"
        case ToOperator(execution, _, event):
            return f"send {name_of(execution)}: {event.payload}"
        case commands.TakeNextId(_, above):
            return f"take next id above {above}"
        case commands.PrepareLocation(checkpoint, savepoint, target):
            return f"prepare location of {checkpoint}" + (f" below {target}" if savepoint else "")
        case commands.SnapshotCoordinator(checkpoint, operator):
            return f"snapshot coordinator of {operator.decode().strip('.')} for {checkpoint}"
        case commands.TriggerHooks(checkpoint):
            return f"trigger hooks for {checkpoint}"
        case commands.WriteMetadata(checkpoint, metadata, location):
            size = sum(len(o.subtasks) for o in metadata.operators)
            return f"write metadata of {checkpoint} to {location} ({size} subtask states)"
        case commands.AddPointer(checkpoint, pointer, retained):
            return f"add pointer {checkpoint} to {pointer}, retained {list(retained)}"
        case commands.ForgetPointers(status, retained):
            return f"forget pointers: {status.value}, retained {list(retained)}"
        case commands.DiscardCheckpoint(checkpoint, location, files):
            return f"discard {checkpoint} in {location}, files {list(files)}"
        case commands.DeleteFiles(files):
            return f"delete files {list(files)}"
        case commands.SweepShared(below, used):
            return f"sweep shared files of attempts below {below}, used {list(used)}"
        case commands.NotifyCoordinatorComplete(operator, checkpoint):
            return f"tell coordinator of {operator.decode().strip('.')}: {checkpoint} complete"
        case commands.NotifyCoordinatorAborted(operator, checkpoint):
            return f"tell coordinator of {operator.decode().strip('.')}: {checkpoint} aborted"
        case commands.FailJob(error):
            return f"fail job: {error.what}"
        case commands.FailExecution(execution, error):
            return f"fail {name_of(execution)}: {error.what}"
        case commands.RequestDone(request, checkpoint, pointer, error):
            result = f"{checkpoint} at {pointer}" if error is None else error.what
            return f"request {request} done: {result}"
        case commands.CheckpointEnded(checkpoint, kind, duration_ms, reason=reason):
            result = "complete" if reason is None else reason.name
            return f"ended {checkpoint} ({kind.value}) after {duration_ms} ms: {result}"
        case commands.MessageIgnored(execution, checkpoint, why):
            return f"ignored from {name_of(execution)} about {checkpoint}: {why.value}"


def name_of(execution: ExecutionId) -> str:
    return f"{execution.subtask.vertex.decode().strip('.')}/{execution.subtask.index}"
