"""Kinds of keys: how keys of one type hash, and the one form that equal ones have.

A key's Python type has a twin in Java whose hash code decides: str is String, int is Long, tuple is
Tuple; bytes hash as an array's content does, dates and times as `java.time`. Everything goes
through NumPy, column by column; measured in benchmarks/key_hash.py.
"""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from flinkformat import java_hash
from tidegate.typeinfo import hash_columns
from tidegate.typeinfo.plain_keys import (
    code_of_decimal,
    code_of_number,
    plain_decimal,
    plain_key,
)
from tidegate.typeinfo.types import (
    BIG_DEC,
    BOOLEAN,
    BYTES,
    CHAR,
    DOUBLE,
    DURATION,
    FLOAT,
    INSTANT,
    INTEGER_BITS,
    LONG,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    UUID,
    UUID_CLASS,
    BasicTypeInfo,
    EnumTypeInfo,
    NumberTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tidegate.typeinfo.hash_columns import Codes

_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)
NUMBER_TYPES: Final[dict[type, TypeInformation]] = {
    int: LONG,
    float: NumberTypeInfo(DOUBLE),
    bool: NumberTypeInfo(BOOLEAN),
    decimal.Decimal: NumberTypeInfo(BIG_DEC),
}


class NoKey(Exception):
    """A key that is not of this kind."""

    def __init__(self, key: object) -> None:
        self.key = key


class Kind(Protocol):
    """One type of keys. Methods raise NoKey for a key of another type."""

    @property
    def type_info(self) -> TypeInformation: ...
    @property
    def python_type(self) -> type: ...

    def bring(self, key: Any) -> Any:
        """A key of another Python type as the equal key of this kind."""
        ...

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        """Keys in the form that all equal keys share, with their hash codes."""
        ...


class Plain:
    """Keys of one Python type, hashed by one function of the whole column."""

    def __init__(
        self, type_info: TypeInformation, python_type: type, codes: Callable[[list[Any]], Codes]
    ) -> None:
        self.type_info = type_info
        self.python_type = python_type
        self._codes = codes

    def bring(self, key: Any) -> Any:
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        return keys, self._codes(cast("list[Any]", keys))


class Integers:
    """Integers of a declared width; only Long's hash folds its bits."""

    python_type = int

    def __init__(self, type_info: BasicTypeInfo) -> None:
        self.type_info = type_info
        self.bits = INTEGER_BITS[type_info.name]

    def bring(self, key: Any) -> int:
        if type(key) in NUMBER_TYPES and _is_whole(key):
            return int(key)
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        numbers = _longs(keys)
        if self.bits == 64:
            return keys, hash_columns.codes_of_longs(numbers)
        bound = 1 << (self.bits - 1)
        if len(numbers) and (numbers.min() < -bound or numbers.max() >= bound):
            raise NoKey(next(k for k in keys if not -bound <= k < bound))
        return keys, hash_columns.codes_of_ints(numbers)


def _longs(keys: Sequence[Any]) -> NDArray[np.int64]:
    try:
        return np.fromiter(keys, np.int64, len(keys))
    except OverflowError:
        raise NoKey(next(k for k in keys if not -(2**63) <= k < 2**63)) from None


def _is_whole(key: float | decimal.Decimal) -> bool:
    # int() of an infinity, or of a NaN, is an error.
    if isinstance(key, float):
        return key.is_integer()
    return not isinstance(key, decimal.Decimal) or (
        key.is_finite() and key == key.to_integral_value()
    )


class Booleans:
    """Truth values of a declared type, and the numbers 0 and 1."""

    type_info = BOOLEAN
    python_type = bool

    def bring(self, key: Any) -> bool:
        if type(key) in NUMBER_TYPES and key in (0, 1):
            return bool(key)
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        return keys, hash_columns.codes_of_booleans(np.fromiter(keys, np.bool_, len(keys)))


class Doubles:
    """Floats of a declared width. Both zeros are 0.0, which is equal to -0.0."""

    python_type = float

    def __init__(self, type_info: TypeInformation) -> None:
        self.type_info = type_info

    def bring(self, key: Any) -> float:
        try:
            double = float(key) if type(key) in NUMBER_TYPES else None
        except OverflowError:
            double = None
        if double is None or double != key:
            raise NoKey(key)
        return double

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        keys, numbers = _without_two_zeros(keys)
        if self.type_info == FLOAT:
            return keys, hash_columns.codes_of_floats(numbers.astype(np.float32))
        return keys, hash_columns.codes_of_doubles(numbers)


def _without_two_zeros(keys: Sequence[Any]) -> tuple[Sequence[Any], NDArray[np.float64]]:
    numbers = np.fromiter(keys, np.float64, len(keys))
    if np.isnan(numbers).any():
        raise NoKey(next(key for key in keys if key != key))
    if (np.signbit(numbers) & (numbers == 0)).any():
        return [key or 0.0 for key in keys], numbers + 0.0
    return keys, numbers


class Decimals:
    """Decimals of a declared type."""

    type_info = BIG_DEC
    python_type = decimal.Decimal

    def __init__(self, where: str) -> None:
        self._where = where

    def bring(self, key: Any) -> decimal.Decimal:
        if type(key) in NUMBER_TYPES and key == key:
            return decimal.Decimal(key)
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        plain = [plain_decimal(key, self._where) for key in keys]
        infinite = [key for key in plain if not key.is_finite()]
        if infinite:
            raise NoKey(infinite[0])
        return plain, _codes(map(code_of_decimal, plain), len(plain))


class Numbers:
    """Numbers of all sorts, whose type is not declared: they hash by value.

    type_info: of the first one, or the one in which a snapshot has them.
    """

    def __init__(self, type_info: TypeInformation, where: str) -> None:
        self.type_info = type_info
        self.python_type = next(each for each, found in NUMBER_TYPES.items() if found == type_info)
        self._where = where

    def bring(self, key: Any) -> Any:
        if type(key) in NUMBER_TYPES:
            return key
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        if self.python_type in (int, bool):
            return keys, hash_columns.codes_of_longs(_longs(keys))
        if self.python_type is float:
            keys, numbers = _without_two_zeros(keys)
            return keys, hash_columns.codes_of_numbers(numbers)
        return self.read_mixture(keys)

    def read_mixture(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        """Keys and hash codes for numbers of several Python types."""
        plain = [self._in_one_form(key) for key in keys]
        return plain, _codes(map(code_of_number, plain), len(plain))

    def _in_one_form(self, key: Any) -> Any:
        if type(key) is decimal.Decimal:
            return plain_decimal(key, self._where)
        if key != key or (isinstance(key, int) and not -(2**63) <= key < 2**63):
            raise NoKey(key)
        return key or key + 0  # -0.0 becomes 0.0


def _codes(codes: Any, count: int) -> Codes:
    return np.fromiter(codes, np.int64, count).astype(np.uint32)


class Members:
    """Members of one enumeration, which hash as their names do."""

    def __init__(self, type_info: EnumTypeInfo) -> None:
        assert type_info.python_class is not None, "a class was found for it"
        self.type_info = type_info
        self.python_type: Any = type_info.python_class

    def bring(self, key: Any) -> Any:
        """The member of a StrEnum or IntEnum that equals a text or number."""
        found = next((each for each in self._members() if each == key), None)
        if found is None:
            raise NoKey(key)
        return found

    def _members(self) -> list[Any]:
        return [] if self.python_type is str else list(self.python_type)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        names = keys if self.python_type is str else [key.name for key in keys]
        return keys, _codes_of_strings(cast("list[str]", names))


def _codes_of_strings(keys: list[str]) -> Codes:
    if len(keys) <= hash_columns.SMALL_BATCH:
        return np.array(list(map(java_hash.hash_string, keys)), np.int32).view(np.uint32)
    return hash_columns.codes_of_strings(keys)


def _codes_of_dates(keys: list[datetime.date]) -> Codes:
    return hash_columns.codes_of_days(_days(keys))


def _codes_of_times(keys: list[datetime.time]) -> Codes:
    _refuse_zones(keys)
    return hash_columns.codes_of_longs(_nanos_of_day(keys))


def _codes_of_timestamps(keys: list[datetime.datetime]) -> Codes:
    _refuse_zones(keys)
    return hash_columns.codes_of_local_instants(_days(keys), _nanos_of_day(keys))


def _codes_of_uuids(keys: list[Any]) -> Codes:
    return _codes((java_hash.hash_uuid(key.int) for key in keys), len(keys))


def _codes_of_durations(keys: list[datetime.timedelta]) -> Codes:
    # `Duration.hashCode` is that of an Instant of the same seconds and nanoseconds.
    seconds = np.fromiter((key.days * 86_400 + key.seconds for key in keys), np.int64, len(keys))
    nanos = np.fromiter((key.microseconds * 1000 for key in keys), np.int64, len(keys))
    return hash_columns.codes_of_instants(seconds, nanos)


class Instants:
    """Times with a zone, all of them in UTC."""

    type_info = INSTANT
    python_type = datetime.datetime

    def __init__(self, where: str) -> None:
        self._where = where

    def bring(self, key: Any) -> Any:
        raise NoKey(key)

    def read(self, keys: Sequence[Any]) -> tuple[Sequence[Any], Codes]:
        for key in keys:
            if key.utcoffset() is None:
                raise NoKey(key)
        if any(key.tzinfo is not datetime.UTC for key in keys):
            keys = [plain_key(key, self._where) for key in keys]
        since = [key - _EPOCH for key in keys]
        seconds = np.fromiter((each // _SECOND for each in since), np.int64, len(keys))
        nanos = np.fromiter((each.microseconds * 1000 for each in since), np.int64, len(keys))
        return keys, hash_columns.codes_of_instants(seconds, nanos)


def _refuse_zones(keys: Sequence[datetime.time | datetime.datetime]) -> None:
    for key in keys:
        if key.tzinfo is not None:
            raise NoKey(key)


def _days(keys: Sequence[datetime.date]) -> NDArray[np.int64]:
    return np.fromiter((key.toordinal() for key in keys), np.int64, len(keys)) - _EPOCH_DAY


def _nanos_of_day(keys: Sequence[datetime.time | datetime.datetime]) -> NDArray[np.int64]:
    micros = (
        ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
        for key in keys
    )
    return np.fromiter(micros, np.int64, len(keys)) * 1000


PLAIN: Final[dict[TypeInformation, tuple[type, Callable[[list[Any]], Codes]]]] = {
    STRING: (str, _codes_of_strings),
    CHAR: (str, _codes_of_strings),
    BYTES: (bytes, hash_columns.codes_of_bytes),
    SQL_DATE: (datetime.date, _codes_of_dates),
    SQL_TIME: (datetime.time, _codes_of_times),
    SQL_TIMESTAMP: (datetime.datetime, _codes_of_timestamps),
    DURATION: (datetime.timedelta, _codes_of_durations),
    UUID: (UUID_CLASS, _codes_of_uuids),
}
OF_NUMBERS: Final[dict[TypeInformation, Callable[[str], Kind]]] = {
    BOOLEAN: lambda where: Booleans(),
    DOUBLE: lambda where: Doubles(DOUBLE),
    FLOAT: lambda where: Doubles(FLOAT),
    BIG_DEC: Decimals,
    INSTANT: Instants,
}
