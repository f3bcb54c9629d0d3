"""Entries of keyed rows in memory as blocks, and a snapshot of them on its way into a stream.

A state may have a namespace beside the key, such as a window or a timer's time: its table is then
keyed by pairs ``(key, namespace)``, which lie in the key's key group.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from flinkformat.frozen import frozen
from tidegate.errors import FormatError
from tidegate.state.format.blocks import MISSING, PRESENT, Block, KeyedStreamWriter, StateHeader
from tidegate.state.format.encoding import Keys, encoded_as_declared, encoded_keys, paired
from tidegate.state.heap.hashmap import HashMapTable, Missing, Present

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from flinkformat.handles import KeyedStateHandle
    from tidegate.api.state import StateDescriptor
    from tidegate.state.scope import BesideRows, StateScope, Target
    from tidegate.storage.places import Place
    from tidegate.storage.streams import CheckpointStateOutputStream
    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation


@frozen
class Registered:
    """A requested state. keys: of the operator. namespace: type of what is beside the key, if any.

    kept: the part of an entry that goes into snapshots; None for all.
    """

    descriptor: StateDescriptor
    keys: Keys
    namespace: TypeInformation | None
    table: HashMapTable
    serializer: Serializer
    header: StateHeader
    kept: Callable[[object], object] | None

    def keys_of(self, key: object) -> Serializer:
        """Serializer of the table's keys, taken from this one if not known yet."""
        if self.namespace is not None:
            key, _ = cast("tuple[object, object]", key)
        return paired(self.keys.serializer or self.keys.of(key), self.namespace)

    def block(
        self, piece: Present | Missing, index: int, where: str, keys: Serializer | None = None
    ) -> Block:
        """Entries as a block. Raises UserError for entries that can't be encoded.

        index: of the state in the header. keys: what `keys_of` has given before.
        """
        where = f"{where}, state '{self.header.name}'"
        names = encoded_keys(keys or self.keys_of(piece.keys[0]), piece.keys, where)
        if isinstance(piece, Missing):
            return Block(MISSING, index, len(piece.keys), names, b"")
        key_of = piece.keys.__getitem__
        values = encoded_as_declared(self.serializer, piece.values, where, key_of)
        return Block(PRESENT, index, len(piece.keys), names, values)


@frozen
class Restored:
    """A state of one handle as written: its blocks by key group."""

    header: StateHeader
    blocks: list[tuple[int, Block]] = field(default_factory=list[tuple[int, Block]])

    def in_memory(self) -> Restored:
        """A copy apart from the file that it was read from."""
        if all(type(block.keys) is bytes for _, block in self.blocks):
            return self
        return Restored(
            self.header,
            [
                (group, replace(block, keys=bytes(block.keys), values=bytes(block.values)))
                for group, block in self.blocks
            ],
        )


@frozen
class Live:
    """A table in a snapshot. groups: of which it has entries. pieces: gives those of a group."""

    state: Registered
    groups: frozenset[int]
    pieces: Callable[[int, Callable[[], int]], Iterator[Present | Missing]]


def decoded_block(block: Block, keys: Reader, values: Reader, where: str) -> Present | Missing:
    """Keys and entries of a block. Raises FormatError for damage."""
    read_keys = keys.decode_many(block.keys)
    read_values = values.decode_many(block.values) if block.kind == PRESENT else read_keys
    if not len(read_keys) == len(read_values) == block.rows:
        raise FormatError(
            "A block of keyed state has another number of rows than it says",
            where=where,
            remedy="Restore from another checkpoint; this one is damaged.",
            expected=f"{block.rows} rows",
            found=f"{len(read_keys)} keys, {len(read_values)} values",
        )
    return Present(read_keys, read_values) if block.kind == PRESENT else Missing(read_keys)


@dataclass(slots=True)
class HeldBytes:
    """Bytes by state in the snapshot that was written last; None before the first."""

    newest: Mapping[str, int] | None = None


class KeyedSnapshot:
    """Keyed rows in memory on their way into a stream, a `pending.PendingRows`.

    key: snapshot of the keys' serializer. left: states that nobody has asked for. held: learns how
    much each state has in it. columns: what is written beside the rows. partly: key groups of which
    only some keys are in it.
    """

    def __init__(
        self,
        scope: StateScope,
        key: bytes | None,
        live: list[Live],
        left: list[Restored],
        target: Target,
        held: HeldBytes,
        columns: BesideRows | None = None,
        *,
        partly: Container[int] = (),
    ) -> None:
        self._scope = scope
        self._live = live
        self._target = target
        self._held = held
        self._columns = columns
        self._key = key
        self._headers = [each.state.header for each in live] + [each.header for each in left]
        self._blocks = {
            group: blocks
            for group, blocks in as_restored(left, len(live)).items()
            if group not in partly
        }
        self._whole_below = 0
        self._waiting: dict[int, int] = {}
        self._stream: CheckpointStateOutputStream | None = None
        self._writer: KeyedStreamWriter | None = None
        self._keys: dict[int, Serializer] = {}

    @property
    def waiting(self) -> int:
        # Columns come last in each key group: until they are copied, none of them is whole.
        return 0 if self._columns is not None else sum(list(self._waiting.values()))

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        for group in sorted(frozenset[int]().union(*(each.groups for each in self._live))):
            blocks = self._blocks.setdefault(group, [])
            for index, each in enumerate(self._live):
                for piece in each.pieces(group, rows) if group in each.groups else ():
                    if piece.keys:
                        blocks.append(self._encoded(piece, index, each.state))
                    yield len(piece.keys)
            self._whole_below = group + 1
            self._waiting[group] = sum(block.size for block in blocks)
        if self._columns is not None:
            yield from self._columns.steps()

    def thaw(self) -> None:
        for each in self._live:
            each.state.table.thaw()
        if self._columns is not None:
            self._columns.release()

    def write(self, place: Place) -> None:
        blocks, whole_below = self._blocks, self._whole_below
        if self._stream is None:
            self._stream = self._target.open(place)
        writer = self._writer = self._writer or self._new_writer(self._stream.write)
        for group in sorted(group for group in list(blocks) if group < whole_below):
            writer.add(group, blocks.pop(group))
            self._waiting.pop(group, None)

    def upload(self, place: Place) -> KeyedStateHandle | None:
        rows, columns = self._blocks, self._columns
        if not self._headers and columns is None:
            self._held.newest = {}
            return None

        def write(out: Callable[[bytes], None]) -> KeyedStreamWriter:
            writer = self._writer or self._new_writer(out)
            batches = {} if columns is None else columns.blocks()
            for group in self._scope.key_groups:
                writer.add(group, [*rows.get(group, ()), *batches.get(group, ())])
            return writer

        try:
            is_empty = columns is None and not any(rows.values())
            handle, self._held.newest = self._target.upload(place, self._stream, write, is_empty)
            return handle
        finally:
            if columns is not None:
                columns.release()
            self._blocks = {}

    def acknowledged(self) -> None:
        """Rows in memory need no answer."""

    def cancel(self) -> None:
        self._blocks = {}

    def _new_writer(self, out: Callable[[bytes], None]) -> KeyedStreamWriter:
        columns, target = self._columns, self._target
        return self._scope.writer(
            out,
            target.checkpoint,
            key=self._key,
            states=self._headers,
            columns=None if columns is None else columns.header,
            compressed=target.compressed,
        )

    def _encoded(self, piece: Present | Missing, index: int, state: Registered) -> Block:
        keys = self._keys.get(index)
        if keys is None:
            keys = self._keys[index] = state.keys_of(piece.keys[0])
        return state.block(piece, index, self._scope.where, keys)


def as_restored(left: Iterable[Restored], first: int) -> dict[int, list[Block]]:
    """By key group the blocks of states that nobody has asked for.

    first: index of the first of these states in the header of what is written.
    """
    found: dict[int, list[Block]] = {}
    for index, restored in enumerate(left, start=first):
        for group, block in restored.blocks:
            found.setdefault(group, []).append(replace(block, state=index))
    return found
