"""The states of one operator of a snapshot that belong to subtasks: lists, maps, data in flight."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from tidegate.checkpoint.channel_state.file_format import read_chunks
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.snapshots.rows import (
    KIND_OF_OPERATOR_STATE,
    Rows,
    StateInfo,
    StateKind,
    in_flight,
    serializer_read,
)
from tidegate.state.format.blocks import element, operator_header, reading
from tidegate.state.user.operator_state import BROADCAST_KIND
from tidegate.transport import codec
from tidegate.typeinfo.types import INT, PICKLED, MapTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import SubtaskState
    from tidegate.snapshots.rows import Channel, Place
    from tidegate.storage.reading import StateReader

INPUT_CHANNELS: Final = "_input_channels"
"""Name of the data in flight that had come in to an operator."""

OUTPUT_CHANNELS: Final = "_output_channels"
"""Name of the data in flight that were to leave an operator."""

_PLACE: Final = TupleTypeInfo([INT, INT])


class SubtaskStates:
    """Operator state and data in flight of an operator. where: names it in errors."""

    def __init__(
        self, subtasks: Mapping[int, SubtaskState], reader: StateReader, where: str
    ) -> None:
        self._subtasks = subtasks
        self._reader = reader
        self._where = where
        # One for each, so that classes stay the same.
        self._serializer = cache(serializer_read)

    @cached_property
    def infos(self) -> dict[str, StateInfo]:
        found: dict[str, StateInfo] = {}
        for state in self._subtasks.values():
            if state.managed_operator is not None and state.managed_operator.states:
                handle = state.managed_operator
                header = operator_header(self._read(handle.delegate), handle.delegate.physical_id)
                for each in header.states:
                    if each.name in handle.states and each.name not in found:
                        kind = KIND_OF_OPERATOR_STATE[handle.states[each.name].mode]
                        found[each.name] = self._info(each.name, kind, each.serializer)
        flights = (
            (INPUT_CHANNELS, StateKind.INPUT_CHANNELS, "input_channel"),
            (OUTPUT_CHANNELS, StateKind.OUTPUT_CHANNELS, "result_subpartition"),
        )
        for name, kind, part in flights:
            if any(getattr(state, part) for state in self._subtasks.values()):
                found[name] = StateInfo(name, kind, None, _PLACE, PICKLED)
        return found

    def rows(self, info: StateInfo) -> Iterator[Rows]:
        """Rows of a state, subtask by subtask; for a broadcast state, of one subtask."""
        for index, state in self._subtasks.items():
            if info.kind in (StateKind.INPUT_CHANNELS, StateKind.OUTPUT_CHANNELS):
                for place, channel in in_flight(info.kind, state):
                    yield from self._in_flight(index, place, channel)
                continue
            rows = list(self._elements(info, index, state))
            yield from rows
            if rows and info.kind is StateKind.BROADCAST:
                return

    def _read(self, handle: StreamStateHandle) -> memoryview:
        return memoryview(self._reader.read(handle))

    def _info(self, name: str, kind: StateKind, serializer: bytes) -> StateInfo:
        of = self._serializer(serializer).type_info
        if kind is not StateKind.BROADCAST:
            return StateInfo(name, kind, None, None, of)
        keys, values = (of.key_type, of.value_type) if isinstance(of, MapTypeInfo) else (of, of)
        return StateInfo(name, kind, keys, None, values)

    def _elements(self, info: StateInfo, index: int, state: SubtaskState) -> Iterator[Rows]:
        handle = state.managed_operator
        if handle is None or info.name not in handle.states:
            return
        where = handle.delegate.physical_id
        data = self._read(handle.delegate)
        header = operator_header(data, where)
        for each in header.states:
            if each.name != info.name:
                continue
            serializer = self._serializer(each.serializer)
            with reading(f"{self._where}, operator state '{info.name}'"):
                values: list[Any] = []
                for offset in handle.states[info.name].offsets:
                    values += serializer.decode_many(element(data, offset, where))
                if each.kind == BROADCAST_KIND:
                    pairs = {key: value for part in values for key, value in part.items()}
                    yield Rows(index, None, list(pairs), None, list(pairs.values()))
                else:
                    yield Rows(index, None, None, None, values)
            return

    def _in_flight(self, index: int, place: Place, channel: Channel) -> Iterator[Rows]:
        with reading(f"{self._where}, data in flight"):
            data = self._read(channel.delegate).tobytes()
            for buffer in read_chunks(data, channel.offsets):
                match codec.decode(buffer):
                    case RowBatch(values=values):
                        yield Rows(index, None, None, [place] * len(values), list(values))
                    case ArrowBatch(batch=batch):
                        rows = batch.to_pylist()
                        yield Rows(index, None, None, [place] * len(rows), rows)
                    case _:
                        pass
