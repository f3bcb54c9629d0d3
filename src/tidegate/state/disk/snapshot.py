"""A snapshot of a key space: what was set aside, until it lies in a folder and that at a place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from flinkformat.handles import KeyedStateHandle
    from tidegate.state.disk.layered import Layer, LayeredTable
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.scope import BesideRows
    from tidegate.storage.places import Place

    Upload = Callable[["RocksDBSnapshot", Place], KeyedStateHandle | None]


class RocksDBSnapshot:
    """Layers that were set aside for one snapshot, a `pending.PendingRows`.

    before: the snapshots that are not linked yet; their bytes are made first. columns: what is
    written beside the rows. upload: brings it to a place. bring: brings all snapshots up to this
    one to disk. linked: whether there is to be a folder of it. encoded: called once its bytes are
    made, with none from after it. position: of the log; its bytes are in that part or later ones.
    """

    waiting = 0

    def __init__(
        self,
        layers: list[tuple[LayeredTable[Any], Layer[Any]]],
        before: Sequence[RocksDBSnapshot],
        upload: Upload,
        bring: Callable[[RocksDBSnapshot], None],
        *,
        columns: BesideRows | None = None,
        linked: bool = True,
        encoded: Callable[[], None] | None = None,
        position: int = 0,
    ) -> None:
        self.position = position
        self.cancelled = False
        self._layers = layers
        self._upload = upload
        self._bring = bring
        self._columns = columns
        self._linked = linked
        self._encoded = encoded
        self._folder: Path | None = None
        self._steps = self._encode(before)

    def step(self) -> int | None:
        """Make some bytes; the number of rows, or None at the end. A later snapshot may call it."""
        return next(self._steps, None)

    def _encode(self, before: Sequence[RocksDBSnapshot]) -> Iterator[int]:
        for older in before:
            while (rows := older.step()) is not None:
                yield rows
        try:
            for table, layer in self._layers:
                yield from table.encode(layer)
        except Exception:
            self.cancelled = True
            for table, layer in self._layers:
                table.take_back(layer)
            raise
        if self._encoded is not None:
            self._encoded()

    def written(self, store: RocksDBStore, new_folder: Callable[[], Path]) -> None:
        """Writes, flushes and links; aborted layers are written too, since they are the state."""
        for _, layer in self._layers:
            assert not layer.pending, "a layer is written once it is encoded"
            # One by one: where linking fails, the next snapshot goes on behind what is written.
            while layer.encoded:
                store.write(layer.encoded[0])
                del layer.encoded[0]
        if self._linked and not self.cancelled:
            store.flush()
            self._folder = new_folder()
            store.link(self._folder)
            if self.cancelled:  # meanwhile
                shutil.rmtree(self._folder, ignore_errors=True)
        for _, layer in self._layers:
            layer.written = True
        self._layers = []  # or the quick part of the next snapshot would pay for their end

    def settle(self) -> None:
        """Brings it to disk, without a folder. Blocking, off the loop. Raises StorageFailed."""
        self._bring(self)

    def link(self) -> Path:
        """The folder of links. Blocking, off the loop.

        Raises StorageFailed, and CheckpointAborted where it was given up before.
        """
        self._bring(self)
        if self._folder is None:
            raise FailureReason.CHECKPOINT_SUBSUMED.aborted(
                "The checkpoint was given up before it was on disk"
            )
        return self._folder

    # --- as a part of a checkpoint ---

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        del rows
        # One by one: whoever leaves off here must not end what a later snapshot goes on with.
        while (made := self.step()) is not None:
            yield made
        if self._columns is not None:
            yield from self._columns.steps()

    def thaw(self) -> None:
        if self._columns is not None:
            self._columns.release()

    def write(self, place: Place) -> None:
        """Nothing is written before the rest."""

    def upload(self, place: Place) -> KeyedStateHandle | None:
        try:
            return self._upload(self, place)
        finally:
            self.thaw()

    def acknowledged(self) -> None:
        """The backend hears of it when the checkpoint is complete."""

    def cancel(self) -> None:
        """Gives it up; entries that are encoded go to disk with a later snapshot."""
        self.cancelled = True
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
