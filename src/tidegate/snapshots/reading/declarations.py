"""Declaration of a state that no snapshot has yet, as plain data.

A descriptor holds functions and classes, which only code can carry. Writing needs less: the kind
of the state, and how its entries are written. So it can be told in an option of a data source.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tidegate.errors import ConfigError, FormatError
from tidegate.snapshots.rows import StateForm, StateInfo, StateKind
from tidegate.state.format.headers import StateHeader
from tidegate.state.user import kinds, ttl
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.stand_ins import serializer_standing_in, with_classes
from tidegate.typeinfo.value_columns import has_records

if TYPE_CHECKING:
    from tidegate.api.state import StateDescriptor
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation

_NO_DECLARATION: Final = (
    FormatError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class StateDeclaration:
    """A keyed state. serializer: of what is stored a key, with its times if it expires."""

    name: str
    kind: StateKind
    serializer: SerializerSnapshot
    expires: bool

    @staticmethod
    def of(descriptor: StateDescriptor, *, where: str) -> tuple[StateDeclaration, Serializer]:
        """Declaration and serializer of a descriptor. Raises ConfigError."""
        kind = StateKind(kinds.kind_of(descriptor, where=where).value)
        values = serializer_of(kinds.entry_type(ttl.stored(descriptor)))
        expires = ttl.expires(descriptor)
        return StateDeclaration(descriptor.name, kind, values.snapshot(), expires), values

    def values(self) -> Serializer:
        """Serializer of entries without the classes of the job."""
        return serializer_standing_in(self.serializer)


def form_of(
    declared: StateDeclaration,
    values: Serializer,
    keys: Serializer,
    namespace_type: TypeInformation | None,
) -> StateForm:
    """Layout of the rows of a declared state."""
    beside = None if namespace_type is None else serializer_of(namespace_type).snapshot().to_bytes()
    header = StateHeader(
        declared.name,
        declared.kind.value,
        declared.serializer.to_bytes(),
        beside,
        ttl=declared.expires,
    )
    plain = ttl.without_times(values.type_info) if declared.expires else values.type_info
    info = StateInfo(
        declared.name, declared.kind, keys.type_info, namespace_type, plain, declared.expires
    )
    return StateForm(info, header, keys, values)


@dataclass(frozen=True, slots=True)
class DeclaredTypes:
    """A state with the types beside it; None if they are not declared."""

    state: StateDeclaration
    key_type: TypeInformation | None
    namespace_type: TypeInformation | None

    def to_text(self) -> str:
        """The types as JSON. Raises ConfigError for pickled records, which need a class."""
        state = self.state
        if state.serializer.name == "pickle" and has_records(state.serializer.type_info):
            raise ConfigError(
                f"The state '{state.name}' holds pickled records, which need their class",
                where=f"state '{state.name}'",
                remedy="Declare the types of all their fields, or use SavepointWriter.",
            )
        return json.dumps(
            {
                "kind": state.kind.value,
                "serializer": state.serializer.to_json(),
                "expires": state.expires,
                "key": _described(self.key_type),
                "namespace": _described(self.namespace_type),
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_text(name: str, text: str) -> DeclaredTypes:
        """Parses the JSON. Raises ConfigError for any other text."""
        try:
            found = cast("dict[str, object]", json.loads(text))
            serializer = SerializerSnapshot.from_json(
                cast("dict[str, object]", found["serializer"])
            )
            state = StateDeclaration(
                name, StateKind(found["kind"]), serializer, bool(found["expires"])
            )
            state.values()  # raises for a serializer that cannot write its type
            return DeclaredTypes(state, _type(found["key"]), _type(found["namespace"]))
        except _NO_DECLARATION as error:
            raise ConfigError(
                "The option 'descriptor' declares no state",
                where=f"state '{name}'",
                remedy="Pass the result of state_options(descriptor).",
            ) from error


def _described(type_info: TypeInformation | None) -> object:
    return None if type_info is None else describe(type_info)


def _type(described: object) -> TypeInformation | None:
    return None if described is None else with_classes(type_described(described))
