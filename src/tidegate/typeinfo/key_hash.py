"""Key groups of a stream's keys, the same in every process and the same as Flink's.

A key's Python type has a twin in Java whose hash code decides: str is String, int is Long, float is
Double, tuple is Tuple; bytes hash as an array's content does, dates and times as `java.time`.
Everything goes through NumPy, column by column; measured in benchmarks/key_hash.py. All keys of one
stream have one type, since `1`, `1.0` and `True` are equal in Python and not in Java.
"""

from __future__ import annotations

import datetime
import reprlib
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from tidegate.errors import UnsupportedKey
from tidegate.model import java_hash
from tidegate.model.key_groups import check_parallelism
from tidegate.typeinfo import hash_columns
from tidegate.typeinfo.row import Row, RowKind
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INTEGER_BITS,
    LONG,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    BasicTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tidegate.typeinfo.hash_columns import Codes

_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)


class KeyHasher:
    """Gives the keys of one stream their key groups, batch by batch, and holds them to one type.

    key_type: None, or a pickled type, for keys that say themselves what they are. where: what
    errors name as the place, such as the operator's name.
    Raises UnsupportedKey at once for a declared type without a stable hash.
    """

    def __init__(
        self, key_type: TypeInformation | None, max_parallelism: int, *, where: str = "key_by"
    ) -> None:
        check_parallelism(1, max_parallelism)
        self._max_parallelism = max_parallelism
        self._where = where
        self._column = _Column(None if key_type == PICKLED else key_type, where)

    @property
    def key_type(self) -> TypeInformation | None:
        """The type of the stream's keys; None as long as it is neither declared nor seen."""
        return self._column.type_info

    def key_groups(self, keys: Sequence[object]) -> NDArray[np.int16]:
        """Key group of each key. Shape (keys,), each in [0, max_parallelism).

        Raises UnsupportedKey, before anything is done, for a key without a stable hash and for a
        key of a second type. A refused batch leaves the stream's type as it was or as its first
        key had it.
        """
        if not keys:
            return np.empty(0, np.int16)
        return hash_columns.key_groups_of_codes(self._column.codes(keys), self._max_parallelism)

    def key_groups_of_column(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.int16]:
        """Key group of each key of an Arrow column; the same as `key_groups` of its values.

        Integers of any width are Long unless declared. Raises UnsupportedKey for nulls, for a type
        without a stable hash, and for a second type.
        """
        # Only a caller that has Arrow comes here: rows alone do not pay for importing it.
        from tidegate.typeinfo.arrow_keys import codes_of_column, key_type_of_column

        self._column.expect(key_type_of_column(column, self._where))
        codes = codes_of_column(column, cast("TypeInformation", self.key_type), self._where)
        return hash_columns.key_groups_of_codes(codes, self._max_parallelism)


def key_type_of(key: object, *, where: str = "key") -> TypeInformation:
    """The type of an undeclared key; raises UnsupportedKey for one without a stable hash."""
    column = _Column(None, where)
    column.codes([key])
    assert column.type_info is not None, "a key that was hashed has a type"
    return column.type_info


def may_be_alike(one: TypeInformation, other: TypeInformation) -> bool:
    """Whether two types of keys may be the same: of a field that was None nothing is known."""
    if isinstance(one, TupleTypeInfo) and isinstance(other, TupleTypeInfo):
        fields = len(one.children) == len(other.children)
        return fields and all(map(may_be_alike, one.children, other.children))
    return one == other or PICKLED in (one, other)


def subtasks_of(
    key_groups: NDArray[np.int16], parallelism: int, max_parallelism: int
) -> NDArray[np.int32]:
    """The subtask that holds each key group; `model.key_groups.subtask_of_key_group` for each."""
    return key_groups.astype(np.int32) * parallelism // max_parallelism


class _Misfit(Exception):
    def __init__(self, key: object) -> None:
        self.key = key


class _Kind(Protocol):
    @property
    def type_info(self) -> TypeInformation: ...
    @property
    def python_type(self) -> type: ...
    def codes(self, keys: Sequence[Any]) -> Codes: ...


class _Column:
    """One column of keys, the whole key or a field of it: what it is and how it hashes."""

    def __init__(
        self, declared: TypeInformation | None, where: str, *, nullable: bool = False
    ) -> None:
        self._where = where
        self._nullable = nullable
        self._kind = None if declared is None else _kind_of_type(declared, where)
        self._declared = declared is not None
        self._first: object = None

    @property
    def type_info(self) -> TypeInformation | None:
        return None if self._kind is None else self._kind.type_info

    def expect(self, of_column: TypeInformation) -> None:
        """Takes a batch whose type is known as a whole."""
        if self._kind is None:
            self._kind = _kind_of_type(of_column, self._where)
        mine = self._kind.type_info
        if mine != of_column and not (self._declared and _same_family(mine, of_column)):
            raise UnsupportedKey(
                f"The keys of this stream are {mine}, and this column has {of_column}",
                where=self._where,
                remedy="Give all keys of the stream one type, or declare it as key_type.",
            )

    def codes(self, keys: Sequence[object]) -> Codes:
        kind = self._kind or self._learn(keys)
        if kind is None:
            return np.zeros(len(keys), np.uint32)
        if list(map(type, keys)).count(kind.python_type) != len(keys):
            return self._codes_of_mixture(keys, kind)
        try:
            return kind.codes(keys)
        except _Misfit as misfit:
            raise self._refusal(misfit.key, kind) from None

    def _learn(self, keys: Sequence[object]) -> _Kind | None:
        if self._nullable:
            keys = [key for key in keys if key is not None]
        if not keys:
            return None
        self._kind = _kind_of_key(keys[0], self._where)
        self._first = keys[0]
        return self._kind

    def _codes_of_mixture(self, keys: Sequence[object], kind: _Kind) -> Codes:
        """Nulls, which only a field of a tuple may be, hash to 0; all else is a second type."""
        for key in keys:
            if type(key) is not kind.python_type and not (key is None and self._nullable):
                raise self._refusal(key, kind)
        present = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        codes = np.zeros(len(keys), np.uint32)
        if present.any():
            codes[present] = self.codes([key for key in keys if key is not None])
        return codes

    def _refusal(self, key: object, kind: _Kind) -> UnsupportedKey:
        shown, name = reprlib.repr(key), type(key).__name__
        if type(key) is int and isinstance(kind, _Integers):
            what = f"The key {key} does not fit {kind.type_info}, which has {kind.bits} bits"
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
    return (found == DOUBLE and declared == FLOAT) or (found == STRING and declared == CHAR)


class _Plain:
    """Keys of one Python type, hashed by one function of the whole column."""

    def __init__(
        self, type_info: TypeInformation, python_type: type, codes: Callable[[list[Any]], Codes]
    ) -> None:
        self.type_info = type_info
        self.python_type = python_type
        self._codes = codes

    def codes(self, keys: Sequence[Any]) -> Codes:
        return self._codes(cast("list[Any]", keys))


class _Integers:
    """Integers of a width; only Long's hash folds, the narrower ones are their own."""

    python_type = int

    def __init__(self, type_info: BasicTypeInfo) -> None:
        self.type_info = type_info
        self.bits = INTEGER_BITS[type_info.name]

    def codes(self, keys: Sequence[Any]) -> Codes:
        try:
            numbers = np.fromiter(keys, np.int64, len(keys))
        except OverflowError:
            raise _Misfit(next(k for k in keys if not -(2**63) <= k < 2**63)) from None
        if self.bits == 64:
            return hash_columns.codes_of_longs(numbers)
        bound = 1 << (self.bits - 1)
        if len(numbers) and (numbers.min() < -bound or numbers.max() >= bound):
            raise _Misfit(next(k for k in keys if not -bound <= k < bound))
        return hash_columns.codes_of_ints(numbers)


class _Fields:
    """Tuples, named or not: each field a column of its own, which may hold None."""

    def __init__(self, python_type: type, fields: list[_Column]) -> None:
        self.python_type = python_type
        self._fields = fields

    @property
    def type_info(self) -> TypeInformation:
        return TupleTypeInfo([field.type_info or PICKLED for field in self._fields])

    def codes(self, keys: Sequence[Any]) -> Codes:
        count = len(self._fields)
        if list(map(len, keys)).count(count) != len(keys):
            raise _Misfit(next(key for key in keys if len(key) != count))
        if count == 0:
            return np.zeros(len(keys), np.uint32)
        columns = zip(*keys, strict=True)
        return hash_columns.codes_of_tuples(
            [field.codes(column) for field, column in zip(self._fields, columns, strict=True)]
        )


class _Rows:
    """Rows of kind INSERT, as PyFlink keys by; no field may be None."""

    python_type = Row

    def __init__(self, type_info: RowTypeInfo, fields: list[_Column]) -> None:
        self.type_info = type_info
        self._fields = fields

    def codes(self, keys: Sequence[Any]) -> Codes:
        for key in keys:
            if len(key) != len(self._fields) or key.get_row_kind() is not RowKind.INSERT:
                raise _Misfit(key)
        columns = zip(*keys, strict=True)
        codes = [field.codes(column) for field, column in zip(self._fields, columns, strict=True)]
        return hash_columns.codes_of_rows(codes, len(keys))


def _kind_of_type(declared: TypeInformation, where: str) -> _Kind:
    match declared:
        case BasicTypeInfo(name) if name in INTEGER_BITS:
            return _Integers(declared)
        case TupleTypeInfo():
            return _Fields(tuple, _columns(declared.children, where, nullable=True))
        case RowTypeInfo():
            return _Rows(declared, _columns(declared.children, where, nullable=False))
        case RecordTypeInfo(kind="namedtuple", python_class=type() as python_class):
            return _Fields(python_class, _columns(declared.children, where, nullable=True))
        case _ if declared in _PLAIN:
            return _Plain(declared, *_PLAIN[declared])
        case _:
            raise UnsupportedKey(
                f"{declared} is no type of key: its hash is not the same in every process",
                where=where,
                remedy="Key by a text, a number, bytes, a date or a tuple of these.",
            )


def _columns(types: Sequence[TypeInformation], where: str, *, nullable: bool) -> list[_Column]:
    return [
        _Column(None if each == PICKLED else each, f"{where}, field {i}", nullable=nullable)
        for i, each in enumerate(types)
    ]


def _kind_of_key(key: object, where: str) -> _Kind:
    python_type = type(key)
    if isinstance(key, tuple) and (python_type is tuple or hasattr(key, "_fields")):
        return _Fields(python_type, _columns([PICKLED] * len(key), where, nullable=True))
    for type_info, (twin, _) in _PLAIN.items():
        if python_type is twin and type_info not in (FLOAT, CHAR):
            zoned = getattr(key, "tzinfo", None) is not None
            return _kind_of_type(
                INSTANT if zoned and type_info == SQL_TIMESTAMP else type_info, where
            )
    if python_type is int:
        return _Integers(LONG)
    raise UnsupportedKey(
        f"{reprlib.repr(key)} ({python_type.__module__}.{python_type.__qualname__}) can't be a key:"
        " its hash is not the same in every process",
        where=where,
        remedy="Key by str, bool, int, float, bytes, date, time, datetime or a tuple of these;"
        " for example int(key) or str(key).",
    )


def _codes_of_strings(keys: list[str]) -> Codes:
    if len(keys) <= hash_columns.SMALL_BATCH:
        return np.array(list(map(java_hash.hash_string, keys)), np.int32).view(np.uint32)
    return hash_columns.codes_of_strings(keys)


def _codes_of_booleans(keys: list[bool]) -> Codes:
    return hash_columns.codes_of_booleans(np.fromiter(keys, np.bool_, len(keys)))


def _codes_of_doubles(keys: list[float]) -> Codes:
    return hash_columns.codes_of_doubles(np.fromiter(keys, np.float64, len(keys)))


def _codes_of_floats(keys: list[float]) -> Codes:
    return hash_columns.codes_of_floats(np.fromiter(keys, np.float64, len(keys)).astype(np.float32))


def _codes_of_dates(keys: list[datetime.date]) -> Codes:
    return hash_columns.codes_of_days(_days(keys))


def _codes_of_times(keys: list[datetime.time]) -> Codes:
    _refuse_zones(keys)
    return hash_columns.codes_of_longs(_nanos_of_day(keys))


def _codes_of_timestamps(keys: list[datetime.datetime]) -> Codes:
    _refuse_zones(keys)
    return hash_columns.codes_of_local_instants(_days(keys), _nanos_of_day(keys))


def _codes_of_instants(keys: list[datetime.datetime]) -> Codes:
    for key in keys:
        if key.utcoffset() is None:
            raise _Misfit(key)
    since = [key - _EPOCH for key in keys]
    seconds = np.fromiter((each // _SECOND for each in since), np.int64, len(keys))
    nanos = np.fromiter((each.microseconds * 1000 for each in since), np.int64, len(keys))
    return hash_columns.codes_of_instants(seconds, nanos)


def _refuse_zones(keys: Sequence[datetime.time | datetime.datetime]) -> None:
    for key in keys:
        if key.tzinfo is not None:
            raise _Misfit(key)


def _days(keys: Sequence[datetime.date]) -> NDArray[np.int64]:
    return np.fromiter((key.toordinal() for key in keys), np.int64, len(keys)) - _EPOCH_DAY


def _nanos_of_day(keys: Sequence[datetime.time | datetime.datetime]) -> NDArray[np.int64]:
    micros = (
        ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
        for key in keys
    )
    return np.fromiter(micros, np.int64, len(keys)) * 1000


_PLAIN: Final[dict[TypeInformation, tuple[type, Callable[[list[Any]], Codes]]]] = {
    STRING: (str, _codes_of_strings),
    CHAR: (str, _codes_of_strings),
    BOOLEAN: (bool, _codes_of_booleans),
    DOUBLE: (float, _codes_of_doubles),
    FLOAT: (float, _codes_of_floats),
    BYTES: (bytes, hash_columns.codes_of_bytes),
    SQL_DATE: (datetime.date, _codes_of_dates),
    SQL_TIME: (datetime.time, _codes_of_times),
    SQL_TIMESTAMP: (datetime.datetime, _codes_of_timestamps),
    INSTANT: (datetime.datetime, _codes_of_instants),
}
