"""Reads the state of one operator as values, whichever backend wrote it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flinkformat.errors import FormatError
from flinkformat.frozen import frozen
from flinkformat.handles import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    PlaceholderStreamStateHandle,
)
from flinkformat.metadata.wire import Reader
from flinkformat.snapshots import FINISHED
from flinkformat.state.changelog import Changelog
from flinkformat.state.headers import read_keyed_header
from flinkformat.state.operator_state import operator_states as states_in
from flinkformat.state.rocksdb import rocksdb_entries
from flinkformat.state.sections import canonical_entries, heap_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flinkformat.files import StateBytes
    from flinkformat.handles import KeyedStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from flinkformat.snapshots import OperatorState, SubtaskState
    from flinkformat.state.entries import FlinkEntry
    from flinkformat.state.headers import FlinkKeyedHeader
    from flinkformat.state.operator_state import FlinkOperatorState


@frozen
class FlinkKeyedState:
    """Keyed state of one subtask of an operator.

    backend: ``hashmap``, ``rocksdb`` or ``changelog``; of a canonical savepoint it is not known,
    and ``canonical``.
    """

    subtask: int
    backend: str
    header: FlinkKeyedHeader
    key_groups: KeyGroupRange
    read: Callable[[], Iterator[FlinkEntry]]

    def entries(self) -> Iterator[FlinkEntry]:
        """All entries, key group by key group or state by state. Raises FormatError."""
        return self.read()


def keyed_states(operator: OperatorState, files: StateBytes) -> Iterator[FlinkKeyedState]:
    """Keyed state of each subtask that has some. Raises FormatError.

    Entries are read as they are asked for. RocksDB's files need the package ``rocksdict``, and are
    copied to a temporary folder as long as they are read; changelogs are held in memory.
    """
    for index, subtask in running_subtasks(operator):
        if subtask.managed_keyed is not None:
            at = files.at(where_of(operator, index, files.where))
            yield _Subtask(operator, index, at).keyed(subtask.managed_keyed)


def operator_states(
    operator: OperatorState, files: StateBytes
) -> Iterator[tuple[int, list[FlinkOperatorState]]]:
    """Index and operator state of each subtask that has some. Raises FormatError."""
    for index, subtask in running_subtasks(operator):
        handle = subtask.managed_operator
        if handle is not None and handle.states:
            at = files.at(where_of(operator, index, files.where))
            data = at.read(readable(handle.delegate, at.where))
            yield index, list(states_in(handle.states, data, at.where))


def where_of(operator: OperatorState, index: int, folder: str) -> str:
    name = operator.uid or operator.name or operator.operator_id.hex()
    return f"{folder}, operator '{name}', subtask {index}"


def running_subtasks(operator: OperatorState) -> Iterator[tuple[int, SubtaskState]]:
    for index, subtask in operator.subtasks.items():
        if subtask is not FINISHED:
            yield index, subtask


def readable(handle: StreamStateHandle, where: str) -> StreamStateHandle:
    if isinstance(handle, PlaceholderStreamStateHandle):
        raise FormatError(
            "A file of state is named by a placeholder only",
            where=where,
            remedy="Take another snapshot.",
            expected="a file, or the state itself",
            found=handle.physical_id[:100],
        )
    return handle


class _Subtask:
    def __init__(self, operator: OperatorState, index: int, files: StateBytes) -> None:
        self._operator = operator
        self._index = index
        self._files = files

    def keyed(self, handle: KeyedStateHandle) -> FlinkKeyedState:
        match handle:
            case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
                return self._sections(handle)
            case IncrementalRemoteKeyedStateHandle():
                return self._database(handle)
            case ChangelogStateBackendHandle():
                return self._changelog(handle)
            case _:
                raise FormatError(
                    f"Keyed state lies in a {type(handle).__name__} by itself",
                    where=self._files.where,
                    expected="key groups, files of a database, or a changelog behind them",
                    found=type(handle).__name__,
                )

    def _sections(
        self, handle: KeyGroupsStateHandle | KeyGroupsSavepointStateHandle
    ) -> FlinkKeyedState:
        files, most = self._files, self._operator.max_parallelism
        stream = _Stream(files, readable(handle.delegate, files.where))
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
                where = f"{files.where}, from byte {offset}"
                if canonical:
                    yield from canonical_entries(header, most, group, section, where)
                else:
                    yield from heap_entries(header, group, section, where)

        backend = "canonical" if canonical else "hashmap"
        return FlinkKeyedState(self._index, backend, header, handle.key_groups, read)

    def _database(self, handle: IncrementalRemoteKeyedStateHandle) -> FlinkKeyedState:
        files, most = self._files, self._operator.max_parallelism
        for file in (*handle.shared_state, *handle.private_state):
            readable(file.handle, files.where)
        header = _Stream(files, readable(handle.meta, files.where)).header(None)

        def read() -> Iterator[FlinkEntry]:
            return rocksdb_entries(header, most, handle, files)

        return FlinkKeyedState(self._index, "rocksdb", header, handle.key_groups, read)

    def _changelog(self, handle: ChangelogStateBackendHandle) -> FlinkKeyedState:
        where = f"{self._files.where}, changelog"
        below = [self.keyed(part) for part in handle.materialized]
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
            self._index, "changelog", log.header(where), handle.key_groups, log.entries
        )


class _Stream:
    def __init__(self, files: StateBytes, handle: StreamStateHandle) -> None:
        self._files = files
        self._handle = handle

    def header(self, end: int | None) -> FlinkKeyedHeader:
        return read_keyed_header(Reader(self.part(0, end), self._files.where))

    def part(self, start: int, end: int | None) -> bytes:
        if start > self._handle.state_size:
            raise FormatError(
                "A key group begins after the end of its stream",
                where=self._files.where,
                offset=start,
                expected=f"an offset below {self._handle.state_size}",
                found=str(start),
            )
        return self._files.read_part(self._handle, start, None if end is None else end - start)
