"""The kinds of keyed state, written once over `KeyedTable`, which each backend has its own of.

What is stored a key: the value (value state), a list (list state), a dict (map state), the reduced
value or the accumulator. An empty list or map is no entry at all.

A table's functions stand on the operator's `KeyCell`, so that a kind may hand them to the user as
they are: a record pays for one call (benchmarks/state_bench.py). A written value belongs to the
state from then on. A value that was read may be looked at until the next record; a change to it
counts only when it is written again.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidegate.api.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
)
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.errors import ConfigError
from tidegate.typeinfo.copies import copier_of
from tidegate.typeinfo.types import PICKLED, ListTypeInfo, MapTypeInfo, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.api.state import State, StateDescriptor, ValueState
    from tidegate.loops.cells import KeyCell

    Reduce = Callable[[Any, Any], Any]


class Kind(Enum):
    """Kinds of state; the values stand in snapshots."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"


def kind_of(descriptor: StateDescriptor, *, where: str) -> Kind:
    """The kind of state that a descriptor stands for; raises ConfigError if it is incomplete.

    where: names the operator in errors.
    """
    match descriptor:
        case ValueStateDescriptor():
            return Kind.VALUE
        case ListStateDescriptor():
            return Kind.LIST
        case MapStateDescriptor():
            return Kind.MAP
        case ReducingStateDescriptor(reduce_function=ReduceFunction()):
            return Kind.REDUCING
        case ReducingStateDescriptor() if callable(descriptor.reduce_function):
            return Kind.REDUCING
        case AggregatingStateDescriptor(aggregate_function=AggregateFunction()):
            return Kind.AGGREGATING
        case _:
            raise ConfigError(
                f"{type(descriptor).__name__}({descriptor.name!r}) stands for no keyed state",
                where=f"{where}, state '{descriptor.name}'",
                remedy="Use ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor, or"
                " ReducingStateDescriptor and AggregatingStateDescriptor with their function.",
            )


def entry_type(descriptor: StateDescriptor) -> TypeInformation | None:
    """Type stored for each key; None if no part of it is declared."""
    declared = descriptor.type_info
    match descriptor:
        case ListStateDescriptor():
            return None if declared is None else ListTypeInfo(declared)
        case MapStateDescriptor():
            values = descriptor.value_type_info
            if declared is None and values is None:
                return None
            return MapTypeInfo(declared or PICKLED, values or PICKLED)
        case _:
            return declared


def entry_copier(descriptor: StateDescriptor) -> Callable[[object], object] | None:
    """Function that copies an entry before a change; None for immutable entries."""
    match descriptor:
        case ListStateDescriptor() if part_copier(descriptor) is None:
            return _copy_list
        case MapStateDescriptor() if part_copier(descriptor) is None:
            return _copy_dict
        case ListStateDescriptor() | MapStateDescriptor():
            return copier_of(None)
        case _:
            return copier_of(descriptor.type_info)


def part_copier(descriptor: StateDescriptor) -> Callable[[object], object] | None:
    """Function that copies an element or map value; None for immutable ones."""
    if isinstance(descriptor, MapStateDescriptor):
        return copier_of(descriptor.value_type_info)
    return copier_of(descriptor.type_info)


def _copy_list(entry: object) -> object:
    return cast("list[object]", entry).copy()


def _copy_dict(entry: object) -> object:
    return cast("dict[object, object]", entry).copy()


class KeyedEntries(Protocol):
    """Entries of one named keyed state, each taken as a whole. No entry is None."""

    @property
    def read(self) -> Callable[[], object]:
        """The current key's entry to give away; None if there is none."""
        ...

    @property
    def write(self) -> Callable[[object], None]:
        """Sets the current key's entry; None removes it."""
        ...

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        """Merge each value into its key's entry, in order, and emit each new entry.

        The first value of a key is its entry. Exceptions of ``merge`` pass through; TypeError if
        it returns None.
        """
        ...

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        """Set each key's entry to ``add(value, entry)``, in order; ``create`` makes a first entry.

        Exceptions of the functions pass through.
        """
        ...

    def read_all(self, keys: Sequence[object], groups: Sequence[int]) -> list[object]:
        """Each key's entry to give away; None where there is none."""
        ...

    def remove_all(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Removes each key's entry, where there is one."""
        ...

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Announces keys that are requested next, so that they can be read at once."""
        ...


class Pruned(Protocol):
    """Entries of one named keyed state, as clean-up sees them."""

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at about that many entries, other ones each time, and leave of each what is kept.

        kept: gives the entry itself, a new one, or None if nothing is left of it; what it once
        gave itself may be missed until it is looked at again.
        """
        ...


class KeyedTable(KeyedEntries, Pruned, Protocol):
    """The entries of one named keyed state, as a backend holds them.

    The functions are attributes, not methods: a backend makes each of them for its own needs.
    """

    @property
    def cell(self) -> KeyCell:
        """Holds the current key."""
        ...

    @property
    def peek(self) -> Callable[[], object]:
        """The current key's entry, for reading only."""
        ...

    @property
    def is_shared(self) -> Callable[[], bool]:
        """True if a snapshot needs the current key's entry: parts are copied before use."""
        ...

    @property
    def edit(self) -> Callable[[], object]:
        """The current key's entry, to be changed in place at once, without a later write."""
        ...

    def value_state(self) -> ValueState[object]:
        """Value state over the entries, in the fastest form."""
        ...

    def list_state(self, copy: Callable[[object], object] | None) -> State:
        """List state over the entries. copy: copies an element; None if they are immutable."""
        ...

    def map_state(self, copy: Callable[[object], object] | None) -> State:
        """Map state over the entries. copy: copies a value; None if they are immutable."""
        ...

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of everything, for reading only; no writes meanwhile."""
        ...


def at_each(
    cell: KeyCell, call: Callable[[], object], keys: Iterable[object], groups: Iterable[int]
) -> list[object]:
    """Makes a call for each key while that is the current one; returns what it gives."""
    found: list[object] = []
    for cell.key, cell.group in zip(keys, groups, strict=True):
        found.append(call())
    return found


def view(descriptor: StateDescriptor, table: KeyedTable) -> State:
    match descriptor:
        case ListStateDescriptor():
            return table.list_state(part_copier(descriptor))
        case MapStateDescriptor():
            return table.map_state(part_copier(descriptor))
        case ReducingStateDescriptor() | AggregatingStateDescriptor():
            return merging_view(descriptor, table)
        case _:
            return table.value_state()


def merging_view(
    descriptor: ReducingStateDescriptor[Any] | AggregatingStateDescriptor, entries: KeyedEntries
) -> State:
    """State object for kinds that only use whole entries."""
    if isinstance(descriptor, ReducingStateDescriptor):
        function = cast("ReduceFunction[Any] | Reduce", descriptor.reduce_function)
        reduce = function.reduce if isinstance(function, ReduceFunction) else function
        return TableReducingState(entries, reduce)
    aggregate = cast("AggregateFunction[Any, Any, Any]", descriptor.aggregate_function)
    return TableAggregatingState(entries, aggregate, descriptor.name)


class TableListState:
    """A list for each key. copy: copies an element; None if elements are immutable."""

    def __init__(self, table: KeyedTable, copy: Callable[[object], object] | None) -> None:
        self._peek = cast("Callable[[], list[object] | None]", table.peek)
        self._edit = cast("Callable[[], list[object] | None]", table.edit)
        self._write = table.write
        self._is_shared = table.is_shared
        self._copy = copy

    def get(self) -> list[object]:
        elements = self._peek()
        if elements is None:
            return []
        if self._copy is not None and self._is_shared():
            return list(map(self._copy, elements))
        return elements.copy()

    def add(self, value: object) -> None:
        elements = self._edit()
        if elements is None:
            self._write([value])
        else:
            elements.append(value)

    def __iter__(self) -> Iterator[object]:
        return iter(self.get())

    def add_all(self, values: Iterable[object]) -> None:
        added = list(values)
        elements = self._edit()
        if elements is not None:
            elements.extend(added)
        elif added:
            self._write(added)

    def update(self, values: Iterable[object]) -> None:
        self._write(list(values) or None)

    def clear(self) -> None:
        self._write(None)


class TableMapState:
    """A map for each key. copy: copies a value; None if values are immutable."""

    def __init__(self, table: KeyedTable, copy: Callable[[object], object] | None) -> None:
        self._peek = cast("Callable[[], dict[object, object] | None]", table.peek)
        self._edit = cast("Callable[[], dict[object, object] | None]", table.edit)
        self._write = table.write
        self._is_shared = table.is_shared
        self._copy = copy

    def get(self, key: object) -> object:
        entries = self._peek()
        if entries is None:
            return None
        value = entries.get(key)
        return self._copy(value) if self._copy is not None and self._is_shared() else value

    def put(self, key: object, value: object) -> None:
        entries = self._edit()
        if entries is None:
            self._write({key: value})
        else:
            entries[key] = value

    def put_all(self, dict_value: Iterable[tuple[object, object]] | dict[object, object]) -> None:
        added = dict(dict_value)
        held = self._edit()
        if held is not None:
            held.update(added)
        elif added:
            self._write(added)

    def remove(self, key: object) -> None:
        """Removes a map key; with the last one, the entry of the whole map."""
        entries = self._edit() if self.contains(key) else None
        if entries is None:
            return
        del entries[key]
        if not entries:
            self._write(None)

    def contains(self, key: object) -> bool:
        entries = self._peek()
        return entries is not None and key in entries

    def items(self) -> Iterator[tuple[object, object]]:
        """All pairs at this time; the map may be changed while they are drawn."""
        entries = self._peek() or {}
        if self._copy is not None and self._is_shared():
            return zip(list(entries), list(map(self._copy, entries.values())), strict=True)
        return iter(list(entries.items()))

    def keys(self) -> Iterator[object]:
        return iter(list(self._peek() or ()))

    def values(self) -> Iterator[object]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        return self._peek() is None

    def clear(self) -> None:
        self._write(None)

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains
    __iter__ = keys


class TableReducingState:
    """A reduced value for each key."""

    def __init__(self, entries: KeyedEntries, reduce: Reduce) -> None:
        self.get = entries.read
        self.read_ahead = entries.prefetch
        self._write = entries.write
        self._fold = entries.fold
        self._reduce = reduce

    def add(self, value: object) -> None:
        reduced = self.get()
        self._write(value if reduced is None else self._reduce(reduced, value))

    def add_rows(
        self,
        keys: Sequence[object],
        key_groups: Sequence[int],
        values: Iterable[object],
        emit: Callable[[object], None],
    ) -> None:
        self._fold(keys, key_groups, values, self._reduce, emit)

    def put_rows(
        self, keys: Sequence[object], key_groups: Sequence[int], values: Iterable[object]
    ) -> None:
        self._fold(keys, key_groups, values, lambda _, new: new, lambda _: None)

    def clear(self) -> None:
        self._write(None)


class TableAggregatingState:
    """An accumulator for each key."""

    def __init__(
        self, entries: KeyedEntries, function: AggregateFunction[Any, Any, Any], name: str
    ) -> None:
        self._name = name
        self.read_ahead = entries.prefetch
        self._read = entries.read
        self._write = entries.write
        self._accumulate = entries.accumulate
        self.accumulators = entries.read_all
        self.clear_rows = entries.remove_all
        self._function = function

    def get(self) -> object:
        accumulator = self._read()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: object) -> None:
        """Adds a value. Raises TypeError if the function returns no accumulator."""
        accumulator = self._read()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        gathered = self._function.add(value, accumulator)
        if gathered is None:
            raise TypeError(
                f"AggregateFunction.add of state '{self._name}' has returned None; it has to return"
                " the accumulator"
            )
        self._write(gathered)

    def add_rows(
        self, keys: Iterable[object], key_groups: Sequence[int], values: Iterable[object]
    ) -> None:
        function = self._function
        self._accumulate(keys, key_groups, values, function.add, function.create_accumulator)

    def put_rows(
        self, keys: Iterable[object], key_groups: Sequence[int], accumulators: Iterable[object]
    ) -> None:
        self._accumulate(keys, key_groups, accumulators, lambda new, _: new, lambda: None)

    def clear(self) -> None:
        self._write(None)
