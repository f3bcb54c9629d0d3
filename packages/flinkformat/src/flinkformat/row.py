"""`Row`: ordered values with optional names and a kind of change, as in PyFlink."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class RowKind(Enum):
    """Kind of change that a row means for a table; the number is Flink's byte."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return {0: "+I", 1: "-U", 2: "+U", 3: "-D"}[self.value]


class Row:
    """Values in an order, `Row(1, "a")`, or by name, `Row(id=1, name="a")`.

    Read and written by index, slice and name, and as attributes. A row of texts makes rows that
    have them as names: `Person = Row("name", "age")`, `Person("Ann", 11)`. Two rows are equal when
    their values by name, or by position if neither has names, and their kinds are.
    """

    __slots__ = ("_kind", "_names", "_values")

    def __init__(self, *args: object, **kwargs: object) -> None:
        if args and kwargs:
            raise ValueError("A Row has either positional values or named ones, not both.")
        self._values: list[object] = list(kwargs.values()) if kwargs else list(args)
        self._names: tuple[str, ...] | None = tuple(kwargs) if kwargs else None
        self._kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: object, **kwargs: object) -> Row:
        """A row with a kind of change."""
        row = Row(*args, **kwargs)
        row._kind = row_kind
        return row

    @staticmethod
    def of_parts(
        values: Sequence[object], names: tuple[str, ...] | None, row_kind: RowKind | int
    ) -> Row:
        """A row of values, names and kind, as a pickle restores it."""
        row = Row.of_kind(RowKind(row_kind), *values)
        row._names = names
        return row

    @staticmethod
    def named(names: tuple[str, ...], values: list[object]) -> Row:
        """A row that takes these values as its own, one for each name."""
        row = _new(Row)
        _set_values(row, values)
        _set_names(row, names)
        _set_kind(row, RowKind.INSERT)
        return row

    def copy(self, part: Callable[[object], object]) -> Row:
        """A row with the same names and kind, and values copied by ``part``."""
        row = _new(Row)
        _set_values(row, list(map(part, self._values)))
        _set_names(row, self._names)
        _set_kind(row, self._kind)
        return row

    @property
    def names(self) -> tuple[str, ...] | None:
        return self._names

    def as_dict(self, recursive: bool = False) -> dict[str, object]:
        """Values by name. recursive: also those of rows in values, and in lists and dicts in them.

        Raises TypeError if the row has no names.
        """
        if self._names is None:
            raise TypeError("A Row without names can't become a dict; use set_field_names first.")
        values = list(map(_as_plain, self._values)) if recursive else self._values
        return dict(zip(self._names, values, strict=True))

    def get_row_kind(self) -> RowKind:
        """Kind of change, INSERT by default."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Sets the kind of change."""
        self._kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Names the fields, one name a value."""
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} names for a Row of {len(self._values)} values.")
        self._names = tuple(field_names)

    def get_fields_by_names(self, names: Sequence[str]) -> list[object]:
        """Values of these names, in their order."""
        return [self[name] for name in names]

    def __call__(self, *values: object) -> Row:
        """A row of these values, with the texts of this one as names and its kind.

        Fewer values take the first names.
        """
        names = tuple(self._values[: len(values)])
        if len(names) < len(values):
            raise ValueError(f"{len(values)} values for a Row of {len(names)} names.")
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"{self!r} makes no rows: its values are not all texts, for names.")
        return Row.of_parts(values, cast("tuple[str, ...]", names), self._kind)

    @overload
    def _index(self, key: int | str) -> int: ...
    @overload
    def _index(self, key: slice) -> slice: ...
    def _index(self, key: int | str | slice) -> int | slice:
        if isinstance(key, int | slice):
            return key
        if self._names is None or key not in self._names:
            raise KeyError(f"The Row has no field {key!r}; its fields are {self._names}.")
        return self._names.index(key)

    @overload
    def __getitem__(self, key: int | str) -> object: ...
    @overload
    def __getitem__(self, key: slice) -> list[object]: ...
    def __getitem__(self, key: int | str | slice) -> object:
        return self._values[self._index(key)]

    @overload
    def __setitem__(self, key: int | str, value: object) -> None: ...
    @overload
    def __setitem__(self, key: slice, value: Iterable[object]) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice) and self._names is not None:
            value = list(value)
            if len(value) != len(self._values[key]):
                raise ValueError(f"{len(value)} values for {len(self._values[key])} fields.")
        self._values[self._index(key)] = value

    def __getattr__(self, name: str) -> object:
        # Called only for what is no attribute of the class, so a field named `as_dict` is read
        # by index or by name.
        names = object.__getattribute__(self, "_names")
        if names is None or name not in names:
            raise AttributeError(f"The Row has no field {name!r}; its fields are {names}.")
        return self._values[names.index(name)]

    def __setattr__(self, name: str, value: object) -> None:
        if name in Row.__slots__:
            object.__setattr__(self, name, value)
        elif self._names is not None and name in self._names:
            self._values[self._names.index(name)] = value
        else:
            raise AttributeError(f"The Row has no field {name!r}; its fields are {self._names}.")

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[object]:
        return iter(self._values)

    def __contains__(self, item: object) -> bool:
        return item in self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if (self._names is None) != (other._names is None) or self._kind != other._kind:
            return False
        if self._names is None:
            return self._values == other._values
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        if self._names is None:
            return hash(tuple(self._values))
        return hash(frozenset(self.as_dict().items()))

    def __reduce__(self) -> tuple[object, ...]:
        # Python 3.11 makes code of an enum's member: a call of getattr.
        return Row.of_parts, (self._values, self._names, self._kind.value)

    def __repr__(self) -> str:
        if self._names is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        fields = zip(self._names, self._values, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in fields)})"


def _as_plain(value: object) -> object:
    """The value with the rows in it as dicts."""
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return list(map(_as_plain, cast("list[object]", value)))
    if isinstance(value, dict):
        named = cast("dict[object, object]", value)
        return {key: _as_plain(each) for key, each in named.items()}
    return value


# Rows are made one a record: past `Row.__setattr__`, which looks for a field of that name.
_new: Final = object.__new__
_set_values: Final = Row.__dict__["_values"].__set__
_set_names: Final = Row.__dict__["_names"].__set__
_set_kind: Final = Row.__dict__["_kind"].__set__

# Parts of many rows, read by `map` in C; the values are the row's own list.
values_of_row: Final = attrgetter("_values")
names_of_row: Final = attrgetter("_names")
kind_of_row: Final = attrgetter("_kind")
