"""Maps on disk, each entry of which is stored for itself."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.state.disk_world import SMALL, Disk
from tests.state.log_world import Logs, Place
from tests.state.on_disk import NUMBERS, batch_comes, maps, saved, taken
from tests.state.world import Subtask, merged, restored
from tests.worlds.storage import MEMORY
from tidegate import (
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    UserError,
    ValueStateDescriptor,
)
from tidegate.errors import SerializerIncompatible
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import RocksDBSettings
from tidegate.state.disk.store import RocksDBStore
from tidegate.typeinfo.types import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


def test_a_put_costs_an_entry_and_not_the_map(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    state = maps(subtask)
    state.put_all({number: number for number in range(10_000)})
    taken(disk, subtask)
    before = sum(map(len, disk.files.values()))
    state.put(77, -1)
    assert state.get(77) == -1 and state.get(78) == 78 and state.get(-5) is None
    taken(disk, subtask, 2)
    assert sum(map(len, disk.files.values())) - before < 4_000
    assert len(dict(state.items())) == 10_000
    subtask.backend.close()


def test_what_is_drawn_is_the_map_as_it_was_though_it_is_changed_meanwhile(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    state = maps(subtask)
    state.put_all({number: 0 for number in range(1_000)})
    taken(disk, subtask)
    state.put(5_000, 0)
    state.remove(1)
    seen = dict[int, int]()
    for drawn, (number, value) in enumerate(state.items()):
        seen[number] = value
        state.put(number, 1)
        if drawn == 500:
            state.clear()
            assert state.is_empty() and list(state.keys()) == []
    assert seen == {number: 0 for number in (0, *range(2, 1_000), 5_000)}
    assert set(state.values()) == {1}
    subtask.backend.close()


def test_a_cleared_map_is_empty_before_and_after_it_is_on_disk_and_may_be_filled_again(
    disk: Disk,
) -> None:
    [subtask] = disk.begun(1)
    for key, size in (("few", 3), ("many", 500)):
        state = maps(subtask, key=key)
        state.put_all({number: number for number in range(size)})
    first = taken(disk, subtask)
    for key in ("few", "many"):
        state = maps(subtask, key=key)
        state.clear()
        assert state.is_empty() and state.get(1) is None and 1 not in state
        state.put(2, 20)
    second = taken(disk, subtask, 2)
    for key in ("few", "many"):
        assert dict(maps(subtask, key=key).items()) == {2: 20}
    assert merged(disk.gone_on([second], 2), NUMBERS) == {"few": {2: 20}, "many": {2: 20}}
    whole = merged(disk.gone_on([first], 3), NUMBERS)
    assert {key: len(entries) for key, entries in whole.items()} == {"few": 3, "many": 500}
    subtask.backend.close()


OPERATIONS = st.tuples(
    st.sampled_from(["put", "put", "put", "remove", "clear", "get", "items", "is_empty", "batch",
                     "snapshot", "begin", "abort"]),
    st.integers(0, 3),
    st.integers(0, 12),
)  # fmt: skip


@pytest.mark.slow
@examples(12)
@given(operations=st.lists(OPERATIONS, min_size=20, max_size=60))
def test_maps_are_as_dicts_whatever_is_on_disk_of_them(
    operations: list[tuple[str, int, int]],
) -> None:
    model: dict[object, dict[object, object]] = {}
    disk = Disk()
    with pytest.MonkeyPatch.context() as patch:
        # So that a few entries are a large map.
        patch.setattr("tidegate.state.disk.maps._ROWS_DRAWN", 3)
        patch.setattr("tidegate.state.disk.layered._ROWS_A_SCAN", 3)
        patch.setattr("tidegate.state.disk.layered._ROWS_AHEAD", 3)
        patch.setattr("tidegate.state.disk.layered._LOADS_WITHOUT", 2)
        patch.setattr("tidegate.state.disk.store._NAMED_MAX", 2)
        [subtask] = disk.begun(1)
        pending: list[Any] = []
        for number, (operation, of, name) in enumerate(operations, 1):
            key = f"key {of}"
            state, held = maps(subtask, key=key), model.setdefault(key, {})
            match operation:
                case "put":
                    state.put(name, number)
                    held[name] = number
                case "remove":
                    state.remove(name)
                    held.pop(name, None)
                case "clear":
                    state.clear()
                    held.clear()
                case "get":
                    assert state.get(name) == held.get(name)
                    assert state.contains(name) == (name in held)
                case "items":
                    pairs = list(state.items())
                    assert dict(pairs) == held and len(pairs) == len(held)
                case "is_empty":
                    assert state.is_empty() == (not held)
                case "batch":
                    batch_comes(subtask, [f"key {each}" for each in range(of + 1)])
                case "begin":
                    pending.append(subtask.backend.snapshot(CheckpointId(number)))
                case "abort" if pending:
                    pending.pop().cancel()
                case _:
                    before = {at: dict(entries) for at, entries in model.items() if entries}
                    piece = subtask.backend.snapshot(CheckpointId(number))
                    maps(subtask, key=key).put(name, -1)
                    held[name] = -1
                    piece.finish()
                    pending.clear()
                    [again] = disk.gone_on([disk.uploaded(piece)], 1)
                    assert merged([again], NUMBERS) == before
                    again.backend.close()
        found = subtask.dump("numbers")
        assert found == {at: entries for at, entries in model.items() if entries}
        canonical = saved(subtask)
        assert merged(restored([canonical], 2), NUMBERS) == found
        subtask.backend.close()
    disk.close()


@dataclass
class Thing:
    """A value that can be changed."""

    parts: list[int]


DATES = MapStateDescriptor("dates", Types.TUPLE([Types.STRING(), Types.SQL_DATE()]), Thing)
ANY_VALUE = MapStateDescriptor("any value", Types.STRING())
ANY_KEY = MapStateDescriptor("any key")


@pytest.mark.slow
def test_a_savepoint_in_canonical_form_takes_maps_of_all_sorts_to_memory_and_back(
    disk: Disk,
) -> None:
    [subtask] = disk.begun(1)
    day = datetime.date(2024, 2, 29)
    held: dict[str, dict[object, object]] = {
        "dates": {("a", day): Thing([1, 2]), ("b", day): Thing([])},
        "any value": {"a": None, "b": {1, 2}, "c": ("x", [3])},
        "any key": {(1, "x"): 1, None: 2, 1.5: 3},
    }
    descriptors = (DATES, ANY_VALUE, ANY_KEY)
    for each in descriptors:
        maps(subtask, each).put_all(held[each.name])
    taken(disk, subtask)
    assert dict(maps(subtask, DATES).items()) == held["dates"]
    assert maps(subtask, ANY_VALUE).contains("a") and maps(subtask, ANY_VALUE).get("a") is None
    [in_memory] = restored([saved(subtask)])
    for each in descriptors:
        assert merged([in_memory], each) == {"k": held[each.name]}
    maps(in_memory, DATES).get(("a", day)).parts.append(3)
    frozen = in_memory.backend.snapshot(CheckpointId(2))
    # What is written after the barrier comes behind what was there: a map that stands twice.
    maps(in_memory, DATES).put(("c", day), Thing([4]))
    frozen.finish()
    [again] = disk.gone_on([frozen.upload(MEMORY)], 1)
    held["dates"]["a", day] = Thing([1, 2, 3])
    for each in descriptors:
        assert merged([again], each) == {"k": held[each.name]}
    for each in (subtask, again):
        each.backend.close()


def test_a_value_that_was_read_may_be_changed_while_its_snapshot_is_under_way(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    state = maps(subtask, DATES)
    one, two = ("a", datetime.date(2024, 1, 1)), ("b", datetime.date(2024, 1, 2))
    state.put(one, Thing([1]))
    state.put(two, Thing([2]))
    pending = subtask.backend.snapshot(CheckpointId(1))
    state.get(one).parts.append(10)
    for _, thing in state.items():
        thing.parts.append(20)
    pending.finish()
    [again] = disk.gone_on([disk.uploaded(pending)], 1)
    assert merged([again], DATES) == {"k": {one: Thing([1]), two: Thing([2])}}
    for each in (subtask, again):
        each.backend.close()


def test_a_value_that_was_read_may_be_changed_while_its_changes_are_logged(disk: Disk) -> None:
    logs = Logs()
    subtask = Subtask(local=disk.local(), log=logs.log)
    state = maps(subtask, DATES)
    one, two = ("a", datetime.date(2024, 1, 1)), ("b", datetime.date(2024, 1, 2))
    state.put(one, Thing([1]))
    first = subtask.backend.snapshot(CheckpointId(1))
    first.finish()
    first.upload(Place(logs))
    batch_comes(subtask)
    assert dict(state.items()) == {one: Thing([1])}
    state.put(two, Thing([2]))
    pending = subtask.backend.snapshot(CheckpointId(2))
    thing = state.get(one)
    thing.parts.append(10)
    state.put(one, thing)
    pending.finish()
    state_at_two = pending.upload(Place(logs))
    [again] = restored([state_at_two], reader=logs, local=disk.local, log=logs.log)
    assert merged([again], DATES) == {"k": {one: Thing([1]), two: Thing([2])}}
    for each in (subtask, again):
        each.backend.close()


def test_numbers_of_numpy_are_the_map_keys_that_they_equal(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    state = maps(subtask)
    state.put(np.int64(5), 50)
    taken(disk, subtask)
    for _ in range(2):
        batch_comes(subtask)
    assert state.get(5) == 50 and state.get(np.int64(5)) == 50
    subtask.backend.close()


def test_what_is_not_of_its_declared_type_is_refused_by_name(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    maps(subtask).put("one", 1)
    with pytest.raises(UserError, match="not of its declared type") as refused:
        subtask.backend.snapshot(CheckpointId(1)).encode(100.0)
    assert refused.value.where == (
        "operator 'counts', state 'numbers', map keys, at the entry 'one'"
    )
    subtask.backend.close()
    [subtask] = disk.begun(1)
    maps(subtask).put(1, "one")
    with pytest.raises(UserError, match="not of its declared type") as refused:
        subtask.backend.snapshot(CheckpointId(1)).encode(100.0)
    assert refused.value.where == (
        "operator 'counts', state 'numbers', key 'k', at the entry 'one'"
    )
    subtask.backend.close()


def test_values_of_an_older_type_are_read_entry_by_entry_and_together(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    narrow = MapStateDescriptor("numbers", Types.INT(), Types.INT())
    maps(subtask, narrow).put_all({1: 10, 2: 20, 3: 30})
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    living = MapStateDescriptor(
        "numbers",
        Types.LONG(),
        Types.LONG(),
        ttl=StateTtlConfig.new_builder(Time.milliseconds(100)).build(),
    )
    state = maps(again.at(50), living)
    state.put(2, 1 << 40)
    assert dict(state.items()) == {1: 10, 2: 1 << 40, 3: 30}
    both = taken(disk, again, 2)
    assert merged(restored([saved(again)]), living) == {
        "k": {1: (50, 10), 2: (50, 1 << 40), 3: (50, 30)}
    }
    [third] = disk.gone_on([both], 1)
    state = maps(third.at(149), living)
    assert state.get(1) == 10 and state.get(2) == 1 << 40
    third.at(150)
    assert state.get(2) is None and list(state.keys()) == [], "all began to live at 50"
    with pytest.raises(SerializerIncompatible, match="key was"):
        maps(disk.gone_on([both], 1)[0], MapStateDescriptor("numbers", str, Types.LONG()))


def test_expired_entries_are_cleaned_up_as_others_are_accessed(disk: Disk) -> None:
    life = StateTtlConfig.new_builder(Time.milliseconds(100)).cleanup_incrementally(1_000, False)
    living = MapStateDescriptor("living", Types.LONG(), Types.LONG(), ttl=life.build())
    [subtask] = disk.begun(1)
    for key in ("a", "b"):
        maps(subtask, living, key).put_all({number: number for number in range(20)})
    taken(disk, subtask)
    subtask.at(60)
    maps(subtask, living, "a").put(7, 70)
    subtask.at(120)
    assert maps(subtask, living, "a").get(7) == 70
    assert subtask.dump("living") == {"a": {7: (60, 70)}}
    assert maps(subtask, living, "b").is_empty() and not maps(subtask, living, "a").is_empty()
    subtask.backend.close()


def test_maps_of_a_snapshot_that_has_them_as_one_entry_each_stay_so(disk: Disk) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.state.disk.rocksdb.is_stored_by_entry", lambda *of: False)
        [subtask] = disk.begun(1)
        maps(subtask).put_all({1: 10, 2: 20})
        old = taken(disk, subtask)
    [again] = disk.gone_on([old], 1)
    state = maps(again)
    state.put(3, 30)
    assert dict(state.items()) == {1: 10, 2: 20, 3: 30}
    assert merged(disk.gone_on([taken(disk, again, 2)], 1), NUMBERS) == {"k": {1: 10, 2: 20, 3: 30}}
    [apart] = disk.gone_on([saved(again)], 1)
    assert dict(maps(apart).items()) == {1: 10, 2: 20, 3: 30}


def test_small_maps_of_a_batch_are_read_at_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [subtask] = disk.begun(1)
    keys = [f"key {number}" for number in range(40)]
    for number, key in enumerate(keys):
        maps(subtask, key=key).put_all({number: 1, -1: 2})
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    looks: list[bytes] = []
    get, slices = RocksDBStore.get, RocksDBStore.slices

    def counted_get(store: RocksDBStore, key: bytes) -> bytes | None:
        looks.append(key)
        return get(store, key)

    def counted_slices(store: RocksDBStore, first: bytes, *rest: Any, **how: Any) -> Any:
        looks.append(first)
        return slices(store, first, *rest, **how)

    monkeypatch.setattr(RocksDBStore, "get", counted_get)
    monkeypatch.setattr(RocksDBStore, "slices", counted_slices)
    assert maps(again, key=keys[0]).get(0) == 1 and dict(maps(again, key=keys[1]).items())
    assert len(looks) == 2
    batch_comes(again, keys[:6])
    for number, key in enumerate(keys[:6]):
        state = maps(again, key=key)
        assert state.get(number) == 1 and state.get(50) is None
        assert dict(state.items()) == {number: 1, -1: 2}
    assert len(looks) == 2
    for each in (subtask, again):
        each.backend.close()


def test_small_maps_between_many_that_were_cleared_are_read_at_once(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    keys = [f"key {number}" for number in range(300)]
    for key in keys:
        maps(subtask, key=key).put(1, 10)
    taken(disk, subtask)
    left = keys[::100]
    for key in keys:
        if key not in left:
            maps(subtask, key=key).clear()
    [again] = disk.gone_on([taken(disk, subtask, 2)], 1)
    maps(again, key=keys[0]).get(1)
    batch_comes(again, keys)
    for key in keys:
        assert dict(maps(again, key=key).items()) == ({1: 10} if key in left else {})
    for each in (subtask, again):
        each.backend.close()


def test_a_value_that_is_a_map_is_one_entry_on_disk(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    value = ValueStateDescriptor("whole", Types.MAP(Types.LONG(), Types.LONG()))
    maps(subtask, value).update({1: 10, 2: 20})
    [again] = disk.gone_on([taken(disk, subtask)], 1)
    assert maps(again, value).value() == {1: 10, 2: 20}
    assert merged(restored([saved(again)]), value) == {"k": {1: 10, 2: 20}}
    for each in (subtask, again):
        each.backend.close()


def test_maps_of_windows_are_kept_apart() -> None:
    disk = Disk(RocksDBSettings(cache_entries=2, memory_bytes=SMALL.memory_bytes))
    [subtask] = disk.begun(1)
    state: Any = subtask.backend.keyed_state(NUMBERS, LONG)
    cell = subtask.backend.pair_cell
    for window in range(5):
        cell.key, cell.group = ("k", window), subtask.on("k").cell.group
        state.put(window, window)
        state.put(9, window)
    taken(disk, subtask)
    cell.key = ("k", 3)
    state.clear()
    for window in range(5):
        cell.key = ("k", window)
        found = {} if window == 3 else {window: window, 9: window}
        assert dict(state.items()) == found and state.get(9) == found.get(9)
    subtask.backend.close()
    disk.close()
