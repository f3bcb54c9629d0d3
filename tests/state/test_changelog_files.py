"""A changelog's files whatever happens: the world of incremental checkpoints, with real backends.

Subtasks log what they write, over state in memory and on disk, with bases in the background and
uploads that fail on their way or come late. Each restore must give back the state of its
checkpoint, and what nobody names any more must go.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.snapshots import SubtaskState
from flinkformat.state_streams import files_of, shared_handles
from tests.properties import examples
from tests.state.disk_world import FILES
from tests.state.disk_world import SMALL as SMALL_DISK
from tests.state.files_world import Driver
from tests.state.incremental_jobs import LEFT_BEHIND, MEMORY, NOTHING, SETTINGS_DRAWN, STEPS, Job
from tests.state.log_world import SMALL
from tests.state.world import Subtask
from tidegate.api.state import ValueStateDescriptor
from tidegate.errors import StorageFailed
from tidegate.model.control import CheckpointAborted, JobStatus
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId, Epoch, OperatorId
from tidegate.model.settings import CheckpointSettings
from tidegate.state.disk.files import LocalPlace
from tidegate.state.disk.store import RocksDBMemory
from tidegate.state.log.changelog import ChangeLog
from tidegate.storage.memory import MemoryFiles, MemoryStore
from tidegate.storage.reading import StateReader
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata
    from tests.state.incremental_jobs import Keeps, Write
    from tidegate.checkpoint.coordinator.commands import CheckpointCommand
    from tidegate.model.elements import CheckpointOptions
    from tidegate.model.ids import ExecutionId, SubtaskId
    from tidegate.model.restore import SubtaskRestore
    from tidegate.state.log.changelog_backend import BackgroundBase
    from tidegate.state.pending import PendingSnapshot
    from tidegate.state.scope import StateScope
    from tidegate.storage.memory import MemoryWriter
    from tidegate.storage.places import Place

TEXT = ValueStateDescriptor("text", Types.STRING())
KEYS = 60
Texts = dict[object, object]


Call = Callable[[], None]


class FullAtTimes(MemoryFiles):
    """left: files that can still be made; None for any number."""

    left: int | None = None

    @contextlib.contextmanager
    def full(self, after: int | None) -> Iterator[None]:
        """After so many files there is no room."""
        self.left = after
        try:
            yield
        finally:
            self.left = None

    def store(self, root: str = "memory:") -> MemoryStore:
        return _Store(self, root)


class _Store(MemoryStore):
    def __init__(self, world: FullAtTimes, root: str) -> None:
        super().__init__(world, root)
        self._full_at_times = world

    def open_new(self, path: str) -> MemoryWriter:
        world = self._full_at_times
        if world.left == 0:
            raise StorageFailed("the disk is full", where=path)
        if world.left is not None:
            world.left -= 1
        return super().open_new(path)


@dataclass
class Upload:
    """A snapshot that is to be written."""

    files: FullAtTimes
    pending: PendingSnapshot
    fails_after: int | None

    def __call__(self, place: Place) -> SubtaskState:
        state = self.write(place)
        self.pending.acknowledged()
        return state

    def write(self, place: Place) -> SubtaskState:
        self.pending.finish()
        with self.files.full(self.fails_after):
            return self.pending.upload(place)


class Logged:
    """One attempt's backend, what its state is, and what of its log waits to be written."""

    def __init__(self, files: FullAtTimes, subtask: Subtask, waiting: list[Call]) -> None:
        self.subtask = subtask
        self.texts: Texts = {}
        self.bases: Counter[bool] = Counter()
        self._waiting = waiting
        self._base: BackgroundBase | None = None
        self._files = files
        self.keys = [key for key in range(KEYS) if subtask.owns(key)]

    def go_on(self, chance: int) -> None:
        """A batch comes."""
        draw = random.Random(chance).randrange
        keys = [self.keys[draw(len(self.keys))] for _ in range(1 + draw(8))]
        groups = [self.subtask.on(key).cell.group for key in keys]
        prepare = self.subtask.backend.before_batch
        assert prepare is not None
        prepare(RowBatch(keys, None, keys, groups))
        state: Any = self.subtask.backend.keyed_state(TEXT)
        for key in keys:
            self.subtask.on(key)
            if draw(4):
                self.texts[key] = text = f"text {draw(1000)} of {key}"
                state.update(text)
            else:
                self.texts.pop(key, None)
                state.clear()

    def cut(self, checkpoint: CheckpointId, options: CheckpointOptions, *, fails: bool) -> Upload:
        pending = self.subtask.backend.snapshot(checkpoint, options)
        return Upload(self._files, pending, checkpoint % 3 if fails else None)

    def beside(self, chance: int) -> None:
        """Something goes on that is of no checkpoint; an upload of it may fail."""
        after = chance // 2 % 3 if chance // 6 % 4 == 0 else None
        if self._waiting and chance % 2:
            self.write_what_waits(after)
        elif self._base is None:
            self._base = self.subtask.backend.materialize()
        elif self._base.encode(0.1):
            self._finish_base(self._base, after)

    def write_what_waits(self, after: int | None = None) -> None:
        with self._files.full(after):
            self._waiting.pop(0)()

    def settle(self) -> None:
        while self._waiting:
            self.write_what_waits()

    def _finish_base(self, base: BackgroundBase, after: int | None) -> None:
        self._base = None
        try:
            with self._files.full(after):
                base.write()
        except StorageFailed:
            base.give_up()
        else:
            base.take()
        self.bases[after is None] += 1

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self.subtask.backend.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self.subtask.backend.on_aborted(checkpoint)

    def close(self) -> None:
        """What is being written is written to its end; what has not begun never is."""
        under_way = self._waiting[:1]
        self.subtask.backend.close()
        for call in under_way:
            call()


class LoggedJob(Job):
    """The job, with a log of its state over either backend."""

    def __init__(
        self, settings: CheckpointSettings, folder: Path, *, on_disk: bool, certain: bool = False
    ) -> None:
        self.memory = RocksDBMemory(SMALL_DISK) if on_disk else None
        self.world = FullAtTimes()
        self.texts: dict[int, Texts] = {}
        self.uploads: list[tuple[ExecutionId, int, Upload]] = []
        self.bases: Counter[bool] = Counter()
        self.restoring = 0
        super().__init__(settings, folder, local=True, certain=certain)

    def new_world(self) -> Driver:
        return Driver(world=self.world)

    # --- what subtasks do ---

    def start_attempts(self, latest: CheckpointMetadata | None) -> None:
        self.restoring = 0 if latest is None else latest.checkpoint_id
        super().start_attempts(latest)

    def end_attempts(self) -> None:
        for execution, checkpoint, _ in list(self.uploads):
            self.give_up(execution, checkpoint)
        for attempt in self.attempts_of_logs:
            self.bases += attempt.bases
        super().end_attempts()

    @property
    def attempts_of_logs(self) -> list[Logged]:
        return cast("list[Logged]", list(self.databases.values()))

    def database(self, subtask: SubtaskId, restore: SubtaskRestore | None) -> Keeps:
        vertex = self.topology.vertex(subtask.vertex)
        execution = self.execution(subtask)
        waiting: list[Call] = []

        def log(scope: StateScope) -> ChangeLog:
            return ChangeLog(
                scope,
                SMALL,
                lambda sharing: self.driver.shared_place(execution, sharing),
                waiting.append,
            )

        begun = Subtask(
            subtask.index,
            vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            local=self.local_place(execution),
            log=log,
        )
        attempt = Logged(self.world, begun, waiting)
        if restore is not None:
            self.restore(attempt, subtask, restore)
        return attempt

    def local_place(self, execution: ExecutionId) -> LocalPlace | None:
        if self.memory is None:
            return None
        backend = str(uuid.uuid5(uuid.NAMESPACE_OID, repr(execution)))
        return LocalPlace(self.local, backend, self.memory, FILES)

    def restore(self, attempt: Logged, subtask: SubtaskId, restore: SubtaskRestore) -> None:
        state = restore.operators.get(OperatorId(bytes(subtask.vertex)), NOTHING)
        shared = [
            path
            for keyed in state.managed_keyed
            for handle in shared_handles(SubtaskState(managed_keyed=keyed))
            for path in files_of(handle)
        ]
        assert set(shared) <= restore.checksums.keys(), "files come without their checksums"
        reader = StateReader(self.driver.storage.files, restore.checksums)
        attempt.subtask.backend.restore(state, reader)
        attempt.subtask.backend.keyed_state(TEXT)
        attempt.texts = attempt.subtask.dump("text")
        assert attempt.texts == {
            key: text
            for (vertex, key), text in self.texts[self.restoring].items()
            if vertex == subtask.vertex and key in attempt.keys
        }
        self.restored += 1

    def upload(self, execution: ExecutionId, checkpoint: int, write: Write) -> None:
        """It waits for its turn."""
        assert isinstance(write, Upload)
        texts = self.texts.setdefault(checkpoint, {})
        attempt = cast("Logged", self.databases[execution.subtask])
        for key, text in attempt.texts.items():
            texts[execution.subtask.vertex, key] = text
        self.uploads.append((execution, checkpoint, write))

    def go_on_uploading(self, number: int) -> None:
        if self.uploads:
            super().upload(*self.uploads.pop(number % len(self.uploads)))

    def give_up(self, execution: ExecutionId, checkpoint: int) -> None:
        """A checkpoint is given up before a subtask's share was written, or just after."""
        for each in [upload for upload in self.uploads if upload[:2] == (execution, checkpoint)]:
            self.uploads.remove(each)
            place = self.place(execution, checkpoint)
            if checkpoint % 2:
                with contextlib.suppress(StorageFailed):
                    each[2].write(place)
            each[2].pending.cancel()
            place.discard()

    def subtask_goes_on(self, number: int) -> None:
        choice, rest = number // 2 % 5, number // 10
        attempts = self.attempts_of_logs
        if choice < 2:
            super().subtask_goes_on(2 * rest + number % 2)
        elif choice == 2:
            self.go_on_uploading(rest)
        elif attempts:
            attempts[rest % len(attempts)].beside(rest // len(attempts))

    def settle(self) -> None:
        super().settle()
        while self.uploads:
            self.go_on_uploading(0)
            super().settle()
        for attempt in self.attempts_of_logs:
            attempt.settle()

    # --- what the world does ---

    def sweep_at_the_end(self) -> None:
        """As a driver does where its job has ended for good."""
        after, kept = Epoch(self.epoch + 1), set(self.store.pointers)
        used = set().union(*(self.named[pointer] for pointer in kept))
        self.driver.storage.sweep(after, CheckpointId(self.store.next_id), kept=kept, used=used)

    def observe(self, command: CheckpointCommand) -> None:
        super().observe(command)
        match command:
            case CheckpointAborted(execution, checkpoint):
                self.give_up(execution, checkpoint)
            case _:
                pass


@examples(16)
@given(
    seed=st.integers(0, 1 << 32),
    settings=SETTINGS_DRAWN,
    status=st.sampled_from([JobStatus.FINISHED, JobStatus.CANCELED]),
    on_disk=st.booleans(),
)
def test_whatever_happens_the_state_comes_back_and_none_of_its_log_is_left_over(
    seed: int, settings: CheckpointSettings, status: JobStatus, on_disk: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        job = LoggedJob(settings, Path(folder), on_disk=on_disk)
        draw = random.Random(seed).randrange
        for _ in range(2 * STEPS):
            job.step(draw(10_000))
            job.check()
        job.end_attempts()
        job.come_to_rest(status)
        job.local.close(over=True)
        assert list(Path(folder).rglob("*")) == []
    assert job.needed <= job.driver.files
    if not job.in_doubt:
        job.sweep_at_the_end()
        # What slots that were killed have left of a savepoint is its user's.
        left = {job.driver.world.files[path] for path in job.driver.files - job.needed}
        assert left <= {LEFT_BEHIND}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.feature("F041", "F202")
@pytest.mark.parametrize(("on_disk", "checkpoints"), [(False, 300), (True, 100)])
def test_after_many_checkpoints_of_a_log_the_folders_hold_what_is_live_and_nothing_else(
    folder: Path, on_disk: bool, checkpoints: int
) -> None:
    settings = CheckpointSettings(
        interval_ms=500, retained_max=2, timeout_ms=3_000, tolerable_failures=1_000_000
    )
    job = LoggedJob(settings, folder, on_disk=on_disk, certain=True)
    draw = random.Random(5).randrange
    while job.ended["completed"] < checkpoints:
        job.advance(500)
        for _ in range(draw(150)):
            job.step(24 * draw(10_000) + (draw(19) if draw(40) else 21 + draw(3)))
        job.log.clear()
    while job.down:
        job.settle()
        job.fail_or_restart(draw(10_000))
    for _ in range(8):  # while nothing is restarted, so that nothing is swept
        for attempt in job.attempts_of_logs:
            attempt.go_on(draw(10_000))
            for _ in range(10):
                attempt.beside(draw(10_000))
        job.settle()
        job.advance(3_000)
    job.settle()
    assert job.ended["failed"] > 100 and job.restored > 100 and job.epoch > 2
    assert job.bases[True] > 100 and job.bases[False] > 100
    assert len(job.store.pointers) == 2
    assert job.needed == job.driver.files
    working = list(folder.glob("*/*/[0-9]*"))
    assert len(working) == (len(job.databases) if on_disk else 0)
    assert list(folder.rglob("copies/*/*")) == []
    job.end_attempts()
    job.local.close(over=True)
    assert list(folder.rglob("*")) == []
