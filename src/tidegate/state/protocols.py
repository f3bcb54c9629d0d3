"""The faces of `state`: a backend of keyed rows, one part of a snapshot, and how handles are read.

A backend of keyed rows is in memory (`heap`), on disk (`disk`), or a changelog around either
(`log`). `OperatorBackend` knows this face only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from flinkformat.handles import KeyedStateHandle, StreamStateHandle
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.model.ids import CheckpointId
    from tidegate.state.format.blocks import Block
    from tidegate.state.format.headers import ColumnsHeader
    from tidegate.storage.places import Place
    from tidegate.typeinfo.types import TypeInformation

    # Of each key group its batch, behind what describes all of them.
    WrittenColumns = tuple[ColumnsHeader, list[tuple[int, memoryview]]]

H = TypeVar("H", covariant=True)


class StateReads(Protocol):
    """A reader of the handles of a snapshot, such as `storage.reading.StateReader`."""

    def read(self, handle: StreamStateHandle) -> bytes:
        """All bytes of a handle."""
        ...

    def view(
        self, handle: StreamStateHandle, new_file: Callable[[], Path] | None = None
    ) -> memoryview:
        """All bytes of a handle; many of them from its file or a new one, as they are needed."""
        ...

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        """Write all bytes of a handle to a new file."""
        ...

    def holds(self, handle: StreamStateHandle, file: Path) -> bool:
        """True where a file of this machine has what was written as that handle."""
        ...

    @property
    def where(self) -> str:
        """Where the handles are, for errors."""
        ...


class Pending(Protocol[H]):
    """One part of a snapshot after its quick part, on its way into a handle at a place.

    First `steps` are drawn on the loop, or `thaw` ends them early; `write` may write `waiting`
    bytes meanwhile. Then comes one `upload`, and `acknowledged` where the driver hears of its
    handle; `cancel` comes at any time. `write` and `upload` block, and run off the loop.
    """

    @property
    def waiting(self) -> int:
        """Bytes that `write` would write; 0 where they have to wait for what comes last."""
        ...

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        """Encode; a step encodes about `rows` entries and gives their number."""
        ...

    def thaw(self) -> None:
        """The steps end early: free what is kept for them."""
        ...

    def write(self, place: Place) -> None:
        """Write what waits. Raises StorageFailed; what was written is the place's."""
        ...

    def upload(self, place: Place) -> H | None:
        """Write the rest; None where there is no state. Raises StorageFailed."""
        ...

    def acknowledged(self) -> None:
        """The driver hears of the handle."""
        ...

    def cancel(self) -> None:
        """Nobody wants it any more. An upload under way goes on with what it has."""
        ...


class BesideRows(Protocol):
    """Columnar state as at a barrier, which is written with the rows; `columns` has it."""

    @property
    def header(self) -> ColumnsHeader:
        """The description of all of it in a stream's header."""
        ...

    def steps(self) -> Iterator[int]:
        """Copy; a step copies a page and gives the number of its rows."""
        ...

    def blocks(self) -> dict[int, list[Block]]:
        """Rows of each key group that has keys, once they are copied."""
        ...

    def release(self) -> None:
        """Free what is kept for it."""
        ...


class Materialization(Protocol):
    """A base of a changelog on its way, in the background.

    `encode` is called on the loop until it gives True, `write` off it after the last time, and
    before that when much is waiting; then `take` on the loop, or `give_up` off it.
    """

    @property
    def waiting(self) -> int:
        """Bytes that are encoded and not written."""
        ...

    def encode(self, budget_ms: float) -> bool:
        """Encode for about that long; True once all is. Raises UserError for what can't be."""
        ...

    def write(self) -> None:
        """Write what waits. Blocking. Raises StorageFailed."""
        ...

    def take(self) -> None:
        """The base is durable: the next checkpoints count on it."""
        ...

    def give_up(self) -> None:
        """Nobody will count on it: delete what was written. Blocking."""
        ...


class KeyedBackend(Protocol):
    """Keyed rows of one operator in one subtask."""

    prepares: bool
    """Whether `before_batch` is to be called."""

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None) -> State:
        """The state of that name, made or restored. namespace: type of what is beside the key.

        Raises SerializerIncompatible where what was restored does not fit, ConfigError where the
        name is in use for another kind of state.
        """
        ...

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all that a state holds; no write meanwhile."""
        ...

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        """A batch is about to come. encoding: whether a snapshot is not encoded yet."""
        ...

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        """Take in what a snapshot holds for this subtask; gives the columnar state in it.

        Blocking, before any state is asked for. Raises FormatError, SerializerIncompatible,
        RestoreRefused, StorageFailed.
        """
        ...

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> Pending[KeyedStateHandle]:
        """The quick part of a snapshot. columns: what is to be written beside the rows."""
        ...

    def materialize(self) -> Materialization | None:
        """All rows, for a changelog to begin anew; None where that would be of no use."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete."""
        ...

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up."""
        ...

    def close(self) -> None:
        """Give the local disk back; nothing is used or written any more."""
        ...
