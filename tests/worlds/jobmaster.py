"""A job master and what surrounds it: slots that do as they are told, a store that answers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tests.checkpoint.world import THREE
from tests.worlds.chance import FixedChance
from tests.worlds.clock import WALL_MS
from tests.worlds.store import CheckpointStore
from tidegate.api.job import MasterTriggerRestoreHook
from tidegate.checkpoint.completed import CompletedCheckpoints
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tidegate.checkpoint.coordinator.events import Woke
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.graph.job_graph import JobGraph
from tidegate.jobmaster.commands import (
    DropSlot,
    JobCommand,
    JobOver,
    ReleaseSlots,
    RequestSlots,
    SendToSlot,
    StatusChanged,
)
from tidegate.jobmaster.events import JobEvent, JobStarted, SlotLeft
from tidegate.jobmaster.machine import JobMaster
from tidegate.model.control import (
    Accepted,
    Cancel,
    CheckpointAcknowledged,
    CheckpointFigures,
    Deploy,
    ExecutionState,
    JobStatus,
    Offer,
    Pulse,
    Refused,
    Start,
    SubtaskChanged,
    SubtaskFigures,
    ToSlot,
    TriggerCheckpoint,
)
from tidegate.model.ids import CheckpointId, Epoch, ExecutionId, JobId, SlotId
from tidegate.model.settings import CheckpointSettings, JobSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.errors import TidegateError
    from tidegate.jobmaster.view import SubtaskView
    from tidegate.model.topology import Topology

JOB = JobId("j" * 32)
Command = TypeVar("Command")


class Hook(MasterTriggerRestoreHook[int]):
    """A hook that nobody calls: the machine only asks whether there is one."""

    def get_identifier(self) -> str:
        return "hook"

    def trigger_checkpoint(self, checkpoint_id: CheckpointId, timestamp_ms: int) -> None:
        raise AssertionError("a machine calls no hook")

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: int | None) -> None:
        raise AssertionError("a machine calls no hook")


class FakeSlot:
    """A slot that does what it is told, unless it is deaf."""

    def __init__(self, slot: SlotId) -> None:
        self.id = slot
        self.deaf = False
        self.received: list[ToSlot] = []


class World:
    """log: every command so far. Slots and store answer by `deliver`, at once where `prompt`.

    answers_store: whether the store answers what the checkpoint coordinator asks of it.
    """

    def __init__(
        self,
        settings: JobSettings | None = None,
        topology: Topology = THREE,
        *,
        prompt: bool = True,
        chance: FixedChance | None = None,
        hooks: bool = False,
    ) -> None:
        self.settings = settings or JobSettings()
        self.topology = topology
        self.chance = chance or FixedChance()
        coordinator = CheckpointCoordinator(
            JOB,
            self.settings.checkpoints,
            topology,
            CompletedCheckpoints(self.settings.checkpoints.retained_max, ()),
            SharedStateRegistry(),
            self.chance,
            facts={},
        )
        plans = {vertex.id: b"code" for vertex in topology.vertices}
        program = JobGraph("flights", topology, plans, self.settings, {}, (Hook(),) * hooks)
        self.machine = JobMaster(program, JOB, Epoch(1), coordinator, self.chance)
        self.prompt = prompt
        self.now_ms = 0
        self.log: list[JobCommand] = []
        self.slots: dict[SlotId, FakeSlot] = {}
        self.coming = 0
        self.rescales = 0
        self.waiting: deque[JobEvent] = deque()
        self.states: dict[ExecutionId, ExecutionState] = {}
        self._triggered: set[CheckpointId] = set()
        self._slot_names = 0
        self._store = CheckpointStore()

    # --- acts ---

    def send(self, *events: JobEvent) -> list[JobCommand]:
        """Events, and all that follows from them; the commands they led to."""
        before = len(self.log)
        for event in events:
            self._handle(event)
            while self.prompt and self.waiting:
                self.deliver()
        return self.log[before:]

    def deliver(self) -> None:
        """The oldest answer arrives."""
        self._handle(self.waiting.popleft())

    def start(self) -> World:
        self.send(JobStarted(WALL_MS + self.now_ms))
        return self

    def offer(self, *, slot: FakeSlot | None = None) -> FakeSlot:
        """A slot that was asked for comes, or one that was not."""
        if slot is None:
            slot = FakeSlot(SlotId(f"slot-{self._slot_names}"))
            self._slot_names += 1
        self.slots[slot.id] = slot
        self.coming = max(0, self.coming - 1)
        self.send(Offer(slot.id, f"{slot.id}:1", 7, "host", {}))
        return slot

    def running(self) -> World:
        """The job with all slots it needs."""
        self.start()
        while self.coming:
            self.offer()
        return self

    def lose(self, slot: SlotId, error: TidegateError | None = None) -> list[JobCommand]:
        self.slots.pop(slot, None)
        for execution in [e for e in self.states if self.slot_of(e) == slot]:
            del self.states[execution]
        return self.send(SlotLeft(slot, error))

    def change(
        self,
        execution: ExecutionId,
        state: ExecutionState,
        error: TidegateError | None = None,
        figures: SubtaskFigures | None = None,
    ) -> list[JobCommand]:
        self.states[execution] = state
        return self.send(SubtaskChanged(execution, state, error, figures=figures))

    def finish_all(self) -> list[JobCommand]:
        before = len(self.log)
        for execution, state in list(self.states.items()):
            if state is ExecutionState.RUNNING:
                self.change(execution, ExecutionState.FINISHED)
        return self.log[before:]

    def wake_up_to(self, now_ms: int) -> list[JobCommand]:
        """Time passes until then, with a wake-up whenever it was asked for."""
        before = len(self.log)
        for _ in range(10_000):
            at_ms = self.machine.wake_at_ms
            if at_ms is None or at_ms > now_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.send(Woke())
        else:
            raise AssertionError(f"it wakes without end at {self.now_ms} ms")
        self.now_ms = now_ms
        return self.log[before:]

    def beat(self) -> None:
        """A pulse of every slot."""
        for slot in list(self.slots):
            self.send(Pulse(slot))

    # --- the surroundings ---

    def _handle(self, event: JobEvent) -> None:
        for command in self.machine.handle(event, self.now_ms):
            self.log.append(command)
            self._perform(command)

    def _perform(self, command: JobCommand) -> None:
        match command:
            case RequestSlots(count):
                self.coming += count
            case DropSlot(slot):
                self.slots.pop(slot, None)
            case ReleaseSlots():
                self.slots.clear()
            case SendToSlot(slot, message):
                known = self.slots.get(slot)
                if known is not None:
                    known.received.append(message)
                    if not known.deaf:
                        self.waiting.extend(self._answers(message))
            case _:
                self.waiting.extend(self._store.answers(command, self.now_ms))

    def _answers(self, message: ToSlot) -> Iterable[JobEvent]:
        match message:
            case Deploy(execution):
                self.states[execution] = ExecutionState.INITIALIZING
                yield SubtaskChanged(execution, ExecutionState.INITIALIZING, restore_ms=5)
            case Start(execution):
                self.states[execution] = ExecutionState.RUNNING
                yield SubtaskChanged(execution, ExecutionState.RUNNING)
            case Cancel(execution):
                self.states.pop(execution, None)
                yield SubtaskChanged(execution, ExecutionState.CANCELED)
            case TriggerCheckpoint(_, checkpoint) if checkpoint not in self._triggered:
                self._triggered.add(checkpoint)
                for execution, state in self.states.items():
                    if state is ExecutionState.RUNNING:
                        yield CheckpointAcknowledged(
                            execution, checkpoint, None, CheckpointFigures()
                        )
            case _:
                pass

    # --- what can be seen ---

    def of(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.log if isinstance(command, kind)]

    def sent(self, kind: type[Command]) -> list[Command]:
        """Messages of a kind, to whichever slot."""
        return [c.message for c in self.of(SendToSlot) if isinstance(c.message, kind)]

    @property
    def statuses(self) -> list[JobStatus]:
        return [change.status for change in self.of(StatusChanged)]

    @property
    def status(self) -> JobStatus:
        return self.machine.view(self.now_ms).status

    @property
    def over(self) -> JobOver | None:
        ended = self.of(JobOver)
        return ended[0] if ended else None

    @property
    def executions(self) -> list[ExecutionId]:
        """Those of the newest deployment, vertex by vertex."""
        newest = max((deploy.execution.attempt for deploy in self.sent(Deploy)), default=0)
        return [d.execution for d in self.sent(Deploy) if d.execution.attempt == newest]

    def subtasks(self) -> list[SubtaskView]:
        return [s for vertex in self.machine.view(self.now_ms).vertices for s in vertex.subtasks]

    def slot_of(self, execution: ExecutionId) -> SlotId | None:
        for command in reversed(self.of(SendToSlot)):
            if isinstance(command.message, Deploy) and command.message.execution == execution:
                return command.slot
        return None


def accepted(slot: FakeSlot) -> bool:
    return any(isinstance(message, Accepted) for message in slot.received)


def refused(slot: FakeSlot) -> bool:
    return any(isinstance(message, Refused) for message in slot.received)


def with_checkpoints(settings: JobSettings, interval_ms: int = 1_000) -> JobSettings:
    return replace(settings, checkpoints=CheckpointSettings(interval_ms=interval_ms))
