"""The same as in `test_backend_properties` where changes are logged, over both backends.

Beside it: files are deleted by the driver's rules, and none is that a checkpoint still needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from flinkformat.state_streams import files_of, shared_handles
from tests.properties import examples
from tests.state.backend_machine import SMALL, WRITE, BackendMachine
from tests.state.disk_world import Disk
from tests.state.log_world import Logs, Place
from tests.state.world import Subtask, restored
from tests.worlds.storage import MEMORY
from tidegate.errors import StorageFailed
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from flinkformat.snapshots import SubtaskState
    from tidegate.state.log.changelog_backend import BackgroundBase
    from tidegate.state.pending import PendingSnapshot

Writes = list[tuple[str, int, int, int, bool]]
FULL = CheckpointOptions(SnapshotKind.FULL_CHECKPOINT)
SAVEPOINT = CheckpointOptions(SnapshotKind.SAVEPOINT, canonical=True)


class LoggedMachine(BackendMachine):
    """Subtasks whose changes are logged; a driver that keeps one completed checkpoint."""

    on_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.place = self
        self.logs = Logs()
        self.disk = Disk() if self.on_disk else None
        self.bases: list[BackgroundBase] = []
        self.numbers: dict[PendingSnapshot, int] = {}

    def begun(self, parallelism: int) -> list[Subtask]:
        return [
            Subtask(
                index,
                parallelism,
                log=self.logs.log,
                local=None if self.disk is None else self.disk.local(),
            )
            for index in range(parallelism)
        ]

    def gone_on(self, states: list[SubtaskState], parallelism: int) -> list[Subtask]:
        disk = self.disk
        return restored(
            states,
            parallelism,
            reader=self.logs,
            log=self.logs.log,
            local=(lambda: None) if disk is None else disk.local,
        )

    def take_over(self, subtasks: list[Subtask]) -> None:
        super().take_over(subtasks)
        self.bases = []
        self.logs.waiting.clear()

    def uploaded(self, piece: PendingSnapshot) -> SubtaskState:
        state = self.logs.acknowledged(piece.upload(Place(self.logs)), self.numbers[piece])
        piece.acknowledged()
        return state

    def cut(self, options: CheckpointOptions) -> None:
        super().cut(options)
        for piece in self.pending[-1][0]:
            self.numbers[piece] = self.checkpoint

    @rule()
    def barrier_of_a_full_checkpoint(self) -> None:
        self.cut(FULL)

    def finish(self, which: int, parallelism: int) -> None:
        """The older ones that are under way are given up with it."""
        for pieces, _, _ in self.pending[:which]:
            for piece in pieces:
                piece.cancel()
        del self.pending[:which]
        number = self.numbers[self.pending[0][0][0]]
        super().finish(0, parallelism)
        self.logs.completed(number)
        for subtask in self.subtasks:
            subtask.backend.on_complete(CheckpointId(number))

    @precondition(lambda self: self.pending)
    @rule(which=SMALL)
    def acknowledge_and_give_up(self, which: int) -> None:
        pieces, _, _ = self.pending.pop(which % len(self.pending))
        for piece in pieces:
            piece.finish()
            self.place.uploaded(piece)
        for subtask in self.subtasks:
            subtask.backend.on_aborted(CheckpointId(self.numbers[pieces[0]]))

    @precondition(lambda self: self.pending)
    @rule(which=SMALL)
    def fail_to_upload(self, which: int) -> None:
        pieces, _, _ = self.pending.pop(which % len(self.pending))
        self.logs.fails = True
        for piece in pieces:
            piece.finish()
            try:
                piece.upload(Place(self.logs))
            except StorageFailed:
                continue
        self.logs.fails = False

    @rule(fails=st.booleans())
    def upload_what_waits(self, fails: bool) -> None:
        self.logs.fails = fails
        self.logs.run()
        self.logs.fails = False

    @rule(which=SMALL)
    def begin_a_base(self, which: int) -> None:
        base = self.subtasks[which % len(self.subtasks)].backend.materialize()
        if base is not None:
            self.bases.append(base)

    @precondition(lambda self: not self.pending)
    @rule(
        which=SMALL,
        first=st.lists(WRITE, min_size=5, max_size=10),
        second=st.lists(WRITE, min_size=5, max_size=10),
    )
    def make_a_base_while_rows_come(self, which: int, first: Writes, second: Writes) -> None:
        base = self.subtasks[which % len(self.subtasks)].backend.materialize()
        self.write(first)
        done = base is None or base.encode(0.1)
        self.write(second)
        if base is not None:
            while not done:
                done = base.encode(0.1)
            base.write()
            base.take()
        self.cut(CheckpointOptions())
        self.finish(0, 1)

    @precondition(lambda self: self.bases)
    @rule(which=SMALL, slices=st.integers(1, 4))
    def encode_a_base(self, which: int, slices: int) -> None:
        base = self.bases[which % len(self.bases)]
        for _ in range(slices):
            base.encode(0.1)

    @precondition(lambda self: self.bases)
    @rule(which=SMALL, fails=st.booleans())
    def finish_a_base(self, which: int, fails: bool) -> None:
        base = self.bases.pop(which % len(self.bases))
        while not base.encode(0.1):
            pass
        self.logs.fails = fails
        try:
            base.write()
        except StorageFailed:
            assert fails
        else:
            base.take()
        self.logs.fails = False

    @precondition(lambda self: not self.pending)
    @rule(parallelism=st.integers(1, 3), logged=st.booleans())
    def go_over_by_a_savepoint(self, parallelism: int, logged: bool) -> None:
        """To the same backend, with its changes logged or, for a while, not."""
        self.checkpoint += 1
        states = self.saved(self.subtasks)
        if not logged:
            states = self.saved(restored(states, parallelism))
        self.forget(self.subtasks)
        self.take_over(self.place.gone_on(states, parallelism))
        self.completed = None
        self.logs.completed(self.checkpoint)

    def saved(self, subtasks: list[Subtask]) -> list[SubtaskState]:
        number = CheckpointId(self.checkpoint)
        pieces = [each.backend.snapshot(number, SAVEPOINT) for each in subtasks]
        for piece in pieces:
            piece.finish()
        return [piece.upload(MEMORY) for piece in pieces]

    @precondition(lambda self: not self.pending)
    @rule()
    def nothing_is_left_of_what_is_needless(self) -> None:
        """What was uploaded and then given up may be left; the sweep of orphans deletes it."""
        for _ in range(2):
            self.cut(CheckpointOptions())
            self.finish(0, 1)
        self.logs.run()
        assert self.completed is not None
        named = {
            path
            for state in self.completed[0]
            for handle in shared_handles(state)
            for path in files_of(handle)
        }
        assert named == set(self.logs.registry.paths())
        assert named <= self.logs.files.keys()

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()


class LoggedDiskMachine(LoggedMachine):
    """The same on disk, with a cache of a few entries."""

    on_disk = True


LoggedMachine.TestCase.settings = settings(examples(30), stateful_step_count=30)
TestLogged = LoggedMachine.TestCase
LoggedDiskMachine.TestCase.settings = settings(examples(8), stateful_step_count=30)
TestLoggedOnDisk = LoggedDiskMachine.TestCase
