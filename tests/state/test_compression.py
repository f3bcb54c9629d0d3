"""Compressed snapshots: smaller, the same state, restored whatever is set."""

from struct import pack

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from flinkformat.snapshots import SubtaskState
from tests.state.world import READER, Subtask, merged, restored, snapshot
from tidegate.api.state import (
    ColumnStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import FormatError, TidegateError
from tidegate.model.restore import RestoredOperatorState
from tidegate.state.format.blocks import (
    COMPRESSED,
    compressor,
    decompressed,
    element,
    element_bytes,
    section,
)
from tidegate.typeinfo.key_hash import KeyHasher

NAMES = ValueStateDescriptor("names", str)
VISITS = ListStateDescriptor("visits", tuple[str, int])
RULES = MapStateDescriptor("rules", str, str)
SPLITS = OperatorStateDescriptor("splits", str)
TOTAL = ColumnStateDescriptor("total", pa.int64())


def filled(*, compression: bool, keys: int = 400) -> Subtask:
    """State of every sort, most of it texts that are much alike."""
    subtask = Subtask(compression=compression)
    names, visits = subtask.backend.keyed_state(NAMES), subtask.backend.keyed_state(VISITS)
    for key in range(keys):
        subtask.on(key)
        names.update(f"customer number {key}")
        visits.add_all([("a page of the shop", key), ("another page of the shop", key + 1)])
    rules = subtask.backend.broadcast_state(RULES)
    rules.put_all([(f"rule {key}", "every second customer") for key in range(keys)])
    subtask.backend.operator_state(SPLITS).update(["s", "a split of the file " * 20])
    return subtask


def size_of(state: SubtaskState) -> int:
    assert state.managed_keyed is not None and state.managed_operator is not None
    return state.managed_keyed.state_size + state.managed_operator.state_size


@pytest.mark.feature("F262")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_compressed_snapshot_is_less_than_half_and_both_restore(parallelism: int) -> None:
    states = [snapshot(filled(compression=compression)) for compression in (False, True)]
    assert size_of(states[1]) < size_of(states[0]) / 2
    for state in states:
        subtasks = restored([state], parallelism)
        assert merged(subtasks, NAMES) == {key: f"customer number {key}" for key in range(400)}
        assert len(merged(subtasks, VISITS)) == 400
        rules = [subtask.backend.broadcast_state(RULES) for subtask in subtasks]
        assert all(dict(each.items())["rule 7"] == "every second customer" for each in rules)
        lists = [subtask.backend.operator_state(SPLITS).get() for subtask in subtasks]
        assert sorted(each for part in lists for each in part) == ["a split of the file " * 20, "s"]


def test_columns_are_compressed_too() -> None:
    keys = pa.array(range(1_000))
    sizes: list[int] = []
    for compression in (False, True):
        subtask = Subtask(compression=compression)
        rows = subtask.backend.keyed_columns(None)
        groups = KeyHasher(None, 8).key_groups_of_column(keys)
        subtask.backend.column_state(TOTAL).put(rows.index(keys, groups), np.arange(1_000))
        state = snapshot(subtask)
        assert state.managed_keyed is not None
        sizes.append(state.managed_keyed.state_size)
        [again] = restored([state])
        index = again.backend.keyed_columns(None).index(keys, groups)
        assert again.backend.column_state(TOTAL).get(index).tolist() == list(range(1_000))
    assert sizes[1] < sizes[0] / 2


def test_what_does_not_get_smaller_stays_as_it_is() -> None:
    plain, asked = (snapshot(filled(compression=each, keys=1)).managed_keyed for each in (0, 1))
    assert isinstance(plain, KeyGroupsStateHandle) and isinstance(asked, KeyGroupsStateHandle)
    [offset] = [each for each in asked.offsets if each]
    group = asked.offsets.index(offset)
    kinds = [
        b.kind for b in section(memoryview(READER.read(asked.delegate)), offset, group, "here")
    ]
    assert COMPRESSED not in kinds
    assert element(memoryview(element_bytes(b"abc", lambda data: data)), 0, "here") == b"abc"


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damage_is_told(position: int, byte: int) -> None:
    handle = snapshot(filled(compression=True, keys=100)).managed_keyed
    assert isinstance(handle, KeyGroupsStateHandle)
    data = bytearray(READER.read(handle.delegate))
    data[position % len(data)] = byte
    torn = KeyGroupsStateHandle(
        handle.key_groups, handle.offsets, ByteStreamStateHandle("torn", bytes(data)), "id"
    )
    subtask = Subtask()
    try:
        subtask.backend.restore(RestoredOperatorState(managed_keyed=(torn,)), READER)
        subtask.backend.keyed_state(NAMES)
    except TidegateError as error:
        assert str(error)


def test_a_frame_of_another_size_is_a_format_error() -> None:
    frame = memoryview(compressor()(b"a" * 100))
    assert decompressed(pack("<Q", 100), frame, "here") == b"a" * 100
    for size in (10, 2**62):
        with pytest.raises(FormatError, match="compressed part of state") as raised:
            decompressed(pack("<Q", size), frame, "there")
        assert raised.value.where == "there"


def test_bytes_by_name_are_those_before_compression() -> None:
    plain, asked = (filled(compression=each) for each in (False, True))
    sizes = [size_of(snapshot(subtask)) for subtask in (plain, asked)]
    assert sizes[0] > 3 * sizes[1]
    assert plain.backend.sizes() == asked.backend.sizes()
    assert plain.backend.sizes().keys() == {"names", "visits"}


def test_bytes_by_name_tell_all_columns_together() -> None:
    subtask = Subtask()
    rows = subtask.backend.keyed_columns(None)
    keys = pa.array(range(1_000))
    groups = KeyHasher(None, 8).key_groups_of_column(keys)
    subtask.backend.column_state(TOTAL).put(rows.index(keys, groups), np.arange(1_000))
    snapshot(subtask)
    assert 16_000 < subtask.backend.sizes()["columns"] < 32_000
