"""What was written to one named state and is not on disk yet, in dicts by key group.

What was written since the last snapshot is *dirty*; a snapshot sets it aside as a layer, whose
bytes are made in slices and brought to disk by whoever uploads, one layer after the other. Nothing
newer reaches the disk before, so the folder is the state at the barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from tidegate.state.user.refusing import refusing_maps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.disk.store import Batch, RocksDBStore, Rows

V = TypeVar("V")
Log = Callable[[int, Sequence[bytes], Sequence[bytes], Sequence[bytes]], None]
"""Takes what becomes bytes, before it is on disk: key group, keys, their entries, keys without."""

_ROWS_A_BATCH: Final = 512


class Stored(Protocol[V]):
    """What a table knows of its entries: a dict for each key group, by key."""

    def size(self, entries: dict[object, V]) -> int:
        """How many entries those are on disk, about; at least one a key."""
        ...

    def rows(self, group: int, entries: dict[object, V], rows_max: int) -> Iterator[Rows]:
        """Their bytes, in pieces of so many rows."""
        ...

    def settled(self, entries: dict[object, V]) -> None:
        """They are on disk; nobody else holds them any more."""
        ...

    def take_back(
        self, group: int, entries: dict[object, V], newer: Sequence[dict[object, V]]
    ) -> None:
        """Keep them as if they were written now. newer: written since, the last of it dirty."""
        ...


@dataclass(slots=True)
class Layer(Generic[V]):
    """What was written between two snapshots, by key group.

    pending: key groups whose bytes are still to be made. encoded: what is ready to be written.
    """

    entries: list[dict[object, V]]
    pending: list[int]
    encoded: list[Batch] = field(default_factory=list["Batch"])
    written: bool = False


class Written(Generic[V]):
    """dirty: since the last snapshot, by key group. layers: not on disk yet, the oldest first.

    more: how many entries are dirty beyond one a key; whoever writes such keeps it.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        store: RocksDBStore,
        stored: Stored[V],
    ) -> None:
        dirty = refusing_maps(key_groups, max_parallelism)
        self.dirty = cast("list[dict[object, V]]", dirty)
        self.layers: list[Layer[V]] = []
        self.more = 0
        self._key_groups = key_groups
        self._store = store
        self._stored = stored
        self._spilled = 0

    @property
    def unwritten(self) -> int:
        """Entries that are dirty."""
        return self.more + sum(len(self.dirty[group]) for group in self._key_groups)

    def spill(self, entries: int) -> None:
        """Write about that many entries to disk; only while no layer waits."""
        assert not self.layers, "a snapshot is being linked"
        groups = list(self._key_groups)
        for _ in groups:
            group = groups[self._spilled % len(groups)]
            self._spilled += 1
            written = self.dirty[group]
            if not written:
                continue
            size = self._stored.size(written)
            self.more -= size - len(written)
            self.dirty[group] = {}
            for batch in self._batches(group, written):
                self._store.write(batch)
            self._stored.settled(written)
            entries -= size
            if entries <= 0:
                return

    def freeze(self) -> Layer[V]:
        """Set aside what was written since the last snapshot; it is to be written first."""
        groups = [group for group in self._key_groups if self.dirty[group]]
        # Of where nothing is, a dict of its own too: what is written there next is not the layer's.
        layer = Layer([entries or {} for entries in self.dirty], groups)
        for group in groups:
            self.dirty[group] = {}
        self.more = 0
        self.layers.append(layer)
        return layer

    def encode(self, layer: Layer[V]) -> Iterator[int]:
        """Make a layer's bytes, step by step; gives the entries of each step."""
        while layer.pending:
            group, begun = layer.pending[-1], len(layer.encoded)
            try:
                for batch in self._batches(group, layer.entries[group]):
                    layer.encoded.append(batch)
                    yield batch.rows
            except Exception:
                del layer.encoded[begun:]  # a key group is taken back as a whole
                raise
            layer.pending.pop()

    def take_back(self, layer: Layer[V]) -> None:
        """Keep what is left of a layer that can't be encoded as if it were written since."""
        newer = self.layers[self.layers.index(layer) + 1 :]
        for group in layer.pending:
            since = [*(each.entries[group] for each in newer), self.dirty[group]]
            self._stored.take_back(group, layer.entries[group], since)
            layer.entries[group] = {}
        layer.pending.clear()

    def settle(self) -> None:
        """Drop the layers that are on disk by now."""
        while self.layers and self.layers[0].written:
            layer = self.layers.pop(0)
            for group in self._key_groups:
                self._stored.settled(layer.entries[group])

    def _batches(self, group: int, entries: dict[object, V]) -> Iterator[Batch]:
        for rows in self._stored.rows(group, entries, _ROWS_A_BATCH):
            yield self._store.batch(rows)
