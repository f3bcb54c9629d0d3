"""All keyed row state of one operator: its tables by name, their snapshots and their way back.

A state may have a namespace beside the key, such as a window or a timer's time: its table is then
keyed by pairs ``(key, namespace)``, which lie in the key's key group.

Restored state stays encoded until the operator requests it by name; unrequested state goes into the
next snapshot unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.errors import FormatError
from tidegate.state.format.blocks import MISSING, PRESENT, Block, KeyedStreamWriter
from tidegate.state.format.headers import StateHeader, reading
from tidegate.state.format.misfits import encoded_as_declared, encoded_keys
from tidegate.state.heap.hashmap import HashMapTable, Missing, Present
from tidegate.state.user import kinds, ttl
from tidegate.state.user.asked import StatesByName
from tidegate.state.user.keys import Keys, paired
from tidegate.storage.places import CheckpointScope
from tidegate.typeinfo.serializers import SerializerSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.ids import CheckpointId
    from tidegate.state.protocols import BesideRows
    from tidegate.state.scope import StateScope
    from tidegate.state.user.asked import Asked
    from tidegate.storage.places import Place
    from tidegate.storage.streams import CheckpointStateOutputStream
    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation

    # Writes what is left of a stream, and gives the offset of each key group.
    Write = Callable[[Callable[[bytes], None]], tuple[int, ...]]

_BUSY_SHARE: Final = 4
"""A key group is busy where one in this many of its keys, or more, were written to."""

_NOTHING: Final[Mapping[int, Mapping[str, Collection[object]]]] = {}


@dataclass(frozen=True, slots=True)
class Registered:
    """A requested state. kept: the part of an entry that goes into snapshots; None for all."""

    descriptor: StateDescriptor
    namespace: TypeInformation | None
    table: HashMapTable
    serializer: Serializer
    header: StateHeader
    kept: Callable[[object], object] | None


@dataclass(frozen=True, slots=True)
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


class KeyedStates:
    """All keyed row state of one operator.

    tracked: whether it is asked for what was `written`. logged: whether `log.logged.LoggedHeap`
    drains it.
    """

    def __init__(self, scope: StateScope, *, tracked: bool = False, logged: bool = False) -> None:
        self.scope = scope
        self._tracked = tracked
        self._logged = logged
        self._keys = Keys(scope.key_type, scope.where)
        self._states: dict[str, Registered] = {}
        self._restored: dict[str, list[Restored]] = {}
        self._busy: set[int] = set()
        self.state = StatesByName(scope.where, self._made).state

    def _made(self, asked: Asked) -> State:
        descriptor, namespace, scope = asked.descriptor, asked.namespace, self.scope
        table = HashMapTable(
            scope.cell if namespace is None else scope.pair_cell,
            scope.key_groups,
            scope.max_parallelism,
            copy=kinds.entry_copier(ttl.stored(descriptor)),
            tracked=self._tracked,
            logged=self._logged,
        )
        view, kept = ttl.view(descriptor, table, scope.clock.wall_ms)
        state = Registered(descriptor, namespace, table, asked.entries, asked.header, kept)
        for restored in self._restored.get(descriptor.name, ()):
            asked.check_restored(restored.header.kind, restored.header.namespace)
            self._load(state, restored, asked.where)
        self._restored.pop(descriptor.name, None)
        if self._keys.serializer is not None and not self._keys.declared:
            table.check_first_key(self._keys.check if namespace is None else self._check_pair)
        self._states[descriptor.name] = state
        return view

    def restore_keys(self, key: bytes) -> None:
        """Takes the keys' serializer from a snapshot. Raises SerializerIncompatible."""
        self._keys.restore(key)

    def restore(self, restored: Restored) -> None:
        """Keeps a state of a handle until it is requested; after its handle's `restore_keys`."""
        self._restored.setdefault(restored.header.name, []).append(restored)

    def written(self) -> dict[int, dict[str, Collection[object]] | None]:
        """Keys that may have been written since the last snapshot, if tracked.

        By key group and state the keys; None for any key of any state of a group.
        """
        found: dict[int, dict[str, Collection[object]]] = {}
        told: dict[int, bool] = {}
        for name, state in self._states.items():
            for group, keys in state.table.written().items():
                told[group] = told.get(group, True) and keys is not None
                found.setdefault(group, {})[name] = keys or ()
        self._busy = {
            group for group, states in found.items() if told[group] and self._is_busy(group, states)
        }
        return {
            group: states if told[group] and group not in self._busy else None
            for group, states in found.items()
        }

    def _is_busy(self, group: int, written: Mapping[str, Collection[object]]) -> bool:
        entries = sum(state.table.entries(group) for state in self._states.values())
        return sum(map(len, written.values())) * _BUSY_SHARE > entries

    def snapshot(
        self,
        target: Target,
        columns: BesideRows | None,
        changed: Mapping[int, Mapping[str, Collection[object]]] = _NOTHING,
    ) -> KeyedSnapshot:
        """The quick part of a snapshot: in proportion to the key groups.

        changed: key groups of which this one has only some keys, by state, for an earlier one
        holds the others as they are.
        """
        live: list[_Live] = []
        for state in self._states.values():
            name = state.header.name
            only = {group: keys[name] for group, keys in changed.items() if name in keys}
            kept = changed.keys() - only.keys()
            groups = frozenset(state.table.freeze(kept, only, self._busy))
            live.append(_Live(state, groups, partial(_frozen, state, only)))
        left = self.unclaimed
        if not left and not changed and not any(each.groups for each in live):
            live = []
        return KeyedSnapshot(self, live, left, target, columns, partly=changed)

    def base(self, target: Target) -> KeyedSnapshot:
        """All entries, each as it is when it is encoded, while they are written to."""
        groups = frozenset(self.scope.key_groups)
        live = [_Live(state, groups, partial(_current, state)) for state in self._states.values()]
        return KeyedSnapshot(self, live, self.unclaimed, target, None)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of everything in a state."""
        return self._states[name].table.scan()

    @property
    def registered(self) -> list[Registered]:
        return list(self._states.values())

    @property
    def unclaimed(self) -> list[Restored]:
        """Restored states that nobody has requested.

        It is in memory from the first snapshot on: once that is complete, the file that it was
        read from may be deleted, where a file that is looked at does not outlive its name (NFS).
        """
        self._restored = {
            name: [each.in_memory() for each in parts] for name, parts in self._restored.items()
        }
        return [restored for parts in self._restored.values() for restored in parts]

    @property
    def key_type(self) -> bytes | None:
        keys = self._keys.serializer
        return None if keys is None else keys.snapshot().to_bytes()

    def keys_of(self, state: Registered, key: object) -> Serializer:
        """Serializer of a state's keys, taken from this one if not known yet."""
        if state.namespace is not None:
            key, _ = cast("tuple[object, object]", key)
        return paired(self._keys.serializer or self._keys.of(key), state.namespace)

    def learned_key_type(self) -> bytes | None:
        """Snapshot of the keys' serializer, learned from the first entry if it is not known yet."""
        for state in self._states.values() if self._keys.serializer is None else ():
            for _, key, _ in state.table.scan():
                self.keys_of(state, key)
                return self.key_type
        return self.key_type

    def _check_pair(self, pair: object) -> None:
        self._keys.check(cast("tuple[object, object]", pair)[0])

    def _load(self, state: Registered, restored: Restored, where: str) -> None:
        assert self._keys.serializer is not None, "what was restored has told the type of its keys"
        old = SerializerSnapshot.from_bytes(restored.header.serializer)
        values = ttl.reader(
            old,
            state.descriptor,
            had_times=restored.header.ttl,
            now_ms=self.scope.clock.wall_ms,
            where=where,
        )
        keys = paired(self._keys.serializer, state.namespace)
        for group, block in restored.blocks:
            with reading(where):
                state.table.load(group, decoded_block(block, keys, values, where))


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


@dataclass(frozen=True, slots=True)
class _Live:
    """A table in a snapshot. groups: of which it has entries. pieces: gives those of a group."""

    state: Registered
    groups: frozenset[int]
    pieces: Callable[[int, Callable[[], int]], Iterator[Present | Missing]]


def _frozen(
    state: Registered,
    only: Mapping[int, Collection[object]],
    group: int,
    rows: Callable[[], int],
) -> Iterator[Present | Missing]:
    return state.table.pieces(group, rows, state.kept, only.get(group))


def _current(state: Registered, group: int, rows: Callable[[], int]) -> Iterator[Present]:
    return state.table.current(group, rows, state.kept)


class Target(Protocol):
    """Where a stream of keyed rows goes, and what its handle says."""

    @property
    def checkpoint(self) -> CheckpointId:
        """The checkpoint that its header names."""
        ...

    @property
    def compress(self) -> Callable[[bytes], bytes] | None:
        """Makes sections smaller; None where they are written as they are."""
        ...

    def open(self, place: Place) -> CheckpointStateOutputStream:
        """A stream that is written while more is encoded."""
        ...

    def upload(
        self,
        place: Place,
        stream: CheckpointStateOutputStream | None,
        write: Write,
        *,
        is_empty: bool,
    ) -> KeyedStateHandle:
        """Write what is left of it. stream: that was opened before. is_empty: nothing is left."""
        ...


@dataclass(frozen=True, slots=True)
class WholeStream:
    """A stream of all keyed rows. name: of its handle."""

    key_groups: KeyGroupRange
    checkpoint: CheckpointId
    name: str
    compress: Callable[[bytes], bytes] | None

    @staticmethod
    def of(scope: StateScope, checkpoint: CheckpointId) -> WholeStream:
        """Describe the stream that a checkpoint writes for itself."""
        name = scope.handle_name(checkpoint)
        return WholeStream(scope.key_groups, checkpoint, name, scope.compress)

    def open(self, place: Place) -> CheckpointStateOutputStream:
        return place.stream(CheckpointScope.EXCLUSIVE, merged=False)

    def upload(
        self,
        place: Place,
        stream: CheckpointStateOutputStream | None,
        write: Write,
        *,
        is_empty: bool,
    ) -> KeyGroupsStateHandle:
        del is_empty
        with stream or place.stream() as stream:
            offsets = write(stream.write)
            handle = stream.close_and_get_handle()
        return KeyGroupsStateHandle(self.key_groups, offsets, handle, self.name)


class KeyedSnapshot:
    """Keyed rows in memory on their way into a stream, a `protocols.Pending`.

    partly: key groups of which only some keys are in it.
    """

    def __init__(
        self,
        states: KeyedStates,
        live: list[_Live],
        left: list[Restored],
        target: Target,
        columns: BesideRows | None,
        *,
        partly: Container[int] = (),
    ) -> None:
        self._states = states
        self._live = live
        self._target = target
        self._columns = columns
        self._key = states.learned_key_type() if live or left else None
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
            return None

        def write(out: Callable[[bytes], None]) -> tuple[int, ...]:
            writer = self._writer or self._new_writer(out)
            batches = {} if columns is None else columns.blocks()
            for group in self._states.scope.key_groups:
                writer.add(group, [*rows.get(group, ()), *batches.get(group, ())])
            return writer.offsets

        try:
            is_empty = columns is None and not any(rows.values())
            return self._target.upload(place, self._stream, write, is_empty=is_empty)
        finally:
            if columns is not None:
                columns.release()
            self._blocks = {}

    def acknowledged(self) -> None:
        """Rows in memory need no answer."""

    def cancel(self) -> None:
        self._blocks = {}

    def _new_writer(self, out: Callable[[bytes], None]) -> KeyedStreamWriter:
        scope, columns = self._states.scope, self._columns
        header = scope.header(
            self._target.checkpoint,
            self._key,
            self._headers,
            None if columns is None else columns.header,
        )
        return KeyedStreamWriter(out, header, scope.key_groups, self._target.compress)

    def _encoded(self, piece: Present | Missing, index: int, state: Registered) -> Block:
        keys = self._keys.get(index)
        if keys is None:
            keys = self._keys[index] = self._states.keys_of(state, piece.keys[0])
        return block_of(piece, index, state, keys, self._states.scope.where)


def as_restored(left: Iterable[Restored], first: int) -> dict[int, list[Block]]:
    """By key group the blocks of states that nobody has asked for.

    first: index of the first of these states in the header of what is written.
    """
    found: dict[int, list[Block]] = {}
    for index, restored in enumerate(left, start=first):
        for group, block in restored.blocks:
            found.setdefault(group, []).append(replace(block, state=index))
    return found


def block_of(
    piece: Present | Missing, index: int, state: Registered, keys: Serializer, where: str
) -> Block:
    """Entries of a state as a block. Raises UserError for entries that can't be encoded."""
    where = f"{where}, state '{state.header.name}'"
    names = encoded_keys(keys, piece.keys, where)
    if isinstance(piece, Missing):
        return Block(MISSING, index, len(piece.keys), names, b"")
    key_of = piece.keys.__getitem__
    values = encoded_as_declared(state.serializer, piece.values, where, key_of)
    return Block(PRESENT, index, len(piece.keys), names, values)
