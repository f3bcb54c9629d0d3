"""State as user functions and operators see it: descriptors, and views of the current key.

Names and meaning are PyFlink's. A descriptor is a plain value; the view that it stands for is made
by ``RuntimeContext.get_state`` and the like, once, in ``open``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from tidegate.typeinfo.hints import declared_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import ArrayLike

    from tidegate.api.functions import AggregateFunction, ReduceFunction
    from tidegate.api.ttl import StateTtlConfig
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A checker takes a descriptor without arguments for one of any values.
    Held = TypeVar("Held", default=Any)
    HeldKey = TypeVar("HeldKey", default=Any)
    In = TypeVar("In", default=Any)
    Out = TypeVar("Out", default=Any)
else:
    from typing import TypeVar

    Held, HeldKey, In, Out = map(TypeVar, ("Held", "HeldKey", "In", "Out"))

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class State(Protocol):
    """Base of all keyed state."""

    def clear(self) -> None:
        """Clears the current key's value."""
        ...


class ValueState(State, Protocol[T]):
    """Keyed state that holds one value."""

    def value(self) -> T | None:
        """The current key's value; None if there is none."""
        ...

    def update(self, value: T | None) -> None:
        """Sets the current key's value; None clears it."""
        ...


class AppendingState(State, Protocol[In_contra, Out_co]):
    """State that values are added to."""

    def get(self) -> Out_co | None:
        """Result of the added values."""
        ...

    def add(self, value: In_contra) -> None:
        """Adds a value for the current key."""
        ...


class MergingState(AppendingState[In_contra, Out_co], Protocol[In_contra, Out_co]):
    """State that can be merged when windows merge."""


class ListState(MergingState[T, "Iterable[T]"], Protocol[T]):
    """Keyed state that holds a list."""

    def get(self) -> Iterable[T]:
        """Elements in the order of adding; empty if there are none."""
        ...

    def __iter__(self) -> Iterator[T]: ...

    def add_all(self, values: Iterable[T]) -> None:
        """Appends several elements."""
        ...

    def update(self, values: Iterable[T]) -> None:
        """Replaces all elements; an empty list clears."""
        ...


class MapState(State, Protocol[K, V]):
    """Keyed state that holds a map."""

    def get(self, key: K) -> V | None:
        """Value of a map key; None if there is none."""
        ...

    def put(self, key: K, value: V) -> None:
        """Sets the value of a map key."""
        ...

    def put_all(self, entries: Iterable[tuple[K, V]] | dict[K, V]) -> None:
        """Sets the values of several map keys."""
        ...

    def remove(self, key: K) -> None:
        """Removes a map key, if it is there."""
        ...

    def contains(self, key: K) -> bool:
        """True if the map key is there."""
        ...

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs of map key and value."""
        ...

    def keys(self) -> Iterator[K]:
        """All map keys of the current key."""
        ...

    def values(self) -> Iterator[V]:
        """All values of the current key's map."""
        ...

    def is_empty(self) -> bool:
        """True if the map has no entries."""
        ...

    def __getitem__(self, key: K) -> V | None: ...

    def __setitem__(self, key: K, value: V) -> None: ...

    def __delitem__(self, key: K) -> None: ...

    def __contains__(self, key: K) -> bool: ...

    def __iter__(self) -> Iterator[K]: ...


class ReducingState(MergingState[T, T], Protocol[T]):
    """One value a key, made of all that was added by a ``ReduceFunction``."""

    def get(self) -> T | None:
        """The reduced value; None if nothing was added."""
        ...

    def add_rows(
        self,
        keys: Sequence[object],
        key_groups: Sequence[int],
        values: Iterable[T],
        emit: Callable[[T], None],
    ) -> None:
        """Adds one value to each of these keys, in order, and emits each result.

        For operators that work on whole batches. What the function raises passes through; rows
        before it have been emitted.
        """
        ...


class AggregatingState(MergingState[In_contra, Out_co], Protocol[In_contra, Out_co]):
    """One accumulator a key, made of all that was added by an ``AggregateFunction``."""

    def get(self) -> Out_co | None:
        """The result; None if nothing was added."""
        ...

    def read_ahead(self, keys: Sequence[object], key_groups: Sequence[int]) -> None:
        """Announces keys that are requested next, so that a backend on disk can read them at once.

        For operators that work on whole batches. keys: with their namespaces, where the state has
        them.
        """
        ...

    def add_rows(
        self,
        keys: Iterable[object],
        key_groups: Sequence[int],
        values: Iterable[In_contra],
    ) -> None:
        """Adds one value to each of these keys, in order.

        For operators that work on whole batches. What the function raises passes through; rows
        before it have been added.
        """
        ...


class OperatorListState(Protocol[T]):
    """A list of each subtask, redistributed over the subtasks on restore."""

    def get(self) -> list[T]:
        """All elements of the subtask."""
        ...

    def add(self, value: T) -> None:
        """Appends one element to the list."""
        ...

    def update(self, values: Iterable[T]) -> None:
        """Replaces all elements of the list."""
        ...

    def clear(self) -> None:
        """Removes all elements of the list."""
        ...


class ReadOnlyBroadcastState(Protocol[K, V_co]):
    """A map that is equal in all subtasks, by contract; only the broadcast side may change it.

    Nobody may change a value that he has read.
    """

    def get(self, key: K) -> V_co | None:
        """Value of a key; None if there is none."""
        ...

    def contains(self, key: K) -> bool:
        """True if the key is in the map."""
        ...

    def items(self) -> Iterator[tuple[K, V_co]]:
        """All pairs, in the order in which keys were first put."""
        ...

    def keys(self) -> Iterator[K]:
        """All keys of the broadcast map."""
        ...

    def values(self) -> Iterator[V_co]:
        """All values of the broadcast map."""
        ...

    def is_empty(self) -> bool:
        """True if the map has no entries."""
        ...

    def __getitem__(self, key: K) -> V_co | None: ...

    def __contains__(self, key: K) -> bool: ...

    def __iter__(self) -> Iterator[K]: ...


class BroadcastState(ReadOnlyBroadcastState[K, V], Protocol[K, V]):
    """Broadcast state that may be changed."""

    def put(self, key: K, value: V) -> None:
        """Sets the value of a key."""
        ...

    def put_all(self, entries: Iterable[tuple[K, V]] | dict[K, V]) -> None:
        """Sets the values of several keys."""
        ...

    def remove(self, key: K) -> None:
        """Removes a key, if it is there."""
        ...

    def clear(self) -> None:
        """Removes all entries of the map."""
        ...

    def read_only(self) -> ReadOnlyBroadcastState[K, V]:
        """A view of the map whose writes raise UserError."""
        ...

    def __setitem__(self, key: K, value: V) -> None: ...

    def __delitem__(self, key: K) -> None: ...


@dataclass(slots=True)
class StateDescriptor:
    """Name and type of a keyed state.

    type_info: None for any picklable value; the descriptors below also take a Python type, such as
    a dataclass, and raise GraphError for what is no type. ttl: how long it lives; None for ever.
    """

    name: str
    type_info: TypeInformation | None = None
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)

    def get_name(self) -> str:
        """Name of the state, unique within its operator."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Lets the state expire; call it before the state is requested."""
        self.ttl = ttl_config


@dataclass(slots=True)
class ValueStateDescriptor(StateDescriptor, Generic[Held]):
    """One value a key: ``ValueStateDescriptor(name, value_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, _declared(value_type_info, name), ttl=ttl)


@dataclass(slots=True)
class ListStateDescriptor(StateDescriptor, Generic[Held]):
    """A list a key: ``ListStateDescriptor(name, elem_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, _declared(elem_type_info, name), ttl=ttl)


@dataclass(slots=True)
class MapStateDescriptor(StateDescriptor, Generic[HeldKey, Held]):
    """A map a key: ``MapStateDescriptor(name, key_type_info, value_type_info)``."""

    value_type_info: TypeInformation | None = None

    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation[HeldKey] | type[HeldKey],
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, _declared(key_type_info, name), ttl=ttl)
        self.value_type_info = _declared(value_type_info, name)


@dataclass(slots=True)
class ReducingStateDescriptor(StateDescriptor, Generic[Held]):
    """One reduced value a key: ``ReducingStateDescriptor(name, reduce_function, type_info)``.

    reduce_function: a ``ReduceFunction`` or a function of two values.
    """

    reduce_function: ReduceFunction[Held] | Callable[[Held, Held], Held] | None = None

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction[Held] | Callable[[Held, Held], Held],
        type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, _declared(type_info, name), ttl=ttl)
        self.reduce_function = reduce_function

    def get_reduce_function(self) -> ReduceFunction[Held] | Callable[[Held, Held], Held] | None:
        """The reduce function of the state."""
        return self.reduce_function


@dataclass(slots=True)
class AggregatingStateDescriptor(StateDescriptor, Generic[In, Out]):
    """One accumulator a key: ``AggregatingStateDescriptor(name, agg_function, state_type_info)``.

    state_type_info: of the accumulator.
    """

    aggregate_function: AggregateFunction[In, Any, Out] | None = None

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction[In, Any, Out],
        state_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, _declared(state_type_info, name), ttl=ttl)
        self.aggregate_function = agg_function

    def get_agg_function(self) -> AggregateFunction[In, Any, Out] | None:
        """The aggregate function of the state."""
        return self.aggregate_function


def _declared(given: TypeHint | None, name: str) -> TypeInformation | None:
    return declared_type(given, where=f"the descriptor of state '{name}'")


class RedistributionMode(Enum):
    """Redistribution of an operator's list state on restore."""

    SPLIT_DISTRIBUTE = "SPLIT_DISTRIBUTE"
    UNION = "UNION"


@dataclass(frozen=True, slots=True, init=False)
class OperatorStateDescriptor(Generic[Held]):
    """Name, type and redistribution of an operator's list state; types as in `StateDescriptor`."""

    name: str
    type_info: TypeInformation | None
    mode: RedistributionMode

    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeInformation[Held] | type[Held],
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "type_info", _declared(type_info, name))
        object.__setattr__(self, "mode", mode)


@dataclass(frozen=True, slots=True)
class ColumnStateDescriptor:
    """A column of values, one a key. default: the value of a key not yet written.

    Numbers, booleans, timestamps, dates and durations are kept as NumPy arrays, and without a
    default they begin at 0. Texts, bytes, decimals, times, lists and structs are kept as Python
    objects, which are replaced and never changed; they begin as None.
    """

    name: str
    type: pa.DataType
    default: object = None


class ColumnState(Protocol):
    """A column with one value a key, addressed by the key's row."""

    def get(self, index: np.ndarray) -> np.ndarray:
        """The values of these rows: a copy, shape (rows,)."""
        ...

    def put(self, index: np.ndarray, values: np.ndarray) -> None:
        """Sets the values of these rows; for a row named twice, the last value counts."""
        ...

    def at(self, ufunc: np.ufunc, index: np.ndarray, values: ArrayLike) -> None:
        """``column[row] = ufunc(column[row], value)`` for each row and value, one after another.

        A row named twice takes both: ``counts.at(np.add, ctx.key_index, 1)`` counts. Two or three
        nanoseconds a row where values are of the column's own type, many more otherwise.
        """
        ...


class KeyedColumns(Protocol):
    """Columnar state over all keys that an operator has seen, which have dense rows."""

    def index(self, keys: pa.Array, key_groups: np.ndarray) -> np.ndarray:
        """Row of each key, int64, shape (rows,); new keys get the next free rows."""
        ...

    def __len__(self) -> int: ...

    def column(self, descriptor: ColumnStateDescriptor) -> ColumnState: ...


class KeyedPane(Protocol):
    """Columns of those keys that were added to one number, such as a slice of time."""

    def add(self, rows: np.ndarray) -> None:
        """Adds rows to the pane; call it before their values are put."""
        ...

    def rows(self) -> np.ndarray:
        """Rows of the pane, ascending."""
        ...

    def column(self, descriptor: ColumnStateDescriptor) -> ColumnState: ...

    def pack(self) -> None:
        """Compacts the pane, which will probably only be read from now on."""
        ...


class KeyedPanes(Protocol):
    """Columnar state by number, a pane for each; a key that is in no pane is forgotten."""

    def index(self, keys: pa.Array, key_groups: np.ndarray) -> np.ndarray:
        """Row of each key, int64, shape (rows,), the same in all panes."""
        ...

    def keys(self, rows: np.ndarray) -> pa.Array:
        """Keys of rows, in the Arrow type of keys of their kind."""
        ...

    def key_groups(self, rows: np.ndarray) -> np.ndarray:
        """Key groups of these rows."""
        ...

    def pane(self, namespace: int) -> KeyedPane:
        """The pane of that number, created on demand."""
        ...

    def namespaces(self) -> list[int]:
        """Numbers of all panes, ascending."""
        ...

    def drop(self, namespaces: Iterable[int]) -> None:
        """Forgets panes; keys may have other rows afterwards."""
        ...

    def temporary(self) -> KeyedPane:
        """A pane that no snapshot holds."""
        ...
