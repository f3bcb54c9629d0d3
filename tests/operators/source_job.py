"""A source's coordinator and readers as one job, taken through checkpoints, kills and restores."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.operators.world import TURNS_MAX, FakeCoordinatorContext, Hosted, Snapshot, World
from tidegate.api.operator import Polled, SourceOperator
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings

if TYPE_CHECKING:
    from tidegate.model.elements import OperatorEvent


@dataclass
class SourceCheckpoint:
    number: int
    coordinator: bytes
    readers: Snapshot
    emitted: list[object]


class SourceJob:
    """A source's coordinator and readers, and what has been emitted; may be killed and restored.

    make: a fresh operator, as the driver ships it.
    """

    def __init__(
        self,
        world: World,
        make: Callable[[], SourceOperator],
        parallelism: int,
        restored: SourceCheckpoint | None = None,
        settings: SlotSettings | None = None,
    ) -> None:
        self.world = world
        self._make = make
        self._settings = settings
        self._attempts = [0] * parallelism
        self._closed: set[int] = set()
        self.coordinator_context = FakeCoordinatorContext(world, parallelism)
        self.coordinator = make().coordinator(self.coordinator_context)
        self.emitted: list[object] = list(restored.emitted) if restored else []
        self.latest = restored
        lists = restored.readers.redistributed(parallelism) if restored else [{}] * parallelism
        number = CheckpointId(restored.number) if restored else None
        self.coordinator.start(number, restored.coordinator if restored else None)
        self.ended = [False] * parallelism
        self.readers = [self._reader(i, lists[i], number) for i in range(parallelism)]
        for index in range(parallelism):
            self.coordinator.subtask_ready(index)

    def _reader(self, index: int, lists: dict[str, list[object]], restored: object) -> Hosted:
        return Hosted(
            self._make(),
            self.world,
            subtask=index,
            parallelism=len(self._attempts),
            attempt=self._attempts[index],
            lists=copy.deepcopy(lists),
            restored=restored,
            settings=self._settings,
            send=lambda event: self.coordinator.on_event(index, event),
        )

    def deliver(self) -> None:
        """Events of the coordinator, save those to readers whose gateway is closed."""
        held: list[tuple[int, OperatorEvent]] = []
        sent = self.coordinator_context.sent
        while sent:
            subtask, event = sent.popleft()
            if subtask in self._closed:
                held.append((subtask, event))
            else:
                operator = self.readers[subtask].operator
                self.world.on_loop(lambda op=operator, ev=event: op.on_event(ev))
        sent.extend(held)

    def step(self, index: int) -> None:
        """One poll of one reader."""
        reader = self.readers[index]
        if not self.ended[index]:
            self.ended[index] = reader.poll() is Polled.END
            self.emitted.extend(reader.out.values)
            reader.out.batches.clear()
        self.world.settle()
        self.deliver()
        if self.coordinator_context.failure is not None:
            raise self.coordinator_context.failure

    def checkpoint(self, number: int, *, steps_between: Sequence[int] = ()) -> SourceCheckpoint:
        """Take a checkpoint and complete it; some readers go on before they take their part."""
        self.deliver()
        data = self.coordinator.snapshot(CheckpointId(number))
        self._closed = set(range(len(self.readers)))
        for index in steps_between:
            self.step(index)
        readers = Snapshot()
        before = list(self.emitted)
        for index, reader in enumerate(self.readers):
            part = reader.snapshot(number)
            readers.lists += part.lists
            self._closed.discard(index)
            self.deliver()
        self.latest = SourceCheckpoint(number, data, readers, before)
        return self.latest

    def complete(self) -> None:
        assert self.latest is not None
        for reader in self.readers:
            reader.complete(self.latest.number)
        self.coordinator.on_complete(CheckpointId(self.latest.number))

    def run_to_end(self) -> None:
        for _ in range(TURNS_MAX):
            if all(self.ended):
                return
            for index in range(len(self.readers)):
                self.step(index)
            self.world.pass_time(1)
        raise AssertionError("the source never ends")

    def killed(self, parallelism: int | None = None) -> "SourceJob":
        """The whole job again, from its latest checkpoint."""
        for reader in self.readers:
            reader.operator.close()
        self.coordinator.close()
        return SourceJob(
            self.world,
            self._make,
            parallelism or len(self.readers),
            self.latest,
            self._settings,
        )

    def reset_reader(self, index: int, emitted_by_it: Callable[[object], bool]) -> None:
        """One reader alone again, from the latest checkpoint."""
        self.readers[index].operator.close()
        lists = self.latest.readers.lists[index] if self.latest else {}
        kept = self.latest.emitted if self.latest else []
        mine = [v for v in self.emitted if emitted_by_it(v) and v not in kept]
        self.emitted = [v for v in self.emitted if v not in mine]
        number = CheckpointId(self.latest.number) if self.latest else None
        self.coordinator.subtask_reset(index, number)
        self._attempts[index] += 1
        self.readers[index] = self._reader(index, lists, number)
        self.ended[index] = False
        self.coordinator.subtask_ready(index)
