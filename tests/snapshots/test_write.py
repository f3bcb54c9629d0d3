"""Savepoints written offline: what they hold is read back, and restored by both state backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from flinkformat.snapshots import FINISHED
from tests.snapshots.filled import TTL, Route, by_key, filled
from tests.snapshots.flights import Flights
from tests.snapshots.world import EACH_FORM, UID, Snapshots, snapshots
from tests.state.counted_columns import COUNT, Columns
from tests.state.disk_world import Disk
from tests.state.world import restored
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import ConfigError, StorageFailed, UserError
from tidegate.snapshots.checking.fsck import fsck
from tidegate.snapshots.differences import diff_snapshots
from tidegate.snapshots.snapshot import Snapshot, StateKind, StateRow
from tidegate.snapshots.tables import read_state
from tidegate.snapshots.writing.writer import SavepointWriter
from tidegate.storage.state_files import StateFiles
from tidegate.typeinfo.types import TypeInformation, Types

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGS = ValueStateDescriptor("count", Types.LONG())


@pytest.fixture(params=EACH_FORM)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Snapshots]:
    with snapshots(tmp_path, str(request.param)) as made:
        yield made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Snapshots]:
    with snapshots(tmp_path) as made:
        yield made


def resumed(
    path: str, descriptor: StateDescriptor, *, key_type: TypeInformation | None, disk: bool
) -> dict[object, object]:
    """What a job of parallelism 3 finds of a state when it starts from a savepoint."""
    snapshot = Snapshot.open(path)
    [operator] = snapshot.metadata.operators
    states = [state for state in operator.subtasks.values() if state is not FINISHED]
    place = Disk() if disk else None
    try:
        subtasks = restored(
            states,
            3,
            max_parallelism=operator.max_parallelism,
            key_type=key_type,
            reader=snapshot.reader,
            local=(lambda: None) if place is None else place.local,
        )
        found: dict[object, object] = {}
        for subtask in subtasks:
            subtask.backend.keyed_state(descriptor)
            found |= subtask.dump(descriptor.name)
        return found
    finally:
        if place is not None:
            place.close()


@pytest.mark.parametrize("disk", [False, True])
def test_state_is_made_of_rows_and_a_job_starts_from_it(tmp_path: Path, disk: bool) -> None:
    entries = {f"key-{i}": i for i in range(1_000)}
    writer = SavepointWriter.new_savepoint(max_parallelism=16, parallelism=2)
    path = writer.put_state("counts", LONGS, entries).write(tmp_path / "new")
    assert by_key(Snapshot.open(path).rows("counts", "count")) == entries
    [info] = Snapshot.open(path).states("counts")
    assert (info.kind, info.key_type) == (StateKind.VALUE, Types.STRING())
    assert resumed(path, LONGS, key_type=Types.STRING(), disk=disk) == entries
    assert fsck(path).findings == ()


@pytest.mark.parametrize("disk", [False, True])
def test_a_key_is_repaired_and_another_one_taken_away(
    world: Snapshots, tmp_path: Path, disk: bool
) -> None:
    before = filled(world, LONGS, range(50), lambda s, key: s.update(key), key_type=Types.LONG())
    writer = SavepointWriter.from_existing(before.path)
    writer.put_state(UID, "count", {7: -7, 99: 99, 3: None})
    path = writer.write(tmp_path / "repaired")
    expected: dict[object, object] = {key: key for key in range(50) if key != 3}
    expected |= {7: -7, 99: 99}
    assert by_key(Snapshot.open(path).rows(UID, "count")) == expected
    assert by_key(before.rows(UID, "count")) == {key: key for key in range(50)}
    assert resumed(path, LONGS, key_type=Types.LONG(), disk=disk) == expected
    assert fsck(path).findings == ()
    counts = diff_snapshots(before.path, path).operators[0].states[0]
    assert (counts.added, counts.removed, counts.changed, counts.same) == (1, 1, 1, 48)


def test_what_several_checkpoints_have_written_is_read_and_amended(
    world: Snapshots, tmp_path: Path
) -> None:
    subtasks = world.subtasks(2, key_type=Types.LONG())
    expected: dict[object, object] = {}
    path = tmp_path
    for number in range(3):
        for subtask in subtasks:
            state: Any = subtask.backend.keyed_state(LONGS)
            for key in filter(subtask.owns, range(number, 60, number + 1)):
                subtask.on(key)
                if key % 7 == number:
                    state.clear()
                    expected.pop(key, None)
                else:
                    state.update(number)
                    expected[key] = number
        path = world.written(subtasks)
    assert by_key(Snapshot.open(path).rows(UID, "count")) == expected
    amended = SavepointWriter.from_existing(path).put_state(UID, "count", {7: 7, 8: None})
    made = amended.write(tmp_path / "amended")
    expected.pop(8, None)
    assert by_key(Snapshot.open(made).rows(UID, "count")) == {**expected, 7: 7}
    assert resumed(made, LONGS, key_type=Types.LONG(), disk=False) == {**expected, 7: 7}


@pytest.mark.slow
def test_what_is_read_can_be_written_as_it_is(plain: Snapshots, tmp_path: Path) -> None:
    window = Types.TUPLE([Types.LONG(), Types.LONG()])
    cases: list[tuple[StateDescriptor, Any]] = [
        (ListStateDescriptor("x", Types.TUPLE([Types.LONG(), Types.STRING()])), [(1, "a")]),
        (MapStateDescriptor("x", Types.STRING(), window), {"a": (1, 2)}),
        (ValueStateDescriptor("x", Flights), Flights(1, "UA")),
        (ValueStateDescriptor("x"), {"a": 1, "b": "c"}),
        (ValueStateDescriptor("x", Types.LONG(), ttl=TTL), 7),
        (ListStateDescriptor("x", Types.LONG(), ttl=TTL), [7, 8]),
        (MapStateDescriptor("x", Types.LONG(), Types.STRING(), ttl=TTL), {7: "a"}),
    ]
    for number, (descriptor, value) in enumerate(cases):

        def fill(state: Any, key: object, value: Any = value) -> None:
            put = {list: "update", dict: "put_all"}.get(type(value), "update")
            getattr(state, put if hasattr(state, put) else "update")(value)

        keys = [Route("EWR", "BOS"), Route("JFK", "LAX")]
        before = filled(plain, descriptor, keys, fill, at_ms=50)
        expected = {tuple(row.key): row for row in before.rows(UID, "x")}  # type: ignore[arg-type]
        for how, rows in (
            ("arrow", read_state(before.path, UID, "x").to_arrow()),
            ("rows", list(read_state(before.path, UID, "x").rows())),
        ):
            target = tmp_path / f"again-{number}-{how}"
            writer = SavepointWriter.from_existing(before.path)
            path = writer.put_state(UID, "x", rows, replace=True).write(target)
            found = {tuple(row.key): row for row in Snapshot.open(path).rows(UID, "x")}
            assert found.keys() == expected.keys()
            for key, row in found.items():
                assert str(row.value) == str(expected[key].value)
                assert row.last_access == expected[key].last_access


def test_states_are_added_replaced_and_left_out(world: Snapshots, tmp_path: Path) -> None:
    before = filled(world, LONGS, range(10), lambda s, key: s.update(key), key_type=Types.LONG())
    more = ValueStateDescriptor("more", Types.STRING())
    folder = tmp_path
    writer = SavepointWriter.from_existing(before.path)
    writer.put_state(UID, more, {1: "a"}).put_state(UID, "count", {5: 0}, replace=True)
    writer.put_state("another", more, {"b": "c"})
    path = writer.write(folder / "added")
    snapshot = Snapshot.open(path)
    assert by_key(snapshot.rows(UID, "count")) == {5: 0}
    assert by_key(snapshot.rows(UID, "more")) == {1: "a"}
    assert by_key(snapshot.rows("another", "more")) == {"b": "c"}
    again = (
        SavepointWriter.from_existing(path).remove_state(UID, "count").remove_operator("another")
    )
    left = Snapshot.open(again.change_operator_id(UID, "renamed").write(folder / "less"))
    assert [operator.uid for operator in left.operators] == ["renamed"]
    assert [info.name for info in left.states("renamed")] == ["more"]


def test_timers_are_put_under_their_name(world: Snapshots, tmp_path: Path) -> None:
    [subtask] = world.subtasks(1, key_type=Types.STRING())
    timers = subtask.backend.timers("user-timers", None, lambda _: None)
    subtask.on("a")
    timers.event.register(5)
    timers.processing.register(6)
    path = world.written([subtask])
    name = "_timer_state/event_user-timers"
    writer = SavepointWriter.from_existing(path).put_state(UID, name, {"a": 9, "b": 7})
    made = Snapshot.open(writer.write(tmp_path / "timers"))
    assert sorted((row.key, row.value) for row in made.rows(UID, name)) == [
        ("a", 5),
        ("a", 9),
        ("b", 7),
    ]


def test_columns_and_operator_state_are_kept_beside_what_is_put(
    plain: Snapshots, tmp_path: Path
) -> None:
    [subtask] = plain.subtasks(1)
    keys = pa.array(["a", "b"])
    columns = Columns(subtask, Types.STRING())
    rows = columns.index(keys)
    subtask.backend.column_state(COUNT).put(rows, [1, 2])
    subtask.backend.operator_state(OperatorStateDescriptor("splits", Types.LONG())).update([1, 2])
    path = plain.written([subtask])
    writer = SavepointWriter.from_existing(path).put_state(UID, LONGS, {"a": 5})
    union = OperatorStateDescriptor("all", Types.LONG(), RedistributionMode.UNION)
    rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    writer.put_operator_state(UID, union, [3, 4]).put_broadcast_state(UID, rules, {"r": 1})
    with pytest.raises(ConfigError, match="of kind column"):
        writer.remove_state(UID, COUNT.name)
    with pytest.raises(ConfigError, match="of kind operator list"):
        writer.put_state(UID, "splits", {1: 1})
    writer.remove_state(UID, "splits")
    made = Snapshot.open(writer.write(tmp_path / "more"))
    kinds = {info.name: info.kind for info in made.states(UID)}
    assert kinds == {
        "all": StateKind.UNION_LIST,
        "rules": StateKind.BROADCAST,
        COUNT.name: StateKind.COLUMN if COUNT.name != "count" else kinds["count"],
    }
    assert [row.value for row in made.rows(UID, "all")] == [3, 4]
    assert by_key(made.rows(UID, "rules")) == {"r": 1}


def test_bad_rows_are_refused_by_name(plain: Snapshots) -> None:
    before = filled(plain, LONGS, ["a"], lambda s, _: s.update(1), key_type=Types.STRING())
    writer = SavepointWriter.from_existing(before.path)
    with pytest.raises(ConfigError, match="no column value") as refused:
        writer.put_state(UID, "count", pa.table({"key": ["a"], "valeu": [1]}))
    assert UID in refused.value.where and "valeu" in refused.value.remedy
    with pytest.raises(ConfigError, match="5 is not a key of type String"):
        writer.put_state(UID, "count", {5: 1})
    with pytest.raises(UserError, match="declared type, Long") as wrong:
        writer.put_state(UID, "count", {"a": "x"})
    assert "key 'a'" in wrong.value.where and "count" in wrong.value.where
    with pytest.raises(ConfigError, match="no state 'counts'"):
        writer.put_state(UID, "counts", {"a": 1})
    with pytest.raises(ConfigError, match="type is unknown") as unknown:
        writer.put_state(f"{UID}s", "count", {"a": 1})
    assert f"'{UID}' may be meant" in unknown.value.remedy
    with pytest.raises(ConfigError, match="no operator"):
        writer.remove_operator("new")
    with pytest.raises(ConfigError, match="begins empty"):
        SavepointWriter.new_savepoint().remove_operator("new")


def test_a_key_that_comes_twice_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    rows = [StateRow(0, None, "a", None, 1), StateRow(0, None, "a", None, 2)]
    writer = SavepointWriter.new_savepoint().put_state("counts", LONGS, rows)
    with pytest.raises(ConfigError, match="comes twice in the rows for the state 'count'"):
        writer.write(tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> str:
        raise StorageFailed("the disk is full")

    monkeypatch.setattr(StateFiles, "write_metadata", failing)
    large = {key: "x" * 1_000 for key in range(200)}
    writer = SavepointWriter.new_savepoint()
    writer.put_state("texts", ValueStateDescriptor("text", Types.STRING()), large)
    with pytest.raises(StorageFailed):
        writer.write(tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_state_of_any_size_goes_to_files(tmp_path: Path) -> None:
    text = "x" * 10_000
    writer = SavepointWriter.new_savepoint()
    writer.put_state(
        "texts", ValueStateDescriptor("text", Types.STRING()), dict.fromkeys(range(1_000), text)
    )
    path = writer.write(tmp_path / "large")
    assert sum(1 for row in Snapshot.open(path).rows("texts", "text") if row.value == text) == 1_000
    assert sum(file.stat().st_size for file in Path(path).iterdir()) > 10_000_000


def test_a_folder_that_holds_anything_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    writer = SavepointWriter.new_savepoint().put_state("counts", LONGS, {"a": 1})
    with pytest.raises(ConfigError, match=r"not empty: it holds notes\.txt"):
        writer.write(tmp_path / "used")
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"


def test_the_new_savepoint_stands_alone(world: Snapshots, tmp_path: Path) -> None:
    before = filled(
        world,
        ValueStateDescriptor("text", Types.STRING()),
        range(60),
        lambda s, key: s.update("x" * 1_000),
        key_type=Types.LONG(),
    )
    path = Path(SavepointWriter.from_existing(before.path).write(tmp_path / "copy"))
    moved = path.rename(tmp_path / "moved")
    for file in Path(before.path).rglob("*"):
        if file.is_file():
            file.unlink()
    assert len(by_key(Snapshot.open(moved).rows(UID, "text"))) == 60
    assert Snapshot.open(moved).job_name == "test"
    assert fsck(moved).findings == ()
