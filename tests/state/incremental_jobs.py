"""Subtasks that take incremental checkpoints, with a coordinator that forgets old ones."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import strategies as st

from flinkformat import metadata
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import RetentionPolicy, SubtaskState
from tests.checkpoint.chaos import Chaos, paths_in
from tests.checkpoint.world import chain, vertex
from tests.state.files_world import JOB, Driver, contents, fill
from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.checkpoint.restore.assignment import assign
from tidegate.errors import JobCanceled, StorageFailed
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    CheckpointFigures,
    ExecutionState,
    JobStatus,
    TriggerCheckpoint,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    OperatorId,
    SlotId,
    SubtaskId,
)
from tidegate.model.restore import RestoredOperatorState, SubtaskRestore
from tidegate.model.settings import CheckpointSettings
from tidegate.state.disk.files import IncrementalFiles, download
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.storage.places import CheckpointScope, Place
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import resolve_relative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle
    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.checkpoint.coordinator.commands import CheckpointCommand
    from tidegate.checkpoint.coordinator.events import CheckpointEvent
    from tidegate.model.elements import CheckpointOptions
    from tidegate.model.topology import Topology


SHAPES = [chain(vertex("source", n, coordinator=True), vertex("sink", 1)) for n in (1, 2, 3)]


STEPS = 250


SETTINGS_DRAWN = st.builds(
    CheckpointSettings,
    interval_ms=st.just(500),
    max_concurrent=st.integers(1, 3),
    retained_max=st.integers(1, 2),
    timeout_ms=st.sampled_from([3_000, 600_000]),
    tolerable_failures=st.just(1_000),
    retention=st.sampled_from(list(RetentionPolicy)),
)


LEFT_BEHIND = b"written by a slot that was killed"


MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many small files for a short while


SAVEPOINTS = "memory:/savepoints"


NOTHING = RestoredOperatorState()


Write = Callable[[Place], SubtaskState]


class Keeps(Protocol):
    """One attempt's backend."""

    def go_on(self, chance: int) -> None:
        """Write to it."""
        ...

    def cut(self, checkpoint: CheckpointId, options: CheckpointOptions, *, fails: bool) -> Write:
        """A barrier has come; what is given writes its state off the loop. fails: it can't."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def on_aborted(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...


@dataclass
class Database:
    """A folder of files, of which now and then some are merged into one.

    snapshots: what the files of each handle are.
    """

    uploads: IncrementalFiles
    name: str
    local: LocalFolders
    snapshots: dict[str, dict[str, bytes]]
    files: dict[str, bytes] = field(default_factory=dict)
    made: int = 0

    def go_on(self, chance: int) -> None:
        """Write a file; merge the oldest ones into another."""
        oldest = sorted(self.files, key=lambda name: int(name[1:]))
        merged = [self.files.pop(name) for name in oldest[: max(chance % 3, len(oldest) - 4)]]
        for _ in range(1 + (len(merged) > 1)):
            self.made += 1
            self.files[f"_{self.made}"] = f"{self.name}, file {self.made} ".encode() * 2

    def cut(self, checkpoint: CheckpointId, options: CheckpointOptions, *, fails: bool) -> Write:
        folder = fill(self.local.new_folder(), **self.folder())
        if fails:
            (folder / "000000.sst").symlink_to(folder / "gone")

        def write(place: Place) -> SubtaskState:
            try:
                handle = self.uploads.upload(folder, checkpoint, place, shared=True, meta=b"meta")
            except StorageFailed:
                shutil.rmtree(folder)
                raise
            self.snapshots[handle.state_handle_id] = contents(folder)
            self.local.keep(handle, folder)
            return SubtaskState(managed_keyed=handle)

        return write

    def folder(self) -> dict[str, bytes]:
        private = {f"MANIFEST-{self.made}": f"{self.name}, {sorted(self.files)}".encode()}
        return {**self.files, **private, "CURRENT": b"MANIFEST"}

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self.uploads.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self.uploads.named.on_aborted(checkpoint)

    def close(self) -> None:
        """All that it has is its folders, which are gone."""


class Job(Chaos):
    """The coordinator's chaos, with files that are there."""

    def __init__(
        self, settings: CheckpointSettings, folder: Path, *, local: bool, certain: bool = False
    ) -> None:
        self.certain = certain  # whether it is always known if a pointer stands
        self.epoch = Epoch(1)
        self.driver = self.new_world()
        self.driver.storage.initialize_base_locations()
        self.databases: dict[SubtaskId, Keeps] = {}
        self.snapshots: dict[str, dict[str, bytes]] = {}
        self.options: dict[int, CheckpointOptions] = {}
        self.savepoints: set[CheckpointId] = set()
        self.named: dict[int, set[str]] = {}
        self.restored = 0
        self.ended: Counter[str] = Counter()
        self.local = LocalFolders(JOB, SlotId("slot"), [folder], keeps=local, takes=local)
        super().__init__(settings)

    def new_world(self) -> Driver:
        return Driver()

    # --- what subtasks do ---

    def start_attempts(self, latest: CheckpointMetadata | None) -> None:
        self.end_attempts()
        restores = {} if latest is None else assign(latest, self.topology)
        self.databases = {
            subtask: self.database(subtask, restores.get(subtask))
            for subtask in self.topology.subtasks()
        }

    def end_attempts(self) -> None:
        while self.databases:
            self.databases.popitem()[1].close()

    def lives(self, execution: ExecutionId) -> bool:
        subtask = execution.subtask
        return subtask in self.databases and execution == self.execution(subtask)

    def database(self, subtask: SubtaskId, restore: SubtaskRestore | None) -> Keeps:
        vertex = self.topology.vertex(subtask.vertex)
        groups = KeyGroupRange.of(subtask.index, vertex.parallelism, vertex.max_parallelism)
        name = f"{vertex.name}/{subtask.index}/{self.attempts[subtask]}"
        backend = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        state = NOTHING
        if restore is not None:
            state = restore.operators.get(OperatorId(bytes(subtask.vertex)), NOTHING)
        found = [self.downloaded(handle, restore) for handle in state.managed_keyed]
        if len(found) != 1:
            database = self.new_database(IncrementalFiles(backend, groups, threads=1), name)
            old = [files[name] for files in found for name in sorted(files) if ".sst" in name]
            database.files = {f"_{number + 1}": data for number, data in enumerate(old)}
            database.made = len(database.files)
            return database
        [handle], [files] = state.managed_keyed, found
        shared = {f"_{int(file[:6])}": data for file, data in files.items() if ".sst" in file}
        made = max(int(file[1:]) for file in shared)
        database = self.new_database(
            IncrementalFiles(backend, groups, threads=1, restored=handle), name
        )
        database.files, database.made = shared, made
        return database

    def new_database(self, uploads: IncrementalFiles, name: str) -> Database:
        return Database(uploads, name, self.local, self.snapshots)

    def downloaded(
        self, handle: IncrementalRemoteKeyedStateHandle, restore: SubtaskRestore | None
    ) -> dict[str, bytes]:
        """The files of a handle, which are what they were when it was made."""
        assert restore is not None
        folder = self.local.new_folder()
        reader = StateReader(self.driver.storage.files, restore.checksums)
        shared = {file.handle.physical_id for file in handle.shared_state}
        assert shared <= restore.checksums.keys(), "files come without their checksums"
        assert download(handle, folder, reader, threads=1, local=self.local) == b"meta"
        found = contents(folder)
        shutil.rmtree(folder)
        assert found == self.snapshots[handle.state_handle_id]
        self.restored += 1
        return found

    def snapshot(self, subtask: SubtaskId, execution: ExecutionId, checkpoint: int, n: int) -> None:
        database = self.databases[subtask]
        database.go_on(n)
        if n % 13 == 12:  # its slot is killed once it has written a file
            self.place(execution, checkpoint).write([LEFT_BEHIND], CheckpointScope.SHARED)
            self.fail(subtask)
            return
        options = self.options[checkpoint]
        write = database.cut(CheckpointId(checkpoint), options, fails=n % 11 == 10)
        self.upload(execution, checkpoint, write)

    def upload(self, execution: ExecutionId, checkpoint: int, write: Write) -> None:
        """A subtask writes its share, and says so or why not."""
        subtask = execution.subtask
        place = self.place(execution, checkpoint)
        try:
            state = write(place)
        except StorageFailed:
            place.discard()
            self.decline(checkpoint, subtask, FailureReason.CHECKPOINT_ASYNC_EXCEPTION)
            return
        figures = CheckpointFigures(bytes_written=place.bytes_written, checksums=place.checksums)
        states = {OperatorId(bytes(subtask.vertex)): state}
        self.acknowledgements.append(self.acknowledgement(checkpoint, subtask, states, figures))

    def place(self, execution: ExecutionId, checkpoint: int) -> Place:
        options = self.options[checkpoint]
        return self.driver.place(
            checkpoint, options.kind, target=options.target, execution=execution
        )

    def settle(self) -> None:
        """All that is under way comes to its end, without faults."""
        while self.held or self.triggers or self.acknowledgements:
            if self.held:
                self.send(*self.answers(self.held.pop(0)))
            elif self.triggers:
                self.subtask_goes_on(0)
            else:
                self.subtask_goes_on(1)

    @property
    def needed(self) -> set[str]:
        """The files that the retained checkpoints and the savepoints name."""
        return set().union(*(self.named[each] for each in (*self.store.pointers, *self.savepoints)))

    # --- what the world does ---

    def answers(self, command: CheckpointCommand) -> list[CheckpointEvent]:
        match command:
            case commands.PrepareLocation(checkpoint, savepoint):
                location = self.driver.storage.location(checkpoint)
                if savepoint:
                    location = f"{SAVEPOINTS}/savepoint-{checkpoint}"
                return [events.LocationReady(checkpoint, location)]
            case _:
                return super().answers(command)

    def observe(self, command: CheckpointCommand) -> None:
        match command:
            case TriggerCheckpoint(_, checkpoint, _, options):
                self.options[checkpoint] = options
                super().observe(command)
            case commands.WriteMetadata(checkpoint, written, location):
                read = metadata.decode(metadata.encode(written), lambda: pytest.fail("no id"))
                self.metadata[checkpoint] = resolve_relative(read, location)
                self.named[checkpoint] = paths_in(self.metadata[checkpoint])
                assert self.metadata[checkpoint].operators == written.operators
                missing = paths_in(written) - self.driver.files
                assert not missing, f"a snapshot names files that are gone: {missing}"
            case CheckpointComplete(execution, checkpoint):
                if self.lives(execution):
                    self.databases[execution.subtask].on_complete(checkpoint)
                self.local.on_complete(checkpoint)
            case CheckpointAborted(execution, checkpoint, latest):
                if self.lives(execution):
                    database = self.databases[execution.subtask]
                    if latest is not None:
                        database.on_complete(latest)
                    database.on_aborted(checkpoint)
                self.local.on_aborted(checkpoint)
            case commands.DiscardCheckpoint(checkpoint, location, files):
                super().observe(command)
                if location is not None:
                    self.driver.storage.files.discard(location, files)
            case commands.SweepShared(below, used):
                self.driver.storage.sweep_shared(self.epoch, below, used=set(used))
            case commands.CheckpointEnded(message=message):
                assert "shared file" not in message, f"a subtask named what it may not: {message}"
                self.ended["failed" if command.reason else "completed"] += 1
            case commands.RequestDone(_, checkpoint, pointer) if pointer is not None:
                if pointer.startswith(SAVEPOINTS):
                    self.savepoints.add(checkpoint)
            case _:
                super().observe(command)

    def delete(self, files: Iterable[str]) -> None:
        doomed = set(files)
        for pointer in (*self.store.pointers, *self.savepoints):
            assert not self.named[pointer] & doomed, (
                f"checkpoint {pointer} needs what is being deleted"
            )
        self.driver.storage.files.delete_files(doomed)

    def subtask_goes_on(self, number: int) -> None:
        if number % 2 and self.acknowledgements:
            message = self.acknowledgements.pop(number // 2 % len(self.acknowledgements))
            self.said.append(message)
            self.send(message)
        elif self.triggers:
            first = self.triggers[number // 2 % len(self.triggers)][0]
            index = next(i for i, trigger in enumerate(self.triggers) if trigger[0] == first)
            subtask, execution, checkpoint = self.triggers.pop(index)
            if subtask in self.attempts and execution == self.execution(subtask):
                self.snapshot(subtask, execution, checkpoint, number // 2)

    def answer(self, number: int) -> None:
        command = self.held[number % len(self.held)] if self.held else None
        if self.certain and isinstance(command, commands.AddPointer):
            self.held.remove(command)
            self.send(*self.answers(command))
        else:
            super().answer(number)

    def ask(self, number: int) -> None:
        kinds = [SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT]
        self.asked += 1
        self.request(self.asked, kinds[number % len(kinds)], SAVEPOINTS)

    def decline_or_repeat(self, number: int) -> None:
        self.triggers = [
            trigger for trigger in self.triggers if self.attempts.get(trigger[0]) is not None
        ]
        super().decline_or_repeat(number)

    def fail_or_restart(self, number: int) -> None:
        if number % 37 == 36:
            self.new_driver()
        elif self.down:
            if self.coordinator.settled:
                self.down = False
                self.redeployed(SHAPES[number // 4 % len(SHAPES)])
        elif number % 4 == 3:
            subtasks = list(self.topology.subtasks())
            self.fail(subtasks[number // 4 % len(subtasks)])

    def fail(self, subtask: SubtaskId) -> None:
        if not self.down:
            self.change(subtask, ExecutionState.FAILED)
            self.send(events.FailoverStarted())
            self.send(events.JobStatusChanged(JobStatus.RESTARTING))
            self.down = True

    def new_driver(self) -> None:
        """The driver dies, and with it all subtasks; another goes on from the pointers."""
        self.end_attempts()
        self.epoch = Epoch(self.epoch + 1)
        retained = [self.completed_checkpoint(pointer) for pointer in self.store.pointers]
        self.completed = CompletedCheckpoints(self.settings.retained_max, retained)
        self.coordinator = CheckpointCoordinator(
            JOB, self.settings, self.topology, self.completed, SharedStateRegistry(), self.chance
        )
        self.held.clear()
        self.triggers.clear()
        self.acknowledgements.clear()
        self.said.clear()
        answered = {done.request for done in self.all(commands.RequestDone)}
        for lost in set(range(1, self.asked + 1)) - answered:
            self.log.append(commands.RequestDone(lost, None, None, JobCanceled("no driver")))
        used = set().union(*(self.named[pointer] for pointer in self.store.pointers))
        self.driver.storage.sweep(
            self.epoch, CheckpointId(self.store.next_id), kept=set(self.store.pointers), used=used
        )
        self.driver.storage.files.delete_files(
            path
            for path in self.driver.files
            if path.startswith(SAVEPOINTS) and path not in self.needed  # their user's to delete
        )
        self.in_doubt = self.down = False
        self.attempts = dict.fromkeys(self.topology.subtasks(), Attempt(0))
        latest = self.completed.latest
        self.send(events.Restored(None if latest is None else latest.checkpoint, self.wall_ms))
        self.start()
        self.start_attempts(None if latest is None else latest.metadata)

    def completed_checkpoint(self, checkpoint: CheckpointId) -> CompletedCheckpoint:
        location = self.driver.storage.location(checkpoint)
        found = self.metadata[checkpoint]
        assert found.properties is not None
        return CompletedCheckpoint(checkpoint, location, location, found, found.properties)

    def execution(self, subtask: SubtaskId) -> ExecutionId:
        return super().execution(subtask)._replace(epoch=self.epoch)

    def redeployed(self, topology: Topology) -> None:
        """All is started again, perhaps at another parallelism."""
        latest = self.coordinator.latest_completed()
        for subtask in self.topology.subtasks():
            self.change(subtask, ExecutionState.CANCELED)
        attempt = max(self.attempts.values()) + 1
        if topology != self.topology:
            self.topology = topology
            self.send(events.Rescaled(topology))
        self.attempts = dict.fromkeys(topology.subtasks(), attempt)
        for subtask in topology.subtasks():
            self.change(subtask, ExecutionState.CREATED)
        self.send(events.Restored(None if latest is None else latest.checkpoint, self.wall_ms))
        self.start()
        self.start_attempts(None if latest is None else self.metadata[latest.checkpoint])
