"""Keys and entries as bytes on disk.

Each entry begins with a byte that says which of the state's serializers wrote it, so that a state
whose type has changed is read as it was written and migrates as it is written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import ConfigError, UserError
from tidegate.state.format.misfits import each_encoded_as_declared
from tidegate.state.user.keys import paired
from tidegate.typeinfo.convert import Converter
from tidegate.typeinfo.plain_keys import (
    has_numbers,
    in_one_form,
    with_numbers,
    with_shared_parts,
)
from tidegate.typeinfo.serializers import TypedSerializer, holds, is_packed, serializer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.state.user.keys import Keys
    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation

VERSIONS_MAX: Final = 255


class StoredKeys:
    """The keys of one state; with a namespace, pairs of both. paired: whether they are.

    Raises ConfigError for a namespace of no declared type: equal ones may be pickled differently.
    """

    def __init__(self, keys: Keys, namespace: TypeInformation | None, where: str) -> None:
        self.paired = namespace is not None
        self._keys = keys
        self._namespace = namespace
        self._serializer: Serializer | None = None
        self._mixed: Serializer | None = None
        self._has_parts = False
        if namespace is not None and not isinstance(serializer_of(namespace), TypedSerializer):
            raise ConfigError(
                f"The namespace of the state is {namespace}, whose bytes are not the same each "
                "time, so RocksDB can't find it again",
                where=where,
                remedy="Give the windows a type (WindowAssigner.window_type), or use the state "
                "backend hashmap.",
            )

    def encode_each(self, keys: Sequence[object]) -> list[bytes]:
        """Bytes of each key, the same for equal keys."""
        if not keys:
            return []
        serializer = self._of(keys[0])
        if self._mixed is not None and set(map(type, self._own(keys))) != {int}:
            serializer = self._mixed
            keys = [in_one_form(key, serializer.type_info) for key in keys]
        if not self._has_parts:
            return serializer.encode_each(keys)
        if len(keys) == 1 or holds(serializer, keys):
            pieces = serializer.encode_each(keys)
            if all(map(is_packed, pieces)):
                return pieces
        return [_encoded_alike(serializer, key) for key in keys]

    def _own(self, keys: Sequence[object]) -> Sequence[object]:
        return [each[0] for each in cast("Any", keys)] if self.paired else keys

    def decode_each(self, pieces: Sequence[bytes]) -> list[Any]:
        if self._serializer is None:
            assert self._keys.serializer is not None, "what was written has told its type"
            self._serializer = paired(self._keys.serializer, self._namespace)
        return self._serializer.decode_each(pieces)

    def _of(self, key: object) -> Serializer:
        serializer = self._serializer
        if serializer is None:
            own = self._keys.of(self._own([key])[0])
            self._has_parts = bool(own.type_info.children)
            serializer = self._serializer = paired(own, self._namespace)
            mixed = with_numbers(own.type_info)
            if not self._keys.declared and has_numbers(mixed):
                # Undeclared numbers that are equal may be of several types.
                self._mixed = paired(serializer_of(mixed), self._namespace)
        return serializer


def _encoded_alike(serializer: Serializer, key: object) -> bytes:
    """A key as a piece that is the same for equal ones, also where it has to be pickled.

    A pickle refers back to what it has held before, so equal parts have to be one object.
    """
    own = with_shared_parts(in_one_form(key, serializer.type_info), {})
    return serializer.encode_each([own])[0]


class StoredMapKeys:
    """Keys of maps whose entries are stored one by one."""

    def __init__(self, key_type: TypeInformation, where: str) -> None:
        self._serializer = serializer_of(key_type)
        self._convert = Converter(key_type).batch
        self._where = f"{where}, map keys"
        self.decode_each = self._serializer.decode_each

    def encode_each(self, keys: Sequence[object]) -> list[bytes]:
        """Bytes of each map key, the same for equal ones. Raises UserError."""
        pieces = each_encoded_as_declared(self._serializer, keys, self._where)
        if not all(map(is_packed, pieces)):
            # What only equals a value of the type, such as a number of NumPy.
            pieces = self._serializer.encode_each(self._convert(list(keys)))
            if not all(map(is_packed, pieces)):
                raise UserError(
                    f"A map has keys that are out of the bounds of {self._serializer.type_info}",
                    where=self._where,
                    remedy="Declare the type that they are of.",
                )
        return pieces


class StoredValues:
    """Entries of one state. readers: by version; the last one is written now."""

    def __init__(self, serializer: Serializer, readers: Sequence[Reader], where: str) -> None:
        assert len(readers) <= VERSIONS_MAX, "a byte says which version it is"
        self._serializer = serializer
        self._readers = readers
        self._newest = len(readers) - 1
        self._tag = bytes([self._newest])
        self._where = where

    def encode_each(
        self, values: Sequence[object], key: Callable[[int], object] | None = None
    ) -> list[bytes]:
        """The bytes of each entry. key: gives the key that an entry is under, by its index.

        Raises UserError for one that can't be written, or is not of the declared type.
        """
        tag, of = self._tag, self._serializer
        return [tag + piece for piece in each_encoded_as_declared(of, values, self._where, key)]

    def decode_each(self, pieces: Sequence[bytes]) -> list[Any]:
        newest = self._newest
        if all(piece[0] == newest for piece in pieces):
            return self._readers[newest].decode_each([piece[1:] for piece in pieces])
        return [self._readers[piece[0]].decode_each((piece[1:],))[0] for piece in pieces]
