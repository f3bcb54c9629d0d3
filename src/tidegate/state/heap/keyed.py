"""All keyed row state of one operator: its tables by name, their snapshots and their way back.

A state may have a namespace beside the key, such as a window or a timer's time: its table is then
keyed by pairs ``(key, namespace)``, which lie in the key's key group.

Restored state stays encoded until the operator requests it by name; unrequested state goes into the
next snapshot unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from tidegate.errors import FormatError
from tidegate.state.format.blocks import MISSING, PRESENT, Block
from tidegate.state.format.headers import StateHeader, reading
from tidegate.state.format.misfits import encoded_as_declared, encoded_keys
from tidegate.state.heap.hashmap import HashMapTable, Missing, Present
from tidegate.state.user import kinds, ttl
from tidegate.state.user.keys import Keys, check_asked_alike, check_restored, paired
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.operator import KeyCell
    from tidegate.api.state import State, StateDescriptor
    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation


_BUSY_SHARE: Final = 4
"""A key group is busy where one in this many of its keys, or more, were written to."""

_NOTHING: Final[Mapping[int, Mapping[str, Collection[object]]]] = {}


@dataclass(frozen=True, slots=True)
class Registered:
    """A requested state. kept: the part of an entry that goes into snapshots; None for all."""

    descriptor: StateDescriptor
    namespace: TypeInformation | None
    table: HashMapTable
    view: State
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
    """All keyed row state of one operator. where: names the operator in errors.

    pair_cell: what states with a namespace stand on. key_type: as declared; None for what the keys
    themselves are. now_ms: processing time. tracked: whether it is asked for what was `written`.
    logged: whether `logged.LoggedStates` drains it.
    """

    def __init__(
        self,
        cell: KeyCell,
        pair_cell: KeyCell,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        *,
        key_type: TypeInformation | None,
        now_ms: Callable[[], int],
        where: str,
        tracked: bool = False,
        logged: bool = False,
    ) -> None:
        self._cell = cell
        self._pair_cell = pair_cell
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._now_ms = now_ms
        self._where = where
        self._tracked = tracked
        self._logged = logged
        self._keys = Keys(key_type, where)
        self._states: dict[str, Registered] = {}
        self._restored: dict[str, list[Restored]] = {}
        self._busy: set[int] = set()

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None = None) -> State:
        """The state of that name, with what was restored of it. namespace: its type, if any.

        Raises SerializerIncompatible if that does not fit, ConfigError where the name is in use
        for another kind of state.
        """
        name = descriptor.name
        held = self._states.get(name)
        if held is not None:
            before = held.descriptor, held.namespace
            check_asked_alike(before, (descriptor, namespace), self._where)
            return held.view
        kind = kinds.kind_of(descriptor, where=self._where)
        stored = ttl.stored(descriptor)
        copy = kinds.entry_copier(stored)
        cell = self._cell if namespace is None else self._pair_cell
        table = HashMapTable(
            cell,
            self._key_groups,
            self._max_parallelism,
            copy=copy,
            tracked=self._tracked,
            logged=self._logged,
        )
        view, kept = ttl.view(descriptor, table, self._now_ms)
        serializer = serializer_of(kinds.entry_type(stored))
        written = serializer.snapshot().to_bytes()
        spaces = None if namespace is None else serializer_of(namespace).snapshot().to_bytes()
        header = StateHeader(name, kind.value, written, spaces, ttl=ttl.expires(descriptor))
        state = Registered(descriptor, namespace, table, view, serializer, header, kept)
        for restored in self._restored.get(name, ()):
            self._load(state, restored)
        self._restored.pop(name, None)
        if self._keys.serializer is not None and not self._keys.declared:
            table.check_first_key(self._keys.check if namespace is None else self._check_pair)
        self._states[name] = state
        return state.view

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
        self, changed: Mapping[int, Mapping[str, Collection[object]]] = _NOTHING
    ) -> KeyedSnapshot | None:
        """The quick part of a snapshot: in proportion to the key groups. None without state.

        changed: key groups of which this one has only some keys, by state, for an earlier one
        holds the others as they are.
        """
        live: list[_Live] = []
        for index, (name, state) in enumerate(self._states.items()):
            only = {group: keys[name] for group, keys in changed.items() if name in keys}
            kept = changed.keys() - only.keys()
            groups = frozenset(state.table.freeze(kept, only, self._busy))
            live.append(_Live(index, state, groups, only))
        left = self.unclaimed
        if not left and not changed and not any(each.groups for each in live):
            return None
        keys = self._keys.serializer or self._learn_keys(live)
        return KeyedSnapshot(live, left, keys, self._where, changed)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of everything in a state."""
        return self._states[name].table.scan()

    @property
    def key_groups(self) -> KeyGroupRange:
        return self._key_groups

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

    def _learn_keys(self, live: list[_Live]) -> Serializer:
        state = next(each.state for each in live if each.groups)
        _, key, _ = next(state.table.scan())
        if state.namespace is not None:
            key, _ = cast("tuple[object, object]", key)
        return self._keys.of(key)

    def _check_pair(self, pair: object) -> None:
        self._keys.check(cast("tuple[object, object]", pair)[0])

    def _load(self, state: Registered, restored: Restored) -> None:
        where = f"{self._where}, state '{state.header.name}'"
        now = state.header.kind, state.namespace
        check_restored(restored.header.kind, restored.header.namespace, now, where)
        assert self._keys.serializer is not None, "what was restored has told the type of its keys"
        old = SerializerSnapshot.from_bytes(restored.header.serializer)
        values = ttl.reader(
            old,
            state.descriptor,
            had_times=restored.header.ttl,
            now_ms=self._now_ms,
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
    """A table in a snapshot. index: its state's in the header. groups: those that were frozen.

    only: of some of them, the keys that are wanted.
    """

    index: int
    state: Registered
    groups: frozenset[int]
    only: Mapping[int, Collection[object]]


class KeyedSnapshot:
    """Keyed row state frozen at the barrier, encoded step by step."""

    def __init__(
        self,
        live: list[_Live],
        left: list[Restored],
        keys: Serializer,
        where: str,
        partly: Container[int],
    ) -> None:
        self._live = live
        self._keys = [paired(keys, each.state.namespace) for each in live]
        self._where = where
        self.key = keys.snapshot().to_bytes()
        self.headers = [each.state.header for each in live] + [each.header for each in left]
        self._blocks = {
            group: blocks
            for group, blocks in as_restored(left, len(live)).items()
            if group not in partly
        }
        self._whole_below = 0
        self._waiting: dict[int, int] = {}

    @property
    def blocks(self) -> Mapping[int, list[Block]]:
        return self._blocks

    @property
    def waiting(self) -> int:
        return sum(list(self._waiting.values()))

    def taken(self) -> Iterator[tuple[int, list[Block]]]:
        """Take out the key groups of which nothing is left to be encoded, in their order.

        By one thread at a time, which may be another one than that of `steps`.
        """
        whole_below = self._whole_below
        for group in sorted(group for group in list(self._blocks) if group < whole_below):
            yield group, self._blocks.pop(group)
            self._waiting.pop(group, None)

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        """Encodes key group by key group; a step encodes `rows` entries and yields their number."""
        for group in sorted(frozenset[int]().union(*(each.groups for each in self._live))):
            blocks = self._blocks.setdefault(group, [])
            for each in self._live:
                if group not in each.groups:
                    continue
                only = each.only.get(group)
                for piece in each.state.table.pieces(group, rows, each.state.kept, only):
                    if piece.keys:
                        blocks.append(self._encoded(piece, each))
                    yield len(piece.keys)
            self._whole_below = group + 1
            self._waiting[group] = sum(block.size for block in blocks)

    def cancel(self) -> None:
        """Frees everything kept for the snapshot."""
        for each in self._live:
            each.state.table.thaw()

    def _encoded(self, piece: Present | Missing, live: _Live) -> Block:
        return block_of(piece, live.index, live.state, self._keys[live.index], self._where)


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
