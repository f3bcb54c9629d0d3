"""State as DataFrames: read with its types and filters, written as a savepoint."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tests.snapshots.filled import Route, by_key
from tests.snapshots.world import UID, Snapshots, snapshots
from tests.spark.state_records import Flights
from tidegate import (
    ConfigError,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    SavepointWriter,
    Snapshot,
    StateDataSource,
    TypeInformation,
    Types,
    ValueStateDescriptor,
    register_state_source,
    state_options,
)
from tidegate.spark.state_source import key_from_text
from tidegate.typeinfo.hints import type_of_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ROWS = 500
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Iterator[SparkSession]:
    register_state_source(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint with a state of each kind, under the keys 0 to ROWS."""
    path = tmp_path_factory.mktemp("states")
    keys = range(ROWS)
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    writer = SavepointWriter.new_savepoint(max_parallelism=16, parallelism=2)
    for descriptor, entries in (
        (ValueStateDescriptor("count", Types.LONG()), {key: -key for key in keys}),
        (ListStateDescriptor("list", pair), {key: [("a", key)] for key in keys}),
        (MapStateDescriptor("map", Types.STRING(), Types.DOUBLE()), {1: {"a": 0.5}}),
        (ValueStateDescriptor("flights", Flights), {1: Flights(3, "UA")}),
        (ValueStateDescriptor("undeclared"), {1: "a", 2: "b"}),
    ):
        writer.put_state(UID, descriptor, entries, key_type=Types.LONG())
    writer.put_operator_state(UID, OperatorStateDescriptor("splits", Types.STRING()), ["x", "y"])
    return Path(writer.write(path / "savepoint"))


def frame(spark: SparkSession, path: Path, state: str, **options: Any) -> DataFrame:
    read = spark.read.format("tidegate.state").option("operator", UID).option("state", state)
    return read.options(**options).load(str(path))


@pytest.mark.feature("F254")
def test_states_are_read_with_their_types(reading: SparkSession, folder: Path) -> None:
    count = frame(reading, folder, "count")
    assert count.schema == T.StructType().add("key_group", "short").add("key", "long").add(
        "value", "long"
    )
    assert count.rdd.getNumPartitions() == 2
    found = {row.key: row.value for row in count.collect()}
    assert found == {key: -key for key in range(ROWS)}
    pairs = frame(reading, folder, "list").where("key = 7").collect()
    assert [[tuple(part) for part in row.value] for row in pairs] == [[("a", 7)]]
    assert frame(reading, folder, "map").first().value == {"a": 0.5}
    assert frame(reading, folder, "flights").first().value.asDict() == {"count": 3, "carrier": "UA"}
    assert [row.value for row in frame(reading, folder, "splits").collect()] == ["x", "y"]


def test_equality_on_the_key_reads_its_key_group_alone(reading: SparkSession, folder: Path) -> None:
    count = frame(reading, folder, "count")
    one = count.where("key = 42 and value < 0")
    assert [row.value for row in one.collect()] == [-42]
    assert one.rdd.getNumPartitions() == 1
    some = count.where("key in (1, 2, 1000)").collect()
    assert sorted(row.key for row in some) == [1, 2]
    assert [row.value for row in frame(reading, folder, "count", key="42").collect()] == [-42]
    group = one.first().key_group
    assert {row.key_group for row in count.where(f"key_group = {group}").collect()} == {group}


def test_a_session_that_offers_no_filters_reads_all_the_same(
    reading: SparkSession, folder: Path
) -> None:
    reading.conf.set(PUSHDOWN, "false")
    reading.dataSource.register(StateDataSource)
    try:
        rows = frame(reading, folder, "count").where("key = 42").collect()
        assert [row.value for row in rows] == [-42]
    finally:
        register_state_source(reading)


def test_undeclared_values_may_be_asked_for_as_they_are(
    reading: SparkSession, folder: Path
) -> None:
    assert {row.value for row in frame(reading, folder, "undeclared").collect()} == {"a", "b"}
    read = reading.read.format("tidegate.state").option("operator", UID)
    raw = read.option("state", "undeclared").schema("key long, value binary").load(str(folder))
    assert all(bytes(row.value).startswith(b"\x80") for row in raw.collect())


def test_what_is_not_there_is_told_when_it_is_loaded(reading: SparkSession, folder: Path) -> None:
    with pytest.raises(PySparkException, match="'count' may be meant"):
        frame(reading, folder, "counts")
    with pytest.raises(PySparkException, match="The option 'operator' is missing"):
        reading.read.format("tidegate.state").option("state", "count").load(str(folder))
    sized = reading.read.format("tidegate.state").option("operator", UID).option("state", "count")
    with pytest.raises(
        PySparkException, match="'partitionBytes' is 'many', which is not a positive"
    ):
        sized.option("partitionBytes", "many").load(str(folder)).count()


@pytest.mark.parametrize(
    ("text", "key_type", "key"),
    [
        ("7", Types.STRING(), "7"),
        ("7", Types.LONG(), 7),
        ("00ff", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff"),
        ("2013-01-01", Types.SQL_DATE(), datetime.date(2013, 1, 1)),
        ('["EWR", 3]', Types.TUPLE([Types.STRING(), Types.LONG()]), ("EWR", 3)),
        ('["EWR", "BOS"]', type_of_hint(Route), ("EWR", "BOS")),
    ],
)
def test_a_key_may_be_given_as_text(text: str, key_type: TypeInformation, key: object) -> None:
    assert key_from_text(text, key_type) == key
    with pytest.raises(ConfigError, match="'key' is not of type Long: x"):
        key_from_text("x", Types.LONG())
    with pytest.raises(ConfigError, match="'key' is not of type Long"):
        key_from_text("[" * 10_000, Types.LONG())


@pytest.mark.feature("F254")
def test_a_state_is_bootstrapped_and_amended(reading: SparkSession, tmp_path: Path) -> None:
    made, amended, replaced = (str(tmp_path / name) for name in ("made", "amended", "replaced"))
    rows = reading.range(1_000).selectExpr(
        "concat('k', id) as key", "struct(id as count, 'UA' as carrier) as value"
    )
    options = state_options(ValueStateDescriptor("flights", Flights), key_type=Types.STRING())
    write = rows.repartition(3).write.format("tidegate.state").option("operator", "counts")
    write.options(**options).mode("append").save(made)
    found = by_key(Snapshot.open(made).rows("counts", "flights"))
    assert len(found) == 1_000 and found["k7"].count == 7  # type: ignore[attr-defined]
    read = reading.read.format("tidegate.state").option("operator", "counts")
    bad = read.option("state", "flights").load(made).where("key = 'k7'").drop("key_group")
    mended = bad.selectExpr("key", "struct(0 as count, value.carrier as carrier) as value")
    for mode, path in (("append", amended), ("overwrite", replaced)):
        into = mended.write.format("tidegate.state").option("operator", "counts")
        into.option("state", "flights").option("from", made).mode(mode).save(path)
    found = by_key(Snapshot.open(amended).rows("counts", "flights"))
    assert len(found) == 1_000 and found["k7"].count == 0  # type: ignore[attr-defined]
    assert list(by_key(Snapshot.open(replaced).rows("counts", "flights"))) == ["k7"]
    assert {file.name[:2] for file in Path(made).iterdir()} <= {"_m", "0-"}


def test_a_write_that_fails_leaves_nothing(reading: SparkSession, tmp_path: Path) -> None:
    rows = reading.range(10).selectExpr("id % 5 as key", "id as value")
    options = state_options(ValueStateDescriptor("count", Types.LONG()))
    write = rows.repartition(3).write.format("tidegate.state").option("operator", "counts")
    with pytest.raises(PySparkException, match="comes twice"):
        write.options(**options).mode("append").save(str(tmp_path / "twice"))
    assert not (tmp_path / "twice").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(PySparkException, match="not empty"):
        write.options(**options).mode("append").save(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "notes").exists()


def test_the_state_of_a_folder_of_rocksdb_is_read_by_tasks(
    reading: SparkSession, tmp_path: Path
) -> None:
    with snapshots(tmp_path, "rocksdb") as world:
        path = _filled(world)
        read = frame(reading, path, "count", partitionBytes=200)
        assert read.rdd.getNumPartitions() > 2
        assert {row.key: row.value for row in read.collect()} == {key: key for key in range(100)}


def _filled(world: Snapshots) -> Path:
    subtasks = world.subtasks(2, key_type=Types.LONG())
    for subtask in subtasks:
        state: Any = subtask.backend.keyed_state(ValueStateDescriptor("count", Types.LONG()))
        for key in filter(subtask.owns, range(100)):
            subtask.on(key)
            state.update(key)
    return world.written(subtasks)
