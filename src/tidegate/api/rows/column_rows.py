"""Rows whose fields are columns: rows are made on demand, once."""

from __future__ import annotations

import inspect
from functools import cache, partial
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from flinkformat.row import Row, RowKind, kind_of_row, names_of_row, values_of_row
from tidegate.loops.copies import is_plain_dataclass
from tidegate.loops.forms import INTERPRETED, loaded_loops
from tidegate.loops.rows import nothing_of
from tidegate.model.elements import RowBatch
from tidegate.model.nullable import Nullable, kind_of, strung
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    INT,
    INTEGER_BITS,
    LONG,
    SHORT,
    STRING,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tidegate.loops.forms import Loops
    from tidegate.model.nullable import FieldValues
    from tidegate.typeinfo.types import TypeInformation


NARROW: Final[dict[TypeInformation, int]] = {
    of: 2 ** (INTEGER_BITS[of.name] - 1) for of in (BYTE, SHORT, INT)
}
"""Types of whole numbers of fewer than 64 bits, with the first number that is too large."""

_LOOKED_AT: Final = 256
"""Rows in which the type of a field is looked for that is None in those before."""


@cache
def _kinds() -> dict[object, np.dtype[Any]]:
    """NumPy's types of columns by the types of their values, ours and Python's."""
    import numpy as np

    long, double, boolean = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
    text = np.dtype(np.object_)
    by_type = {LONG: long, DOUBLE: double, BOOLEAN: boolean, STRING: text}
    return {**by_type, int: long, float: double, bool: boolean, str: text}


@frozen
class RowForm:
    """The form of all rows of a batch: plain values, tuples, dicts, or objects of a class.

    names: of the fields of dicts and objects, in their order; empty for others. record: the class
    of the objects; None for dicts and others. It is a class of named tuples where is_tuple, else
    `Row`, or a dataclass whose instances are what their attributes are; one can be made without a
    call of it.
    """

    is_tuple: bool = False
    names: tuple[str, ...] = ()
    record: type | None = None

    @property
    def few(self) -> int:
        """Up to so many fields cost less to take apart and put together than half of their pickle.

        Only half of all rows are pickled, for the others stay in their process. Compiled, a field
        costs some 25 ns, and what it saves is 5 to 15 ns and a row's part, which for an object is
        the name of its class and each of its attributes (benchmarks/record_path.py).
        """
        if self.record is not None:
            return 10
        return 2 if self.names else 3

    @property
    def is_mutable(self) -> bool:
        """True if who has a row can change it."""
        return bool(self.names) and not self.is_tuple

    def rows(self, fields: list[list[Any]]) -> list[Any]:
        """A row for each place in the fields."""
        if self.is_tuple:
            plain = zip(*fields, strict=True)
            made = plain if self.record is None else map(partial(tuple.__new__, self.record), plain)
            return list(made)
        if self.record is Row:
            return list(map(partial(Row.named, self.names), map(list, zip(*fields, strict=True))))
        if self.record is not None:
            return loaded_loops().records_of(self.record, self.names, fields)
        if self.names:
            return loaded_loops().dicts_of(self.names, fields)
        return fields[0]

    def fields(
        self, rows: list[Any], kinds: list[type], loops: Loops
    ) -> Sequence[tuple[Sequence[Any], list[int]]] | None:
        """The fields of the rows, each with the rows where it is None.

        None unless all rows are of this form, and what is there is of these types exactly.
        """
        if self.is_tuple and loops.fields_of_tuples is not None:
            return loops.fields_of_tuples(rows, self.record or tuple, kinds)
        if self.record is Row:
            return _fields_of_rows(rows, self.names, kinds)
        if self.record is not None:
            take = loops.fields_of_records
            return None if take is None else take(rows, self.record, self.names, kinds)
        if self.names:
            take = loops.fields_of_dicts
            return None if take is None else take(rows, self.names, kinds)
        if not self.is_tuple:
            return _fields([rows], kinds)
        return _fields_of(rows, kinds) if set(map(type, rows)) == {tuple} else None


def _fields_of_rows(
    rows: list[Any], names: tuple[str, ...], kinds: list[type]
) -> Sequence[tuple[Sequence[Any], list[int]]] | None:
    """The fields of rows with these names that mean no change; None if one is another."""
    if list(map(type, rows)).count(Row) < len(rows):
        return None
    # Most names and kinds are one object throughout, which a count sees first.
    own = list(map(names_of_row, rows)).count(names) == len(rows)
    inserts = list(map(kind_of_row, rows)).count(RowKind.INSERT) == len(rows)
    return _fields_of(list(map(values_of_row, rows)), kinds) if own and inserts else None


def _fields_of(
    values: list[Any], kinds: list[type]
) -> Sequence[tuple[Sequence[Any], list[int]]] | None:
    """The fields of the values, which are tuples or lists; None if one is of another length."""
    try:
        return _fields(list(zip(*values, strict=True)), kinds)
    except ValueError:
        return None


def _fields(
    fields: Sequence[Sequence[Any]], kinds: list[type]
) -> Sequence[tuple[Sequence[Any], list[int]]] | None:
    found = [_field(field, kind) for field, kind in zip(fields, kinds, strict=True)]
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(found) else None


def _field(field: Sequence[Any], kind: type) -> tuple[Sequence[Any], list[int]] | None:
    """A field as compiled loops give it; None if a value is of another type."""
    rest = len(field) - list(map(type, field)).count(kind)
    if not rest:
        return field, []
    nulls = [row for row, value in enumerate(field) if value is None]
    if len(nulls) < rest:
        return None
    nothing = nothing_of(kind)
    return [nothing if value is None else value for value in field], nulls


VALUE: Final = RowForm()
TUPLE: Final = RowForm(is_tuple=True)


def form_of(row: Any) -> tuple[RowForm, tuple[Any, ...]]:
    """The form of a row, with its fields; what cannot be taken apart is a plain value."""
    kind = type(row)
    if kind is tuple:
        return TUPLE, row
    if kind is dict and all(type(name) is str for name in row):
        return RowForm(names=tuple(row)), tuple(row.values())
    if issubclass(kind, tuple) and is_plain_namedtuple(kind):
        return RowForm(is_tuple=True, names=cast("Any", kind)._fields, record=kind), row
    if kind is Row and row.names and row.get_row_kind() is RowKind.INSERT:
        return RowForm(names=row.names, record=Row), tuple(row)
    if is_plain_dataclass(kind) and is_transparent(kind, vars(row)):
        return RowForm(names=tuple(vars(row)), record=kind), tuple(vars(row).values())
    return VALUE, (row,)


def is_plain_namedtuple(kind: Any) -> bool:
    """True if an instance is what its fields are, as the class was made with these names."""
    names = getattr(kind, "_fields", ())
    return (
        kind.__bases__ == (tuple,)
        # The generated one, in a module of its own.
        and getattr(kind.__new__, "__module__", "") == f"namedtuple_{kind.__name__}"
        and kind.__dictoffset__ == 0
        and kind.__getitem__ is tuple.__getitem__
        and kind.__iter__ is tuple.__iter__
        and kind.__getattribute__ is tuple.__getattribute__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and type(kind) is type
        and not hasattr(kind, "__del__")
        and all(type(kind.__dict__.get(name)).__name__ == "_tuplegetter" for name in names)
    )


def is_transparent(kind: Any, names: Sequence[str] | dict[str, Any]) -> bool:
    """True if reading one of these attributes of an instance gives what its dict holds."""
    return (
        kind.__getattribute__ is object.__getattribute__
        # Instances of a metaclass's own making might be anything.
        and type(kind) is type
        and not hasattr(kind, "__del__")
        and not any(_is_computed(kind, name) for name in names)
    )


def _is_computed(kind: type, name: str) -> bool:
    found = inspect.getattr_static(kind, name, None)
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


class ColumnRows(RowBatch):
    """A batch of rows as columns, which whoever asks for ``values`` sees as rows.

    columns: one a field, each of shape (rows,): int64, float64, bool, or texts as objects, each
    exactly a `str`; Nullable where a row has None. A key that is no field stands behind them, and
    no key is None. form: how rows are made of fields. stamps: event times, int64 of shape (rows,),
    or None. key_column: position of the column that is the key; None where rows have no keys.
    groups: their key groups, int16 of shape (rows,). width: number of fields; None if each column
    is one.
    """

    __slots__ = ("_made", "columns", "form", "groups", "key_column", "stamps", "width")

    def __init__(
        self,
        columns: Sequence[FieldValues],
        *,
        form: RowForm,
        stamps: NDArray[np.int64] | None = None,
        key_column: int | None = None,
        groups: NDArray[np.int16] | None = None,
        width: int | None = None,
    ) -> None:
        self.columns = tuple(columns)
        self.width = len(columns) if width is None else width
        assert self.width == (len(form.names) or (self.width if form.is_tuple else 1)) > 0, (
            "a name for each field, and one field for a plain value"
        )
        assert (key_column is None) == (groups is None), "keys come with their key groups"
        self.form = form
        self.stamps = stamps
        self.key_column = key_column
        self.groups = groups
        self._made: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def fields(self) -> tuple[object, ...]:
        """Kinds of the fields as `fields_of_type` gives them."""
        return (self.form, *map(kind_of, self.columns[: self.width]))

    @property
    def shape(self) -> tuple[object, ...]:
        """Batches of one shape can be joined."""
        kinds = tuple(map(kind_of, self.columns))
        return kinds, self.form, self.stamps is None, self.key_column, self.width

    @property
    def values(self) -> list[object]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if "values" not in self._made:
            # A key is the very object that stands in its row.
            key = self.keys
            fields = [
                key if key is not None and index == self.key_column else each.tolist()
                for index, each in enumerate(self.columns[: self.width])
            ]
            self._made["values"] = self.form.rows(fields)
        return self._made["values"]

    @property
    def timestamps_ms(self) -> list[int] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.stamps is None else self._list("stamps", self.stamps)

    @property
    def keys(self) -> list[object] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.key_column is None:
            return None
        return cast("list[object]", self._list("keys", self.key_values))

    @property
    def key_values(self) -> NDArray[Any]:
        """The column that is the key of each row."""
        assert self.key_column is not None, "a keyed edge gives keys"
        key = self.columns[self.key_column]
        assert not isinstance(key, Nullable), "no key is None"
        return key

    @property
    def has_nulls(self) -> bool:
        """True if a field of a row may be None."""
        return any(isinstance(each, Nullable) for each in self.columns[: self.width])

    @property
    def key_groups(self) -> list[int] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.groups is None else self._list("groups", self.groups)

    def _list(self, name: str, column: NDArray[Any]) -> list[Any]:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = column.tolist()
        return made

    def column(self, name: str) -> FieldValues | None:
        """The column that ``row[name]``, or ``row.name`` of an object, reads; None without one."""
        form = self.form
        read_otherwise = not form.is_tuple and hasattr(form.record, "__getitem__")
        if name not in form.names or (read_otherwise and form.record is not Row):
            return None
        return self.columns[form.names.index(name)]

    def keyed(self, key: int | NDArray[Any], groups: NDArray[np.int16]) -> ColumnRows:
        """Gives the same rows keys. key: position of the field that is the key, or a column."""
        columns = self.columns[: self.width]
        if not isinstance(key, int):
            columns, key = (*columns, key), self.width
        return ColumnRows(
            columns,
            form=self.form,
            stamps=self.stamps,
            key_column=key,
            groups=groups,
            width=self.width,
        )

    def stamped(self, stamps: NDArray[np.int64] | None) -> ColumnRows:
        """Gives the same rows, without keys, these event times."""
        return ColumnRows(self.columns[: self.width], form=self.form, stamps=stamps)

    def formed(self, form: RowForm) -> ColumnRows:
        """Rows of another form, of as many fields."""
        return ColumnRows(
            self.columns,
            form=form,
            stamps=self.stamps,
            key_column=self.key_column,
            groups=self.groups,
            width=self.width,
        )

    def piece(self, start: int, stop: int) -> ColumnRows:
        """Rows start (inclusive) to stop (exclusive), without copying."""
        return self._each(lambda column: column[start:stop])

    def every(self, first: int, step: int) -> ColumnRows:
        """Every so many rows from one on, without copying."""
        return self._each(lambda column: column[first::step])

    def take(self, positions: NDArray[np.intp]) -> ColumnRows:
        """The rows at these positions, in that order."""
        return self._each(lambda column: column.take(positions))

    def _each(self, part: Any) -> ColumnRows:
        return ColumnRows(
            [part(each) for each in self.columns],
            form=self.form,
            stamps=None if self.stamps is None else part(self.stamps),
            key_column=self.key_column,
            groups=None if self.groups is None else part(self.groups),
            width=self.width,
        )


def fields_of_type(
    type_info: TypeInformation, *, narrow: bool = False
) -> tuple[object, ...] | None:
    """Kinds of the columns whose rows are of this type as they are; None if none are.

    narrow: fields may be whole numbers of fewer than 64 bits too, which columns may exceed.
    """
    form, types = VALUE, (type_info,)
    if isinstance(type_info, TupleTypeInfo):
        form, types = TUPLE, type_info.children
    elif isinstance(type_info, RowTypeInfo):
        form, types = RowForm(names=type_info.field_names, record=Row), type_info.children
    elif isinstance(type_info, RecordTypeInfo):
        if type_info.python_class is None:
            return None
        is_tuple = type_info.kind == "namedtuple"
        form = RowForm(is_tuple, type_info.field_names, type_info.python_class)
        types = type_info.children
    kinds = [_kinds().get(LONG if narrow and each in NARROW else each) for each in types]
    # A NumPy type equals None where that stands for float64, so `in` would not do.
    return (form, *kinds) if kinds and all(kind is not None for kind in kinds) else None


def as_columns(
    rows: RowBatch, loops: Loops = INTERPRETED, *, if_few: bool = False
) -> ColumnRows | None:
    """The rows as columns, without keys; None unless all are of one form and of the same types.

    if_few: None too where that costs more than rows do that are columns for a while and not read.
    """
    import numpy as np

    form, first = form_of(rows.values[0])
    kinds = _types(rows.values, form, first)
    if not kinds or not _kinds().keys() >= set(kinds):
        return None
    if if_few and (len(kinds) > form.few or loops.fields_of_tuples is None):
        return None
    fields = form.fields(rows.values, kinds, loops)
    if fields is None:
        return None
    stamps = rows.timestamps_ms
    try:
        columns = [
            _column(np.fromiter(field, _kinds()[kind], len(field)), nulls)
            for (field, nulls), kind in zip(fields, kinds, strict=True)
        ]
        made = None if stamps is None else np.fromiter(stamps, np.int64, len(stamps))
    except (OverflowError, TypeError):
        return None  # a number of more than 64 bits, or a row without a time
    return ColumnRows(columns, form=form, stamps=made)


def _column(values: NDArray[Any], nulls: list[int]) -> FieldValues:
    if not nulls:
        return values
    import numpy as np

    mask = np.zeros(len(values), np.bool_)
    mask[nulls] = True
    return Nullable(values, mask)


def _types(rows: list[Any], form: RowForm, first: tuple[Any, ...]) -> list[type]:
    """Types of the fields by the first rows where they are not None."""
    kinds: list[type] = list(map(type, first))
    for row in islice(rows, 1, _LOOKED_AT):
        if NoneType not in kinds:
            break
        own, fields = form_of(row)
        if own == form and len(fields) == len(kinds):
            pairs = zip(kinds, fields, strict=True)
            kinds = [type(field) if kind is NoneType else kind for kind, field in pairs]
    return kinds


def joined(parts: Sequence[ColumnRows]) -> ColumnRows:
    """The rows of batches of one shape, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    import numpy as np

    assert all(each.shape == first.shape for each in parts), "only batches of one shape are joined"
    stamps = [each.stamps for each in parts if each.stamps is not None]
    groups = [each.groups for each in parts if each.groups is not None]
    return ColumnRows(
        [strung(fields) for fields in zip(*(each.columns for each in parts), strict=True)],
        form=first.form,
        stamps=np.concatenate(stamps) if stamps else None,
        key_column=first.key_column,
        groups=np.concatenate(groups) if groups else None,
        width=first.width,
    )
