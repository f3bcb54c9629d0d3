"""All keyed row state of one operator: its tables by name, their snapshots and their way back.

A state may have a namespace beside the key, such as a window or a timer's time: its table is then
keyed by pairs ``(key, namespace)``, which lie in the key's key group.

What is restored stays as it was written until the operator asks for the state by name; what nobody
asks for goes into the next snapshot as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tidegate.errors import ConfigError, FormatError, SerializerIncompatible, UserError
from tidegate.state import kinds, ttl
from tidegate.state.format import MISSING, PRESENT, Block, StateHeader, reading
from tidegate.state.hashmap import HashMapTable, Missing, Present
from tidegate.typeinfo.evolution import reader_for
from tidegate.typeinfo.key_hash import key_type_of, may_be_alike
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import PICKLED, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidegate.api.operator import KeyCell
    from tidegate.api.state import State, StateDescriptor
    from tidegate.model.key_groups import KeyGroupRange
    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class _Registered:
    descriptor: StateDescriptor
    namespace: TypeInformation | None
    table: HashMapTable
    view: State
    serializer: Serializer
    header: StateHeader
    kept: Callable[[object], object] | None
    """What of an entry goes into snapshots; None for all."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A state of one handle, as it was written: its blocks by key group."""

    header: StateHeader
    blocks: list[tuple[int, Block]] = field(default_factory=list[tuple[int, Block]])


class KeyedStates:
    """All keyed row state of one operator. where: names the operator in errors.

    pair_cell: what states with a namespace stand on. key_type: as declared; None for what the keys
    themselves are. now_ms: processing time.
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
    ) -> None:
        self._cell = cell
        self._pair_cell = pair_cell
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._now_ms = now_ms
        self._where = where
        self._declared = key_type is not None and key_type != PICKLED
        self._keys: Serializer | None = serializer_of(key_type) if self._declared else None
        self._states: dict[str, _Registered] = {}
        self._restored: dict[str, list[Restored]] = {}

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None = None) -> State:
        """The state of that name, with what was restored of it. namespace: its type, if any.

        Raises SerializerIncompatible where that does not fit, ConfigError where the name is in use
        for another kind of state.
        """
        name = descriptor.name
        held = self._states.get(name)
        if held is not None:
            self._check_same(held, descriptor, namespace)
            return held.view
        kind = kinds.kind_of(descriptor, where=self._where)
        stored = ttl.stored(descriptor)
        copy = kinds.entry_copier(stored)
        cell = self._cell if namespace is None else self._pair_cell
        table = HashMapTable(cell, self._key_groups, self._max_parallelism, copy=copy)
        view, kept = ttl.view(descriptor, table, self._now_ms)
        serializer = serializer_of(kinds.entry_type(stored))
        written = serializer.snapshot().to_bytes()
        spaces = None if namespace is None else serializer_of(namespace).snapshot().to_bytes()
        header = StateHeader(name, kind.value, written, spaces, ttl=ttl.expires(descriptor))
        state = _Registered(descriptor, namespace, table, view, serializer, header, kept)
        for restored in self._restored.get(name, ()):
            self._load(state, restored)
        self._restored.pop(name, None)
        if self._keys is not None and not self._declared:
            table.check_first_key(self._check_key if namespace is None else self._check_pair)
        self._states[name] = state
        return state.view

    def restore_keys(self, key: bytes) -> None:
        """Take the keys' serializer from a snapshot; raises SerializerIncompatible."""
        old = SerializerSnapshot.from_bytes(key)
        if self._keys is None:
            self._keys = serializer_of(old.type_info)
        reader_for(old, self._keys, where=f"{self._where}, keys", key=True)

    def restore(self, restored: Restored) -> None:
        """Keep a state of a handle until it is asked for; after its handle's `restore_keys`."""
        self._restored.setdefault(restored.header.name, []).append(restored)

    def snapshot(self) -> KeyedSnapshot | None:
        """The quick part of a snapshot: in proportion to the key groups. None without state."""
        live = [
            _Live(index, state, frozenset(state.table.freeze()))
            for index, state in enumerate(self._states.values())
        ]
        left = [restored for parts in self._restored.values() for restored in parts]
        if not left and not any(each.groups for each in live):
            return None
        keys = self._keys or self._learn_keys(live)
        return KeyedSnapshot(live, left, keys, self._where)

    def scan(self, name: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all that a state holds."""
        return self._states[name].table.scan()

    def _learn_keys(self, live: list[_Live]) -> Serializer:
        state = next(each.state for each in live if each.groups)
        _, key, _ = next(state.table.scan())
        if state.namespace is not None:
            key, _ = cast("tuple[object, object]", key)
        self._keys = serializer_of(key_type_of(key, where=self._where))
        return self._keys

    def _check_key(self, key: object) -> None:
        """Undeclared keys show only now whether they are those of the restored state."""
        assert self._keys is not None, "what was restored has told the type of its keys"
        held, found = self._keys.type_info, key_type_of(key, where=self._where)
        if not may_be_alike(held, found):
            raise SerializerIncompatible(
                f"The keys of the state are {held} and those of the stream are {found}",
                where=self._where,
                remedy="Go back to the old key; where a key lies depends on its type.",
            )

    def _check_pair(self, pair: object) -> None:
        self._check_key(cast("tuple[object, object]", pair)[0])

    def _load(self, state: _Registered, restored: Restored) -> None:
        where = f"{self._where}, state '{state.header.name}'"
        if _kind(restored.header) != _kind(state.header):
            raise SerializerIncompatible(
                f"The state was of kind {_kind(restored.header)} and is now {_kind(state.header)}",
                where=where,
                remedy="Go back to the old kind, or give the state a new name.",
            )
        assert self._keys is not None, "what was restored has told the type of its keys"
        old = SerializerSnapshot.from_bytes(restored.header.serializer)
        values = ttl.reader(
            old,
            state.descriptor,
            had_times=restored.header.ttl,
            now_ms=self._now_ms,
            where=where,
        )
        keys: Reader = self._keys
        if restored.header.namespace is not None and state.namespace is not None:
            spaces = SerializerSnapshot.from_bytes(restored.header.namespace)
            reader_for(
                spaces, serializer_of(state.namespace), where=f"{where}, namespaces", key=True
            )
            keys = _pairs(self._keys, state.namespace)
        for group, block in restored.blocks:
            with reading(where):
                state.table.load(group, _decoded(block, keys, values, where))

    def _check_same(
        self, held: _Registered, descriptor: StateDescriptor, namespace: TypeInformation | None
    ) -> None:
        old = held.descriptor
        before = type(old), kinds.entry_type(old), old.ttl, held.namespace
        if before == (type(descriptor), kinds.entry_type(descriptor), descriptor.ttl, namespace):
            return
        raise ConfigError(
            f"The state '{descriptor.name}' is asked for as {descriptor} and before as"
            f" {held.descriptor}",
            where=self._where,
            remedy="Use one descriptor, or two names.",
        )


def _kind(header: StateHeader) -> str:
    return header.kind if header.namespace is None else f"{header.kind} with a namespace"


def _pairs(keys: Serializer, namespace: TypeInformation) -> Serializer:
    """The serializer of keys with their namespaces."""
    return serializer_of(TupleTypeInfo([keys.type_info, namespace]))


def _decoded(block: Block, keys: Reader, values: Reader, where: str) -> Present | Missing:
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
    """A table in a snapshot. index: its state's in the header. groups: those that were frozen."""

    index: int
    state: _Registered
    groups: frozenset[int]


class KeyedSnapshot:
    """Keyed row state as at the barrier, encoded step by step."""

    def __init__(
        self, live: list[_Live], left: list[Restored], keys: Serializer, where: str
    ) -> None:
        self._live = live
        self._keys = [
            keys if each.state.namespace is None else _pairs(keys, each.state.namespace)
            for each in live
        ]
        self._where = where
        self.key = keys.snapshot().to_bytes()
        self.headers = [each.state.header for each in live] + [each.header for each in left]
        self._blocks: dict[int, list[Block]] = {}
        for index, restored in enumerate(left, start=len(live)):
            for group, block in restored.blocks:
                again = Block(block.kind, index, block.rows, block.keys, block.values)
                self._blocks.setdefault(group, []).append(again)

    @property
    def blocks(self) -> Mapping[int, list[Block]]:
        """What is encoded so far, by key group."""
        return self._blocks

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        """Encode, key group by key group; a step encodes `rows` entries and gives their number."""
        for group in sorted(frozenset[int]().union(*(each.groups for each in self._live))):
            blocks = self._blocks.setdefault(group, [])
            for each in self._live:
                if group not in each.groups:
                    continue
                for piece in each.state.table.pieces(group, rows, each.state.kept):
                    if piece.keys:
                        blocks.append(self._encoded(piece, each))
                    yield len(piece.keys)

    def cancel(self) -> None:
        """Free what is kept for it."""
        for each in self._live:
            each.state.table.thaw()

    def _encoded(self, piece: Present | Missing, live: _Live) -> Block:
        try:
            keys = self._keys[live.index].encode_many(piece.keys)
            if isinstance(piece, Missing):
                return Block(MISSING, live.index, len(piece.keys), keys, b"")
            values = live.state.serializer.encode_many(piece.values)
        except UserError as error:
            place = f"{self._where}, state '{live.state.header.name}'"
            raise UserError(error.what, where=place, remedy=error.remedy) from error
        return Block(PRESENT, live.index, len(piece.keys), keys, values)
