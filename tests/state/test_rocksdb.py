"""State on disk says what is wrong as state in memory does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.state.disk_world import Disk
from tests.state.on_disk import maps
from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    Types,
    UserError,
    ValueStateDescriptor,
)
from tidegate.errors import SerializerIncompatible, StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.slot.subtask.metering import ROCKSDB_FIGURES
from tidegate.state.disk.store import RocksDBStore
from tidegate.typeinfo.types import LONG

NUMBERS = ValueStateDescriptor("numbers", Types.LONG())


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


def test_a_value_of_another_type_than_its_states_is_refused_when_it_is_encoded(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    subtask.on("a").backend.keyed_state(NUMBERS).update("seven")  # type: ignore[attr-defined]
    pending = subtask.backend.snapshot(CheckpointId(1))
    with pytest.raises(UserError, match="not of its declared type") as refused:
        pending.encode(100.0)
    assert refused.value.where == (
        "operator 'counts', state 'numbers', key 'a', at the entry 'seven'"
    )
    subtask.backend.close()


def test_rocksdb_tells_its_own_figures_until_it_is_closed(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    backend = subtask.backend
    assert backend.figure("rocksdb.estimate-num-keys") is None, "nothing is open yet"
    for key in range(100):
        subtask.on(key).backend.keyed_state(NUMBERS).update(key)  # type: ignore[attr-defined]
    backend.snapshot(CheckpointId(1)).finish()
    assert all(backend.figure(name) is not None for name in ROCKSDB_FIGURES)
    assert (backend.figure("rocksdb.cur-size-all-mem-tables") or 0) > 0
    assert backend.figure("rocksdb.no-such-thing") is None
    backend.close()
    assert backend.figure("rocksdb.estimate-num-keys") is None


def test_a_restored_state_of_another_kind_or_without_its_namespace_is_refused(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    subtask.on("a").backend.keyed_state(NUMBERS).update(7)  # type: ignore[attr-defined]
    pending = subtask.backend.snapshot(CheckpointId(1))
    pending.finish()
    [again] = disk.gone_on([disk.uploaded(pending)], 1)
    with pytest.raises(SerializerIncompatible, match="of kind value and is now list"):
        again.backend.keyed_state(ListStateDescriptor("numbers", Types.LONG()))
    with pytest.raises(SerializerIncompatible, match="is now value with a namespace"):
        again.backend.keyed_state(NUMBERS, LONG)
    for each in (subtask, again):
        each.backend.close()


class Total(AggregateFunction[int, int, int]):
    """A sum."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


def test_a_reduction_to_none_is_an_error(disk: Disk) -> None:
    [subtask] = disk.begun(1)
    group = subtask.on("a").cell.group
    descriptor = ReducingStateDescriptor("s", lambda old, new: None, Types.LONG())
    state: Any = subtask.backend.keyed_state(descriptor)
    emitted: list[object] = []
    with pytest.raises(TypeError, match="the reduce function has returned None"):
        state.add_rows(["a", "a"], [group] * 2, [1, 2], emitted.append)
    assert emitted == [1] and state.get() == 1


def test_accumulators_of_many_windows_are_read_at_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that rows of a batch are added to, and those that are to be asked for."""
    totals = AggregatingStateDescriptor("totals", Total(), Types.LONG())
    [subtask] = disk.begun(1)
    pairs = [(f"key {number}", window) for number in range(50) for window in (0, 10)]
    groups = [subtask.on(key).cell.group for key, _ in pairs]
    first: Any = subtask.backend.keyed_state(totals, LONG)
    first.add_rows(iter(pairs), groups, range(100))
    pending = subtask.backend.snapshot(CheckpointId(1))
    pending.finish()
    [again] = disk.gone_on([disk.uploaded(pending)], 1)
    subtask.backend.close()
    singles: list[bytes] = []
    get = RocksDBStore.get
    monkeypatch.setattr(
        RocksDBStore, "get", lambda self, key: (singles.append(key), get(self, key))[1]
    )
    state: Any = again.backend.keyed_state(totals, LONG)
    state.add_rows(iter(pairs[:10]), groups[:10], [1] * 10)
    assert len(singles) == 10, "nothing had to be read before"
    state.add_rows(iter(pairs[10:60]), groups[10:60], [1] * 50)
    state.read_ahead(pairs[60:], groups[60:])
    cell = again.backend.pair_cell
    for number, (pair, group) in enumerate(zip(pairs, groups, strict=True)):
        cell.key, cell.group = pair, group
        assert state.get() == number + (number < 60)
    assert len(singles) == 10
    again.backend.close()


def test_a_snapshot_goes_on_behind_one_that_could_not_be_linked(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [subtask] = disk.begun(1)
    maps(subtask).put(1, 10)
    first = subtask.backend.snapshot(CheckpointId(1))
    first.finish()
    with monkeypatch.context() as patched:
        patched.setattr(RocksDBStore, "link", no_space)
        with pytest.raises(StorageFailed, match="No space left"):
            disk.uploaded(first)
    maps(subtask).put(2, 20)
    second = subtask.backend.snapshot(CheckpointId(2))
    second.finish()
    state = disk.uploaded(second)
    subtask.backend.close()
    [again] = disk.gone_on([state], 1)
    assert dict(maps(again).items()) == {1: 10, 2: 20}
    again.backend.close()


def no_space(store: RocksDBStore, folder: Path) -> None:
    raise StorageFailed("No space left on device")
