"""Streams of state read piece by piece, and what damaged sizes in them do: nothing but an error."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from tests.state.world import READER, Subtask, snapshot
from tests.worlds.storage import MEMORY
from tidegate.api.state import OperatorStateDescriptor, ValueStateDescriptor
from tidegate.errors import FormatError
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import all_sections, element, keyed_header, operator_header
from tidegate.state.format.streams import ElementReader, StreamReader
from tidegate.typeinfo.types import Types
from tidegate.upgrade.sample import Sampled, keyed_sample

COUNT = ValueStateDescriptor("count", Types.LONG())


def handle_and_bytes(keys: int) -> tuple[KeyGroupsStateHandle, bytes]:
    subtask = Subtask()
    state: Any = subtask.backend.keyed_state(COUNT)
    for key in range(keys):
        subtask.on(key)
        state.update(key)
    handle = snapshot(subtask).managed_keyed
    assert isinstance(handle, KeyGroupsStateHandle)
    return handle, READER.read(handle.delegate)


def reader_of(data: bytes) -> StreamReader:
    return StreamReader(io.BytesIO(data), len(data), "here")


def blocks_in(data: bytes) -> list[tuple[int, list[tuple[int, bytes, bytes]]]]:
    """All blocks as the parser of a whole stream finds them."""
    return [
        (group, [(each.rows, bytes(each.keys), bytes(each.values)) for each in blocks])
        for group, blocks in all_sections(memoryview(data), "here")
    ]


def test_a_reader_finds_what_the_parser_of_a_whole_stream_finds() -> None:
    handle, data = handle_and_bytes(40)
    reader, whole = reader_of(data), blocks_in(data)
    assert reader.header == keyed_header(memoryview(data), "here")
    for sections in (reader.sections(handle), reader.all_sections()):
        found = [
            (group, [(each.rows, bytes(each.keys), bytes(each.values)) for each in blocks])
            for group, blocks in sections
        ]
        assert found == whole and len(whole) > 3
    assert dict(reader.walk()) == {
        group: offset
        for group, offset in zip(handle.key_groups, handle.offsets, strict=True)
        if offset
    }


def test_only_the_key_groups_that_are_asked_for_are_read() -> None:
    handle, data = handle_and_bytes(40)
    wanted = [5, 2]
    assert [group for group, _ in reader_of(data).sections(handle, wanted)] == wanted


def test_blocks_are_read_at_once_so_that_another_section_may_be_read_before_they_are_used() -> None:
    handle, data = handle_and_bytes(40)
    sections = list(reader_of(data).sections(handle))
    assert [(group, sum(each.rows for each in blocks)) for group, blocks in sections] == [
        (group, sum(rows for rows, _, _ in blocks)) for group, blocks in blocks_in(data)
    ]


@pytest.mark.parametrize("size", [2**64 - 1, 2**63, 2**40])
def test_a_section_that_says_it_is_longer_than_the_stream_is_an_error(size: int) -> None:
    handle, data = handle_and_bytes(10)
    offset = next(filter(None, handle.offsets))
    data = data[: offset + 4] + struct.pack("<Q", size) + data[offset + 12 :]
    with pytest.raises(FormatError, match="ends too early"):
        for _, blocks in reader_of(data).sections(handle):
            list(blocks)
    sampled = Sampled(bytes_left=2**65)
    with pytest.raises(FormatError, match="ends too early"):
        keyed_sample(handle, io.BytesIO(data), sampled)


def test_a_header_that_says_it_is_longer_than_the_stream_is_an_error() -> None:
    _, data = handle_and_bytes(10)
    torn = data[:8] + b"\xff\xff\xff\xff" + data[12:]
    with pytest.raises(FormatError, match="ends too early"):
        _ = reader_of(torn).header


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_an_offset_beside_the_stream_is_an_error(offset: int) -> None:
    handle, data = handle_and_bytes(10)
    beside = KeyGroupsStateHandle(
        handle.key_groups,
        (offset, *handle.offsets[1:]),
        ByteStreamStateHandle("torn", data),
        "id",
    )
    with pytest.raises(FormatError, match="ends too early"):
        next(reader_of(data).sections(beside))


@given(cut=st.integers(0, 10_000), position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_bytes_make_nothing_else_than_a_format_error(
    cut: int, position: int, byte: int
) -> None:
    handle, whole = handle_and_bytes(10)
    data = bytearray(whole)
    data[position % len(data)] = byte
    torn = bytes(data[: len(data) - cut % len(data)])
    try:
        reader = reader_of(torn)
        assert reader.header.states is not None
        for sections in (reader.all_sections(), reader.sections(handle)):
            for _, blocks in sections:
                list(blocks)
    except FormatError as error:
        assert error.where == "here"


def test_elements_are_read_as_they_are_stored() -> None:
    subtask = Subtask()
    subtask.backend.operator_state(OperatorStateDescriptor("words", Types.STRING())).add("a")
    pending = subtask.backend.snapshot(CheckpointId(1))
    pending.finish()
    handle = pending.upload(MEMORY).managed_operator
    assert handle is not None
    data = READER.read(handle.delegate)
    reader = ElementReader(io.BytesIO(data), len(data), "here")
    assert reader.header == operator_header(memoryview(data), "here")
    [offset] = handle.states["words"].offsets
    stored = reader.stored(offset)
    assert element(memoryview(stored), 0, "here") == element(memoryview(data), offset, "here")
    with pytest.raises(FormatError, match="ends too early"):
        reader.stored(len(data) + 1)
