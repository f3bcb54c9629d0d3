"""The bytes of keyed state, as docs/formats/keyed-state.md has them, and damaged ones."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from tests.state.world import READER, Subtask, merged, restored, snapshot
from tests.worlds.storage import MEMORY
from tidegate.api.state import ValueStateDescriptor
from tidegate.errors import FormatError, TidegateError
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.typeinfo.types import Types

COUNT = ValueStateDescriptor("count", Types.LONG())


def handle_of(keys: range) -> KeyGroupsStateHandle:
    subtask = Subtask()
    state = subtask.backend.keyed_state(COUNT)
    for key in keys:
        subtask.on(key)
        state.update(key)
    handle = snapshot(subtask).managed_keyed
    assert isinstance(handle, KeyGroupsStateHandle)
    return handle


def restore(handle: KeyGroupsStateHandle, data: bytes) -> Subtask:
    torn = KeyGroupsStateHandle(
        handle.key_groups, handle.offsets, ByteStreamStateHandle("torn", data), "id"
    )
    subtask = Subtask()
    subtask.backend.restore(RestoredOperatorState(managed_keyed=(torn,)), READER)
    subtask.backend.keyed_state(COUNT)
    return subtask


def test_the_page_of_the_format_says_what_is_written() -> None:
    handle = handle_of(range(1))
    data = READER.read(handle.delegate)
    magic, version, size = struct.unpack_from("<4sHxxI", data)
    assert (magic, version) == (b"TGKS", 1)
    header = msgspec.msgpack.decode(data[12 : 12 + size])
    assert header["operator"] == bytes(16) and header["checkpoint"] == 1
    assert header["max_parallelism"] == 8 and header["columns"] is None
    assert [(state["name"], state["kind"]) for state in header["states"]] == [("count", "value")]
    [group] = [group for group, offset in enumerate(handle.offsets) if offset]
    assert handle.offsets[group] == 12 + size
    found, section = struct.unpack_from("<IQ", data, 12 + size)
    assert found == group and len(data) == 12 + size + 12 + section
    block = struct.unpack_from("<BxHIQQ", data, 24 + size)
    assert block == (1, 0, 1, 3, 3)
    assert data[48 + size :] == b"\x01\x91\x00" * 2


def test_a_key_group_without_state_has_no_section() -> None:
    handle = handle_of(range(1))
    assert sum(offset > 0 for offset in handle.offsets) == 1
    assert len(handle.offsets) == len(handle.key_groups)


def test_an_empty_key_group_at_the_barrier_holds_nothing_that_came_later() -> None:
    subtask = Subtask()
    state = subtask.backend.keyed_state(COUNT)
    subtask.on(0)
    state.update(0)
    pending = subtask.backend.snapshot(CheckpointId(1))
    for key in range(1, 50):
        subtask.on(key)
        state.update(key)
    pending.finish()
    assert subtask.dump("count").keys() == set(range(50))
    assert merged(restored([pending.upload(MEMORY)]), COUNT) == {0: 0}


def test_a_file_that_ends_too_early_is_told_with_its_offset() -> None:
    handle = handle_of(range(40))
    whole = READER.read(handle.delegate)
    assert restore(handle, whole).dump("count") == {key: key for key in range(40)}
    for cut in range(0, len(whole), 7):
        with pytest.raises(FormatError) as raised:
            restore(handle, whole[:cut])
        assert raised.value.where


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_bytes_never_make_anything_else_than_an_error_of_ours(
    position: int, byte: int
) -> None:
    handle = handle_of(range(10))
    data = bytearray(READER.read(handle.delegate))
    data[position % len(data)] = byte
    try:
        restore(handle, bytes(data))
    except TidegateError as error:
        assert str(error)


def test_another_version_says_what_it_expected() -> None:
    handle = handle_of(range(3))
    data = READER.read(handle.delegate)
    with pytest.raises(FormatError, match="another kind or version") as raised:
        restore(handle, data[:4] + b"\x02" + data[5:])
    assert raised.value.expected == "b'TGKS' version 1"


def test_a_section_of_another_key_group_is_refused() -> None:
    handle = handle_of(range(40))
    first, second, *rest = handle.offsets
    swapped = KeyGroupsStateHandle(handle.key_groups, (second, first, *rest), handle.delegate, "id")
    with pytest.raises(FormatError, match="not that of its key group"):
        Subtask().backend.restore(RestoredOperatorState(managed_keyed=(swapped,)), READER)
