"""Keyed states as an operator asks for them by name, whatever backend holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError, SerializerIncompatible
from tidegate.state.format.blocks import StateHeader
from tidegate.state.user import kinds, ttl
from tidegate.typeinfo.evolution import reader_for
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.state import State, StateDescriptor
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation


@frozen
class Asked:
    """A keyed state as the program describes it.

    namespace: type of what is beside the key; None for the key alone. entries: writes entries as
    they are stored. header: what a snapshot says of them. where: names the state in errors.
    """

    descriptor: StateDescriptor
    namespace: TypeInformation | None
    entries: Serializer
    header: StateHeader
    where: str

    def check_restored(self, kind: str, namespace: bytes | None) -> None:
        """Hold a restored state against this: its kind, and the snapshot of its namespace's type.

        Raises SerializerIncompatible.
        """
        was, becomes = _shown(kind, namespace), _shown(self.header.kind, self.namespace)
        if was != becomes:
            raise SerializerIncompatible(
                f"The state was of kind {was} and is now {becomes}",
                where=self.where,
                remedy="Go back to the old kind, or give the state a new name.",
            )
        if namespace is not None and self.namespace is not None:
            old, now = SerializerSnapshot.from_bytes(namespace), serializer_of(self.namespace)
            reader_for(old, now, where=f"{self.where}, namespaces", key=True)


class StatesByName:
    """The keyed states that an operator has asked for; ``make`` is called once for each name.

    where: names the operator in errors. make: gives what user functions get.
    """

    def __init__(self, where: str, make: Callable[[Asked], State]) -> None:
        self._where = where
        self._make = make
        self._asked: dict[str, tuple[Asked, State]] = {}

    def state(self, descriptor: StateDescriptor, namespace: TypeInformation | None = None) -> State:
        """The state of that name, with what was restored of it. namespace: its type, if any.

        Raises SerializerIncompatible where that does not fit, ConfigError where the name is in use
        for another kind of state.
        """
        before = self._asked.get(descriptor.name)
        if before is not None:
            asked, state = before
            if _what_counts(asked.descriptor, asked.namespace) != _what_counts(
                descriptor, namespace
            ):
                raise ConfigError(
                    f"The state '{descriptor.name}' is asked for as {descriptor} and before as "
                    f"{asked.descriptor}",
                    where=self._where,
                    remedy="Use one descriptor, or two names.",
                )
            return state
        kind = kinds.kind_of(descriptor, where=self._where)
        entries = serializer_of(kinds.entry_type(ttl.stored(descriptor)))
        spaces = None if namespace is None else serializer_of(namespace).snapshot().to_bytes()
        written, expires = entries.snapshot().to_bytes(), ttl.expires(descriptor)
        header = StateHeader(descriptor.name, kind.value, written, spaces, ttl=expires)
        where = f"{self._where}, state '{descriptor.name}'"
        asked = Asked(descriptor, namespace, entries, header, where)
        state = self._make(asked)
        self._asked[descriptor.name] = asked, state
        return state


def _what_counts(descriptor: StateDescriptor, namespace: TypeInformation | None) -> object:
    return type(descriptor), kinds.entry_type(descriptor), descriptor.ttl, namespace


def _shown(kind: str, namespace: object) -> str:
    return kind if namespace is None else f"{kind} with a namespace"
