"""What Spark keeps of Arrow's types, and files under one schema."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate import BadRecord, GraphError
from tidegate.api import ship
from tidegate.api.rows.columns import Columns, as_found
from tidegate.connectors.frames.frame_files import holds_files, rows_in, settle, spark_schema
from tidegate.connectors.frames.frame_source import FrameState


def kept(kind: pa.DataType) -> pa.DataType:
    return spark_schema(pa.schema([("c", kind)])).field("c").type


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int64(), pa.int64()),
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.binary(16), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal256(38, 2), pa.decimal128(38, 2)),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.map_(pa.large_string(), pa.uint16()), pa.map_(pa.string(), pa.int32())),
        (pa.struct([("x", pa.uint8())]), pa.struct([("x", pa.int16())])),
    ],
)
def test_types_are_kept_or_made_wider(kind: pa.DataType, expected: pa.DataType) -> None:
    assert kept(kind) == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.duration("us"),
        pa.time64("us"),
        pa.decimal256(40, 2),
        pa.month_day_nano_interval(),
        pa.list_(pa.duration("s")),
        pa.struct([("t", pa.time32("s"))]),
        pa.map_(pa.string(), pa.time32("s")),
        pa.struct([]),
    ],
)
def test_a_type_that_spark_lacks_is_refused_by_the_columns_name(kind: pa.DataType) -> None:
    schema = pa.schema([("fine", pa.int8()), ("bad", kind), ("worse", pa.duration("s"))])
    with pytest.raises(GraphError) as refused:
        spark_schema(schema)
    assert f"'bad' ({kind})" in refused.value.what and "'worse'" in refused.value.what
    assert "'fine'" not in refused.value.what


def write(folder: Path, name: str, columns: dict[str, pa.Array]) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def test_files_of_other_schemas_are_written_anew(tmp_path: Path) -> None:
    same = write(tmp_path / "out", "part-1.parquet", {"a": pa.array([0.5]), "b": pa.array(["x"])})
    other = write(tmp_path / "out", "part-2.parquet", {"a": pa.array([1, 2], pa.int64())})
    before = same.stat().st_mtime_ns
    schema = settle(str(tmp_path / "out"), None)
    assert schema == pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert pq.read_table(other).to_pydict() == {"a": [1.0, 2.0], "b": [None, None]}
    assert same.stat().st_mtime_ns == before, "it was right as it was"
    assert rows_in(str(tmp_path / "out")) == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [same.name, other.name]


def test_times_of_pandas_become_those_of_spark_unless_they_would_change(tmp_path: Path) -> None:
    whole = pa.array([1_000], pa.timestamp("ns", "UTC"))
    path = write(tmp_path / "out", "part-1.parquet", {"t": whole})
    settle(str(tmp_path / "out"), None)
    assert pq.read_table(path)["t"].to_pylist() == [dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)]
    write(tmp_path / "out", "part-2.parquet", {"t": pa.array([1], pa.timestamp("ns", "UTC"))})
    with pytest.raises(BadRecord, match="column 't'"):
        settle(str(tmp_path / "out"), None)


def test_files_that_cannot_be_one_are_refused_by_column(tmp_path: Path) -> None:
    write(tmp_path / "out", "part-1.parquet", {"a": pa.array([1])})
    write(tmp_path / "out", "part-2.parquet", {"a": pa.array(["x"])})
    with pytest.raises(BadRecord, match="column 'a' is int64 in some records and string in others"):
        settle(str(tmp_path / "out"), None)


def write_rows(folder: Path, name: str, values: list[object]) -> None:
    """Rows of no declared type, as they are on their way to Spark."""
    folder.mkdir(exist_ok=True)
    batch = as_found(Columns(None).batch([{"v": value} for value in values]))
    pq.write_table(pa.Table.from_batches([batch]), folder / name)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ([["1.50"], ["2"]], pa.decimal128(38, 18)),
        ([["1.50", None], [None]], pa.decimal128(38, 18)),
        ([["1.5"], ["1e-20"]], pa.decimal128(21, 20)),
        ([["1.5"], ["123456789012345678901"]], pa.decimal128(22, 1)),
    ],
)
def test_decimals_that_were_found_are_as_wide_in_every_run(
    tmp_path: Path, files: list[list[str | None]], kind: pa.DataType
) -> None:
    numbers = [[None if text is None else Decimal(text) for text in file] for file in files]
    for index, values in enumerate(numbers):
        write_rows(tmp_path / "out", f"part-{index}.parquet", [*values])
    assert settle(str(tmp_path / "out"), None) == pa.schema([("v", kind)])
    read = [pq.read_table(path) for path in sorted((tmp_path / "out").iterdir())]
    assert [table["v"].to_pylist() for table in read] == numbers
    assert {table["v"].type for table in read} == {kind}


def test_decimals_within_found_columns_are_as_wide_too(tmp_path: Path) -> None:
    write_rows(tmp_path / "out", "part-1.parquet", [{"a": [Decimal("1.5")], "b": "x"}])
    wide = pa.struct([("a", pa.list_(pa.decimal128(38, 18))), ("b", pa.string())])
    assert settle(str(tmp_path / "out"), None) == pa.schema([("v", wide)])


def test_decimals_that_were_given_stay_as_they_are(tmp_path: Path) -> None:
    given = pa.array([Decimal("1.50")], pa.decimal128(10, 2))
    path = write(tmp_path / "out", "part-1.parquet", {"v": given})
    before = path.stat().st_mtime_ns
    assert settle(str(tmp_path / "out"), None) == pa.schema([("v", given.type)])
    assert path.stat().st_mtime_ns == before
    write_rows(tmp_path / "out", "part-2.parquet", [Decimal("2.5")])
    assert settle(str(tmp_path / "out"), None) == pa.schema([("v", given.type)])


def test_no_file_has_the_declared_schema_or_none(tmp_path: Path) -> None:
    declared = pa.schema([("a", pa.int64())])
    (tmp_path / "out").mkdir()
    assert settle(str(tmp_path / "out"), declared) == declared
    assert settle(str(tmp_path / "out"), None) == pa.schema([])
    assert not holds_files(str(tmp_path / "out"))


def test_state_that_was_pickled_before_its_class_moved_is_found_under_its_old_name() -> None:
    data = (
        b"\x80\x05\x95G\x00\x00\x00\x00\x00\x00\x00\x8c\x1atidegate.connectors.frames\x94\x8c\n"
        b"FrameState\x94\x93\x94)\x81\x94]\x94(\x8c\x07/staged\x94C\x05files\x94eb."
    )
    restored = ship.restored(FrameState, data, name="a DataFrame source")
    assert restored == FrameState("/staged", b"files")
