"""Snapshots opened and read: every kind of state, however it was written."""

from __future__ import annotations

import datetime
import pickle
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from golden import FIXTURES

from flinkformat.handles import (
    ByteStreamStateHandle,
    InputChannelStateHandle,
    ResultSubpartitionStateHandle,
)
from flinkformat.metadata.channels import merge_inputs
from flinkformat.snapshots import SubtaskState
from tests.snapshots.filled import TTL, Route, by_key, filled
from tests.snapshots.world import EACH_FORM, NAME, UID, Snapshots, snapshots
from tests.state.counted_columns import COUNT, Columns
from tidegate.api.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
)
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.checkpoint.channel_state.file_format import chunk, file_header
from tidegate.errors import ConfigError, FormatError, RestoreRefused, UserError
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.snapshots.differences import diff_snapshots
from tidegate.snapshots.folders import files_of
from tidegate.snapshots.snapshot import Snapshot, StateKind
from tidegate.snapshots.summary import inspect_snapshot
from tidegate.snapshots.writing.writer import SavepointWriter
from tidegate.transport import codec
from tidegate.typeinfo.types import TypeInformation, Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=EACH_FORM)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Snapshots]:
    with snapshots(tmp_path, str(request.param)) as made:
        yield made


@dataclass
class Flights:
    count: int
    carrier: str
    last: datetime.date | None = None


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Snapshots]:
    with snapshots(tmp_path) as made:
        yield made


def table_of(snapshot: Snapshot, state: str) -> pa.Table:
    schema = snapshot.settled(UID, state).schema
    table = pa.Table.from_batches(snapshot.entries(UID, state), schema)
    keys = [column for column in ("subtask", "key", "namespace") if column in schema.names]
    return table.sort_by([(keys[0], "ascending")]) if keys else table


def test_values_are_read_with_their_types(world: Snapshots) -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    keys = [f"key-{i}" for i in range(100)]
    snapshot = filled(
        world, descriptor, keys, lambda s, key: s.update(len(key)), key_type=Types.STRING()
    )
    [operator] = snapshot.operators
    assert (operator.uid, operator.parallelism, operator.max_parallelism) == (UID, 2, 8)
    assert snapshot.job_name == "test"
    [info] = snapshot.states(UID)
    assert (info.name, info.kind) == ("count", StateKind.VALUE)
    assert (info.key_type, info.value_type) == (Types.STRING(), Types.LONG())
    assert by_key(snapshot.rows(NAME, "count")) == {key: len(key) for key in keys}
    table = pa.Table.from_batches(snapshot.entries(UID, "count"))
    assert table.schema.names == ["key_group", "key", "value"]
    assert table.schema.types == [pa.int16(), pa.string(), pa.int64()]
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert found == {key: len(key) for key in keys}


def test_one_key_and_some_key_groups_are_read_alone(world: Snapshots) -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    snapshot = filled(
        world, descriptor, range(100), lambda s, key: s.update(-key), key_type=Types.LONG()
    )
    [row] = snapshot.rows(UID, "count", key=42)
    assert row.value == -42
    [batch] = snapshot.entries(UID, "count", key=42)
    assert batch.column("value").to_pylist() == [-42]
    assert list(snapshot.rows(UID, "count", key=1_000)) == []
    assert list(snapshot.rows(UID, "count", key=42, key_groups=[row.key_group + 1])) == []
    groups = {row.key_group for row in snapshot.rows(UID, "count", key_groups=[1, 6])}
    assert groups == {1, 6}


def test_what_checkpoints_wrote_one_after_the_other_is_laid_over_each_other(
    world: Snapshots,
) -> None:
    [subtask] = world.subtasks(1, key_type=Types.LONG(), max_parallelism=2)
    state: Any = subtask.backend.keyed_state(ValueStateDescriptor("count", Types.LONG()))
    expected: dict[object, object] = {}
    folders: list[Path] = []
    for round in range(5):
        for key in range(2_000) if round == 0 else (round, round * 7, 100):
            subtask.on(key)
            expected[key] = key + round
            state.update(key + round)
        if round == 3:
            subtask.on(150)
            state.clear()
            del expected[150]
        folders.append(world.written([subtask]))
    snapshot = Snapshot.open(folders[-1])
    assert by_key(snapshot.rows(UID, "count")) == expected
    assert by_key(snapshot.rows(UID, "count", key=7)) == {7: 8}
    assert list(snapshot.rows(UID, "count", key=150)) == []


def test_lists_and_maps_are_columns_of_lists_and_maps(world: Snapshots) -> None:
    lists = ListStateDescriptor("list", Types.LONG())
    snapshot = filled(world, lists, [1, 2, 3], lambda s, key: s.update(range(key)))
    assert by_key(snapshot.rows(UID, "list")) == {1: [0], 2: [0, 1], 3: [0, 1, 2]}
    assert table_of(snapshot, "list").schema.field("value").type == pa.list_(pa.int64())
    assert table_of(snapshot, "list")["value"].to_pylist() == [[0], [0, 1], [0, 1, 2]]
    maps = MapStateDescriptor("map", Types.STRING(), Types.DOUBLE())
    snapshot = filled(world, maps, [1, 2], lambda s, key: s.put_all({"a": key / 2, "b": 0.0}))
    assert by_key(snapshot.rows(UID, "map")) == {1: {"a": 0.5, "b": 0.0}, 2: {"a": 1.0, "b": 0.0}}
    found = table_of(snapshot, "map")
    assert found.schema.field("value").type == pa.map_(pa.string(), pa.float64())
    assert found["value"].to_pylist() == [[("a", 0.5), ("b", 0.0)], [("a", 1.0), ("b", 0.0)]]


def test_lists_that_several_checkpoints_have_added_to_are_whole(
    world: Snapshots, tmp_path: Path
) -> None:
    descriptors = ListStateDescriptor("list", Types.LONG()), ListStateDescriptor("any")
    [subtask] = world.subtasks(1, key_type=Types.LONG())
    folder = tmp_path
    for number in range(3):
        for key in range(number, 3):
            for each in descriptors:
                state: Any = subtask.on(key).backend.keyed_state(each)
                state.add(number)
        folder = world.written([subtask])
    expected = {0: [0], 1: [0, 1], 2: [0, 1, 2]}
    copy = SavepointWriter.from_existing(folder).put_state(UID, "list", {7: [7]})
    amended = Snapshot.open(copy.write(tmp_path / "amended"))
    for name in ("list", "any"):
        snapshot = Snapshot.open(folder)
        assert by_key(snapshot.rows(UID, name)) == expected
        assert by_key(snapshot.rows(UID, name, key=2)) == {2: [0, 1, 2]}
        assert table_of(snapshot, name)["value"].to_pylist() == list(expected.values())
        more = {7: [7]} if name == "list" else {}
        assert by_key(amended.rows(UID, name)) == {**expected, **more}


def test_a_list_on_disk_that_is_encoded_in_several_ways_is_read_whole(tmp_path: Path) -> None:
    odd = ListStateDescriptor("odd", Types.BIG_INT())
    held: list[int] = []
    with snapshots(tmp_path, "rocksdb") as disk:
        [subtask] = disk.subtasks(1, key_type=Types.LONG())
        state: Any = subtask.on(1).backend.keyed_state(odd)
        for number in (1, 1 << 80, 2, 3):
            state.add(number)
            held.append(number)
            folder = disk.written([subtask])
        assert by_key(Snapshot.open(folder).rows(UID, "odd")) == {1: held}
        assert inspect_snapshot(folder).operators[0].states[0].entries == 1
        state.update(held)
        expected = Snapshot.open(disk.written([subtask]))
        assert diff_snapshots(folder, expected.path).operators[0].states[0].same == 1


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


def test_reduced_values_and_accumulators_are_what_is_stored(world: Snapshots) -> None:
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    for descriptor, kind, value in (
        (ReducingStateDescriptor("x", lambda a, b: a + b, Types.LONG()), StateKind.REDUCING, 7),
        (AggregatingStateDescriptor("x", Mean(), pair), StateKind.AGGREGATING, (7, 2)),
    ):

        def add(state: Any, key: object) -> None:
            state.add(3)
            state.add(4)

        snapshot = filled(world, descriptor, ["a"], add)
        assert snapshot.state(UID, "x").kind is kind
        assert by_key(snapshot.rows(UID, "x")) == {"a": value}
        [found] = table_of(snapshot, "x")["value"].to_pylist()
        assert found == (value if isinstance(value, int) else {"f0": 7, "f1": 2})


def test_records_are_read_without_their_classes(world: Snapshots) -> None:
    descriptor = ValueStateDescriptor("flights", Flights)
    day = datetime.date(2013, 1, 1)
    snapshot = filled(
        world, descriptor, [Route("EWR", "BOS")], lambda s, _: s.update(Flights(3, "UA", day))
    )
    [row] = snapshot.rows(UID, "flights")
    assert (row.value.count, row.value.carrier, row.value.last) == (3, "UA", day)
    assert type(row.value) is not Flights and type(row.value).__name__ == "Flights"
    assert tuple(row.key) == ("EWR", "BOS")
    [entry] = pa.Table.from_batches(snapshot.entries(UID, "flights")).to_pylist()
    assert entry["value"] == {"count": 3, "carrier": "UA", "last": day}


def test_states_with_a_namespace_have_a_column_for_it(world: Snapshots) -> None:
    descriptor = ValueStateDescriptor("panes", Types.LONG())
    window = Types.TUPLE([Types.LONG(), Types.LONG()])
    subtasks = world.subtasks(1, key_type=Types.STRING())
    state = subtasks[0].backend.keyed_state(descriptor, window)
    for key in ("a", "b"):
        cell = subtasks[0].on(key).cell
        for start in (0, 10):
            pairs = subtasks[0].backend.pair_cell
            pairs.key, pairs.group = (key, (start, start + 10)), cell.group
            state.update(start)
    snapshot = Snapshot.open(world.written(subtasks))
    rows = {(row.key, row.namespace): row.value for row in snapshot.rows(UID, "panes")}
    assert rows == {(k, (s, s + 10)): s for k in "ab" for s in (0, 10)}
    table = table_of(snapshot, "panes")
    assert table["namespace"].to_pylist()[0].keys() == {"f0", "f1"}
    assert [row.value for row in snapshot.rows(UID, "panes", key="b")] in ([0, 10], [10, 0])


@pytest.mark.parametrize("namespace", [None, Types.STRING()])
def test_timers_are_rows_of_key_and_time(
    world: Snapshots, namespace: TypeInformation | None
) -> None:
    subtasks = world.subtasks(2, key_type=Types.LONG())
    beside = None if namespace is None else "w"
    for subtask in subtasks:
        timers = subtask.backend.timers("user-timers", namespace, lambda _: None)
        for key in filter(subtask.owns, range(6)):
            subtask.on(key)
            timers.event.register(1_000 + key, beside)
            timers.processing.register(5, beside)
    snapshot = Snapshot.open(world.written(subtasks))
    event, processing = "_timer_state/event_user-timers", "_timer_state/processing_user-timers"
    assert {info.name for info in snapshot.states(UID)} == {event, processing}
    assert snapshot.state(UID, event).kind is StateKind.TIMERS
    assert by_key(snapshot.rows(UID, event)) == {key: 1_000 + key for key in range(6)}
    assert {row.namespace for row in snapshot.rows(UID, processing)} == {beside}
    table = table_of(snapshot, event)
    assert table["value"].to_pylist() == [1_000 + key for key in range(6)]
    assert ("namespace" in table.schema.names) == (namespace is not None)


def test_state_that_expires_is_parted_from_its_times(world: Snapshots) -> None:
    cases: list[tuple[StateDescriptor, Callable[[Any, Any], None], object, object]] = [
        (ValueStateDescriptor("x", Types.LONG(), ttl=TTL), lambda s, _: s.update(1), 1, 50),
        (ListStateDescriptor("x", Types.LONG(), ttl=TTL), lambda s, _: s.add(1), [1], [50]),
        (
            MapStateDescriptor("x", Types.LONG(), Types.STRING(), ttl=TTL),
            lambda s, _: s.put(1, "a"),
            {1: "a"},
            {1: 50},
        ),
    ]
    for descriptor, fill, value, times in cases:
        snapshot = filled(world, descriptor, ["k"], fill, at_ms=50)
        assert snapshot.state(UID, "x").expires
        [row] = snapshot.rows(UID, "x")
        assert (row.value, row.last_access) == (value, times)
        table = table_of(snapshot, "x")
        [entry] = table.to_pylist()
        assert table.schema.names == ["key_group", "key", "value", "last_access"]
        assert entry["value"] == (list(value.items()) if isinstance(value, dict) else value)


def test_undeclared_values_have_the_type_that_they_turn_out_to_have(plain: Snapshots) -> None:
    cases: list[tuple[list[Any], pa.DataType]] = [
        ([1, None, 3], pa.int64()),
        ([1, 2.5], pa.float64()),
        (["a", "b"], pa.string()),
        ([(1, "a"), (2, None)], pa.struct([("f0", pa.int64()), ("f1", pa.string())])),
        ([{"a": [1]}, {}], pa.map_(pa.string(), pa.list_(pa.int64()))),
        ([{"n": 1, "s": "x"}], pa.struct([("n", pa.int64()), ("s", pa.string())])),
        ([1, "a"], pa.binary()),
        ([2**70], pa.decimal128(38, 0)),
    ]
    for values, arrow in cases:
        chosen = dict(enumerate(values))
        snapshot = filled(
            plain,
            ValueStateDescriptor("x"),
            chosen,
            lambda s, key, chosen=chosen: s.update(chosen[key]),  # type: ignore[misc]
        )
        put = {key: value for key, value in chosen.items() if value is not None}
        assert by_key(snapshot.rows(UID, "x")) == put
        column = table_of(snapshot, "x")["value"]
        assert column.type == arrow
        if arrow == pa.binary():
            assert sorted(map(repr, map(pickle.loads, column.to_pylist()))) == ["'a'", "1"]


def test_a_value_of_another_type_than_those_before_is_told_with_the_way_out(
    plain: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.snapshots.snapshot._SAMPLE", 1)
    values = {1: 1, 2: "a", 3: "b"}
    snapshot = filled(
        plain, ValueStateDescriptor("x"), values, lambda s, key: s.update(values[key])
    )
    with pytest.raises(FormatError, match="'x' holds a value that is not of") as refused:
        list(snapshot.entries(UID, "x"))
    assert UID in refused.value.where and "PICKLED" in refused.value.remedy


def test_a_pickled_value_whose_class_is_gone_is_named_with_state_and_class(
    world: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("gone_by_now")
    exec("class Thing:\n    pass\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "gone_by_now", module)
    snapshot = filled(
        world, ValueStateDescriptor("things"), ["a"], lambda s, _: s.update(module.Thing())
    )
    assert len(list(snapshot.rows(UID, "things"))) == 1
    monkeypatch.delitem(sys.modules, "gone_by_now")
    with pytest.raises(UserError, match="gone_by_now") as refused:
        list(snapshot.rows(UID, "things"))
    assert "state 'things'" in refused.value.where and UID in refused.value.where
    assert refused.value.remedy


@pytest.mark.parametrize("form", ["hashmap", "rocksdb", "changelog", "changelog on disk"])
def test_columns_are_states_of_their_own(tmp_path: Path, form: str) -> None:
    with snapshots(tmp_path, form) as world:
        subtasks = world.subtasks(2)
        keys = pa.array([f"k{i}" for i in range(20)])
        for subtask in subtasks:
            columns = Columns(subtask, Types.STRING())
            own = columns.owned(keys)
            rows = columns.index(own)
            subtask.backend.column_state(COUNT).put(rows, [len(key) for key in own.to_pylist()])
        snapshot = Snapshot.open(world.written(subtasks))
    [info] = snapshot.states(UID)
    assert (info.name, info.kind, info.key_type) == ("count", StateKind.COLUMN, Types.STRING())
    assert by_key(snapshot.rows(UID, "count")) == {f"k{i}": len(f"k{i}") for i in range(20)}
    [row] = snapshot.rows(UID, "count", key="k7")
    assert row.value == 2
    assert table_of(snapshot, "count").schema.types == [pa.int16(), pa.string(), pa.int64()]


def test_panes_are_a_namespace_of_columns(plain: Snapshots) -> None:
    [subtask] = plain.subtasks(1)
    panes = subtask.backend.keyed_panes(Types.LONG())
    keys = pa.array([1, 2])
    rows = panes.index(keys, Columns(plain.subtasks(1)[0]).hasher.key_groups_of_column(keys))
    for number in (0, 60):
        pane = panes.pane(number)
        pane.add(rows)
        pane.column(COUNT).put(rows, [number, number + 1])
    snapshot = Snapshot.open(plain.written([subtask]))
    found = {(row.key, row.namespace): row.value for row in snapshot.rows(UID, "count")}
    assert found == {(1, 0): 0, (2, 0): 1, (1, 60): 60, (2, 60): 61}


def test_operator_state_is_read_subtask_by_subtask(world: Snapshots) -> None:
    subtasks = world.subtasks(2)
    for number, subtask in enumerate(subtasks):
        backend = subtask.backend
        backend.operator_state(OperatorStateDescriptor("splits", Types.LONG())).update([number, 9])
        union = OperatorStateDescriptor("all", Types.STRING(), RedistributionMode.UNION)
        backend.operator_state(union).add(f"of {number}")
        rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
        backend.broadcast_state(rules).put_all({"a": 1, "b": 2})
    snapshot = Snapshot.open(world.written(subtasks))
    kinds = {info.name: info.kind for info in snapshot.states(UID)}
    assert kinds == {
        "splits": StateKind.OPERATOR_LIST,
        "all": StateKind.UNION_LIST,
        "rules": StateKind.BROADCAST,
    }
    found = [(row.subtask, row.value) for row in snapshot.rows(UID, "splits")]
    assert found == [(0, 0), (0, 9), (1, 1), (1, 9)]
    assert [row.value for row in snapshot.rows(UID, "all")] == ["of 0", "of 1"]
    assert by_key(snapshot.rows(UID, "rules")) == {"a": 1, "b": 2}
    assert table_of(snapshot, "rules").to_pylist()[0] == {"subtask": 0, "key": "a", "value": 1}
    with pytest.raises(ConfigError, match="'splits' is of kind operator list"):
        list(snapshot.rows(UID, "splits", key=9))


def test_data_in_flight_are_rows_of_their_channels(plain: Snapshots) -> None:
    rows = RowBatch(["a", "b"], None, None)
    arrow = ArrowBatch(pa.record_batch({"n": [1, 2]}), None)
    chunks = [chunk(b"".join(codec.encode(batch))) for batch in (rows, arrow)]
    start = len(file_header())
    file = ByteStreamStateHandle("flight", file_header() + b"".join(chunks))
    offsets = (start, start + len(chunks[0]))
    sizes = [len(each) for each in chunks]
    inputs = merge_inputs(
        (
            InputChannelStateHandle(0, 0, 3, offsets[:1], sizes[0], file),
            InputChannelStateHandle(0, 1, 4, offsets[1:], sizes[1], file),
        )
    )
    output = ResultSubpartitionStateHandle(0, 2, 5, offsets[:1], sizes[0], file)
    state = SubtaskState(input_channel=(inputs,), result_subpartition=(output,))
    snapshot = Snapshot.open(plain.published([plain.operator({0: state}, 1)]))
    kinds = {info.name: info.kind for info in snapshot.states(UID)}
    assert kinds == {
        "_input_channels": StateKind.INPUT_CHANNELS,
        "_output_channels": StateKind.OUTPUT_CHANNELS,
    }
    found = [(row.namespace, row.value) for row in snapshot.rows(UID, "_input_channels")]
    assert found == [((0, 3), "a"), ((0, 3), "b"), ((1, 4), {"n": 1}), ((1, 4), {"n": 2})]
    assert table_of(snapshot, "_output_channels").to_pylist() == [
        {"subtask": 0, "namespace": {"f0": 2, "f1": 5}, "value": value} for value in ("a", "b")
    ]


def test_what_is_not_there_is_named_with_what_may_be_meant(plain: Snapshots) -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    snapshot = filled(plain, descriptor, [1], lambda s, key: s.update(key))
    with pytest.raises(ConfigError, match="no operator 'count-uid'") as refused:
        snapshot.states("count-uid")
    assert f"'{UID}' may be meant" in refused.value.remedy
    with pytest.raises(ConfigError, match=f"'{UID}' has no state 'counts'") as refused:
        list(snapshot.rows(UID, "counts"))
    assert "'count' may be meant" in refused.value.remedy
    with pytest.raises(ConfigError, match="'1' is not a key") as refused:
        list(snapshot.rows(UID, "count", key="1"))
    assert UID in refused.value.where


def test_a_folder_that_is_no_snapshot_is_told_at_once(tmp_path: Path, plain: Snapshots) -> None:
    with pytest.raises(RestoreRefused, match="Cannot find"):
        Snapshot.open(tmp_path / "nowhere")
    (tmp_path / "half-written").mkdir()
    with pytest.raises(RestoreRefused, match="Cannot find meta data file"):
        Snapshot.open(tmp_path / "half-written")
    (tmp_path / "half-written" / "_metadata").write_bytes(b"hello, I am foreign")
    with pytest.raises(FormatError) as refused:
        Snapshot.open(tmp_path / "half-written")
    assert "half-written/_metadata" in refused.value.where and refused.value.remedy
    (tmp_path / "half-written" / "_metadata").write_bytes(bytes.fromhex("4960672d00000063"))
    with pytest.raises(FormatError, match="version number: 99"):
        Snapshot.open(tmp_path / "half-written")


def test_a_file_that_is_gone_or_damaged_is_named(world: Snapshots) -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    path = Path(filled(world, descriptor, range(50), lambda s, key: s.update(key)).path)
    files = sorted(
        files_of(str(path), Snapshot.open(path).metadata), key=lambda f: Path(f).stat().st_size
    )
    whole = Path(files[-1]).read_bytes()
    Path(files[-1]).write_bytes(whole[: len(whole) // 2])
    with pytest.raises((FormatError, RestoreRefused)) as refused:
        list(Snapshot.open(path).rows(UID, "count"))
    assert UID in refused.value.where or files[-1] in str(refused.value)
    Path(files[-1]).unlink()
    with pytest.raises(RestoreRefused, match="missing") as refused:
        list(Snapshot.open(path).rows(UID, "count"))
    assert files[-1] in str(refused.value)


def test_a_savepoint_that_flink_wrote_is_told_apart(tmp_path: Path) -> None:
    name = "keyed-heapfile-savepoint-canonical"
    shutil.copytree(FIXTURES / name, tmp_path / name)
    snapshot = Snapshot.open(tmp_path / name)
    assert snapshot.operators and snapshot.job_name is None
    keyed = [
        operator
        for operator, state in zip(snapshot.operators, snapshot.metadata.operators, strict=True)
        if any(getattr(each, "managed_keyed", None) for each in state.subtasks.values())
    ]
    with pytest.raises(RestoreRefused, match="not Tidegate's own") as refused:
        snapshot.states(keyed[0])
    assert "tidegate migrate" in refused.value.remedy
