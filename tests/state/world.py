"""One operator's state in a test: keys set by hand, snapshots into memory, restore at any scale."""

from collections.abc import Callable, Sequence
from pathlib import Path

from flinkformat.handles import StreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SubtaskState
from tests.worlds.clock import StepClock
from tests.worlds.storage import MEMORY
from tidegate.api.state import StateDescriptor
from tidegate.checkpoint.restore.redistribution import redistribute_keyed, redistribute_operator
from tidegate.loops.forms import loops
from tidegate.model.ids import CheckpointId, OperatorId
from tidegate.model.restore import RestoredOperatorState
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.disk.files import LocalPlace
from tidegate.state.log.changelog import ChangeLog
from tidegate.state.pending import PendingSnapshot
from tidegate.state.scope import StateScope
from tidegate.storage.reading import InlineReader, StateReads
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import TypeInformation

MAX_PARALLELISM = 8


class Subtask:
    """A backend, and the key that its state stands on."""

    def __init__(
        self,
        index: int = 0,
        parallelism: int = 1,
        *,
        max_parallelism: int = MAX_PARALLELISM,
        key_type: TypeInformation | None = None,
        step_ms: float = 0,
        local: LocalPlace | None = None,
        compression: bool = False,
        shared_as: str | None = None,
        log: Callable[[StateScope], ChangeLog] | None = None,
    ) -> None:
        self.key_groups = KeyGroupRange.of(index, parallelism, max_parallelism)
        self.clock = StepClock(step_ms=step_ms, stands_at_ms=0)
        self.cell = loops().key_cell()
        scope = StateScope(
            OperatorId(bytes(16)),
            self.key_groups,
            max_parallelism,
            self.clock,
            self.cell,
            key_type=key_type,
            compression=compression,
            name="counts",
        )
        keyed = keyed_backend(
            scope, local=local, shared_as=shared_as, log=None if log is None else log(scope)
        )
        self.backend = OperatorBackend(scope, keyed)
        self._hasher = KeyHasher(key_type, max_parallelism)

    def on(self, key: object) -> "Subtask":
        """Stand on a key."""
        self.cell.key = key
        self.cell.group = int(self._hasher.key_groups([key])[0])
        return self

    def at(self, ms: int) -> "Subtask":
        """Set the wall's clock."""
        self.clock.stands_at_ms = ms
        return self

    def owns(self, key: object) -> bool:
        return int(self._hasher.key_groups([key])[0]) in self.key_groups

    def dump(self, name: str) -> dict[object, object]:
        """All entries of a state; fails where a key comes twice or in a foreign group."""
        found: dict[object, object] = {}
        for group, key, value in self.backend.scan(name):
            assert group in self.key_groups and key not in found
            found[key] = value
        return found


class Viewed(InlineReader):
    """What is restored stays where it is, until it is overwritten."""

    def __init__(self) -> None:
        super().__init__("a test's memory")
        self.files: list[bytearray] = []

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        self.files.append(bytearray(self.read(handle)))
        return memoryview(self.files[-1])

    def overwrite(self) -> None:
        for file in self.files:
            file[:] = bytes(len(file))


READER = InlineReader("a test's memory")


def stored(pending: PendingSnapshot) -> SubtaskState:
    """The rest of a snapshot, in one go."""
    pending.finish()
    return pending.upload(MEMORY)


def snapshot(subtask: Subtask, checkpoint: int = 1) -> SubtaskState:
    return stored(subtask.backend.snapshot(CheckpointId(checkpoint)))


def restored(
    states: Sequence[SubtaskState],
    parallelism: int = 1,
    *,
    max_parallelism: int = MAX_PARALLELISM,
    key_type: TypeInformation | None = None,
    at_ms: int = 0,
    reader: StateReads = READER,
    local: Callable[[], LocalPlace | None] = lambda: None,
    log: Callable[[StateScope], ChangeLog] | None = None,
) -> list[Subtask]:
    """New subtasks with what the old ones have put away."""
    keyed = redistribute_keyed(
        [state.managed_keyed for state in states], parallelism, max_parallelism
    )
    operator = redistribute_operator([state.managed_operator for state in states], parallelism)
    subtasks: list[Subtask] = []
    for index in range(parallelism):
        subtask = Subtask(
            index,
            parallelism,
            max_parallelism=max_parallelism,
            key_type=key_type,
            local=local(),
            log=log,
        )
        state = RestoredOperatorState(
            managed_keyed=keyed[index], managed_operator=tuple(operator[index])
        )
        subtask.at(at_ms).backend.restore(state, reader)
        subtasks.append(subtask)
    return subtasks


class InMemory:
    """A place for subtasks whose state stays in memory; `disk_world.Disk` is another."""

    def begun(self, parallelism: int) -> list[Subtask]:
        return [Subtask(index, parallelism) for index in range(parallelism)]

    def uploaded(self, piece: PendingSnapshot) -> SubtaskState:
        return piece.upload(MEMORY)

    def gone_on(self, states: Sequence[SubtaskState], parallelism: int) -> list[Subtask]:
        return restored(states, parallelism)

    def close(self) -> None:
        """Nothing is left."""


def merged(subtasks: Sequence[Subtask], descriptor: StateDescriptor) -> dict[object, object]:
    """A keyed state over all subtasks; fails where a key is found twice."""
    found: dict[object, object] = {}
    for subtask in subtasks:
        subtask.backend.keyed_state(descriptor)
        part = subtask.dump(descriptor.name)
        assert not found.keys() & part.keys()
        found |= part
    return found
