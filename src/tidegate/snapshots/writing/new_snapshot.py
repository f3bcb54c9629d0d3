"""A folder that becomes a snapshot, used by all offline tools.

Files of state come first, ``_metadata`` last and whole; what is written before that counts for
nothing. Nothing that is kept of an operator is decoded: blocks of a key group are copied, and those
of new rows come behind them, for in a section later blocks win. So classes of the program are not
needed, and an operator of any size is rewritten a key group at a time.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from flinkformat.frozen import frozen
from flinkformat.handles import (
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    FINISHED,
    CheckpointMetadata,
    CheckpointProperties,
    OperatorState,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from flinkformat.state_streams import Place, place_of, replace_streams
from tidegate.checkpoint.provenance import Provenance, encoded, to_master_state
from tidegate.errors import ConfigError
from tidegate.model.chance import SeededChance
from tidegate.model.ids import Attempt, Epoch
from tidegate.model.settings import CheckpointSettings
from tidegate.state.format.blocks import (
    COLUMNS,
    Block,
    KeyedHeader,
    KeyedStreamWriter,
    OperatorHeader,
    StateHeader,
    element,
    element_bytes,
    header_bytes,
    operator_header,
)
from tidegate.storage import paths
from tidegate.storage.secret_file import signing_key
from tidegate.storage.state_files import StateFiles
from tidegate.storage.stores import Stores
from tidegate.typeinfo.serializers import split_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from flinkformat.handles import OperatorStateHandle, StreamStateHandle
    from flinkformat.snapshots import Finished, MasterState
    from flinkformat.state_streams import Stream
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId
    from tidegate.snapshots.reading.keyed_streams import KeyedStream
    from tidegate.snapshots.rows import OperatorInfo
    from tidegate.state.format.blocks import ColumnsHeader
    from tidegate.storage.reading import StateReader
    from tidegate.storage.streams import CheckpointStateOutputStream


class NewSnapshot:
    """Writes the files of one new snapshot. Blocking; methods raise StorageFailed.

    key_file: holds the key that signs it. checksums: of the files, by their places. Raises
    ConfigError where the folder holds a snapshot already.
    """

    def __init__(self, folder: str, key_file: str | None = None) -> None:
        folder = paths.absolute(folder)
        if Stores().open(folder).info(paths.METADATA) is not None:
            raise ConfigError(
                "There is a snapshot in the folder already",
                where=folder,
                remedy="Name a folder that is empty, or not there yet.",
            )
        self._folder = folder
        self._key_file = key_file
        self._files = StateFiles(signed=key_file is not None)
        self._streams = self._files.streams_into(
            folder, inline_threshold_bytes=CheckpointSettings().inline_threshold_bytes
        )
        self._bits64 = SeededChance(secrets.randbits(64)).bits64
        self._copies: dict[Place, StreamStateHandle] = {}
        self.checksums: dict[str, FileChecksum] = {}

    def write(self, pieces: Iterable[bytes | memoryview]) -> StreamStateHandle:
        """Writes bytes to a file; keeps few bytes inline."""

        def write(stream: CheckpointStateOutputStream) -> None:
            for piece in pieces:
                stream.write(piece)

        return self.written(write)

    def written(self, write: Callable[[CheckpointStateOutputStream], None]) -> StreamStateHandle:
        """A file that a call fills; deleted if that raises."""
        name = paths.state_file(Epoch(0), Attempt(0), self._bits64())
        stream = self._streams.create_stream(name)
        try:
            write(stream)
            handle = stream.close_and_get_handle()
        except BaseException:
            stream.close()
            raise
        self.checksums.update(stream.checksums)
        return handle

    def copied(self, state: SubtaskState, reader: StateReader) -> SubtaskState:
        """A handle's copy in this folder; each file is copied once."""

        def copy(stream: Stream) -> StreamStateHandle:
            place = place_of(stream.handle)
            if not isinstance(place, Place):
                return stream.handle
            if place not in self._copies:
                self._copies[place] = self.write(reader.parts(stream.handle))
            return self._copies[place]

        return replace_streams(state, copy)

    def complete_savepoint(
        self,
        checkpoint: CheckpointId,
        operators: Iterable[OperatorState],
        facts: Mapping[str, object],
        *,
        hooks: Iterable[MasterState] = (),
        forced: bool,
    ) -> None:
        """Completes a canonical savepoint. facts: its provenance. forced: as in its properties."""
        provenance = to_master_state(Provenance(facts, self.checksums))
        kind = SavepointType.savepoint(SavepointFormatType.CANONICAL)
        self.complete(
            CheckpointMetadata(
                checkpoint_id=checkpoint,
                operators=tuple(operators),
                master_states=(*hooks, provenance),
                properties=CheckpointProperties.for_savepoint(kind, forced=forced),
            )
        )

    def complete(self, snapshot: CheckpointMetadata) -> None:
        data = encoded(snapshot, signing_key(self._key_file))
        self._files.write_metadata(self._folder, data)


class NewBlocks(Protocol):
    """Blocks of new rows, by key group."""

    def blocks(self, group: int) -> Iterable[Block]: ...


@frozen
class NewState:
    """New content of a keyed state. replaces: True if none of the old content stays."""

    header: StateHeader
    rows: NewBlocks
    replaces: bool


@dataclass(slots=True)
class OperatorRewrite:
    """The state of one operator in a new snapshot: what is kept of the old, and what is put.

    key: snapshot of the keys' serializer. removed: names of states that do not stay.
    """

    operator: OperatorInfo
    checkpoint: CheckpointId
    new: NewSnapshot
    key: bytes | None
    put: Sequence[NewState]
    kept: Sequence[KeyedStream] = ()
    removed: Collection[str] = ()
    _headers: list[StateHeader] = field(default_factory=list[StateHeader])

    def subtask(
        self,
        index: int,
        put: Sequence[NewElements],
        held: tuple[SubtaskState, StateReader] | None = None,
    ) -> SubtaskState:
        """Writes the state of a subtask.

        put: its new operator state, instead of what has these names. held: what it had, with its
        reader. Raises ConfigError if a key comes twice in what was put, and what reading raises.
        """
        operator = self.operator
        groups = KeyGroupRange.of(index, operator.parallelism, operator.max_parallelism)
        state, elements = SubtaskState(), dict[str, NewElements]()
        if held is not None:
            old, reader = held
            state = self.new.copied(replace(old, managed_keyed=None, managed_operator=None), reader)
            gone = {*self.removed, *(each.header.name for each in put)}
            elements = _elements_of(old.managed_operator, reader, gone)
        elements.update({each.header.name: each for each in put})
        return replace(
            state,
            managed_keyed=self.keyed(groups),
            managed_operator=self._operator_state(elements) if elements else None,
        )

    def keyed(self, groups: KeyGroupRange) -> KeyGroupsStateHandle | None:
        """Writes keyed state of some key groups; None if there is none. Raises as `subtask`."""
        if not (self.put or self.kept):
            return None
        streams = [each for each in self.kept if not each.key_groups.intersection(groups).is_empty]
        gone = {*self.removed, *(state.header.name for state in self.put if state.replaces)}
        numbers = [
            [None if header.name in gone else self._number(header) for header in stream.headers]
            for stream in streams
        ]
        put = [(self._number(state.header), state) for state in self.put]
        columns = self._columns(streams)
        operator = self.operator.operator_id
        most = self.operator.max_parallelism
        header = KeyedHeader(operator, self.checkpoint, most, self.key, self._headers, columns)
        offsets: tuple[int, ...] = ()

        def write(stream: CheckpointStateOutputStream) -> None:
            nonlocal offsets
            written = KeyedStreamWriter(stream.write, header, groups)
            kept = [
                _Kept(each, indexes, groups) for each, indexes in zip(streams, numbers, strict=True)
            ]
            for group in groups:
                blocks = [block for each in kept for block in each.blocks(group)]
                for index, state in put:
                    blocks += self._new(state, index, group)
                written.add(group, blocks)
            offsets = written.offsets

        handle = self.new.written(write)
        if not any(offsets):
            return None
        name = f"{operator.hex()}-{self.checkpoint}-{groups.first}-{groups.last}"
        return KeyGroupsStateHandle(groups, offsets, handle, name)

    def _operator_state(self, states: Mapping[str, NewElements]) -> OperatorStreamStateHandle:
        found: dict[str, StateMetaInfo] = {}
        headers = [each.header for each in states.values()]
        header = OperatorHeader(self.operator.operator_id, self.checkpoint, headers)

        def write(stream: CheckpointStateOutputStream) -> None:
            stream.write(header_bytes(header))
            for name, each in states.items():
                offsets: list[int] = []
                for piece in each.elements:
                    offsets.append(stream.position)
                    stream.write(element_bytes(piece))
                found[name] = StateMetaInfo(each.mode, tuple(offsets))

        handle = self.new.written(write)
        return OperatorStreamStateHandle(found, handle)

    def _number(self, header: StateHeader) -> int:
        if header not in self._headers:
            self._headers.append(header)
        return self._headers.index(header)

    def _columns(self, streams: Sequence[KeyedStream]) -> ColumnsHeader | None:
        found = [each.columns for each in streams if each.columns is not None]
        if any(each != found[0] for each in found):
            raise ConfigError(
                "The subtasks have different columns, and they can't be written as one",
                where=f"operator '{self.operator}'",
                remedy="Take a savepoint at the operator's own parallelism, and amend that.",
            )
        return found[0] if found else None

    def _new(self, state: NewState, index: int, group: int) -> Iterator[Block]:
        seen: set[bytes] = set()
        for block in state.rows.blocks(group):
            for key in split_piece(block.keys):
                if key in seen:
                    raise ConfigError(
                        f"A key comes twice in the rows for the state '{state.header.name}': "
                        f"{key[2:]!r}",
                        where=f"operator '{self.operator}'",
                        remedy="Give each key, with its namespace, one row; group them first.",
                    )
                seen.add(key)
            yield replace(block, state=index)


class _Kept:
    """Blocks of a stream, in one pass through its key groups. numbers: of its states now."""

    def __init__(
        self, stream: KeyedStream, numbers: Sequence[int | None], groups: KeyGroupRange
    ) -> None:
        self._numbers = numbers
        self._sections = stream.sections(list(stream.key_groups.intersection(groups)))
        self._next = next(self._sections, None)

    def blocks(self, group: int) -> Iterator[Block]:
        if self._next is None or self._next[0] != group:
            return
        for block in self._next[1]:
            number = 0 if block.kind == COLUMNS else self._numbers[block.state]
            if number is not None:
                yield replace(block, state=number)
        self._next = next(self._sections, None)


@frozen
class NewElements:
    """New content of an operator state: its elements, each as a piece."""

    header: StateHeader
    mode: StateDistribution
    elements: Sequence[bytes]

    def of_subtask(self, index: int, parallelism: int) -> NewElements:
        """Elements for one subtask: its share of a list, or a whole map."""
        if self.mode is StateDistribution.BROADCAST:
            return self
        return replace(self, elements=self.elements[index::parallelism])


def _elements_of(
    handle: OperatorStateHandle | None, reader: StateReader, removed: Collection[str]
) -> dict[str, NewElements]:
    if handle is None:
        return {}
    where = handle.delegate.physical_id
    data = memoryview(reader.read(handle.delegate))
    found: dict[str, NewElements] = {}
    for header in operator_header(data, where).states:
        if header.name in handle.states and header.name not in removed:
            meta = handle.states[header.name]
            pieces = [bytes(element(data, offset, where)) for offset in meta.offsets]
            found[header.name] = NewElements(header, meta.mode, pieces)
    return found


def operator_of(
    info: OperatorInfo, subtasks: Mapping[int, SubtaskState | Finished]
) -> OperatorState:
    """An operator with the state of those of its subtasks that have some."""
    return OperatorState(
        operator_id=info.operator_id,
        parallelism=info.parallelism,
        max_parallelism=info.max_parallelism,
        name=info.name,
        uid=info.uid,
        subtasks={
            index: state
            for index, state in subtasks.items()
            if state is FINISHED or not state.is_empty
        },
    )
