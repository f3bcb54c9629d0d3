"""A checkpoint or savepoint of Flink: its operators, all their state as values, and its counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from flinkformat import metadata
from flinkformat.handles import FileStateHandle, SegmentFileStateHandle
from flinkformat.state import reading
from flinkformat.state.composites import type_name
from flinkformat.state_streams import replace_streams
from tidegate.checkpoint.provenance import provenance_of
from tidegate.errors import ConfigError
from tidegate.snapshots.rows import KIND_OF_OPERATOR_STATE, StateKind
from tidegate.storage import paths
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import MetadataFile, StateFiles, resolve_relative

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from flinkformat.state.headers import FlinkState
    from flinkformat.state.operator_state import FlinkOperatorState
    from flinkformat.state.reading import FlinkKeyedState

NO_GROUP: Final = -1
_VOID: Final = "VoidNamespace"


class FlinkSnapshot:
    """A checkpoint or savepoint of Flink. Made by `open`; reads files as state is requested.

    path: its folder. metadata: what its ``_metadata`` says, every file by its place.
    """

    def __init__(self, path: str, read: CheckpointMetadata) -> None:
        self.path = path
        self.metadata = read
        self._reader = StateReader(StateFiles(), {}, where=path)

    @staticmethod
    def open(path: str | PathLike[str], *, moved: Mapping[str, str] | None = None) -> FlinkSnapshot:
        """Opens the snapshot in a folder.

        moved: from a folder as the snapshot names it to where that is now; for checkpoints, whose
        shared files have absolute places. Raises RestoreRefused if there is none, FormatError
        for a ``_metadata`` that can't be read, ConfigError for one of Tidegate's own.
        """
        file = StateFiles().read_metadata(fspath(path))
        return FlinkSnapshot.decoded(file.data, file.directory, moved=moved)

    @staticmethod
    def decoded(
        data: bytes, directory: str, *, moved: Mapping[str, str] | None = None
    ) -> FlinkSnapshot:
        """The snapshot of a ``_metadata`` that was read already; arguments as of `open`."""
        where = f"{directory}/{paths.METADATA}"
        with MetadataFile(data, directory, where).being_decoded():
            decoded = metadata.decode(data)
            ours = provenance_of(decoded)
        if ours is not None:
            raise ConfigError(
                "The snapshot is one of Tidegate's own, not of Flink's",
                where=where,
                remedy="Start a job from it as it is, with --from.",
            )
        places = {paths.absolute(old): paths.absolute(new) for old, new in (moved or {}).items()}
        found = replace_streams(
            resolve_relative(decoded, directory), lambda stream: _moved(stream.handle, places)
        )
        return FlinkSnapshot(directory, found)

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        return self.metadata.operators

    def keyed_state(self, operator: OperatorState) -> Iterator[FlinkKeyedState]:
        return reading.keyed_states(operator, self._reader)

    def operator_state(
        self, operator: OperatorState
    ) -> Iterator[tuple[int, list[FlinkOperatorState]]]:
        """Index and operator state of each subtask that has some. Raises FormatError."""
        return reading.operator_states(operator, self._reader)

    def read(self, operator: OperatorState, index: int, stream: StreamStateHandle) -> bytes:
        """All bytes of a stream of a subtask. Raises RestoreRefused, FormatError, StorageFailed."""
        where = reading.where_of(operator, index, self.path)
        return self._reader.at(where).read(reading.readable(stream, where))


def _moved(handle: StreamStateHandle, places: Mapping[str, str]) -> StreamStateHandle:
    if isinstance(handle, FileStateHandle | SegmentFileStateHandle):
        here = paths.absolute(handle.file_path)
        for old, new in places.items():
            if here.startswith(f"{old}/"):
                return replace(handle, file_path=paths.join(new, here.removeprefix(f"{old}/")))
    return handle


@dataclass(slots=True)
class CountedState:
    """A state and its entries. key, namespace: names of types; None if there are none.

    groups: entries by key group; all under `NO_GROUP` where there are no keys.
    """

    name: str
    kind: str
    key: str | None
    namespace: str | None
    value: str
    groups: Counter[int] = field(default_factory=Counter[int])


def counted_states(snapshot: FlinkSnapshot, operator: OperatorState) -> list[CountedState]:
    """States of an operator, by name.

    Raises FormatError, also for a serializer that is not known; RestoreRefused where a file is
    gone.
    """
    found: dict[str, CountedState] = {}
    for keyed in snapshot.keyed_state(operator):
        key = type_name(keyed.header.key)
        for state in keyed.header.states:
            found.setdefault(state.name, _keyed(state, key))
        for entry in keyed.entries():
            found[entry.state.name].groups[entry.key_group] += 1
    for _, states in snapshot.operator_state(operator):
        for state in states:
            kind = KIND_OF_OPERATOR_STATE[state.mode]
            held = found.setdefault(state.state.name, _of_subtask(state, kind))
            if kind is not StateKind.BROADCAST:
                held.groups[NO_GROUP] += len(state.elements)
            elif not held.groups:  # each subtask has all of it
                held.groups[NO_GROUP] = sum(map(len, state.elements))
    return sorted(found.values(), key=lambda state: state.name)


def _keyed(state: FlinkState, key: str) -> CountedState:
    if state.is_timers:
        return CountedState(state.name, StateKind.TIMERS.value, key, None, "Long")
    namespace = type_name(state.namespace)
    beside = None if namespace == _VOID else namespace
    return CountedState(state.name, state.kind.lower(), key, beside, type_name(state.value))


def _of_subtask(state: FlinkOperatorState, kind: StateKind) -> CountedState:
    return CountedState(state.state.name, kind.value, None, None, type_name(state.state.value))
