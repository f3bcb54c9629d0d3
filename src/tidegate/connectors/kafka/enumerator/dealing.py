"""Deals partitions out to the readers of a Kafka source.

The start of a partition is fixed, as a number, when it is found, and goes into the checkpoint with
it. Partitions found at first start where the user said. Later ones start at their beginning, since
their first records were written while the job ran.

A bounded job that goes on from a checkpoint looks once more, and finds where its partitions end by
now. The restored positions are the readers', in whatever order they were dealt out, so each reader
is told all new stops.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from tidegate.api import ship
from tidegate.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition
from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.source import EnumeratorContext
    from tidegate.connectors.kafka.enumerator.partition_finder import PartitionFinder
    from tidegate.model.ids import CheckpointId

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class EnumeratorState:
    """State of the enumerator in a checkpoint.

    known: partitions that were found. waiting: those of them that no reader was given. begun: the
    first look has been taken.
    """

    known: set[KafkaTopicPartition] = field(default_factory=lambda: set[KafkaTopicPartition]())
    waiting: list[KafkaSplit] = field(default_factory=lambda: list[KafkaSplit]())
    begun: bool = False


class KafkaEnumerator:
    """Looks for partitions once or repeatedly; each one always goes to the same reader.

    discovery_ms: time between two looks; 0 for one look only.
    """

    def __init__(
        self,
        context: EnumeratorContext[KafkaSplit],
        finder: PartitionFinder,
        discovery_ms: int,
        restored: bytes | None,
    ) -> None:
        self._context = context
        self._finder = finder
        self._discovery_ms = discovery_ms
        self._ready: set[int] = set()
        self._missed = False
        self._stops: list[KafkaSplit] = []
        self._stops_are_old = restored is not None and finder.bounded and not discovery_ms
        self._state = EnumeratorState()
        if restored is not None:
            state = ship.restored(EnumeratorState, restored, name="a Kafka source")
            left_out = finder.subscription.leaves_out
            # Patterns took Kafka's own topics once: a snapshot of that time has them.
            state.known = {place for place in state.known if not left_out(place.topic)}
            state.waiting = [each for each in state.waiting if not left_out(each.place.topic)]
            self._state = state

    def start(self) -> None:
        if self._looks:
            self._look()

    def split_requested(self, subtask: int) -> None:
        return  # readers are given partitions without asking

    def add_back(self, subtask: int, splits: Sequence[KafkaSplit]) -> None:
        self._ready.discard(subtask)
        self._state.waiting.extend(split for split in splits if not split.is_new_stop)

    def reader_ready(self, subtask: int) -> None:
        self._ready.add(subtask)
        self._serve([subtask])

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return ship.dumps(self._state, name="kafka enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None:
        self._finder.close()

    @property
    def _looks(self) -> bool:
        return not self._state.begun or self._discovery_ms > 0 or self._stops_are_old

    def _look(self) -> None:
        known = frozenset(self._state.known)
        if self._state.begun and self._stops_are_old:
            self._context.run_blocking(lambda: self._finder.find_again(known), self._found)
        elif self._state.begun:
            self._context.run_blocking(lambda: self._find_more(known), self._found)
        else:
            self._context.run_blocking(lambda: self._finder.find(known, first=True), self._found)

    def _find_more(self, known: frozenset[KafkaTopicPartition]) -> object:
        try:
            found = self._finder.find(known, first=False)
        except StorageFailed as failed:
            # What is known is read meanwhile, and the next look may be answered.
            if not self._missed:
                _LOG.warning(
                    "%s: new partitions are looked for again later: %s", failed.where, failed.what
                )
            self._missed = True
            return []
        if self._missed:
            _LOG.info("new partitions of Kafka are found again")
        self._missed = False
        return found

    def _found(self, result: object) -> None:
        found = cast("list[KafkaSplit]", result)
        splits = [split for split in found if not split.is_new_stop]
        self._stops = [split for split in found if split.is_new_stop]
        self._stops_are_old = False
        self._state.begun = True
        self._state.known.update(split.place for split in splits)
        self._state.waiting.extend(splits)
        self._serve(sorted(self._ready))
        if self._looks:
            self._context.call_later(self._discovery_ms, self._look)

    def _serve(self, readers: Sequence[int]) -> None:
        for subtask in readers:
            own = [split for split in self._state.waiting if self._owner(split.place) == subtask]
            self._state.waiting = [split for split in self._state.waiting if split not in own]
            self._context.assign(subtask, [*own, *self._stops])
            if not self._looks:
                self._context.no_more_splits(subtask)

    def _owner(self, place: KafkaTopicPartition) -> int:
        # The partitions of a topic go to readers in turn; topics begin at different ones.
        return (zlib.crc32(place.topic.encode()) + place.partition) % self._context.parallelism
