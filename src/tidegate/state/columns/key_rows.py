"""The dense rows of an operator's keys: which row of the columns belongs to which key.

Keys of 64 bits or less go through `LongIndex`; texts and bytes through the dictionary of each
batch, so that each different key of a batch is looked up once.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from tidegate.errors import SerializerIncompatible, UnsupportedKey
from tidegate.typeinfo.arrow_keys import arrow_key_type, key_type_of_column
from tidegate.typeinfo.long_index import LongIndex
from tidegate.typeinfo.types import LONG, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tidegate.typeinfo.long_index import Longs


class KeyRows:
    """The dense rows of one operator's keys."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._groups = np.empty(0, np.int16)
        self._count = 0
        self._index: _Numbers | _Texts | None = None
        self._key_type: TypeInformation | None = None

    @property
    def key_type(self) -> TypeInformation | None:
        """Type of the keys; None until it is declared, restored or seen."""
        return self._key_type

    def declare(self, key_type: TypeInformation) -> None:
        """Declares the type of keys. Raises SerializerIncompatible for a contradiction."""
        if self._key_type is None:
            self._open(key_type)
        elif self._key_type != key_type:
            raise SerializerIncompatible(
                f"The keys of columnar state were {self._key_type} and are now {key_type}",
                where=self._where,
                remedy="Go back to the old type of key; the keys' places depend on it.",
            )

    def __len__(self) -> int:
        return self._count

    def index(self, keys: pa.Array | Longs, key_groups: NDArray[Any]) -> Longs:
        """The row of each key; new keys get the next free rows. keys: Arrow's, or int64."""
        longs = isinstance(keys, np.ndarray)
        found = LONG if longs else key_type_of_column(keys, self._where)
        index = self._index or self._open(found)
        if found != self._key_type and (
            arrow_key_type(found) != arrow_key_type(cast("TypeInformation", self._key_type))
        ):
            kind = "integers" if longs else keys.type
            raise UnsupportedKey(
                f"The keys of this stream are {self._key_type}, and this batch has {kind}",
                where=self._where,
                remedy="Give all keys of the stream one type, the type of the restored state.",
            )
        try:
            rows, positions = index.rows(keys, self._count)
        except pa.ArrowInvalid as error:
            raise UnsupportedKey(
                f"A key such as {_first_misfit(keys, index.arrow)} has no room in {index.arrow}: "
                f"{error}",
                where=self._where,
                remedy="Key by times from 1677 to 2262, by a date, or by the time as a text.",
            ) from error
        if len(positions):
            self._append(key_groups[positions])
        return rows

    def load(self, keys: pa.Array, key_groups: NDArray[Any]) -> Longs:
        """Loads restored keys, which are all new and distinct."""
        assert self._index is not None, "what is restored says what its keys are"
        first = self._count
        self._index.add(keys, first)
        self._append(key_groups)
        return np.arange(first, self._count)

    def retain(self, rows: Longs) -> None:
        """Forgets all keys but those of these ascending rows, which get new numbers."""
        keys, groups = self.stored()
        self._groups, self._count = np.empty(0, np.int16), 0
        self._open(cast("TypeInformation", self._key_type))
        self.load(keys.take(pa.array(rows)), groups.take(rows))

    def stored(self) -> tuple[pa.Array, NDArray[np.int16]]:
        """Keys and key groups of all rows, unaffected by a later `index`."""
        parts, groups = self.parts()
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), groups

    def parts(self) -> tuple[Sequence[pa.Array], NDArray[np.int16]]:
        assert self._index is not None, "there are keys only after the first batch"
        return self._index.parts(self._count), self._groups[: self._count]

    def _append(self, key_groups: NDArray[Any]) -> None:
        end = self._count + len(key_groups)
        self._groups = with_room(self._groups, end)
        self._groups[self._count : end] = key_groups
        self._count = end

    def _open(self, key_type: TypeInformation) -> _Numbers | _Texts:
        arrow = arrow_key_type(key_type)
        self._key_type = key_type
        is_long = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
        self._index = _Texts(arrow) if is_long else _Numbers(arrow)
        return self._index


class _Numbers:
    """Rows of keys of 64 bits or less."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow
        self._index = LongIndex()

    def rows(self, keys: pa.Array | Longs, first: int) -> tuple[Longs, Longs]:
        """Row of each key; for each new key, from row `first` on, its position in `keys`."""
        assert first == len(self._index), "each key has a row"
        return self._index.place(self._numbers(keys))

    def add(self, keys: pa.Array, first: int) -> None:
        """Adds rows, from `first` on, for keys that are all new and distinct."""
        assert first == len(self._index), "each key has a row"
        self._index.add(self._numbers(keys))

    def parts(self, count: int) -> Sequence[pa.Array]:
        """Keys of the first rows, in order, in one or more arrays that don't change."""
        numbers = self._index.keys[:count]
        if pa.types.is_boolean(self.arrow):
            return [pa.array(numbers.astype(np.bool_))]
        narrow = pa.types.is_date32(self.arrow)
        return [pa.array(numbers.astype(np.int32) if narrow else numbers).view(self.arrow)]

    def _numbers(self, keys: pa.Array | Longs) -> Longs:
        if isinstance(keys, np.ndarray):
            return keys
        array = keys if keys.type == self.arrow else _decoded(keys).cast(self.arrow)
        if pa.types.is_boolean(self.arrow) or pa.types.is_date32(self.arrow):
            return array.cast(pa.int32()).to_numpy().astype(np.int64)
        if pa.types.is_floating(self.arrow):
            doubles = array.to_numpy() + 0.0  # a copy, in which -0.0 is 0.0
            doubles[np.isnan(doubles)] = np.nan  # one NaN of many, as in Java
            return doubles.view(np.int64)
        return array.view(pa.int64()).to_numpy()


class _Texts:
    """Rows of keys of any length, through a dictionary for each batch; methods as above."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow
        self._rows: dict[str | bytes, int] = {}
        self._stored: list[pa.Array] = []

    def rows(self, keys: pa.Array, first: int) -> tuple[Longs, Longs]:
        encoded = _decoded(keys).dictionary_encode()
        codes = encoded.indices.to_numpy()
        dictionary = encoded.dictionary.cast(self.arrow)
        texts = dictionary.to_numpy(zero_copy_only=False)
        known = np.fromiter(map(self._rows.get, texts, repeat(-1)), np.int64, len(texts))
        missing = np.flatnonzero(known < 0)
        if not len(missing):
            return known.take(codes), missing
        known[missing] = np.arange(first, first + len(missing))
        self.add(dictionary.take(pa.array(missing)), first)
        seen_at = np.empty(len(texts), np.int64)
        seen_at[codes] = np.arange(len(codes))
        return known.take(codes), seen_at[missing]

    def add(self, keys: pa.Array, first: int) -> None:
        texts = keys.to_numpy(zero_copy_only=False)
        self._rows.update(zip(texts, range(first, first + len(texts)), strict=True))
        self._stored.append(keys)
        while len(self._stored) > 1 and len(self._stored[-2]) <= 2 * len(self._stored[-1]):
            # So that there are few, and each key is moved a few times only.
            self._stored[-2:] = [pa.concat_arrays(self._stored[-2:])]

    def parts(self, count: int) -> Sequence[pa.Array]:
        del count  # keys are added by whole batches only
        return self._stored.copy() or [pa.array([], self.arrow)]


def _first_misfit(keys: pa.Array, arrow: pa.DataType) -> object:
    for key in keys:
        try:
            key.cast(arrow)
        except pa.ArrowInvalid:
            return repr(key.as_py())
    return keys.type


def _decoded(keys: pa.Array) -> pa.Array:
    """The array without a dictionary, which may hold unused or repeated values."""
    return keys.cast(keys.type.value_type) if pa.types.is_dictionary(keys.type) else keys


def with_room(values: NDArray[Any], count: int) -> NDArray[Any]:
    """An array of at least `count` items that starts with these values; the same if long enough."""
    if len(values) >= count:
        return values
    grown = np.empty(max(count, 2 * len(values), 1024), values.dtype)
    grown[: len(values)] = values
    return grown
