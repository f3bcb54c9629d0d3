"""Translation of a state of Flink: its kind, its types, and the conversion of each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from flinkformat.handles import StateDistribution
from flinkformat.state import serializers as java
from flinkformat.state.composites import ListSerializer, MapSerializer, TtlSerializer
from flinkformat.state.headers import KEY
from flinkformat.state.values import TtlValue, python_value
from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.migration.pyflink import PREFIX, decode_coder, decode_coders, is_python_state
from tidegate.migration.types import type_of
from tidegate.state.user.kinds import Kind
from tidegate.state.user.operator_state import BROADCAST_KIND, LIST_KIND
from tidegate.typeinfo.types import BOOLEAN, LONG, PICKLED, ListTypeInfo, MapTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.state.entries import FlinkEntry
    from flinkformat.state.headers import FlinkState
    from flinkformat.state.operator_state import FlinkOperatorState
    from flinkformat.state.serializers import FlinkSerializer
    from tidegate.api.state import StateDescriptor
    from tidegate.typeinfo.types import TypeInformation

SOURCE_READER_STATE: Final = "SourceReaderState"
"""Under which sources of Flink keep their splits."""

_UNDECLARED: Final = "the snapshot does not say of what kind and type it is"

Convert = Callable[[Any], Any]


class NotTaken(Exception):
    """A state that has no form here; the text says why."""


@frozen
class Translation:
    """Conversion of a keyed state. convert: its values; raises ValueError or FormatError.

    space: what stands beside the key of an entry, of the type `namespace`; None for nothing.
    """

    name: str
    kind: str
    type_info: TypeInformation | None
    convert: Convert
    namespace: TypeInformation | None = None
    space: Callable[[FlinkEntry], Any] | None = None
    ttl: bool = False


def translation_of(state: FlinkState, declared: Mapping[str, StateDescriptor]) -> Translation:
    """Translation of a state. declared: types of Python states, by the user's name.

    Raises NotTaken.
    """
    namespace = state.value.nested[1] if state.is_timers else state.namespace
    if namespace is not java.VOID_NAMESPACE:
        raise NotTaken(
            "it belongs to windows, which are kept in another way here; let them fire first (stop "
            "with drain), or start them from nothing"
        )
    try:
        if state.is_timers:
            return _timers(state)
        if is_python_state(state):
            return _python_state(state, declared.get(state.name.removeprefix(PREFIX)))
        return _java_state(state)
    except ValueError as error:
        raise NotTaken(str(error)) from error


def _timers(state: FlinkState) -> Translation:
    return Translation(
        state.name, Kind.VALUE.value, BOOLEAN, lambda _: True, LONG, lambda entry: entry.value
    )


def _java_state(state: FlinkState) -> Translation:
    kinds = {kind.name: kind.value for kind in Kind}
    if state.kind not in kinds:
        raise NotTaken(f"there is no state of kind {state.kind} here")
    return Translation(
        state.name,
        kinds[state.kind],
        type_of(state.value),
        python_value,
        ttl=_has_ttl(state.value),
    )


def _python_state(state: FlinkState, descriptor: StateDescriptor | None) -> Translation:
    if descriptor is None:
        raise NotTaken(_UNDECLARED)
    ttl = _has_ttl(state.value)
    is_map = isinstance(state.value, MapSerializer)
    if is_map != isinstance(descriptor, MapStateDescriptor):
        found = "a map" if is_map else "a list or a value"
        raise NotTaken(f"it is {found}, and declared as {type(descriptor).__name__}")
    match descriptor:
        case MapStateDescriptor():
            return _python_map(descriptor, ttl=ttl)
        case ListStateDescriptor():
            return _python_list(descriptor, ttl=ttl)
        case ValueStateDescriptor():
            kind = Kind.VALUE
        case ReducingStateDescriptor():
            kind = Kind.REDUCING
        case AggregatingStateDescriptor():
            kind = Kind.AGGREGATING
        case _:
            raise NotTaken(f"{type(descriptor).__name__} stands for no keyed state")
    element, type_info = _element(descriptor.type_info, ttl=ttl)
    return Translation(
        descriptor.name, kind.value, type_info, lambda v: element(_only(v, kind)), ttl=ttl
    )


def _python_list(descriptor: ListStateDescriptor, *, ttl: bool) -> Translation:
    declared = descriptor.type_info
    _, stored = _element(declared, ttl=ttl)
    of_list = None if stored is None else ListTypeInfo(stored)

    def convert(elements: list[Any]) -> list[Any]:
        if not ttl:
            return [value for each in elements for value in decode_coders(declared, each)]
        return [
            (each.last_access_ms, value)
            for each in elements
            for value in decode_coders(declared, each.value)
        ]

    return Translation(descriptor.name, Kind.LIST.value, of_list, convert, ttl=ttl)


def _python_map(descriptor: MapStateDescriptor, *, ttl: bool) -> Translation:
    keys, values = descriptor.type_info, descriptor.value_type_info
    element, stored = _element(values, ttl=ttl)
    of_map = None
    if keys is not None or stored is not None:
        of_map = MapTypeInfo(keys or PICKLED, stored or PICKLED)

    def convert(entries: dict[bytes, Any]) -> dict[Any, Any]:
        return {decode_coder(keys, key): element(value) for key, value in entries.items()}

    return Translation(descriptor.name, Kind.MAP.value, of_map, convert, ttl=ttl)


def _element(
    declared: TypeInformation | None, *, ttl: bool
) -> tuple[Convert, TypeInformation | None]:
    """Conversion of an element of PyFlink, and its type."""
    if not ttl:
        return lambda data: None if data is None else decode_coder(declared, data), declared

    def convert(element: TtlValue) -> tuple[int, Any]:
        return element.last_access_ms, decode_coder(declared, cast("bytes", element.value))

    return convert, TupleTypeInfo([LONG, declared or PICKLED])


def _only(elements: list[Any], kind: Kind) -> Any:
    if len(elements) != 1:
        raise ValueError(f"a {kind.value} state has one element, and this has {len(elements)}")
    return elements[0]


def operator_translation_of(
    found: FlinkOperatorState, declared: Mapping[str, StateDescriptor]
) -> Translation:
    """Translation of an operator state. Raises NotTaken."""
    state = found.state
    if state.name == SOURCE_READER_STATE:
        raise NotTaken(
            "these are splits of a source of Flink; let the new job's source begin where the "
            "snapshot was taken"
        )
    try:
        if found.mode is not StateDistribution.BROADCAST:
            return Translation(state.name, LIST_KIND, type_of(state.value), python_value)
        if not is_python_state(state):
            of_map = MapTypeInfo(type_of(state.serializers[KEY]), type_of(state.value))
            return Translation(state.name, BROADCAST_KIND, of_map, python_value)
    except ValueError as error:
        raise NotTaken(str(error)) from error
    descriptor = declared.get(state.name.removeprefix(PREFIX))
    if descriptor is None:
        raise NotTaken(_UNDECLARED)
    if not isinstance(descriptor, MapStateDescriptor):
        raise NotTaken(f"it is a broadcast map, and declared as {type(descriptor).__name__}")
    made = _python_map(descriptor, ttl=False)
    of_map = made.type_info or MapTypeInfo(PICKLED, PICKLED)
    return Translation(made.name, BROADCAST_KIND, of_map, made.convert)


def _has_ttl(serializer: FlinkSerializer) -> bool:
    match serializer:
        case ListSerializer(inner) | MapSerializer(_, inner):
            return isinstance(inner, TtlSerializer)
        case _:
            return isinstance(serializer, TtlSerializer)
