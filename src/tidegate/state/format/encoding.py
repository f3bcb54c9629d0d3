"""Keys and entries of keyed state as bytes: their serializers, and values that do not fit them.

Asking for a value's type at each write would cost a seventh of it (14 ns of 100), for the outermost
type alone. Encoding looks at the types in any case: values that are as declared become MessagePack,
and only what is left is looked into here. What can become the type, such as a whole number where
DOUBLE is declared, passes and comes back as it was put; so does what is only out of the type's
bounds, such as a timestamp with a zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.rows.batches import shown
from tidegate.api.rows.conversion import field_name, misfit_text
from tidegate.errors import ConfigError, SerializerIncompatible, UserError
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.evolution import reader_for
from tidegate.typeinfo.key_hash import key_type_of
from tidegate.typeinfo.plain_keys import (
    has_numbers,
    in_one_form,
    lacks_class,
    may_be_alike,
    with_key_classes,
    with_numbers,
    with_shared_parts,
)
from tidegate.typeinfo.serializers import (
    PickleSerializer,
    SerializerSnapshot,
    TypedSerializer,
    holds,
    is_packed,
    serializer_of,
)
from tidegate.typeinfo.types import PICKLED, BasicTypeInfo, NumberTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.typeinfo.serializers import Reader, Serializer
    from tidegate.typeinfo.types import TypeInformation

VERSIONS_MAX: Final = 255
"""Types that one state on disk may have had: a byte before each entry says which wrote it."""


class Keys:
    """Serializer of an operator's keys: declared, restored, or that of the first key."""

    def __init__(self, key_type: TypeInformation | None, where: str) -> None:
        self._where = where
        self.declared = key_type is not None and key_type != PICKLED
        self.serializer: Serializer | None = serializer_of(key_type) if self.declared else None
        self._checked = self.declared

    def restore(self, written: bytes) -> None:
        """Takes the serializer from a snapshot. Raises SerializerIncompatible."""
        old = SerializerSnapshot.from_bytes(written)
        if self.serializer is None:
            self.serializer = serializer_of(self._with_classes(old.type_info))
        reader_for(old, self.serializer, where=f"{self._where}, keys", key=True)

    def _with_classes(self, type_info: TypeInformation) -> TypeInformation:
        found = with_key_classes(type_info)
        if lacks_class(found):
            raise SerializerIncompatible(
                f"The keys of the state are {found}, of a class that is not found by its name",
                where=self._where,
                remedy="Declare the class, as in key_by(…, key_type=Color).",
            )
        return found

    def of(self, key: object) -> Serializer:
        """The serializer; told from this key where it is not known yet, else held against it.

        Raises SerializerIncompatible as `check` does.
        """
        if self.serializer is None:
            self.serializer = serializer_of(key_type_of(key, where=self._where))
        elif not self._checked:
            self.check(key)
        self._checked = True
        return self.serializer

    def check(self, key: object) -> None:
        """Undeclared keys show only now whether they are those of the restored state.

        Raises SerializerIncompatible if this one is of another type.
        """
        assert self.serializer is not None, "what was restored has told the type of its keys"
        held, found = self.serializer.type_info, key_type_of(key, where=self._where)
        if not may_be_alike(held, found):
            raise SerializerIncompatible(
                f"The keys of the state are {held} and those of the stream are {found}",
                where=self._where,
                remedy=_remedy(held, found),
            )


def _remedy(held: TypeInformation, found: TypeInformation) -> str:
    if isinstance(held, BasicTypeInfo) and found == NumberTypeInfo(held):
        return f"Declare the keys, as in key_by(…, key_type=Types.{held.name.upper()}())."
    return "Go back to the old key; the place of a key depends on its type."


def paired(keys: Serializer, namespace: TypeInformation | None) -> Serializer:
    """Serializer of keys with namespaces; of keys alone without namespaces."""
    if namespace is None:
        return keys
    return serializer_of(TupleTypeInfo([keys.type_info, namespace]))


def encoded(serializer: Serializer, values: Sequence[object], where: str) -> bytes:
    """Encodes values as one piece. Raises UserError on failure. where: operator and state."""
    try:
        return serializer.encode_many(values)
    except UserError as error:
        raise UserError(error.what, where=where, remedy=error.remedy) from error


def encoded_keys(serializer: Serializer, keys: Sequence[object], where: str) -> bytes:
    """Encodes keys as one piece; undeclared equal keys may come in several forms."""
    key_type = serializer.type_info
    if key_type.children and not holds(serializer, keys):
        numbers = serializer_of(with_numbers(key_type))
        keys = [in_one_form(key, numbers.type_info) for key in keys]
        serializer = numbers if holds(numbers, keys) else PickleSerializer(key_type)
    return encoded(serializer, keys, where)


def encoded_as_declared(
    serializer: Serializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None = None,
) -> bytes:
    """Encodes values as one piece; raises UserError for a value of another type.

    key: gives the key that a value is under, by its index.
    """
    data = encoded(serializer, values, where)
    if isinstance(serializer, TypedSerializer) and not is_packed(data):
        _check(serializer, values, where, key)
    return data


def each_encoded_as_declared(
    serializer: Serializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None = None,
) -> list[bytes]:
    """Encodes each value as a piece of its own; raises as `encoded_as_declared`."""
    try:
        pieces = serializer.encode_each(values)
    except UserError as error:
        raise UserError(error.what, where=where, remedy=error.remedy) from error
    if isinstance(serializer, TypedSerializer) and not all(map(is_packed, pieces)):
        _check(serializer, values, where, key)
    return pieces


def _check(
    serializer: TypedSerializer,
    values: Sequence[object],
    where: str,
    key: Callable[[int], object] | None,
) -> None:
    converter = Converter(serializer.type_info)
    for index, value in enumerate(values):
        try:
            converter.batch([value])
        except Misfit as misfit:
            if misfit.reason:
                continue
            field = f", field '{field_name(misfit.path)}'" if misfit.path else ""
            under = "" if key is None else f", key {shown(key(index))}"
            raise UserError(
                "The state holds a value that is not of its declared type, "
                f"{serializer.type_info}{field}: "
                f"{misfit_text(misfit)}",
                where=f"{where}{under}, at the entry {shown(value)}",
                remedy="Put values of the declared type, or declare the type that you put.",
            ) from None


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
