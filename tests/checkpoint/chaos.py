"""Job masters and backends that answer a coordinator in any order, late or never."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flinkformat.handles import (
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import CheckpointMetadata, Finished, SubtaskState
from flinkformat.state_streams import files_of, private_paths, shared_handles
from tests.checkpoint.world import World, chain, vertex
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.errors import StorageFailed
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    TriggerCheckpoint,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ExecutionId, OperatorId, SubtaskId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.checkpoint.coordinator.commands import CheckpointCommand
    from tidegate.checkpoint.coordinator.events import CheckpointEvent
    from tidegate.model.settings import CheckpointSettings


TOPOLOGY = chain(vertex("source", 2, coordinator=True), vertex("sink", 1))


ANSWERED = (
    commands.TakeNextId,
    commands.PrepareLocation,
    commands.SnapshotCoordinator,
    commands.TriggerHooks,
    commands.WriteMetadata,
    commands.AddPointer,
    commands.ForgetPointers,
    commands.DiscardCheckpoint,
)


@dataclass
class Backend:
    """Incremental state of one attempt: each snapshot adds a file, and now and then drops one.

    A file is uploaded again until the checkpoint that it was uploaded for is known to be complete.
    """

    name: str
    files: list[list[object]] = field(default_factory=list)  # logical name, path, checkpoint
    confirmed: int = 0
    made: int = 0

    def snapshot(self, checkpoint: int, *, drop: bool) -> tuple[SubtaskState, list[str]]:
        """The state, and the paths written for it."""
        self.made += 1
        self.files.append([f"{self.name}-{self.made}", None, 0])
        if drop:
            del self.files[0]
        written: list[str] = [f"/chk-{checkpoint}/{self.name}"]
        shared: list[HandleAndLocalPath] = []
        for entry in self.files:
            logical, path, uploaded = entry
            if path is not None and isinstance(uploaded, int) and uploaded <= self.confirmed:
                handle = PlaceholderStreamStateHandle(str(path), 1)
            else:
                entry[1] = f"/shared/{logical}-{checkpoint}"
                entry[2] = checkpoint
                written.append(str(entry[1]))
                handle = FileStateHandle(str(entry[1]), 1)
            shared.append(HandleAndLocalPath(str(logical), handle))
        meta = FileStateHandle(written[0], 1)
        keyed = IncrementalRemoteKeyedStateHandle(
            checkpoint, "b", KeyGroupRange(0, 127), 1, meta, tuple(shared), (), "h"
        )
        return SubtaskState(managed_keyed=keyed), written

    def restore(self, state: SubtaskState | Finished | None, checkpoint: int) -> None:
        self.confirmed = checkpoint
        if isinstance(state, SubtaskState):
            keyed = state.managed_keyed
            assert isinstance(keyed, IncrementalRemoteKeyedStateHandle)
            self.files = [
                [file.local_path, file.handle.physical_id, checkpoint]
                for file in keyed.shared_state
            ]


def paths_in(metadata: CheckpointMetadata) -> set[str]:
    """Every file that a snapshot needs."""
    needed: set[str] = set()
    for operator in metadata.operators:
        for state in operator.subtasks.values():
            if isinstance(state, SubtaskState):
                needed.update(private_paths(state))
                for handle in shared_handles(state):
                    needed.update(files_of(handle))
    return needed


class Chaos(World):
    """A world in which everything takes its time, and much fails."""

    def __init__(self, settings: CheckpointSettings) -> None:
        super().__init__(settings, TOPOLOGY, holds=ANSWERED)
        self.backends: dict[SubtaskId, Backend] = {}
        self.triggers: list[tuple[SubtaskId, ExecutionId, int]] = []
        self.acknowledgements: list[CheckpointAcknowledged] = []
        self.said: list[CheckpointAcknowledged] = []
        self.metadata: dict[int, CheckpointMetadata] = {}
        self.files: dict[str, None] = {}
        self.told: dict[ExecutionId, int] = {}
        self.asked = 0
        self.down = False
        self.over = False
        self.in_doubt = False
        self.start_attempts(None)
        self.start()

    def start_attempts(self, metadata: CheckpointMetadata | None) -> None:
        for subtask in self.topology.subtasks():
            name = f"{subtask.vertex.decode().strip('.')}{subtask.index}a{self.attempts[subtask]}"
            backend = Backend(name)
            if metadata is not None:
                states = {bytes(o.operator_id): o.subtasks for o in metadata.operators}
                state = states.get(bytes(subtask.vertex), {}).get(subtask.index)
                backend.restore(state, metadata.checkpoint_id)
            self.backends[subtask] = backend

    def send(self, *sent: CheckpointEvent) -> list[CheckpointCommand]:
        given = super().send(*sent)
        for command in given:
            self.observe(command)
        return given

    def observe(self, command: CheckpointCommand) -> None:
        match command:
            case TriggerCheckpoint(execution, checkpoint):
                # The barrier reaches every subtask, by and by.
                if execution == self.execution(next(iter(self.topology.subtasks()))):
                    for subtask in self.topology.subtasks():
                        self.triggers.append((subtask, self.execution(subtask), checkpoint))
            case commands.WriteMetadata(checkpoint, metadata):
                assert checkpoint not in self.store.pointers
                self.metadata[checkpoint] = metadata
                missing = paths_in(metadata) - set(self.files)
                assert not missing, f"a snapshot names files that are gone: {missing}"
            case CheckpointComplete(execution, checkpoint):
                assert checkpoint in self.store.pointers, "told before the pointer stood"
                assert checkpoint > self.told.get(execution, 0), "told twice, or out of order"
                self.told[execution] = checkpoint
                if execution == self.execution(execution.subtask):
                    backend = self.backends[execution.subtask]
                    backend.confirmed = max(backend.confirmed, checkpoint)
            case CheckpointAborted(execution, _, latest) if latest is not None:
                if execution == self.execution(execution.subtask):
                    backend = self.backends[execution.subtask]
                    backend.confirmed = max(backend.confirmed, latest)
            case commands.DiscardCheckpoint(checkpoint, _, files):
                assert checkpoint not in self.store.pointers, "deleted under its pointer"
                self.delete(files)
            case commands.DeleteFiles(files):
                self.delete(files)
            case _:
                pass

    def delete(self, files: Iterable[str]) -> None:
        for pointer in self.store.pointers:
            needed = paths_in(self.metadata[pointer])
            assert not needed & set(files), f"checkpoint {pointer} needs what is being deleted"
        for file in files:
            self.files.pop(file, None)

    def check(self) -> None:
        counts = self.coordinator.statistics.counts
        assert counts.total == counts.in_progress + counts.completed + counts.failed
        under_way = {
            row.checkpoint
            for row in self.coordinator.statistics.history
            if row.status is CheckpointStatus.IN_PROGRESS
        }
        triggering = [
            held
            for held in self.held
            if isinstance(held, commands.TakeNextId)
            or (isinstance(held, commands.TriggerHooks) and held.checkpoint in under_way)
        ]
        assert len(triggering) <= 1, "two trigger sequences at a time"
        finishing = [held for held in self.held if isinstance(held, commands.AddPointer)]
        assert len(finishing) <= 1
        assert bool(finishing) or self.in_doubt or self.coordinator.settled
        assert not (finishing and self.coordinator.settled)
        wake_at_ms = self.coordinator.wake_at_ms
        assert wake_at_ms is None or not self.over
        done = [answer.request for answer in self.all(commands.RequestDone)]
        assert len(done) == len(set(done)), "a request was answered twice"

    # --- steps --------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        choice, number = number % 24, number // 24
        if choice <= 9:
            self.answer(number)
        elif choice <= 18:
            self.subtask_goes_on(number)
        elif choice <= 20:
            self.advance(number % 400)
        elif choice == 21:
            self.ask(number)
        elif choice == 22:
            self.decline_or_repeat(number)
        else:
            self.fail_or_restart(number)

    def answer(self, number: int) -> None:
        if not self.held:
            return
        command = self.held[number % len(self.held)]
        number //= len(self.held)
        self.held.remove(command)
        error = StorageFailed("the disk is full")
        failed = number % 17 == 16
        match command:
            case commands.TakeNextId(trigger) if failed:
                self.send(events.NextIdFailed(trigger, error))
            case commands.PrepareLocation(checkpoint) if failed:
                self.send(events.LocationFailed(checkpoint, error))
            case commands.TriggerHooks(checkpoint) if failed:
                self.send(events.HookFailed(checkpoint, error))
            case commands.WriteMetadata(checkpoint) if failed:
                self.send(events.MetadataFailed(checkpoint, error))
            case commands.AddPointer(checkpoint, _, retained) if failed:
                unknown = number % 3 == 0
                if unknown and number % 2 == 0:
                    self.store.pointers = list(retained)
                self.in_doubt = self.in_doubt or unknown
                self.send(events.PointerFailed(checkpoint, error, unknown))
            case _:
                self.send(*self.answers(command))

    def subtask_goes_on(self, number: int) -> None:
        """A barrier reaches a subtask, or its snapshot is uploaded and acknowledged."""
        if number % 2 and self.acknowledgements:
            message = self.acknowledgements.pop(number // 2 % len(self.acknowledgements))
            self.said.append(message)
            self.send(message)
            return
        seen: set[SubtaskId] = set()
        heads = []
        for index, (subtask, _, _) in enumerate(self.triggers):
            if subtask not in seen:
                seen.add(subtask)
                heads.append(index)
        if not heads:
            return
        subtask, execution, checkpoint = self.triggers.pop(heads[number // 2 % len(heads)])
        if execution != self.execution(subtask):
            return
        state, written = self.backends[subtask].snapshot(checkpoint, drop=number % 3 == 0)
        self.files.update(dict.fromkeys(written))
        message = self.acknowledgement(checkpoint, subtask)
        self.acknowledgements.append(
            replace(message, state={OperatorId(bytes(subtask.vertex)): state})
        )

    def ask(self, number: int) -> None:
        kinds = [SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT]
        self.asked += 1
        self.request(self.asked, kinds[number % len(kinds)])

    def decline_or_repeat(self, number: int) -> None:
        if number % 3 and self.said:
            self.send(self.said[number // 2 % len(self.said)])
        elif self.triggers:
            subtask, execution, checkpoint = self.triggers[number // 2 % len(self.triggers)]
            if execution == self.execution(subtask):
                self.decline(checkpoint, subtask, FailureReason.CHECKPOINT_DECLINED)

    def fail_or_restart(self, number: int) -> None:
        if self.down:
            if self.coordinator.settled:
                self.down = False
                latest = self.coordinator.latest_completed()
                self.redeploy()
                self.start_attempts(None if latest is None else latest.metadata)
        elif number % 4 == 3:
            subtask = list(self.topology.subtasks())[number // 4 % 3]
            self.change(subtask, ExecutionState.FAILED)
            self.send(events.FailoverStarted())
            self.send(events.JobStatusChanged(JobStatus.RESTARTING))
            self.down = True

    def come_to_rest(self, status: JobStatus) -> None:
        """No more faults: everything is answered, the job ends."""
        while self.acknowledgements:
            self.send(self.acknowledgements.pop(0))
        self.over = True
        self.send(events.JobEnded(status))
        for _ in range(10_000):
            if not self.held:
                break
            command = self.held.pop(0)
            self.send(*self.answers(command))
            self.check()
        assert self.coordinator.ended
        assert self.coordinator.statistics.counts.in_progress == 0
        answered = {done.request for done in self.all(commands.RequestDone)}
        assert answered == set(range(1, self.asked + 1)), "a request was never answered"
