"""Handles of in-flight data as bytes (docs/formats/metadata.md, section 5).

Inputs and outputs have the same form, so one body serves both; only the names differ.
"""

from __future__ import annotations

from typing import Final

from flinkformat.handles import (
    InputChannelStateHandle,
    InputStateHandle,
    MergedInputChannelStateHandle,
    MergedResultSubpartitionStateHandle,
    OutputStateHandle,
    ResultSubpartitionStateHandle,
    StreamStateHandle,
)
from flinkformat.metadata.streams import NewId, read_size, read_some_stream, write_stream
from flinkformat.metadata.wire import Reader, Writer

INPUT: Final = 1
OUTPUT: Final = 2
MERGED_INPUT: Final = 3
MERGED_OUTPUT: Final = 4

_Plain = tuple[int, int, int, tuple[int, ...], int, StreamStateHandle]
_Merged = tuple[int, int, StreamStateHandle, bytes]


def read_input(reader: Reader, new_id: NewId, *, typed: bool) -> InputStateHandle:
    """Reads a handle of inputs. typed: a type byte leads, as since version 6."""
    start = reader.offset
    match reader.u8("the type of an input state handle") if typed else INPUT:
        case 1:
            return InputChannelStateHandle(*_read_plain(reader, new_id))
        case 3:
            return MergedInputChannelStateHandle(*_read_merged(reader, new_id))
        case kind:
            raise reader.fail(
                "Unknown input state handle type.",
                expected="1 (plain) or 3 (merged)",
                found=str(kind),
                offset=start,
            )


def read_output(reader: Reader, new_id: NewId, *, typed: bool) -> OutputStateHandle:
    """Reads a handle of outputs. typed: a type byte leads, as since version 6."""
    start = reader.offset
    match reader.u8("the type of an output state handle") if typed else OUTPUT:
        case 2:
            return ResultSubpartitionStateHandle(*_read_plain(reader, new_id))
        case 4:
            return MergedResultSubpartitionStateHandle(*_read_merged(reader, new_id))
        case kind:
            raise reader.fail(
                "Unknown output state handle type.",
                expected="2 (plain) or 4 (merged)",
                found=str(kind),
                offset=start,
            )


def _read_plain(reader: Reader, new_id: NewId) -> _Plain:
    subtask = reader.i32("the index of a subtask")
    gate = reader.i32("the index of a gate or partition")
    channel = reader.i32("the index of a channel or subpartition")
    offsets = reader.offsets(reader.i32("the number of buffers"), "buffers")
    size = read_size(reader, "the size of channel state")
    return subtask, gate, channel, offsets, size, read_some_stream(reader, new_id)


def _read_merged(reader: Reader, new_id: NewId) -> _Merged:
    subtask = reader.i32("the index of a subtask")
    size = read_size(reader, "the size of channel state")
    delegate = read_some_stream(reader, new_id)
    return subtask, size, delegate, reader.blob("the channels of a merged handle")


def write_inputs(writer: Writer, handles: tuple[InputStateHandle, ...], *, typed: bool) -> None:
    """Writes a counted list of inputs' handles; merged ones unfolded if there are no type bytes."""
    if not typed:
        handles = tuple(plain for handle in handles for plain in unmerge_input(handle))
    writer.i32(len(handles))
    for handle in handles:
        match handle:
            case InputChannelStateHandle():
                plain = (handle.subtask_index, handle.gate_index, handle.channel_index)
                _write_plain(writer, INPUT if typed else None, plain, handle)
            case MergedInputChannelStateHandle():
                _write_merged(writer, MERGED_INPUT, handle)


def write_outputs(writer: Writer, handles: tuple[OutputStateHandle, ...], *, typed: bool) -> None:
    """Writes a counted list of outputs' handles; otherwise as `write_inputs`."""
    if not typed:
        handles = tuple(plain for handle in handles for plain in unmerge_output(handle))
    writer.i32(len(handles))
    for handle in handles:
        match handle:
            case ResultSubpartitionStateHandle():
                plain = (handle.subtask_index, handle.partition_index, handle.subpartition_index)
                _write_plain(writer, OUTPUT if typed else None, plain, handle)
            case MergedResultSubpartitionStateHandle():
                _write_merged(writer, MERGED_OUTPUT, handle)


def _write_plain(
    writer: Writer,
    kind: int | None,
    indexes: tuple[int, int, int],
    handle: InputChannelStateHandle | ResultSubpartitionStateHandle,
) -> None:
    if kind is not None:
        writer.u8(kind)
    for index in indexes:
        writer.i32(index)
    writer.i32(len(handle.offsets))
    writer.offsets(handle.offsets)
    writer.i64(handle.state_size)
    write_stream(writer, handle.delegate)


def _write_merged(
    writer: Writer,
    kind: int,
    handle: MergedInputChannelStateHandle | MergedResultSubpartitionStateHandle,
) -> None:
    writer.u8(kind)
    writer.i32(handle.subtask_index)
    writer.i64(handle.state_size)
    write_stream(writer, handle.delegate)
    writer.blob(handle.channel_offsets)


def unmerge_input(handle: InputStateHandle) -> tuple[InputChannelStateHandle, ...]:
    """Splits a merged handle into one for each channel; a plain handle is returned alone.

    Raises FormatError for bytes that hold no channels: they are looked at only here, as in Flink.
    """
    if isinstance(handle, InputChannelStateHandle):
        return (handle,)
    return tuple(InputChannelStateHandle(*plain) for plain in _unmerge(handle))


def unmerge_output(handle: OutputStateHandle) -> tuple[ResultSubpartitionStateHandle, ...]:
    """Splits a merged handle into one for each subpartition; otherwise as `unmerge_input`."""
    if isinstance(handle, ResultSubpartitionStateHandle):
        return (handle,)
    return tuple(ResultSubpartitionStateHandle(*plain) for plain in _unmerge(handle))


def _unmerge(
    handle: MergedInputChannelStateHandle | MergedResultSubpartitionStateHandle,
) -> tuple[_Plain, ...]:
    where = f"merged channel state of subtask {handle.subtask_index}"
    reader = Reader(handle.channel_offsets, where)

    def read_one() -> _Plain:
        gate = reader.i32("the index of a gate or partition")
        channel = reader.i32("the index of a channel or subpartition")
        size = read_size(reader, "the size of channel state")
        offsets = reader.offsets(reader.i32("the number of buffers"), "buffers")
        return handle.subtask_index, gate, channel, offsets, size, handle.delegate

    return reader.many("merged channels", read_one)


def merge_inputs(handles: tuple[InputChannelStateHandle, ...]) -> MergedInputChannelStateHandle:
    """Merges the handles of a subtask's channels whose data lie in one file."""
    return MergedInputChannelStateHandle(
        *_merge([(h.gate_index, h.channel_index, h) for h in handles])
    )


def merge_outputs(
    handles: tuple[ResultSubpartitionStateHandle, ...],
) -> MergedResultSubpartitionStateHandle:
    return MergedResultSubpartitionStateHandle(
        *_merge([(h.partition_index, h.subpartition_index, h) for h in handles])
    )


def _merge(
    handles: list[tuple[int, int, InputChannelStateHandle | ResultSubpartitionStateHandle]],
) -> _Merged:
    assert handles, "nothing to merge"
    first = handles[0][2]
    writer = Writer()
    writer.i32(len(handles))
    for gate, channel, handle in handles:
        assert handle.delegate == first.delegate, "channels in several files"
        assert handle.subtask_index == first.subtask_index, "channels of several subtasks"
        writer.i32(gate)
        writer.i32(channel)
        writer.i64(handle.state_size)
        writer.i32(len(handle.offsets))
        writer.offsets(handle.offsets)
    size = sum(handle.state_size for _, _, handle in handles)
    return first.subtask_index, size, first.delegate, writer.finished()
