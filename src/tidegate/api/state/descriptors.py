"""Descriptors of state: its name, its type and how long it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, overload

from tidegate.typeinfo.hints import declared_type

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tidegate.api.state.ttl import StateTtlConfig
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

    # A checker takes a descriptor without arguments for one of any values.
    Held = TypeVar("Held", default=Any)
    HeldKey = TypeVar("HeldKey", default=Any)
else:
    from typing import TypeVar

    Held, HeldKey = map(TypeVar, ("Held", "HeldKey"))


@dataclass(slots=True)
class StateDescriptor:
    """Name and type of a keyed state.

    type_info: None for any picklable value; the descriptors below also take a Python type, such as
    a dataclass, and raise GraphError for what is no type. ttl: how long it lives; None for ever.
    """

    name: str
    type_info: TypeInformation | None = None
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)

    def get_name(self) -> str:
        """Name of the state, unique within its operator."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Lets the state expire; call it before the state is requested."""
        self.ttl = ttl_config


@dataclass(slots=True)
class ValueStateDescriptor(StateDescriptor, Generic[Held]):
    """One value a key: ``ValueStateDescriptor(name, value_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(value_type_info, name), ttl=ttl)


@dataclass(slots=True)
class ListStateDescriptor(StateDescriptor, Generic[Held]):
    """A list a key: ``ListStateDescriptor(name, elem_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(elem_type_info, name), ttl=ttl)


@dataclass(slots=True)
class MapStateDescriptor(StateDescriptor, Generic[HeldKey, Held]):
    """A map a key: ``MapStateDescriptor(name, key_type_info, value_type_info)``."""

    value_type_info: TypeInformation | None = None

    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation[HeldKey] | type[HeldKey],
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(key_type_info, name), ttl=ttl)
        self.value_type_info = declared(value_type_info, name)


def declared(given: TypeHint | None, name: str) -> TypeInformation | None:
    """The type that a descriptor is given. Raises GraphError for what is no type."""
    return declared_type(given, where=f"the descriptor of state '{name}'")


class RedistributionMode(Enum):
    """Redistribution of an operator's list state on restore."""

    SPLIT_DISTRIBUTE = "SPLIT_DISTRIBUTE"
    UNION = "UNION"


@dataclass(frozen=True, slots=True, init=False)
class OperatorStateDescriptor(Generic[Held]):
    """Name, type and redistribution of an operator's list state; types as in `StateDescriptor`."""

    name: str
    type_info: TypeInformation | None
    mode: RedistributionMode

    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeInformation[Held] | type[Held],
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "type_info", declared(type_info, name))
        object.__setattr__(self, "mode", mode)
