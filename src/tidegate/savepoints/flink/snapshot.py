"""A checkpoint or savepoint of Flink: its operators, and all their state as values."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from tidegate.checkpoint import metadata
from tidegate.checkpoint.metadata.provenance import provenance_of
from tidegate.checkpoint.metadata.wire import Reader
from tidegate.errors import ConfigError, FormatError
from tidegate.model.handles import (
    ChangelogStateBackendHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    PlaceholderStreamStateHandle,
    SegmentFileStateHandle,
)
from tidegate.model.ids import JobId
from tidegate.model.settings import CheckpointSettings
from tidegate.model.snapshots import FINISHED
from tidegate.savepoints.flink.canonical import canonical_entries
from tidegate.savepoints.flink.changelog import Changelog
from tidegate.savepoints.flink.headers import read_keyed_header
from tidegate.savepoints.flink.heap import heap_entries
from tidegate.savepoints.flink.operator_state import operator_states
from tidegate.savepoints.flink.rocksdb import rocksdb_entries
from tidegate.storage import paths
from tidegate.storage.checkpoints import (
    MetadataFile,
    checkpoint_storage,
    resolve_relative,
    with_handles,
)
from tidegate.storage.reading import StateReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidegate.model.handles import KeyedStateHandle, StreamStateHandle
    from tidegate.model.key_groups import KeyGroupRange
    from tidegate.model.snapshots import CheckpointMetadata, OperatorState, SubtaskState
    from tidegate.savepoints.flink.entries import FlinkEntry
    from tidegate.savepoints.flink.headers import FlinkKeyedHeader
    from tidegate.savepoints.flink.operator_state import FlinkOperatorState


@dataclass(frozen=True, slots=True)
class FlinkKeyedState:
    """The keyed state of one subtask of an operator.

    backend: ``hashmap``, ``rocksdb`` or ``changelog``; of a canonical savepoint it is not known,
    and ``canonical``.
    """

    subtask: int
    backend: str
    header: FlinkKeyedHeader
    key_groups: KeyGroupRange
    read: Callable[[], Iterator[FlinkEntry]]

    def entries(self) -> Iterator[FlinkEntry]:
        """All entries, key group by key group or state by state; raises FormatError."""
        return self.read()


class FlinkSnapshot:
    """A checkpoint or savepoint of Flink. Opened by `open`; files are read as state is asked for.

    path: its folder. metadata: what its ``_metadata`` says, every file by its place.
    """

    def __init__(self, path: str, read: CheckpointMetadata) -> None:
        self.path = path
        self.metadata = read
        self._storage = checkpoint_storage(JobId(""), CheckpointSettings())

    @staticmethod
    def open(path: str | PathLike[str], *, moved: Mapping[str, str] | None = None) -> FlinkSnapshot:
        """The snapshot in a folder.

        moved: from a folder as the snapshot names it to where that is now; for checkpoints, whose
        shared files have absolute places. Raises RestoreRefused where there is none, FormatError
        for a ``_metadata`` that can't be read, ConfigError for one of Tidegate's own.
        """
        storage = checkpoint_storage(JobId(""), CheckpointSettings())
        file = storage.read_metadata(fspath(path))
        return FlinkSnapshot.decoded(file.data, file.directory, moved=moved)

    @staticmethod
    def decoded(
        data: bytes, directory: str, *, moved: Mapping[str, str] | None = None
    ) -> FlinkSnapshot:
        """The snapshot of a ``_metadata`` that is read already; as `open`."""
        numbers = iter(range(2**63))
        where = f"{directory}/{paths.METADATA}"
        with MetadataFile(data, directory, where).being_decoded():
            decoded = metadata.decode(data, lambda: f"handle-{next(numbers)}")
            ours = provenance_of(decoded)
        if ours is not None:
            raise ConfigError(
                "The snapshot is one of Tidegate's own, not of Flink's",
                where=where,
                remedy="Start a job from it as it is, with --from.",
            )
        places = {paths.absolute(old): paths.absolute(new) for old, new in (moved or {}).items()}
        found = with_handles(
            resolve_relative(decoded, directory), lambda part: _moved(part, places)
        )
        return FlinkSnapshot(directory, found)

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        """What the metadata says of each operator."""
        return self.metadata.operators

    def keyed_state(self, operator: OperatorState) -> Iterator[FlinkKeyedState]:
        """The keyed state of each subtask that has some; raises FormatError."""
        for index, subtask in _running(operator):
            if subtask.managed_keyed is not None:
                yield self._keyed(operator, index, subtask.managed_keyed)

    def operator_state(
        self, operator: OperatorState
    ) -> Iterator[tuple[int, list[FlinkOperatorState]]]:
        """Index and operator state of each subtask that has some; raises FormatError."""
        for index, subtask in _running(operator):
            handle = subtask.managed_operator
            if handle is not None and handle.states:
                where = self._reader(operator, index).where
                data = self.read(operator, index, handle.delegate)
                yield index, list(operator_states(handle.states, data, where))

    def read(self, operator: OperatorState, index: int, stream: StreamStateHandle) -> bytes:
        """All bytes of a stream of a subtask; raises RestoreRefused, FormatError, StorageFailed."""
        reader = self._reader(operator, index)
        return reader.read(_readable(stream, reader.where))

    def _keyed(
        self, operator: OperatorState, index: int, handle: KeyedStateHandle
    ) -> FlinkKeyedState:
        where = self._reader(operator, index).where
        match handle:
            case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
                return self._sections(operator, index, handle)
            case IncrementalRemoteKeyedStateHandle():
                return self._database(operator, index, handle)
            case ChangelogStateBackendHandle():
                return self._changelog(operator, index, handle)
            case _:
                raise FormatError(
                    f"Keyed state lies in a {type(handle).__name__} by itself",
                    where=where,
                    expected="key groups, files of a database, or a changelog behind them",
                    found=type(handle).__name__,
                )

    def _sections(
        self,
        operator: OperatorState,
        index: int,
        handle: KeyGroupsStateHandle | KeyGroupsSavepointStateHandle,
    ) -> FlinkKeyedState:
        reader = self._reader(operator, index)
        stream = _Stream(reader, _readable(handle.delegate, reader.where))
        offsets = dict(zip(handle.key_groups, handle.offsets, strict=True))
        begins = sorted({offset for offset in offsets.values() if offset > 0})
        header = stream.header(begins[0] if begins else None)
        ends: dict[int, int | None] = dict(itertools.pairwise(begins))
        canonical = isinstance(handle, KeyGroupsSavepointStateHandle)

        def read() -> Iterator[FlinkEntry]:
            for group, offset in offsets.items():
                if offset <= 0:
                    continue
                section = stream.part(offset, ends.get(offset))
                where = f"{reader.where}, from byte {offset}"
                if canonical:
                    most = operator.max_parallelism
                    yield from canonical_entries(header, most, group, section, where)
                else:
                    yield from heap_entries(header, group, section, where)

        backend = "canonical" if canonical else "hashmap"
        return FlinkKeyedState(index, backend, header, handle.key_groups, read)

    def _database(
        self, operator: OperatorState, index: int, handle: IncrementalRemoteKeyedStateHandle
    ) -> FlinkKeyedState:
        reader = self._reader(operator, index)
        for file in (*handle.shared_state, *handle.private_state):
            _readable(file.handle, reader.where)
        header = _Stream(reader, _readable(handle.meta, reader.where)).header(None)

        def read() -> Iterator[FlinkEntry]:
            return rocksdb_entries(header, operator.max_parallelism, handle, reader)

        return FlinkKeyedState(index, "rocksdb", header, handle.key_groups, read)

    def _changelog(
        self, operator: OperatorState, index: int, handle: ChangelogStateBackendHandle
    ) -> FlinkKeyedState:
        where = f"{self._reader(operator, index).where}, changelog"
        below = [self._keyed(operator, index, part) for part in handle.materialized]
        log = Changelog(below[0].header.key if below else None)
        for part in below:
            log.begin(part.header.states, part.entries())
        for increment in handle.non_materialized:
            if not isinstance(increment, InMemoryChangelogStateHandle):
                raise FormatError(
                    "Changes of the changelog lie in files, whose layout is not known",
                    where=where,
                    remedy="Take a savepoint, which has no changelog.",
                    expected="changes within the metadata",
                    found=type(increment).__name__,
                )
            log.apply(increment.changes, where)
        return FlinkKeyedState(
            index, "changelog", log.header(where), handle.key_groups, log.entries
        )

    def _reader(self, operator: OperatorState, index: int) -> StateReader:
        name = operator.uid or operator.name or operator.operator_id.hex()
        where = f"{self.path}, operator '{name}', subtask {index}"
        return StateReader(self._storage, {}, where=where)


class _Stream:
    """A stream of keyed state, read in parts."""

    def __init__(self, reader: StateReader, handle: StreamStateHandle) -> None:
        self._reader = reader
        self._handle = handle

    def header(self, end: int | None) -> FlinkKeyedHeader:
        """What stands in front, up to where the first key group begins."""
        reader = Reader(self.part(0, end))
        reader.where = self._reader.where
        return read_keyed_header(reader)

    def part(self, start: int, end: int | None) -> bytes:
        """The bytes from an offset to another, or to the end."""
        if start > self._handle.state_size:
            raise FormatError(
                "A key group lies behind the end of its stream",
                where=self._reader.where,
                offset=start,
                expected=f"an offset below {self._handle.state_size}",
                found=str(start),
            )
        return self._reader.read_part(self._handle, start, None if end is None else end - start)


def _running(operator: OperatorState) -> Iterator[tuple[int, SubtaskState]]:
    for index, subtask in operator.subtasks.items():
        if subtask is not FINISHED:
            yield index, subtask


def _readable(handle: StreamStateHandle, where: str) -> StreamStateHandle:
    if isinstance(handle, PlaceholderStreamStateHandle):
        raise FormatError(
            "A file of state is named by a placeholder only",
            where=where,
            remedy="Take another snapshot.",
            expected="a file, or the state itself",
            found=handle.physical_id[:100],
        )
    return handle


def _moved(part: object, places: Mapping[str, str]) -> object:
    if isinstance(part, FileStateHandle | SegmentFileStateHandle):
        here = paths.absolute(part.file_path)
        for old, new in places.items():
            if here.startswith(f"{old}/"):
                return replace(part, file_path=paths.join(new, here.removeprefix(f"{old}/")))
    return part
