"""Writes the state of one operator into a new savepoint: old state as it is, and new state.

Nothing that is kept is decoded: blocks of a key group are copied, and those of new rows come behind
them, for in a section later blocks win. So classes of the program are not needed, and an operator
of any size is rewritten a key group at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from flinkformat.handles import (
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from tidegate.errors import ConfigError
from tidegate.state.format.blocks import COLUMNS, Block, KeyedStreamWriter, element, element_bytes
from tidegate.state.format.headers import (
    KeyedHeader,
    OperatorHeader,
    StateHeader,
    header_bytes,
    operator_header,
)
from tidegate.typeinfo.serializers import split_piece

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from flinkformat.handles import OperatorStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.snapshots.reading.keyed_streams import KeyedStream
    from tidegate.snapshots.writing.new_snapshot import NewSnapshot
    from tidegate.state.format.headers import ColumnsHeader
    from tidegate.storage.reading import StateReader
    from tidegate.storage.streams import CheckpointStateOutputStream


class NewBlocks(Protocol):
    """Blocks of new rows, by key group."""

    def blocks(self, group: int) -> Iterable[Block]:
        """Blocks of a key group, in order."""
        ...


@dataclass(frozen=True, slots=True)
class NewState:
    """New content of a keyed state. replaces: True if none of the old content stays."""

    header: StateHeader
    rows: NewBlocks
    replaces: bool


@dataclass(slots=True)
class KeyedRewrite:
    """The keyed state of one operator. key: snapshot of the keys' serializer. where: for errors."""

    operator: OperatorId
    checkpoint: CheckpointId
    max_parallelism: int
    key: bytes | None
    kept: Sequence[KeyedStream]
    removed: Collection[str]
    put: Sequence[NewState]
    where: str
    _headers: list[StateHeader] = field(default_factory=list[StateHeader])

    def write(self, groups: KeyGroupRange, new: NewSnapshot) -> KeyGroupsStateHandle | None:
        """Writes the file of a subtask; None if it has no state.

        Raises ConfigError if a key comes twice in what was put, and what reading raises.
        """
        streams = [each for each in self.kept if not each.key_groups.intersection(groups).is_empty]
        gone = {*self.removed, *(state.header.name for state in self.put if state.replaces)}
        numbers = [
            [None if header.name in gone else self._number(header) for header in stream.headers]
            for stream in streams
        ]
        put = [(self._number(state.header), state) for state in self.put]
        columns = self._columns(streams)
        header = KeyedHeader(
            self.operator, self.checkpoint, self.max_parallelism, self.key, self._headers, columns
        )
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

        handle = new.written(write)
        if not any(offsets):
            return None
        name = f"{self.operator.hex()}-{self.checkpoint}-{groups.first}-{groups.last}"
        return KeyGroupsStateHandle(groups, offsets, handle, name)

    def _number(self, header: StateHeader) -> int:
        if header not in self._headers:
            self._headers.append(header)
        return self._headers.index(header)

    def _columns(self, streams: Sequence[KeyedStream]) -> ColumnsHeader | None:
        found = [each.columns for each in streams if each.columns is not None]
        if any(each != found[0] for each in found):
            raise ConfigError(
                "The subtasks have different columns, and they can't be written as one",
                where=self.where,
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
                        where=self.where,
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


@dataclass(frozen=True, slots=True)
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


def rewritten_operator_state(
    operator: OperatorId,
    checkpoint: CheckpointId,
    kept: tuple[OperatorStateHandle, StateReader] | None,
    removed: Collection[str],
    put: Sequence[NewElements],
    new: NewSnapshot,
) -> OperatorStateHandle | None:
    """Operator state of one subtask, in one new file; None if there is none.

    kept: what the subtask had. put: replaces what it had under these names.
    """
    states: dict[str, NewElements] = {}
    if kept is not None:
        handle, reader = kept
        where = handle.delegate.physical_id
        data = memoryview(reader.read(handle.delegate))
        for header in operator_header(data, where).states:
            if header.name in handle.states and header.name not in removed:
                meta = handle.states[header.name]
                pieces = [bytes(element(data, offset, where)) for offset in meta.offsets]
                states[header.name] = NewElements(header, meta.mode, pieces)
    states.update({each.header.name: each for each in put})
    if not states:
        return None
    found: dict[str, StateMetaInfo] = {}

    def write(stream: CheckpointStateOutputStream) -> None:
        headers = [each.header for each in states.values()]
        stream.write(header_bytes(OperatorHeader(operator, checkpoint, headers)))
        for name, each in states.items():
            offsets: list[int] = []
            for piece in each.elements:
                offsets.append(stream.position)
                stream.write(element_bytes(piece))
            found[name] = StateMetaInfo(each.mode, tuple(offsets))

    handle = new.written(write)
    return OperatorStreamStateHandle(found, handle)
