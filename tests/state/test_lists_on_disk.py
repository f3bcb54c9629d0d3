"""Lists on disk, each of which is stored in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.state.disk_world import SMALL, Disk
from tests.state.log_world import Logs, Place
from tests.state.on_disk import batch_comes, maps, saved, taken
from tests.state.world import Subtask, merged, restored
from tidegate import (
    ListStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    UserError,
    ValueStateDescriptor,
)
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import RocksDBSettings
from tidegate.state.disk.store import RocksDBStore
from tidegate.typeinfo.types import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.api.state import StateDescriptor

NUMBERS = ListStateDescriptor("numbers", Types.LONG())


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of key spaces, by the name of the method."""
    looks: list[str] = []

    def counted(name: str) -> Any:
        method = getattr(RocksDBStore, name)

        def look(store: RocksDBStore, *of: Any, **how: Any) -> Any:
            looks.append(name)
            return method(store, *of, **how)

        return look

    for name in ("get", "get_many", "scan", "slices", "first_of"):
        monkeypatch.setattr(RocksDBStore, name, counted(name))
    return looks


def lists(subtask: Subtask, descriptor: StateDescriptor = NUMBERS, key: object = "k") -> Any:
    return maps(subtask, descriptor, key)


def parts_on_disk(subtask: Subtask) -> int:
    """How many entries the key space has."""
    backend: Any = subtask.backend
    return len(list(backend._keyed._store.scan(b"")))


def test_adding_to_a_long_list_that_is_not_in_memory_reads_and_writes_nothing_of_it(
    disk: Disk, looks: list[str]
) -> None:
    [subtask] = disk.begun(1)
    lists(subtask).add_all(range(10_000))
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    before = sum(map(len, disk.files.values()))
    state = lists(again)
    looks.clear()
    for number in range(3):
        batch_comes(again)
        state.add(-number)
        state.add_all([-number])
        taken(disk, again, 2 + number)
    assert looks == []
    assert sum(map(len, disk.files.values())) - before < 10_000
    assert state.get() == [*range(10_000), 0, 0, -1, -1, -2, -2]
    assert looks == ["slices"]
    for each in (subtask, again):
        each.backend.close()


@pytest.mark.slow
def test_a_list_that_was_read_and_has_many_parts_becomes_one_as_it_is_added_to(
    disk: Disk,
) -> None:
    [subtask] = disk.begun(1)
    held: list[int] = []
    sizes: list[int] = []
    state = lists(subtask)
    for number in range(40):
        state.add(number)
        held.append(number)
        taken(disk, subtask, number + 1)
        assert state.get() == held
        sizes.append(parts_on_disk(subtask))
    assert max(sizes) == 16 and sizes[-1] < 16
    for number in range(40, 60):  # none that nobody reads
        lists(subtask, key="other").add(number)
        taken(disk, subtask, number + 1)
    assert parts_on_disk(subtask) == sizes[-1] + 20
    lists(subtask, key="other").update([1])
    lists(subtask).clear()
    [again] = disk.gone_on([taken(disk, subtask, 99)], 1)
    assert parts_on_disk(again) == 1
    assert merged([again], NUMBERS) == {"other": [1]}
    for each in (subtask, again):
        each.backend.close()


OPERATIONS = st.tuples(
    st.sampled_from(["add", "add", "add", "add_all", "update", "clear", "get", "get", "batch",
                     "snapshot", "snapshot", "begin", "abort", "go on"]),
    st.integers(0, 3),
    st.integers(0, 5),
)  # fmt: skip


def used(state: Any, held: list[object], operation: str, number: int, size: int) -> None:
    """Do the same to a state and to the list that says what it has."""
    match operation:
        case "add":
            state.add(number)
            held.append(number)
        case "add_all":
            state.add_all(range(size))
            held += range(size)
        case "update":
            state.update(range(size))
            held[:] = range(size)
        case "clear":
            state.clear()
            held.clear()
        case _:
            assert state.get() == held


@pytest.mark.slow
@pytest.mark.parametrize("logged", [False, True])
@examples(12)
@given(operations=st.lists(OPERATIONS, min_size=20, max_size=60))
def test_lists_are_as_in_memory_whatever_is_on_disk_of_them(
    logged: bool, operations: list[tuple[str, int, int]]
) -> None:
    model: dict[object, list[object]] = {}
    disk, logs = Disk(), Logs()
    log = logs.log if logged else None
    with pytest.MonkeyPatch.context() as patch:
        # So that a few parts are many.
        patch.setattr("tidegate.state.disk.lists._PARTS_MAX", 3)
        patch.setattr("tidegate.state.disk.layered._ROWS_A_SCAN", 2)
        patch.setattr("tidegate.state.disk.layered._ROWS_AHEAD", 3)
        patch.setattr("tidegate.state.disk.store._NAMED_MAX", 2)
        patch.setattr("tidegate.state.disk.store._SKIPPED_MAX", 2)
        subtask = Subtask(local=disk.local(), log=log)
        state = lists(subtask)
        pending: list[Any] = []
        for number, (operation, of, size) in enumerate(operations, 1):
            key = f"key {of}"
            subtask.on(key)
            held = model.setdefault(key, [])
            match operation:
                case "add" | "add_all" | "update" | "clear" | "get":
                    used(state, held, operation, number, size)
                case "batch":
                    batch_comes(subtask, [f"key {each}" for each in range(of + 1)])
                case "begin":
                    pending.append(subtask.backend.snapshot(CheckpointId(number)))
                case "abort" if pending:
                    pending.pop().cancel()
                case _:
                    before = {at: list(each) for at, each in model.items() if each}
                    piece = subtask.backend.snapshot(CheckpointId(number))
                    state.add(-1)
                    held.append(-1)
                    piece.finish()
                    pending.clear()
                    place = Place(logs) if logged else disk
                    known = disk.resolved(piece.upload(place))
                    reader = logs if logged else disk
                    [again] = restored([known], reader=reader, local=disk.local, log=log)
                    assert merged([again], NUMBERS) == before
                    if operation == "go on":
                        subtask, again = again, subtask
                        state = lists(subtask)
                        model = {at: list(each) for at, each in before.items()}
                    again.backend.close()
            assert subtask.dump("numbers") == {at: each for at, each in model.items() if each}
        assert merged(restored([saved(subtask)], 2), NUMBERS) == subtask.dump("numbers")
        subtask.backend.close()
    disk.close()


@pytest.mark.slow
def test_parts_go_on_behind_those_of_other_subtasks_after_a_rescale(disk: Disk) -> None:
    subtasks = disk.begun(2)
    keys = [f"key {number}" for number in range(12)]

    def add(to: list[Subtask], number: int) -> None:
        for key in keys:
            [owner] = [each for each in to if each.owns(key)]
            lists(owner, key=key).add(number)

    held: list[int] = []
    for parallelism in (1, 3, 2):
        for _ in range(3):
            held.append(len(held))
            add(subtasks, held[-1])
            states = [taken(disk, each, len(held)) for each in subtasks]
        again = disk.gone_on(states, parallelism)
        for each in subtasks:
            each.backend.close()
        subtasks = again
        assert merged(subtasks, NUMBERS) == {key: held for key in keys}
    for each in subtasks:
        each.backend.close()


@dataclass
class Thing:
    """An element that can be changed."""

    parts: list[int]


THINGS = ListStateDescriptor("things", Thing)
ANYTHING = ListStateDescriptor("anything")


def test_a_savepoint_in_canonical_form_takes_lists_of_all_sorts_to_memory_and_back(
    disk: Disk,
) -> None:
    [subtask] = disk.begun(1)
    odd = ListStateDescriptor("odd", Types.BIG_INT())
    held: dict[str, list[object]] = {"things": [], "anything": [], "odd": []}
    for number in range(3):
        added = {
            "things": [Thing([number])],
            "anything": [{number}, None],
            "odd": [number, 1 << (80 * number)],  # of which some can't be packed
        }
        for each in (THINGS, ANYTHING, odd):
            lists(subtask, each).add_all(added[each.name])
            held[each.name] += added[each.name]
        taken(disk, subtask, number + 1)
    [in_memory] = restored([saved(subtask)])
    [again] = disk.gone_on([saved(in_memory)], 1)
    for each in (THINGS, ANYTHING, odd):
        lists(again, each).add(held[each.name][0])
        assert lists(again, each).get() == [*held[each.name], held[each.name][0]]
        for one in (subtask, in_memory):
            assert merged([one], each) == {"k": held[each.name]}
    for each in (subtask, again):
        each.backend.close()


@pytest.mark.parametrize("logged", [False, True])
def test_an_element_that_was_read_may_be_changed_while_its_snapshot_is_under_way(
    disk: Disk, logged: bool
) -> None:
    logs = Logs()
    log = logs.log if logged else None
    subtask = Subtask(local=disk.local(), log=log)
    state = lists(subtask, THINGS)
    state.add(Thing([1]))
    subtask.backend.snapshot(CheckpointId(1)).finish()
    first = subtask.backend.snapshot(CheckpointId(2))
    first.finish()
    first.upload(Place(logs) if logged else disk)
    batch_comes(subtask)
    assert state.get() == [Thing([1])]
    state.add(Thing([2]))
    pending = subtask.backend.snapshot(CheckpointId(3))
    things = state.get()
    for thing in things:
        thing.parts.append(10)
    state.update(things)
    pending.finish()
    known = disk.resolved(pending.upload(Place(logs) if logged else disk))
    [again] = restored([known], reader=logs if logged else disk, local=disk.local, log=log)
    assert merged([again], THINGS) == {"k": [Thing([1]), Thing([2])]}
    assert merged([subtask], THINGS) == {"k": [Thing([1, 10]), Thing([2, 10])]}
    for each in (subtask, again):
        each.backend.close()


def test_what_is_taken_back_of_a_snapshot_that_fails_is_there_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk(RocksDBSettings(cache_entries=1_000, memory_bytes=SMALL.memory_bytes))
    monkeypatch.setattr("tidegate.state.disk.layered._ROWS_A_BATCH", 1)
    [subtask] = disk.begun(1)
    group = subtask.on("bad").cell.group
    alike = [key for key in map(str, range(200)) if subtask.on(key).cell.group == group][:5]
    for key in alike:
        lists(subtask, key=key).update([1, 2])
    taken(disk, subtask)
    lists(subtask, key=alike[3]).add(3)
    taken(disk, subtask)
    lists(subtask, key=alike[0]).add(3)
    lists(subtask, key=alike[1]).clear()
    lists(subtask, key=alike[2]).update([7])
    lists(subtask, key=alike[3]).update([4])
    lists(subtask, key=alike[4]).add(6)
    lists(subtask, key="bad").add("three")
    pending = subtask.backend.snapshot(CheckpointId(2))
    lists(subtask, key=alike[0]).add(4)
    lists(subtask, key=alike[1]).add(5)
    lists(subtask, key=alike[3]).update([8])
    with pytest.raises(UserError, match="not of its declared type") as refused:
        pending.encode(100.0)
    assert refused.value.where == (
        "operator 'counts', state 'numbers', key 'bad', at the entry ['three']"
    )
    lists(subtask, key=alike[4]).update([9])
    lists(subtask, key=alike[2]).add(1)
    lists(subtask, key=alike[2]).clear()
    lists(subtask, key=alike[2]).add(7)
    expected = dict(zip(alike, ([1, 2, 3, 4], [5], [7], [8], [9]), strict=True))
    assert {key: lists(subtask, key=key).get() for key in alike} == expected
    lists(subtask, key="bad").clear()
    [again] = disk.gone_on([taken(disk, subtask, 3)], 1)
    for each in (subtask, again):
        assert merged([each], NUMBERS) == expected
        each.backend.close()
    disk.close()


def test_parts_of_older_types_are_read_with_newer_ones(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    lists(subtask, ListStateDescriptor("numbers", Types.INT())).add_all([1, 2])
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    life = StateTtlConfig.new_builder(Time.milliseconds(100)).build()
    living = ListStateDescriptor("numbers", Types.LONG(), ttl=life)
    state = lists(again.at(50), living)
    state.add(1 << 40)
    both = taken(disk, again, 2)
    assert state.get() == [1, 2, 1 << 40]
    assert merged(restored([saved(again)]), living) == {"k": [(50, 1), (50, 2), (50, 1 << 40)]}
    [third] = disk.gone_on([both], 1)
    state = lists(third.at(149), living)
    assert state.get() == [1, 2, 1 << 40]
    third.at(150)
    assert state.get() == [], "all began to live at 50"
    for each in (subtask, again, third):
        each.backend.close()


def test_expired_elements_of_cold_lists_are_cleaned_up_as_others_are_accessed(disk: Disk) -> None:
    life = StateTtlConfig.new_builder(Time.milliseconds(100)).cleanup_incrementally(1_000, False)
    living = ListStateDescriptor("living", Types.LONG(), ttl=life.build())
    [subtask] = disk.begun(1)
    for key in ("a", "b"):
        lists(subtask, living, key).add_all([1, 2])
    taken(disk, subtask)
    lists(subtask.at(60), living, "a").add(3)
    taken(disk, subtask, 2)
    lists(subtask.at(120), living, "c").add(4)
    assert subtask.dump("living") == {"a": [(60, 3)], "c": [(120, 4)]}
    subtask.backend.close()


def test_lists_of_a_snapshot_that_has_them_as_one_entry_each_stay_so(disk: Disk) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.state.disk.rocksdb.is_stored_by_entry", lambda *of: False)
        [subtask] = disk.begun(1)
        lists(subtask).add_all([1, 2])
        old = taken(disk, subtask)
    [again] = disk.gone_on([old], 1)
    for number in (3, 4):
        lists(again).add(number)
        last = taken(disk, again, number)
    assert parts_on_disk(again) == 1
    [later] = disk.gone_on([last], 1)
    assert merged([later], NUMBERS) == {"k": [1, 2, 3, 4]}
    [apart] = disk.gone_on([saved(later)], 1)
    lists(apart).add(5)
    taken(disk, apart, 5)
    assert parts_on_disk(apart) == 2
    assert lists(apart).get() == [1, 2, 3, 4, 5]
    for each in (subtask, again, later, apart):
        each.backend.close()


def test_lists_that_a_batch_asks_for_are_read_at_once_and_others_are_not(
    disk: Disk, looks: list[str]
) -> None:
    [subtask] = disk.begun(1)
    keys = [f"key {number}" for number in range(40)]
    for key in keys:
        lists(subtask, key=key).add(0)
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    looks.clear()
    lists(again, key=keys[0]).get()
    batch_comes(again, keys[1:6])
    assert looks == ["slices", "first_of"]
    for key in keys[1:6]:
        assert lists(again, key=key).get() == [0]
    assert looks == ["slices", "first_of"]
    for start in (6, 8):  # what was read ahead in vain is not again
        batch_comes(again, keys[start : start + 2])
        lists(again, key=keys[start]).add(1)
    assert looks == ["slices", "first_of", "first_of"]
    for each in (subtask, again):
        each.backend.close()


def test_lists_of_windows_are_kept_apart() -> None:
    disk = Disk(RocksDBSettings(cache_entries=2, memory_bytes=SMALL.memory_bytes))
    [subtask] = disk.begun(1)
    state: Any = subtask.backend.keyed_state(NUMBERS, LONG)
    cell = subtask.backend.pair_cell
    for number in range(3):
        for window in (1, 256, 65_536):
            cell.key, cell.group = ("k", window), subtask.on("k").cell.group
            state.add(window + number)
        taken(disk, subtask, number + 1)
    for window in (1, 256, 65_536):
        cell.key = ("k", window)
        assert state.get() == [window, window + 1, window + 2]
    subtask.backend.close()
    disk.close()


def test_a_value_that_is_a_list_is_one_entry(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    value = ValueStateDescriptor("whole", Types.LIST(Types.LONG()))
    for number in range(3):
        maps(subtask, value).update([number])
        taken(disk, subtask, number + 1)
    assert parts_on_disk(subtask) == 1
    subtask.backend.close()
