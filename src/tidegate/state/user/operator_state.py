"""Operator state: lists that belong to a subtask, and maps that are the same in all subtasks.

A snapshot copies the elements in its quick part and encodes them later. Each element of a list has
an offset of its own in the stream, so that a restore with another parallelism can deal them out; a
broadcast map is one element.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NoReturn

from flinkformat.frozen import frozen
from flinkformat.handles import OperatorStreamStateHandle, StateDistribution, StateMetaInfo
from tidegate.api.state import RedistributionMode
from tidegate.errors import ConfigError, RestoreRefused, UserError
from tidegate.state.format.blocks import (
    OperatorHeader,
    StateHeader,
    element,
    element_bytes,
    header_bytes,
    operator_header,
    reading,
)
from tidegate.state.format.encoding import encoded_as_declared
from tidegate.typeinfo.copies import private_copy
from tidegate.typeinfo.evolution import reader_for
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import PICKLED, MapTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flinkformat.handles import OperatorStateHandle
    from tidegate.api.state import MapStateDescriptor, OperatorStateDescriptor
    from tidegate.model.ids import CheckpointId
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place
    from tidegate.storage.reading import StateReads
    from tidegate.typeinfo.serializers import Serializer

LIST_KIND = "operator list"
BROADCAST_KIND = "broadcast"


class SubtaskListState:
    """A list for the subtask; implements ``api.state.OperatorListState``."""

    def __init__(self, elements: list[object]) -> None:
        self._elements = elements

    def get(self) -> list[object]:
        return self._elements.copy()

    def add(self, value: object) -> None:
        self._elements.append(value)

    def update(self, values: Iterable[object]) -> None:
        self._elements = list(values)

    def clear(self) -> None:
        self._elements = []


class SubtaskBroadcastState:
    """A map that is the same in all subtasks; implements ``api.state.BroadcastState``.

    where: names operator and state in errors.
    """

    def __init__(self, entries: dict[object, object], where: str) -> None:
        self._entries = entries
        self.where = where

    def get(self, key: object) -> object:
        return self._entries.get(key)

    def put(self, key: object, value: object) -> None:
        self._entries[key] = value

    def put_all(self, dict_value: Iterable[tuple[object, object]] | dict[object, object]) -> None:
        self._entries.update(dict_value)

    def remove(self, key: object) -> None:
        self._entries.pop(key, None)

    def contains(self, key: object) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[object, object]]:
        return iter(list(self._entries.items()))

    def keys(self) -> Iterator[object]:
        return iter(list(self._entries))

    def values(self) -> Iterator[object]:
        return iter(list(self._entries.values()))

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def read_only(self) -> ReadBroadcastState:
        return ReadBroadcastState(self)

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains
    __iter__ = keys


class ReadBroadcastState:
    """A read-only broadcast map; implements ``api.state.ReadOnlyBroadcastState``."""

    def __init__(self, state: SubtaskBroadcastState) -> None:
        self.get = state.get
        self.contains = state.contains
        self.items = state.items
        self.keys = state.keys
        self.values = state.values
        self.is_empty = state.is_empty
        self._where = state.where

    def put(self, *_: object) -> NoReturn:
        """Raises UserError, like every other write."""
        raise UserError(
            "Broadcast state was written in a place where it is read-only",
            where=f"{self._where}, on the side of the stream that is not broadcast",
            remedy="Write it in process_broadcast_element only: there every subtask does the same.",
        )

    put_all = remove = clear = __setitem__ = __delitem__ = put

    def __getitem__(self, key: object) -> object:
        return self.get(key)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[object]:
        return self.keys()


@frozen
class _Registered:
    descriptor: OperatorStateDescriptor | MapStateDescriptor
    mode: StateDistribution
    state: SubtaskListState | SubtaskBroadcastState
    serializer: Serializer
    header: StateHeader

    def elements(self) -> list[object]:
        """Elements for a snapshot."""
        if isinstance(self.state, SubtaskBroadcastState):
            return [dict(self.state.items())]
        return self.state.get()


@frozen
class _Restored:
    header: StateHeader
    mode: StateDistribution
    elements: list[bytes] = field(default_factory=list[bytes])


class OperatorStates:
    """All operator state of one subtask of one operator."""

    def __init__(self, scope: StateScope) -> None:
        self._scope = scope
        self._where = scope.where
        # The first subtask keeps for all what nobody asks for of union state.
        self._first = 0 in scope.key_groups
        self._states: dict[str, _Registered] = {}
        self._restored: dict[str, list[_Restored]] = {}

    def list_state(self, descriptor: OperatorStateDescriptor) -> SubtaskListState:
        """List of that name. Raises RestoreRefused if restored elements don't fit."""
        mode = StateDistribution.SPLIT_DISTRIBUTE
        if descriptor.mode is RedistributionMode.UNION:
            mode = StateDistribution.UNION
        held = self._held(descriptor)
        if held is None:
            serializer = serializer_of(descriptor.type_info)
            header = StateHeader(descriptor.name, LIST_KIND, serializer.snapshot().to_bytes())
            state = SubtaskListState(self._claim(header, mode, serializer))
            held = _Registered(descriptor, mode, state, serializer, header)
            self._states[descriptor.name] = held
        assert isinstance(held.state, SubtaskListState)
        return held.state

    def broadcast_state(self, descriptor: MapStateDescriptor) -> SubtaskBroadcastState:
        """The map of that name; raises RestoreRefused if what was restored does not fit.

        Raises ConfigError for a time to live, and for a name that is in use otherwise.
        """
        if descriptor.ttl is not None:
            raise ConfigError(
                f"The broadcast state '{descriptor.name}' asks for a time to live, which only keyed"
                " state has",
                where=self._where,
                remedy="Leave it out, and remove entries by your own rule on the broadcast side.",
            )
        held = self._held(descriptor)
        if held is None:
            keys, values = descriptor.type_info, descriptor.value_type_info
            serializer = serializer_of(MapTypeInfo(keys or PICKLED, values or PICKLED))
            header = StateHeader(descriptor.name, BROADCAST_KIND, serializer.snapshot().to_bytes())
            mode = StateDistribution.BROADCAST
            entries: dict[object, object] = {}
            for restored in self._claim(header, mode, serializer):
                assert isinstance(restored, dict)
                entries.update(restored)
            place = f"{self._where}, broadcast state '{descriptor.name}'"
            state = SubtaskBroadcastState(entries, place)
            held = _Registered(descriptor, mode, state, serializer, header)
            self._states[descriptor.name] = held
        assert isinstance(held.state, SubtaskBroadcastState)
        return held.state

    def restore(self, handle: OperatorStateHandle, reader: StateReads) -> None:
        """Take in the elements that a handle names, until they are asked for."""
        if handle.state_size == 0:
            return
        where = handle.delegate.physical_id
        data = memoryview(reader.read(handle.delegate))
        headers = {state.name: state for state in operator_header(data, where).states}
        for name, meta in handle.states.items():
            # A copy of each: elements are small, and a view would keep the whole stream.
            elements = [bytes(element(data, offset, where)) for offset in meta.offsets]
            restored = _Restored(headers[name], meta.mode, elements)
            self._restored.setdefault(name, []).append(restored)

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        """The quick part of a snapshot: copies of all elements."""
        live = [
            (state, [private_copy(each) for each in state.elements()])
            for state in self._states.values()
        ]
        left = [
            restored
            for parts in self._restored.values()
            for restored in parts
            if self._first or restored.mode is not StateDistribution.UNION
        ]
        return OperatorSnapshot(self._scope, checkpoint, live, left)

    def _held(self, descriptor: OperatorStateDescriptor | MapStateDescriptor) -> _Registered | None:
        held = self._states.get(descriptor.name)
        if held is not None and held.descriptor != descriptor:
            raise ConfigError(
                f"The operator state '{descriptor.name}' is asked for as {descriptor} and before"
                f" as {held.descriptor}",
                where=self._where,
                remedy="Use one descriptor, or two names.",
            )
        return held

    def _claim(
        self, header: StateHeader, mode: StateDistribution, serializer: Serializer
    ) -> list[object]:
        """Restored elements of a state, in the order of the handles."""
        where = f"{self._where}, operator state '{header.name}'"
        elements: list[object] = []
        for restored in self._restored.get(header.name, ()):
            if restored.mode is not mode:
                raise RestoreRefused(
                    f"Incompatible state assignment modes. Was [{restored.mode.name}], registered"
                    f" with [{mode.name}].",
                    where=where,
                    remedy="Go back to the old mode, or give the state a new name.",
                )
            old = SerializerSnapshot.from_bytes(restored.header.serializer)
            reader = reader_for(old, serializer, where=where)
            with reading(where):
                for each in restored.elements:
                    elements += reader.decode_many(each)
        self._restored.pop(header.name, None)
        return elements


class OperatorSnapshot:
    """Operator state as at the barrier, a `pending.Pending`."""

    def __init__(
        self,
        scope: StateScope,
        checkpoint: CheckpointId,
        live: list[tuple[_Registered, list[object]]],
        left: list[_Restored],
    ) -> None:
        self._scope = scope
        self._live = live
        headers = [state.header for state, _ in live] + [each.header for each in left]
        self._header = OperatorHeader(scope.operator, checkpoint, headers)
        self._encoded: list[tuple[str, StateDistribution, list[bytes]]] = [
            (state.header.name, state.mode, []) for state, _ in live
        ]
        self._encoded += [(each.header.name, each.mode, each.elements) for each in left]

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        for (state, elements), (_, _, encoded) in zip(self._live, self._encoded, strict=False):
            start = 0
            while start < len(elements):
                piece = elements[start : start + rows()]
                start += len(piece)
                encoded += [self._encode(state, each) for each in piece]
                yield len(piece)

    def thaw(self) -> None:
        """Nothing is frozen: the elements were copied."""

    def upload(self, place: Place) -> OperatorStreamStateHandle | None:
        encoded, compress = self._encoded, self._scope.compress
        if not encoded:
            return None
        metas: dict[str, StateMetaInfo] = {}
        with place.stream() as stream:
            stream.write(header_bytes(self._header))
            for name, mode, elements in encoded:
                offsets: list[int] = []
                for each in elements:
                    offsets.append(stream.position)
                    stream.write(element_bytes(each, compress))
                before = metas[name].offsets if name in metas else ()
                metas[name] = StateMetaInfo(mode, (*before, *offsets))
            handle = stream.close_and_get_handle()
        self._live, self._encoded = [], []
        return OperatorStreamStateHandle(metas, handle)

    def cancel(self) -> None:
        self._live, self._encoded = [], []

    def _encode(self, state: _Registered, value: object) -> bytes:
        where = f"{self._scope.where}, operator state '{state.header.name}'"
        return encoded_as_declared(state.serializer, [value], where)
