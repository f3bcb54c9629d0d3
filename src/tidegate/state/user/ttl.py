"""State that expires: each value, list element or map value is stored as ``(ms, value)``.

The time is that of the last access that counts. What is stored so is a state like any other, of
the type ``TUPLE(LONG, value)``: so snapshots, restore and rescale keep the age, and the kinds of
state are wrapped, not written again. A snapshot says which states have times in them; one
that was taken without is given the time of the restore, one that was taken with them loses them
where the state does not expire any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.api.state.descriptors import StateTtlConfig
from tidegate.errors import SerializerIncompatible
from tidegate.loops.tables import REDUCED_TO_NONE
from tidegate.state.user import kinds
from tidegate.typeinfo.evolution import AsIs, judge, reader_for
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import LONG, PICKLED, ListTypeInfo, MapTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.api.state import ListState, MapState, State, StateDescriptor
    from tidegate.state.user.kinds import KeyedEntries, KeyedTable, Pruned
    from tidegate.typeinfo.serializers import Reader, SerializerSnapshot
    from tidegate.typeinfo.types import TypeInformation

    Keep = Callable[[Any], object]

Stamped = tuple[int, object]
"""A value and the time of its last access, in milliseconds of processing time."""

_READS: Final = StateTtlConfig.UpdateType.OnReadAndWrite
_SHOWN: Final = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp


def expires(descriptor: StateDescriptor) -> bool:
    return descriptor.ttl is not None and descriptor.ttl.is_enabled()


def stored(descriptor: StateDescriptor) -> StateDescriptor:
    """Descriptor of the stored values, with their times if they expire."""
    return _stamped(descriptor) if expires(descriptor) else descriptor


def without_times(entries: TypeInformation) -> TypeInformation:
    """Type of entries without the times stored with their parts."""
    match entries:
        case ListTypeInfo(of):
            return ListTypeInfo(without_times(of))
        case MapTypeInfo(key, of):
            return MapTypeInfo(key, without_times(of))
        case TupleTypeInfo(types) if len(types) == 2:
            return types[1]
        case _:
            return PICKLED


def view(
    descriptor: StateDescriptor, table: KeyedTable, now_ms: Callable[[], int]
) -> tuple[State, Callable[[object], object] | None]:
    """The state that user functions get, and what of an entry goes into snapshots, if not all.

    now_ms: processing time.
    """
    if not expires(descriptor):
        return kinds.view(descriptor, table), None
    life = Life(descriptor, table, now_ms)
    kept = life.kept if life.leaves_out else None
    match descriptor:
        case ListStateDescriptor() | MapStateDescriptor():
            return _parts_view(descriptor, kinds.view(_stamped(descriptor), table), life), kept
        case ReducingStateDescriptor() | AggregatingStateDescriptor():
            return kinds.merging_view(descriptor, TtlEntries(table, life)), kept
        case _:
            return TtlValueState(TtlEntries(table, life)), kept


def parts_view(
    descriptor: StateDescriptor, table: Pruned, state: State, now_ms: Callable[[], int]
) -> State:
    """State object for maps and lists stored by part. state: over stored parts."""
    if not expires(descriptor):
        return state
    return _parts_view(descriptor, state, Life(descriptor, table, now_ms))


def _parts_view(descriptor: StateDescriptor, state: State, life: Life) -> State:
    if isinstance(descriptor, ListStateDescriptor):
        return TtlListState(cast("ListState[Any]", state), life)
    return TtlMapState(cast("MapState[Any, Any]", state), life)


def reader(
    old: SerializerSnapshot,
    descriptor: StateDescriptor,
    *,
    had_times: bool,
    timed_ms: int,
    where: str,
) -> Reader:
    """Reader of a snapshot's entries in the form stored now.

    had_times: whether the state had a time to live then. timed_ms: time of values that had none.
    Raises SerializerIncompatible.
    """
    was = _stamped(descriptor) if had_times else descriptor
    try:
        entries = reader_for(old, serializer_of(kinds.entry_type(was)), where=where)
    except SerializerIncompatible:
        if had_times:  # told of the types as the program knows them
            values = replace(old, type_info=without_times(old.type_info))
            reader_for(values, serializer_of(kinds.entry_type(descriptor)), where=where)
        raise
    if had_times == expires(descriptor):
        return entries
    if had_times:
        return _PartsReader(entries, descriptor, _value_of)
    return _PartsReader(entries, descriptor, lambda value: (timed_ms, value))


def is_migrated(old: SerializerSnapshot, descriptor: StateDescriptor, *, had_times: bool) -> bool:
    """True if `reader` changes entries."""
    if had_times != expires(descriptor):
        return True
    entries = serializer_of(kinds.entry_type(stored(descriptor)))
    return not isinstance(judge(old, entries), AsIs)


class _PartsReader:
    """Reads entries and changes each part."""

    def __init__(
        self, entries: Reader, descriptor: StateDescriptor, change: Callable[[Any], object]
    ) -> None:
        self._entries = entries
        self._descriptor = descriptor
        self._change = change

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        return self._changed(self._entries.decode_many(data))

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        return self._changed(self._entries.decode_each(pieces))

    def _changed(self, read: list[Any]) -> list[Any]:
        change = self._change
        match self._descriptor:
            case ListStateDescriptor():
                return [list(map(change, entry)) for entry in read]
            case MapStateDescriptor():
                return [{key: change(value) for key, value in each.items()} for each in read]
            case _:
                return list(map(change, read))


def _value_of(stamped: Stamped) -> object:
    return stamped[1]


def _stamped(descriptor: StateDescriptor) -> StateDescriptor:
    name, declared = descriptor.name, descriptor.type_info
    match descriptor:
        case ListStateDescriptor():
            return ListStateDescriptor(name, _with_time(declared))
        case MapStateDescriptor():
            return MapStateDescriptor(name, declared, _with_time(descriptor.value_type_info))
        case _:
            return ValueStateDescriptor(name, _with_time(declared))


def _with_time(declared: TypeInformation | None) -> TypeInformation:
    return TupleTypeInfo([LONG, declared or PICKLED])


class Life:
    """How long the parts of one state live, and their clean-up.

    renewed_by_reads, shows_expired: as configured. leaves_out: whether snapshots leave out what is
    expired.
    """

    def __init__(
        self, descriptor: StateDescriptor, table: Pruned, now_ms: Callable[[], int]
    ) -> None:
        config = descriptor.ttl
        assert config is not None, "a state without a time to live has no life"
        strategies = config.get_cleanup_strategies()
        incremental = strategies.get_incremental_cleanup_strategy()
        self.renewed_by_reads = config.get_update_type() is _READS
        self.shows_expired = config.get_state_visibility() is _SHOWN
        self.leaves_out = strategies.in_full_snapshot()
        self._ttl_ms = config.get_ttl().to_milliseconds()
        self._steps = 0 if incremental is None else incremental.get_cleanup_size()
        self._now_ms = now_ms
        self._prune = table.prune
        self._keeping = _keeping_of(descriptor)

    def access(self) -> int:
        """Counts an access: cleans up a little; returns the time."""
        now = self._now_ms()
        if self._steps:
            self._prune(self._steps, self._keeping(now - self._ttl_ms))
        return now

    def is_over(self, stamped: Stamped, now: int) -> bool:
        """True if a part is expired."""
        return now - self._ttl_ms >= stamped[0]

    def kept(self, entry: object) -> object:
        """The rest of an entry: itself, a copy without expired parts, or None."""
        return self._keeping(self._now_ms() - self._ttl_ms)(entry)


def _keeping_of(descriptor: StateDescriptor) -> Callable[[int], Keep]:
    """Function that makes, for a time, a filter of expired parts.

    For each time a function of its own, since it is called for every entry that is cleaned up.
    """
    match descriptor:
        case ListStateDescriptor():
            return _keep_elements
        case MapStateDescriptor():
            return _keep_values
        case _:
            return _keep_value


def _keep_value(dead: int) -> Keep:
    return lambda entry: entry if entry[0] > dead else None


def _keep_elements(dead: int) -> Keep:
    def keep(entry: list[Stamped]) -> object:
        left = [each for each in entry if each[0] > dead]
        return entry if len(left) == len(entry) else left or None

    return keep


def _keep_values(dead: int) -> Keep:
    def keep(entry: dict[object, Stamped]) -> object:
        left = {key: each for key, each in entry.items() if each[0] > dead}
        return entry if len(left) == len(entry) else left or None

    return keep


class TtlEntries:
    """Stamped entries seen as plain values; implements `KeyedEntries`."""

    def __init__(self, table: KeyedTable, life: Life) -> None:
        self._read = cast("Callable[[], Stamped | None]", table.read)
        self._write = table.write
        self._accumulate = table.accumulate
        self.prefetch = table.prefetch
        self.remove_all = table.remove_all
        self._cell = table.cell
        self._life = life

    def read(self) -> object:
        life = self._life
        now = life.access()
        stamped = self._read()
        if stamped is None:
            return None
        if life.is_over(stamped, now):
            self._write(None)
            return stamped[1] if life.shows_expired else None
        if life.renewed_by_reads:
            self._write((now, stamped[1]))
        return stamped[1]

    def write(self, value: object) -> None:
        now = self._life.access()
        self._write(None if value is None else (now, value))

    def read_all(self, keys: Sequence[object], groups: Sequence[int]) -> list[object]:
        return kinds.at_each(self._cell, self.read, keys, groups)

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        def merged(value: object, old: object) -> object:
            new = value if old is None else merge(old, value)
            if new is None and old is not None:
                raise TypeError(REDUCED_TO_NONE)
            emit(new)
            return new

        self.accumulate(keys, groups, values, merged, _nothing)

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        life, now = self._life, self._life.access()

        def added(value: object, held: object) -> object:
            stamped = cast("Stamped | None", held)
            if stamped is None or (life.is_over(stamped, now) and not life.shows_expired):
                new = add(value, create())
            else:
                new = add(value, stamped[1])
            return None if new is None else (now, new)

        self._accumulate(keys, groups, values, added, _nothing)


def _nothing() -> None:
    return None


class TtlValueState:
    """A value for each key that expires."""

    def __init__(self, entries: KeyedEntries) -> None:
        self.value = entries.read
        self.update = entries.write

    def clear(self) -> None:
        self.update(None)


class TtlListState:
    """A list for each key whose elements expire one by one. held: the stamped elements."""

    def __init__(self, held: ListState[Any], life: Life) -> None:
        self._held = held
        self._life = life

    def get(self) -> list[object]:
        """Elements in a new list; removes expired ones."""
        life = self._life
        now = life.access()
        found = cast("list[Stamped]", self._held.get())
        left = [each for each in found if not life.is_over(each, now)]
        if life.renewed_by_reads and left:
            self._held.update((now, value) for _, value in left)
        elif len(left) < len(found):
            self._held.update(left)
        return [value for _, value in (found if life.shows_expired else left)]

    def add(self, value: object) -> None:
        self._held.add((self._life.access(), value))

    def __iter__(self) -> Iterator[object]:
        return iter(self.get())

    def add_all(self, values: Iterable[object]) -> None:
        now = self._life.access()
        self._held.add_all((now, value) for value in values)

    def update(self, values: Iterable[object]) -> None:
        now = self._life.access()
        self._held.update((now, value) for value in values)

    def clear(self) -> None:
        self._held.clear()


class TtlMapState:
    """A map a key, whose entries expire one by one. held: the stamped values.

    Of what is expired and may still be seen, `contains`, `keys` and `is_empty` remove nothing:
    they do not give it away.
    """

    def __init__(self, held: MapState[Any, Any], life: Life) -> None:
        self._held = held
        self._life = life

    def get(self, key: object) -> object:
        """Value of a map key; removes it if expired."""
        now = self._life.access()
        stamped = cast("Stamped | None", self._held.get(key))
        if stamped is None:
            return None
        if self._life.is_over(stamped, now):
            self._held.remove(key)
            return stamped[1] if self._life.shows_expired else None
        self._renew({key: stamped}, now)
        return stamped[1]

    def put(self, key: object, value: object) -> None:
        self._held.put(key, (self._life.access(), value))

    def put_all(self, dict_value: Iterable[tuple[object, object]] | dict[object, object]) -> None:
        now = self._life.access()
        self._held.put_all({key: (now, value) for key, value in dict(dict_value).items()})

    def remove(self, key: object) -> None:
        self._held.remove(key)

    def contains(self, key: object) -> bool:
        """True if the map key exists and is not expired."""
        now = self._life.access()
        stamped = cast("Stamped | None", self._held.get(key))
        if stamped is None:
            return False
        if self._life.is_over(stamped, now):
            return self._life.shows_expired
        self._renew({key: stamped}, now)
        return True

    def items(self) -> Iterator[tuple[object, object]]:
        """All pairs at this time; removes expired ones."""
        found, left = self._looked_at()
        for key in found.keys() - left.keys():
            self._held.remove(key)
        seen = found if self._life.shows_expired else left
        return iter([(key, value) for key, (_, value) in seen.items()])

    def keys(self) -> Iterator[object]:
        found, left = self._looked_at()
        return iter(found if self._life.shows_expired else left)

    def values(self) -> Iterator[object]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        life = self._life
        if not life.renewed_by_reads:
            now, shown = life.access(), life.shows_expired
            return not any(shown or not life.is_over(each, now) for each in self._held.values())
        found, left = self._looked_at()
        return not (found if self._life.shows_expired else left)

    def clear(self) -> None:
        self._held.clear()

    def _looked_at(self) -> tuple[dict[object, Stamped], dict[object, Stamped]]:
        """All parts, and the unexpired ones; counts as a read."""
        now = self._life.access()
        found = cast("dict[object, Stamped]", dict(self._held.items()))
        left = {key: each for key, each in found.items() if not self._life.is_over(each, now)}
        self._renew(left, now)
        return found, left

    def _renew(self, read: dict[object, Stamped], now: int) -> None:
        if self._life.renewed_by_reads:
            self._held.put_all({key: (now, value) for key, (_, value) in read.items()})

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains
    __iter__ = keys
