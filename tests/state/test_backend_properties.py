"""Any order of writes, snapshots, slices, aborts and rescales, against plain dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.properties import examples
from tests.state.backend_machine import (
    DESCRIPTORS,
    BackendMachine,
)
from tests.state.disk_world import Disk
from tests.state.world import Subtask, merged, restored
from tests.worlds.storage import MEMORY
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from flinkformat.snapshots import SubtaskState


class DiskMachine(BackendMachine):
    """The same on disk, with a cache of a few entries."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Disk()

    @precondition(lambda self: not self.pending)
    @rule(parallelism=st.integers(1, 3))
    def go_over_to_memory_and_back(self, parallelism: int) -> None:
        """By savepoints in canonical form, which both backends write and read."""
        self.checkpoint += 1
        on_disk = self.saved(self.subtasks)
        in_memory = restored(on_disk, parallelism)
        assert {each.name: merged(in_memory, each) for each in DESCRIPTORS} == self.model
        states = self.saved(in_memory)
        self.forget(self.subtasks)
        self.take_over(self.place.gone_on(states, parallelism))

    def saved(self, subtasks: list[Subtask]) -> list[SubtaskState]:
        options = CheckpointOptions(SnapshotKind.SAVEPOINT, canonical=True)
        number = CheckpointId(self.checkpoint)
        pieces = [each.backend.snapshot(number, options) for each in subtasks]
        for piece in pieces:
            piece.finish()
        return [piece.upload(MEMORY) for piece in pieces]

    @rule()
    def tell_of_the_last_one(self) -> None:
        for subtask in self.subtasks:
            subtask.backend.on_complete(CheckpointId(self.checkpoint))


TestBackend = BackendMachine.TestCase
DiskMachine.TestCase.settings = settings(examples(8), stateful_step_count=20)
TestBackendOnDisk = DiskMachine.TestCase
