"""Snapshots of keyed state: what was there at the barrier, whatever is written meanwhile."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from flinkformat.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from tests.state.aggregates import Mean, Sum
from tests.state.world import READER, Subtask, Viewed, merged, restored, snapshot, stored
from tests.worlds.storage import MEMORY, MemoryPlace
from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import RestoreRefused, SerializerIncompatible, StorageFailed, UserError
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.storage.streams import CheckpointStateOutputStream
from tidegate.typeinfo.types import Types

COUNT = ValueStateDescriptor("count", Types.LONG())
ANY = ValueStateDescriptor("any")


def counts(subtask: Subtask, keys: Iterable[int], value: int = 1) -> None:
    state = subtask.backend.keyed_state(COUNT)
    for key in keys:
        subtask.on(key)
        state.update(value + key)


def test_what_was_written_before_the_barrier_is_restored() -> None:
    subtask = Subtask()
    counts(subtask, range(100))
    before = subtask.dump("count")
    [again] = restored([snapshot(subtask)])
    again.backend.keyed_state(COUNT)
    assert again.dump("count") == before == {key: key + 1 for key in range(100)}


@pytest.mark.feature("F107")
def test_what_is_written_after_the_barrier_is_not_in_the_snapshot() -> None:
    subtask = Subtask()
    counts(subtask, range(50))
    state = subtask.backend.keyed_state(COUNT)
    before = subtask.dump("count")
    sync_thread = threading.get_ident()
    pending = subtask.backend.snapshot(CheckpointId(1))
    for key in range(100):  # changed, removed, added
        subtask.on(key)
        if key % 3:
            state.update(-key)
        else:
            state.clear()
    pending.finish()
    for key in range(100):
        subtask.on(key)
        state.update(0)
    uploaded = []
    upload = threading.Thread(
        target=lambda: uploaded.append((threading.get_ident(), pending.upload(MEMORY)))
    )
    upload.start()
    upload.join()
    [(async_thread, handles)] = uploaded
    assert async_thread != sync_thread
    assert merged(restored([handles]), COUNT) == before


def test_slices_and_writes_between_them_give_the_state_at_the_barrier() -> None:
    subtask = Subtask(step_ms=1_000, max_parallelism=1)  # each slice is one piece
    counts(subtask, range(2000))
    state = subtask.backend.keyed_state(COUNT)
    before = subtask.dump("count")
    pending = subtask.backend.snapshot(CheckpointId(1))
    slices = 0
    while not pending.encode(0.1):
        for key in range(slices, 2500, 7):
            subtask.on(key)
            state.update(-1) if key % 2 else state.clear()
        slices += 1
    assert slices > 5
    handles = pending.upload(MEMORY)
    assert merged(restored([handles], max_parallelism=1), COUNT) == before


@pytest.mark.feature("F105")
@pytest.mark.parametrize("declared", [None, Types.LONG()])
def test_a_list_that_grows_right_after_the_barrier_is_saved_as_it_was(declared: object) -> None:
    descriptor = ListStateDescriptor("l", declared)
    subtask = Subtask()
    state = subtask.backend.keyed_state(descriptor)
    subtask.on("a")
    state.add(1)
    pending = subtask.backend.snapshot(CheckpointId(1))
    state.add(2)
    state.add_all([3])
    assert state.get() == [1, 2, 3]
    assert merged(restored([stored(pending)]), descriptor) == {"a": [1]}


def test_a_map_that_changes_right_after_the_barrier_is_saved_as_it_was() -> None:
    descriptor = MapStateDescriptor("m")
    subtask = Subtask()
    state = subtask.backend.keyed_state(descriptor)
    for key in ("a", "b", "c"):
        subtask.on(key)
        state.put("x", [1])
    pending = subtask.backend.snapshot(CheckpointId(1))
    subtask.on("a")
    state.put("y", [2])
    subtask.on("b")
    state.remove("x")
    subtask.on("c")
    held = state.get("x")
    held.append(2)
    state.put("x", held)
    assert dict(state.items()) == {"x": [1, 2]}
    for _, given in state.items():
        given.append(3)
    assert merged(restored([stored(pending)]), descriptor) == {
        "a": {"x": [1]},
        "b": {"x": [1]},
        "c": {"x": [1]},
    }


def test_a_map_of_numbers_that_changes_right_after_the_barrier_is_saved_as_it_was() -> None:
    descriptor = MapStateDescriptor("m", Types.STRING(), Types.LONG())
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(descriptor)
    state.put("x", 1)
    pending = subtask.backend.snapshot(CheckpointId(1))
    state.put("x", 2)
    state.put("y", 3)
    assert dict(state.items()) == {"x": 2, "y": 3}
    assert merged(restored([stored(pending)]), descriptor) == {"a": {"x": 1}}


@pytest.mark.feature("F105")
def test_values_that_are_changed_in_place_after_the_barrier_are_saved_as_they_were() -> None:
    subtask = Subtask()
    values = subtask.backend.keyed_state(ANY)
    elements = subtask.backend.keyed_state(ListStateDescriptor("elements"))
    nested = subtask.backend.keyed_state(MapStateDescriptor("nested"))
    means = subtask.backend.keyed_state(AggregatingStateDescriptor("means", Mean()))
    subtask.on("a")
    values.update({"seen": [1]})
    elements.add([1])
    nested.put("k", [1])
    means.add(4)
    pending = subtask.backend.snapshot(CheckpointId(1))
    value = values.value()
    value["seen"].append(2)
    values.update(value)
    for given in (*elements.get(), *nested.values(), nested.get("k")):
        given.append(2)
    elements.add([9])
    elements.get()[0].append(3)
    nested.put("l", [9])
    nested.get("k").append(3)
    means.add(6)
    assert values.value() == {"seen": [1, 2]} and means.get() == 5
    [again] = restored([stored(pending)])
    again.on("a")
    assert again.backend.keyed_state(ANY).value() == {"seen": [1]}
    assert again.backend.keyed_state(ListStateDescriptor("elements")).get() == [[1]]
    assert again.backend.keyed_state(MapStateDescriptor("nested")).get("k") == [1]
    assert again.backend.keyed_state(AggregatingStateDescriptor("means", Mean())).get() == 4


def test_reducing_state_comes_back() -> None:
    descriptor = ReducingStateDescriptor("r", Sum(), Types.LONG())
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(descriptor)
    state.add(1)
    pending = subtask.backend.snapshot(CheckpointId(1))
    state.add(2)
    assert state.get() == 3
    assert merged(restored([stored(pending)]), descriptor) == {"a": 1}


def test_a_second_snapshot_encodes_the_first_one_first() -> None:
    subtask = Subtask()
    counts(subtask, range(20))
    first = subtask.backend.snapshot(CheckpointId(1))
    counts(subtask, range(10), value=100)
    second = subtask.backend.snapshot(CheckpointId(2))
    counts(subtask, range(30), value=200)
    assert first.encode(1.0)
    saved = [merged(restored([stored(pending)]), COUNT) for pending in (first, second)]
    assert saved[0] == {key: key + 1 for key in range(20)}
    assert saved[1] == {key: key + (100 if key < 10 else 1) for key in range(20)}


def test_a_cancelled_snapshot_keeps_nothing() -> None:
    subtask = Subtask(step_ms=1_000)
    counts(subtask, range(2000))
    state = subtask.backend.keyed_state(ANY)
    next(key for key in range(100) if subtask.on(key).cell.group == 7)  # the last to be encoded
    held = [1]
    state.update(held)
    pending = subtask.backend.snapshot(CheckpointId(1))
    assert not pending.encode(0.1)
    assert state.value() is not held
    pending.cancel()
    assert state.value() is held
    assert pending.encode(1.0)
    assert pending.upload(MEMORY).is_empty
    state.clear()
    counts(subtask, range(2000), value=5)
    assert merged(restored([snapshot(subtask, 2)]), COUNT) == {k: k + 5 for k in range(2000)}


def test_an_operator_without_state_writes_nothing() -> None:
    class Refusing:
        def stream(self) -> CheckpointStateOutputStream:
            raise AssertionError("no stream is needed")

    subtask = Subtask()
    subtask.backend.keyed_state(COUNT)
    pending = subtask.backend.snapshot(CheckpointId(1))
    assert pending.encode(1.0)
    assert pending.upload(Refusing()).is_empty


def test_a_state_that_is_new_after_the_barrier_is_in_the_next_snapshot() -> None:
    subtask = Subtask()
    counts(subtask, range(3))
    pending = subtask.backend.snapshot(CheckpointId(1))
    late = subtask.backend.keyed_state(ANY)
    subtask.on(1)
    late.update("x")
    [first] = restored([stored(pending)])
    first.backend.keyed_state(ANY)
    assert first.dump("any") == {}
    assert merged(restored([snapshot(subtask, 2)]), ANY) == {1: "x"}


def test_a_value_that_cannot_be_pickled_fails_the_snapshot_and_names_the_state() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(ANY)
    state.update(threading.Lock())
    pending = subtask.backend.snapshot(CheckpointId(1))
    for attempt in (lambda: pending.encode(1.0), lambda: pending.upload(MEMORY)):
        with pytest.raises(UserError, match="pickle") as raised:
            attempt()
        assert raised.value.where == "operator 'counts', state 'any'"
    state.update(1)
    assert merged(restored([snapshot(subtask, 2)]), ANY) == {"a": 1}


def test_an_upload_that_fails_leaves_no_stream_open() -> None:
    class Full(CheckpointStateOutputStream):
        closed = False

        def write(self, data: bytes | memoryview) -> None:
            raise StorageFailed("the disk is full")

        def close(self) -> None:
            self.closed = True

    subtask = Subtask()
    counts(subtask, range(3))
    pending = subtask.backend.snapshot(CheckpointId(1))
    pending.finish()
    stream = Full("memory:/full", None, buffer_max=0)
    with pytest.raises(StorageFailed):
        pending.upload(MemoryPlace(stream))
    assert stream.closed


@pytest.mark.feature("F030")
def test_at_twice_the_parallelism_each_key_is_found_once() -> None:
    subtasks = [Subtask(index, 2) for index in range(2)]
    for subtask in subtasks:
        counts(subtask, [key for key in range(200) if subtask.owns(key)])
    handles = [snapshot(subtask) for subtask in subtasks]
    assert all(isinstance(each.managed_keyed, KeyGroupsStateHandle) for each in handles)
    wider = restored(handles, 4)
    assert merged(wider, COUNT) == {key: key + 1 for key in range(200)}
    assert all(subtask.dump("count") for subtask in wider)


def test_what_nobody_asks_for_goes_into_the_next_snapshot() -> None:
    subtasks = [Subtask(index, 2) for index in range(2)]
    for subtask in subtasks:
        counts(subtask, [key for key in range(50) if subtask.owns(key)])
    [one] = restored([snapshot(subtask) for subtask in subtasks])
    state = one.backend.keyed_state(ANY)
    one.on(7)
    state.update("kept")
    three = restored([snapshot(one, 2)], 3)
    assert merged(three, COUNT) == {key: key + 1 for key in range(50)}
    assert merged(three, ANY) == {7: "kept"}


def test_what_nobody_asks_for_outlives_its_file_once_there_was_a_snapshot() -> None:
    subtask, reader = Subtask(), Viewed()
    counts(subtask, range(50))
    [one] = restored([snapshot(subtask)], reader=reader)
    snapshot(one, 2)
    reader.overwrite()
    [two] = restored([snapshot(one, 3)])
    assert merged([two], COUNT) == {key: key + 1 for key in range(50)}


def test_what_was_asked_for_outlives_its_file() -> None:
    subtask, reader = Subtask(), Viewed()
    counts(subtask, range(50))
    [one] = restored([snapshot(subtask)], reader=reader)
    one.backend.keyed_state(COUNT)
    reader.overwrite()
    assert merged([one], COUNT) == {key: key + 1 for key in range(50)}


@pytest.mark.parametrize(
    ("descriptor", "says"),
    [
        (ValueStateDescriptor("count", Types.STRING()), "was Long and is now String"),
        (ListStateDescriptor("count", Types.LONG()), "of kind value and is now list"),
    ],
)
def test_a_state_whose_type_has_changed_is_refused(
    descriptor: ValueStateDescriptor, says: str
) -> None:
    subtask = Subtask()
    counts(subtask, range(3))
    [again] = restored([snapshot(subtask)])
    with pytest.raises(SerializerIncompatible, match=says) as raised:
        again.backend.keyed_state(descriptor)
    assert raised.value.where == "operator 'counts', state 'count'"
    again.backend.keyed_state(COUNT)
    assert len(again.dump("count")) == 3


def test_a_wider_type_reads_the_old_state() -> None:
    subtask = Subtask().on("a")
    subtask.backend.keyed_state(ValueStateDescriptor("v", Types.INT())).update(7)
    wider = ValueStateDescriptor("v", Types.LONG())
    [again] = restored([snapshot(subtask)])
    assert merged([again], wider) == {"a": 7}
    assert merged(restored([snapshot(again, 2)]), wider) == {"a": 7}


def test_state_under_another_declared_type_of_key_is_refused() -> None:
    subtask = Subtask(key_type=Types.LONG())
    counts(subtask, range(3))
    with pytest.raises(SerializerIncompatible, match="type of keys") as raised:
        restored([snapshot(subtask)], key_type=Types.STRING())
    assert raised.value.where == "operator 'counts', keys"


@pytest.mark.parametrize("use", ["update", "add", "put", "reduce"])
@pytest.mark.parametrize("other", [("b", 2, 3), ("b", "2"), "b"])
def test_the_first_write_under_another_type_of_key_is_refused(other: object, use: str) -> None:
    subtask = Subtask().on(("a", 1))
    subtask.backend.keyed_state(COUNT).update(1)
    [again] = restored([snapshot(subtask)])
    descriptor, write = writes()[use]
    state = again.backend.keyed_state(descriptor)
    again.on(other)
    for _ in range(2):
        with pytest.raises(SerializerIncompatible, match="The keys of the state are") as raised:
            write(state)
        assert raised.value.where == "operator 'counts'"
    assert again.dump(descriptor.name) == ({("a", 1): 1} if use == "update" else {})


@pytest.mark.parametrize("use", ["update", "add", "put", "reduce"])
@pytest.mark.parametrize("same", [("b", 2), (None, 2)])
def test_the_first_write_under_the_same_type_of_key_is_as_any_other(same: object, use: str) -> None:
    subtask = Subtask().on(("a", 1))
    subtask.backend.keyed_state(COUNT).update(1)
    [again] = restored([snapshot(subtask)])
    descriptor, write = writes()[use]
    state = again.backend.keyed_state(descriptor)
    again.on(same)
    write(state)
    before = again.dump(descriptor.name)
    pending = again.backend.snapshot(CheckpointId(2))
    write(state)
    assert merged(restored([stored(pending)]), descriptor) == before != {}


def writes() -> dict[str, tuple[StateDescriptor, Callable[[Any], None]]]:
    return {
        "update": (COUNT, lambda state: state.update(2)),
        "add": (ListStateDescriptor("l"), lambda state: state.add(2)),
        "put": (MapStateDescriptor("m"), lambda state: state.put(2, 2)),
        "reduce": (ReducingStateDescriptor("r", Sum(), Types.LONG()), lambda state: state.add(2)),
    }


def test_a_snapshot_before_the_first_write_leaves_its_check_in_place() -> None:
    subtask = Subtask().on("a")
    subtask.backend.keyed_state(COUNT).update(1)
    [again] = restored([snapshot(subtask)])
    state = again.backend.keyed_state(COUNT)
    pending = again.backend.snapshot(CheckpointId(2))
    again.on(next(key for key in range(100) if again.on(key).cell.group not in (0, 1)))
    with pytest.raises(SerializerIncompatible):
        state.update(1)
    assert merged(restored([stored(pending)]), COUNT) == {"a": 1}


@dataclass
class Seen:
    count: int
    names: list[str]


@pytest.mark.parametrize("key", ["a", 7, True, 1.5, b"k", ("a", 1), ("a", None)])
def test_keys_and_values_come_back_as_they_were(key: object) -> None:
    descriptor = ValueStateDescriptor("v")
    value = (Seen(1, ["x"]), {"k": (1, 2.0)}, [None, b"b"])
    subtask = Subtask().on(key)
    subtask.backend.keyed_state(descriptor).update(value)
    found = merged(restored([snapshot(subtask)]), descriptor)
    assert found == {key: value}
    assert [type(each) for each in found] == [type(key)]


def test_a_canonical_savepoint_is_refused_by_name() -> None:
    subtask = Subtask()
    counts(subtask, range(3))
    handle = snapshot(subtask).managed_keyed
    assert isinstance(handle, KeyGroupsStateHandle)
    canonical = KeyGroupsSavepointStateHandle(handle.key_groups, handle.offsets, handle.delegate)
    with pytest.raises(RestoreRefused, match="KeyGroupsSavepointStateHandle"):
        Subtask().backend.restore(RestoredOperatorState(managed_keyed=(canonical,)), READER)
