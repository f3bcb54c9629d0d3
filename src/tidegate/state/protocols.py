"""The faces of `state`: a backend of keyed rows, and what it is given and gives.

A backend of keyed rows is in memory (`heap`), on disk (`disk`), or a changelog around either
(`log`). `OperatorBackend` knows this face only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.model.ids import CheckpointId
    from tidegate.state.format.blocks import ColumnsHeader
    from tidegate.state.pending import PendingRows
    from tidegate.state.scope import BesideRows
    from tidegate.storage.reading import StateReads
    from tidegate.typeinfo.types import TypeInformation

    # Of each key group its batch, behind what describes all of them.
    WrittenColumns = tuple[ColumnsHeader, list[tuple[int, memoryview]]]


class KeyedBackend(Protocol):
    """Keyed rows of one operator in one subtask."""

    prepares: bool
    """Whether `before_batch` is to be called."""

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None = None) -> State:
        """The state of that name, made or restored. namespace: type of what is beside the key.

        Raises SerializerIncompatible where what was restored does not fit, ConfigError where the
        name is in use for another kind of state.
        """
        ...

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all that a state holds; no write meanwhile."""
        ...

    def entries(self) -> Mapping[str, int]:
        """Number of entries by state; empty where counting takes long. Any thread may ask."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """Bytes by state, keys included, in the snapshot that was written last; any thread may ask.

        Empty before the first, and where bytes are not known by state. With a changelog they are
        those of its newest base.
        """
        ...

    def figure(self, name: str) -> int | None:
        """A figure of the library that keeps the rows; None if there is none such. Any thread."""
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
    ) -> PendingRows:
        """The quick part of a snapshot. columns: what is to be written beside the rows."""
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
