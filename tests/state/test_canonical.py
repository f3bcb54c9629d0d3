"""A savepoint in canonical form holds all of an operator's keyed state, for every backend."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from flinkformat.snapshots import SubtaskState
from tests.state.disk_world import SMALL, Disk
from tests.state.world import Subtask, restored
from tests.worlds.storage import MEMORY
from tidegate import ColumnStateDescriptor, StateTtlConfig, Time, Types, ValueStateDescriptor
from tidegate.errors import FormatError
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import (
    PRESENT,
    Block,
    KeyedHeader,
    StateHeader,
    header_bytes,
    section_bytes,
)
from tidegate.typeinfo.serializers import serializer_of

TEXTS = ValueStateDescriptor("texts", Types.STRING())
COUNT = ColumnStateDescriptor("count", pa.int64())
CANONICAL = CheckpointOptions(SnapshotKind.SAVEPOINT, canonical=True)
KEYS = list(range(50))


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


def put(subtask: Subtask, key: object, text: str | None) -> None:
    subtask.on(key).backend.keyed_state(TEXTS).update(text)  # type: ignore[attr-defined]


def text(subtask: Subtask, key: object) -> object:
    return subtask.on(key).backend.keyed_state(TEXTS).value()  # type: ignore[attr-defined]


def rows_of(subtask: Subtask) -> np.ndarray:
    groups = np.array([subtask.on(key).cell.group for key in KEYS], np.int16)
    return subtask.backend.keyed_columns(Types.LONG()).index(pa.array(KEYS), groups)


def saved(subtask: Subtask) -> SubtaskState:
    pending = subtask.backend.snapshot(CheckpointId(1), CANONICAL)
    pending.finish()
    return pending.upload(MEMORY)


@pytest.mark.parametrize("compression", [False, True])
def test_rows_and_columns_of_one_operator_go_over_to_the_other_backend_and_back(
    disk: Disk, compression: bool
) -> None:
    subtask = Subtask(key_type=Types.LONG(), local=disk.local(), compression=compression)
    for key in KEYS:
        put(subtask, key, f"text {key}")
    subtask.backend.column_state(COUNT).put(rows_of(subtask), np.array(KEYS) * 3)
    state = saved(subtask)
    subtask.backend.close()
    [in_memory] = restored([state], 1)
    [on_disk] = restored([saved(in_memory)], 1, local=disk.local)
    for each in (in_memory, on_disk):
        assert [text(each, key) for key in KEYS] == [f"text {key}" for key in KEYS]
        counts = each.backend.column_state(COUNT).get(rows_of(each))
        assert counts.tolist() == [3 * key for key in KEYS]
    on_disk.backend.close()


def test_columns_alone_are_in_it_too(disk: Disk) -> None:
    subtask = Subtask(key_type=Types.LONG(), local=disk.local())
    subtask.backend.keyed_state(TEXTS)
    subtask.backend.column_state(COUNT).put(rows_of(subtask), np.array(KEYS))
    state = saved(subtask)
    subtask.backend.close()
    [again] = restored([state], 1)
    assert again.backend.column_state(COUNT).get(rows_of(again)).tolist() == KEYS


@pytest.mark.parametrize("older", [False, True])
def test_entries_of_several_encodings_and_types_stand_beside_each_other(
    disk: Disk, older: bool
) -> None:
    keys = range(400)
    [subtask] = disk.begun(1)
    if older:
        lasting = subtask.backend.keyed_state(ValueStateDescriptor("n", Types.LONG()))
        for key in keys:
            subtask.on(key)
            lasting.update(key)
        pending = subtask.backend.snapshot(CheckpointId(1))
        pending.finish()
        states = [disk.uploaded(pending)]
        subtask.backend.close()
        [subtask] = disk.gone_on(states, 1)
    expiring = ValueStateDescriptor("n", Types.LONG())
    if older:  # entries with a time beside those that have none
        lives = StateTtlConfig.new_builder(Time.days(1)).disable_cleanup_in_background().build()
        expiring.enable_time_to_live(lives)
    # What MessagePack can't hold is pickled.
    numbers = {key: key << 80 if key % 7 == 0 else key for key in keys if not older or key % 2}
    for key, number in numbers.items():
        subtask.on(key).backend.keyed_state(expiring).update(number)  # type: ignore[attr-defined]
    [in_memory] = restored([saved(subtask)], 1)
    found = in_memory.backend.keyed_state(expiring)
    assert {key: in_memory.on(key) and found.value() for key in keys} == {  # type: ignore[attr-defined]
        key: numbers.get(key, key) for key in keys
    }
    subtask.backend.close()


def test_what_was_written_while_it_was_encoded_is_as_at_the_barrier_on_disk(disk: Disk) -> None:
    subtask = Subtask(key_type=Types.LONG(), step_ms=10)
    for key in KEYS:
        put(subtask, key, f"text {key}")
    pending = subtask.backend.snapshot(CheckpointId(1), CANONICAL)
    assert not pending.encode(1.0)
    for key in KEYS:
        put(subtask, key, None if key % 3 else "later")
        put(subtask, key + 1_000, "new")
    pending.finish()
    [on_disk] = restored([pending.upload(MEMORY)], 1, local=disk.local)
    on_disk.backend.keyed_state(TEXTS)
    assert on_disk.dump("texts") == {key: f"text {key}" for key in KEYS}
    on_disk.backend.close()


def test_a_large_one_becomes_files_of_the_usual_size() -> None:
    disk = Disk(replace(SMALL, target_file_bytes=200_000))
    subtask = Subtask(key_type=Types.LONG())
    chance = np.random.default_rng(1)
    texts = {key: chance.bytes(500).hex() for key in range(1_500)}
    for key, each in texts.items():
        put(subtask, key, each)
    [on_disk] = restored([saved(subtask)], 1, local=disk.local)
    on_disk.backend.keyed_state(TEXTS)
    assert on_disk.dump("texts") == texts
    sizes = [file.stat().st_size for file in disk.folder.rglob("*.sst")]
    assert len(sizes) >= 3 and max(sizes) < 1_000_000
    on_disk.backend.close()
    assert not list(disk.folder.rglob("*.sst"))
    disk.close()


def test_a_block_with_another_number_of_rows_than_it_says_is_told_by_operator(disk: Disk) -> None:
    of = serializer_of(Types.LONG())
    keys = of.encode_many([1, 2, 3])
    snapshot = of.snapshot().to_bytes()
    header = KeyedHeader(bytes(16), 1, 8, snapshot, [StateHeader("texts", "value", snapshot)], None)
    opening = header_bytes(header)
    section = b"".join(section_bytes(0, [Block(PRESENT, 0, 2, keys, keys)]))
    handle = ByteStreamStateHandle("memory:/damaged", opening + section)
    groups = Subtask().key_groups
    offsets = (len(opening), *[0] * (len(groups) - 1))
    state = SubtaskState(managed_keyed=KeyGroupsStateHandle(groups, offsets, handle, "damaged"))
    with pytest.raises(FormatError, match="another number of rows") as refused:
        restored([state], 1, local=disk.local)
    assert "operator 'counts'" in refused.value.where
