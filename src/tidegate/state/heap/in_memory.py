"""Keyed rows of one operator in memory, from restore to snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.errors import FormatError, RestoreRefused
from tidegate.state.format.blocks import COLUMNS, section
from tidegate.state.format.headers import keyed_header
from tidegate.state.format.streams import in_streams
from tidegate.state.heap.keyed import KeyedStates, Restored, WholeStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.model.ids import CheckpointId
    from tidegate.state.heap.increments import SharedSections
    from tidegate.state.heap.keyed import KeyedSnapshot
    from tidegate.state.protocols import BesideRows, StateReads, WrittenColumns
    from tidegate.state.scope import StateScope
    from tidegate.typeinfo.types import TypeInformation


class WholeStreams:
    """Snapshots that are a stream of all rows each."""

    tracked = False

    def snapshot(
        self,
        states: KeyedStates,
        checkpoint: CheckpointId,
        options: CheckpointOptions,
        columns: BesideRows | None,
    ) -> KeyedSnapshot:
        """The quick part of a snapshot."""
        del options
        return states.snapshot(WholeStream.of(states.scope, checkpoint), columns)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """No file is named again."""

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """No file is named again."""


class HeapBackend:
    """A `protocols.KeyedBackend` in memory.

    streams: what its snapshots write. logged: whether a changelog drains it.
    """

    prepares = False

    def __init__(
        self, scope: StateScope, streams: WholeStreams | SharedSections, *, logged: bool = False
    ) -> None:
        self.states = KeyedStates(scope, tracked=streams.tracked, logged=logged)
        self._streams = streams
        self._scope = scope

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None) -> State:
        return self.states.state(descriptor, namespace)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        return self.states.scan(name)

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        """Nothing is to be read."""

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        streams = in_streams(handles, self._scope.key_groups, reader.read)
        found = [self._restore(handle, reader) for handle in streams]
        return [columns for columns in found if columns is not None]

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> KeyedSnapshot:
        return self._streams.snapshot(self.states, checkpoint, options, columns)

    def materialize(self) -> None:
        """No log has to begin anew."""

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._streams.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._streams.on_aborted(checkpoint)

    def close(self) -> None:
        """Memory needs no giving back."""

    def _restore(self, handle: KeyedStateHandle, reader: StateReads) -> WrittenColumns | None:
        where = self._scope.where
        if not isinstance(handle, KeyGroupsStateHandle):
            raise RestoreRefused(
                f"Keyed state in the form of {type(handle).__name__} can't be read by the HashMap"
                " backend",
                where=where,
                remedy="Set state.backend.type: rocksdb if that has written it, or start from a "
                "savepoint in canonical form ('tidegate savepoint --type canonical').",
            )
        name = handle.delegate.physical_id
        data = reader.view(handle.delegate)
        header = keyed_header(data, name)
        if header.key is not None:
            self.states.restore_keys(header.key)
        states = [Restored(state) for state in header.states]
        columns: list[tuple[int, memoryview]] = []
        for group in handle.key_groups.intersection(self._scope.key_groups):
            offset = handle.offset_of(group)
            for block in section(data, offset, group, name) if offset else ():
                if block.kind == COLUMNS:
                    columns.append((group, memoryview(block.values)))
                elif block.state < len(states):
                    states[block.state].blocks.append((group, block))
                else:
                    raise FormatError(
                        "A block of keyed state is of no state", where=name, offset=offset
                    )
        for state in states:
            self.states.restore(state)
        return None if header.columns is None else (header.columns, columns)
