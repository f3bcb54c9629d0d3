"""Columns of keys: the type of a stream's keys, and the one form of equal keys.

A declared column brings each key to its type; one of no declared type takes that of its first key.
Only its numbers may be mixed, since 1, 1.0 and True are one key in Python: they hash by value, the
same in each subtask, whatever came first there. A tuple, a row or an object with fields has a
column for each field.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flinkformat.row import Row, RowKind
from tidegate.errors import UnsupportedKey
from tidegate.typeinfo import hash_columns
from tidegate.typeinfo.key_kinds import (
    NUMBER_TYPES,
    OF_NUMBERS,
    PLAIN,
    Integers,
    Kind,
    Members,
    NoKey,
    Numbers,
    Plain,
)
from tidegate.typeinfo.plain_keys import (
    check_dataclass,
    is_importable,
    is_number,
    plain_key,
    refusal,
    refusal_of_nan,
)
from tidegate.typeinfo.types import (
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INTEGER_BITS,
    LONG,
    PICKLED,
    SQL_TIMESTAMP,
    STRING,
    BasicTypeInfo,
    EnumTypeInfo,
    NumberTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.typeinfo.hash_columns import Codes


class KeyColumn:
    """One column of keys, the whole key or a field of it: its type and its hash.

    declared: None for keys that say themselves what they are. nullable: keys may be None.
    """

    def __init__(
        self, declared: TypeInformation | None, where: str, *, nullable: bool = False
    ) -> None:
        self._where = where
        self._nullable = nullable
        self._kind = None if declared is None else kind_of_type(declared, where)
        self._declared = declared is not None
        self._first: object = None

    @property
    def type_info(self) -> TypeInformation | None:
        """Type of the keys; None until it is declared or seen."""
        return None if self._kind is None else self._kind.type_info

    def type_of(self, of_column: TypeInformation) -> TypeInformation:
        """Type by which to hash a batch whose keys are known to have one type.

        Raises UnsupportedKey for a second type.
        """
        if self._kind is None:
            self._kind = kind_of_type(of_column, self._where)
        mine = self._kind.type_info
        if self._declared and _same_family(mine, of_column):
            return mine
        if mine == of_column or (not self._declared and is_number(mine) and is_number(of_column)):
            return of_column
        raise UnsupportedKey(
            f"The keys of this stream are {mine}, and this column has {of_column}",
            where=self._where,
            remedy="Give all keys of the stream one type, or declare it as key_type.",
        )

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        """Keys in the form that all equal keys share, with their hash codes.

        Raises UnsupportedKey, before anything is done.
        """
        kind = self._kind or self._learn(keys)
        if kind is None:
            return keys, np.zeros(len(keys), np.uint32)
        try:
            if list(map(type, keys)).count(kind.python_type) == len(keys):
                return kind.read(keys)
            return self._read_mixture(keys, kind)
        except NoKey as misfit:
            raise self._refusal(misfit.key, kind) from None

    def _learn(self, keys: Sequence[Any]) -> Kind | None:
        if self._nullable:
            keys = [key for key in keys if key is not None]
        if not keys:
            return None
        self._kind = _kind_of_key(plain_key(keys[0], self._where), self._where)
        self._first = keys[0]
        return self._kind

    def _read_mixture(self, keys: Sequence[Any], kind: Kind) -> tuple[Sequence[Any], Codes]:
        """Reads nulls, allowed in fields only, with hash 0; all other keys must be of one kind."""
        codes = np.zeros(len(keys), np.uint32)
        present = [row for row, key in enumerate(keys) if key is not None]
        if not self._nullable and len(present) < len(keys):
            raise NoKey(None)
        brought = [self._brought(keys[row], kind) for row in present]
        read = kind.read_mixture if isinstance(kind, Numbers) else kind.read
        found, codes[present] = read(brought)
        if len(present) == len(keys):
            return found, codes
        whole: list[Any] = [None] * len(keys)
        for row, key in zip(present, found, strict=True):
            whole[row] = key
        return whole, codes

    def _brought(self, key: Any, kind: Kind) -> Any:
        if type(key) is kind.python_type:
            return key
        plain = plain_key(key, self._where)
        try:
            return plain if type(plain) is kind.python_type else kind.bring(plain)
        except NoKey:
            raise NoKey(key) from None

    def _refusal(self, key: object, kind: Kind) -> UnsupportedKey:
        shown, name = reprlib.repr(key), type(key).__name__
        if key != key:
            return refusal_of_nan(key, self._where)
        if type(key) is int and isinstance(kind, Integers | Numbers):
            bits = kind.bits if isinstance(kind, Integers) else 64
            found = kind.type_info if isinstance(kind, Integers) else LONG
            what = f"The key {key} does not fit {found}, which has {bits} bits"
            remedy = "Use a smaller number, or its text: str(key)."
        elif self._declared:
            what = f"The key {shown} ({name}) is not of the declared type {kind.type_info}"
            remedy = "Declare the type that the key selector returns, or convert the key."
        else:
            before = f"such as {reprlib.repr(self._first)}" if self._first is not None else ""
            what = f"A second type of key in one stream: {shown} ({name}) after {kind.type_info} "
            what = (what + before).rstrip()
            remedy = "Make the key selector return one type for all records, for example str(key)."
        return UnsupportedKey(what, where=self._where, remedy=remedy)


def _same_family(declared: TypeInformation, found: TypeInformation) -> bool:
    if found == LONG:
        return isinstance(declared, BasicTypeInfo) and declared.name in INTEGER_BITS
    if isinstance(found, NumberTypeInfo):
        return declared == found.of or (found.of == DOUBLE and declared == FLOAT)
    return declared == found or (found == STRING and declared == CHAR)


def kind_of_type(declared: TypeInformation, where: str) -> Kind:
    """Kind of a type. Raises UnsupportedKey for one without a stable hash."""
    match declared:
        case BasicTypeInfo(name) if name in INTEGER_BITS:
            return Integers(declared)
        case NumberTypeInfo():
            return Numbers(declared, where)
        case TupleTypeInfo(types):
            return Fields(tuple, (), _columns(types, where), TupleTypeInfo)
        case RowTypeInfo():
            return Rows(declared, _columns(declared.children, where, nullable=False))
        case RecordTypeInfo(python_class=type() as python_class, field_names=names):
            if declared.kind == "dataclass":
                check_dataclass(python_class, where)
            columns = _columns(declared.children, where)
            return Fields(python_class, names, columns, lambda _: declared)
        case EnumTypeInfo(python_class=type()):
            return Members(declared)
        case _ if declared in OF_NUMBERS:
            return OF_NUMBERS[declared](where)
        case _ if declared in PLAIN:
            return Plain(declared, *PLAIN[declared])
        case _:
            raise UnsupportedKey(
                f"{declared} is not a type of keys: its hash is not the same in every process",
                where=where,
                remedy="Key by a text, a number, bytes, a date or time, a UUID, an enumeration, a "
                "frozen dataclass or a tuple of these; lists are keys as tuples.",
            )


def _columns(
    types: Sequence[TypeInformation], where: str, *, nullable: bool = True
) -> list[KeyColumn]:
    return [
        KeyColumn(None if each == PICKLED else each, f"{where}, field {i}", nullable=nullable)
        for i, each in enumerate(types)
    ]


def _kind_of_key(key: Any, where: str) -> Kind:
    python_type = type(key)
    if python_type in NUMBER_TYPES:
        return Numbers(NUMBER_TYPES[python_type], where)
    if isinstance(key, tuple):
        return _kind_of_tuple(cast("tuple[Any, ...]", key), where)
    if isinstance(key, Enum):
        module = _module_of(key, where)
        return Members(EnumTypeInfo(python_type.__qualname__, python_type, module))
    if is_dataclass(key):
        names = tuple(each.name for each in fields(key))
        return _kind_of_record(python_type, "dataclass", names, where, _module_of(key, where))
    for type_info, (twin, _) in PLAIN.items():
        if python_type is twin and type_info != CHAR:
            zoned = getattr(key, "tzinfo", None) is not None
            return kind_of_type(
                INSTANT if zoned and type_info == SQL_TIMESTAMP else type_info, where
            )
    raise AssertionError(f"no kind of key: {python_type}")


def _kind_of_tuple(key: tuple[Any, ...], where: str) -> Kind:
    python_type = type(key)
    if python_type is not tuple and is_importable(python_type):
        names = cast("Any", key)._fields
        return _kind_of_record(python_type, "namedtuple", names, where, python_type.__module__)
    # If the class of named tuples is gone, their state is read as tuples, which equal them.
    return Fields(python_type, (), _columns([PICKLED] * len(key), where), TupleTypeInfo)


def _kind_of_record(
    python_type: type, form: Any, names: tuple[str, ...], where: str, module: str
) -> Kind:
    def as_type(types: tuple[TypeInformation, ...]) -> TypeInformation:
        return RecordTypeInfo(
            python_type.__qualname__, form, names, types, python_class=python_type, module=module
        )

    return Fields(python_type, names, _columns([PICKLED] * len(names), where), as_type)


def _module_of(key: object, where: str) -> str:
    kind = type(key)
    if not is_importable(kind):
        raise refusal(
            key,
            where,
            f"restored state could not find the class {kind.__name__}, which is not part of "
            "an importable module",
            f"Declare it: key_by(…, key_type={kind.__name__}).",
        )
    return kind.__module__


class Fields:
    """Tuples and objects of a class with fields: each field a column of its own.

    A field may hold None. as_type: gives the type from those of the fields.
    """

    def __init__(
        self,
        python_type: type,
        names: tuple[str, ...],
        columns: list[KeyColumn],
        as_type: Callable[[tuple[TypeInformation, ...]], TypeInformation],
    ) -> None:
        self.python_type = python_type
        self._names = names
        self._columns = columns
        self._as_type = as_type
        self._is_tuple = issubclass(python_type, tuple)

    @property
    def type_info(self) -> TypeInformation:
        return self._as_type(tuple(column.type_info or PICKLED for column in self._columns))

    def bring(self, key: Any) -> Any:
        """The equal tuple of this kind, for one with or without names."""
        if not (self._is_tuple and isinstance(key, tuple)):
            raise NoKey(key)
        values = cast("tuple[Any, ...]", key)
        if len(values) != len(self._columns):
            raise NoKey(key)
        return self._made(values)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        count = len(self._columns)
        if self._is_tuple and list(map(len, keys)).count(count) != len(keys):
            raise NoKey(next(key for key in keys if len(key) != count))
        if count == 0 or not keys:
            return keys, np.zeros(len(keys), np.uint32)
        parts = list(zip(*(keys if self._is_tuple else map(self._get, keys)), strict=True))
        read = [column.read(part) for column, part in zip(self._columns, parts, strict=True)]
        if any(now is not then for (now, _), then in zip(read, parts, strict=True)):
            keys = list(map(self._made, zip(*(now for now, _ in read), strict=True)))
        return keys, hash_columns.codes_of_tuples([codes for _, codes in read])

    def _get(self, key: Any) -> tuple[Any, ...]:
        return tuple(getattr(key, name) for name in self._names)

    def _made(self, values: tuple[Any, ...]) -> Any:
        if self.python_type is tuple:
            return tuple(values)
        if self._is_tuple:
            return self.python_type(*values)
        return self.python_type(**dict(zip(self._names, values, strict=True)))


class Rows:
    """Rows of kind INSERT, as PyFlink keys by; no field may be None."""

    python_type = Row

    def __init__(self, type_info: RowTypeInfo, columns: list[KeyColumn]) -> None:
        self.type_info = type_info
        self._columns = columns

    def bring(self, key: Any) -> Any:
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        for key in keys:
            if len(key) != len(self._columns) or key.get_row_kind() is not RowKind.INSERT:
                raise NoKey(key)
        parts = list(zip(*keys, strict=True))
        read = [column.read(part) for column, part in zip(self._columns, parts, strict=True)]
        if any(now is not then for (now, _), then in zip(read, parts, strict=True)):
            rows = zip(*(now for now, _ in read), strict=True)
            keys = [
                Row.of_parts(list(values), key.names, RowKind.INSERT)
                for key, values in zip(keys, rows, strict=True)
            ]
        return keys, hash_columns.codes_of_rows([codes for _, codes in read], len(keys))
