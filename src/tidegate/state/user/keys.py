"""Shared by all keyed states of an operator: the type of keys, and registration of names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import SerializerIncompatible
from tidegate.typeinfo.evolution import reader_for
from tidegate.typeinfo.key_hash import key_type_of
from tidegate.typeinfo.plain_keys import lacks_class, may_be_alike, with_key_classes
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import PICKLED, BasicTypeInfo, NumberTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation


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
