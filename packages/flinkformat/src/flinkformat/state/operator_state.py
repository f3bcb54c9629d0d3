"""Operator state of Flink: lists that belong to subtasks, and broadcast maps.

Layout: docs/formats/flink-state.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkformat.errors import FormatError
from flinkformat.frozen import frozen
from flinkformat.handles import StateMetaInfo
from flinkformat.metadata.wire import Reader, Writer
from flinkformat.state import snappy
from flinkformat.state.composites import MapSerializer, encode
from flinkformat.state.headers import (
    KEY,
    BackendStateType,
    FlinkOperatorHeader,
    read_operator_header,
    write_operator_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flinkformat.handles import StateDistribution
    from flinkformat.state.headers import FlinkState


@frozen
class FlinkOperatorState:
    """An operator state of one subtask. elements: for a broadcast state, one whole dict."""

    state: FlinkState
    mode: StateDistribution
    elements: list[Any]


def operator_states(
    states: Mapping[str, StateMetaInfo], data: bytes, where: str
) -> Iterator[FlinkOperatorState]:
    """States that a handle names, in the order of the stream. Raises FormatError."""
    reader = Reader(data, where)
    header = read_operator_header(reader)
    known = {state.name: state for state in header.states}
    ends = sorted({offset for info in states.values() for offset in info.offsets} | {len(data)})
    unknown = [name for name in states if name not in known]
    if unknown:
        raise FormatError(
            f"Found state without corresponding meta info: {unknown[0]}",
            where=f"{where}, state '{unknown[0]}'",
            offset=reader.offset,
            expected=", ".join(known) or "no state",
            found=unknown[0],
        )
    for name in (name for name in known if name in states):
        info, place = states[name], f"{where}, state '{name}'"
        state, elements = known[name], list[Any]()
        for number, offset in enumerate(info.offsets):
            inside = f"{place}, element {number}"
            if not reader.offset <= offset < len(data):
                raise FormatError(
                    "An element lies outside of its stream",
                    where=inside,
                    offset=max(offset, 0),
                    expected=f"{reader.offset} to {len(data) - 1}",
                    found=str(offset),
                )
            element = Reader(data, inside, start=offset)
            if header.compressed:
                end = next(end for end in ends if end > offset)
                chunks = snappy.chunks(data, offset, end, inside)
                element = Reader(b"".join(plain for _, plain in chunks), inside)
            elements.append(_read(state, element))
        yield FlinkOperatorState(state, info.mode, elements)


def _read(state: FlinkState, reader: Reader) -> Any:
    if state.type is BackendStateType.BROADCAST:
        entries = MapSerializer(state.serializers[KEY], state.value)
        number = reader.count("entries")
        return dict((entries.read_key(reader), state.value.read(reader)) for _ in range(number))
    return state.value.read(reader)


def write_operator_states(
    states: Sequence[FlinkOperatorState],
) -> tuple[bytes, dict[str, StateMetaInfo]]:
    """Writes a stream, uncompressed; returns it with the names and offsets for its handle.

    Raises FormatError for what a serializer has no form for, by state and element.
    """
    lists = [each for each in states if each.state.type is BackendStateType.OPERATOR]
    maps = [each for each in states if each.state.type is BackendStateType.BROADCAST]
    ordered = (*lists, *maps)
    writer = Writer()
    write_operator_header(writer, FlinkOperatorHeader(False, tuple(e.state for e in ordered)))
    stream = bytearray(writer.finished())
    handle: dict[str, StateMetaInfo] = {}
    for each in ordered:
        offsets: list[int] = []
        for element in each.elements:
            offsets.append(len(stream))
            try:
                stream += _written(each.state, element)
            except FormatError as error:
                error.where = f"state '{each.state.name}', element {len(offsets) - 1}"
                raise
        handle[each.state.name] = StateMetaInfo(each.mode, tuple(offsets))
    return bytes(stream), handle


def _written(state: FlinkState, element: Any) -> bytes:
    if state.type is not BackendStateType.BROADCAST:
        return encode(state.value, element)
    keys = state.serializers[KEY]
    pairs = b"".join(encode(keys, k) + encode(state.value, v) for k, v in element.items())
    return len(element).to_bytes(4, "big") + pairs
