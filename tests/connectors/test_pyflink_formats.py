"""PyFlink's formats and builders of file sources and sinks."""

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.files import visible_files
from tests.operators.world import Hosted, World
from tidegate import (
    BadRecord,
    ConfigError,
    DataStream,
    Duration,
    JobFailed,
    Row,
    RowTypeInfo,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.connectors import (
    BucketAssigner,
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    Encoder,
    FileSink,
    FileSource,
    OutputFileConfig,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
    RollingPolicy,
    StreamFormat,
)
from tidegate.connectors.files.formats import CsvSchemaBuilder
from tidegate.connectors.files.splits import FileSplit
from tidegate.operators.sinks.sink import SinkOperator
from tidegate.storage.stores import Stores

pytestmark = pytest.mark.slow

NO_FOLDERS = BucketAssigner.base_path_bucket_assigner()
PEOPLE = Types.ROW_NAMED(
    ["name", "born", "tall"], [Types.STRING(), Types.SQL_DATE(), Types.FLOAT()]
)
BORN = datetime.date(1980, 2, 1)
ROWS = [Row(name="Ann", born=BORN, tall=1.5), Row(name=None, born=None, tall=None)]


def read(source: FileSource) -> list[Any]:
    return stream_of(source).execute_and_collect(limit=1_000)


def stream_of(source: FileSource) -> DataStream[Any]:
    env = StreamExecutionEnvironment.local()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "files")


def write(rows: list[Any], type_info: RowTypeInfo | None, sink: FileSink) -> None:
    env = StreamExecutionEnvironment.local()
    env.from_collection(rows, type_info).sink_to(sink)
    env.execute()


def row_type(type_info: object) -> RowTypeInfo:
    assert isinstance(type_info, RowTypeInfo)
    return type_info


# Sources


def test_lines_of_text_are_read_in_their_charset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("één\r\ntwee\n".encode("latin-1"))
    lines = StreamFormat.text_line_format("ISO-8859-1")
    source = FileSource.for_record_stream_format(lines, str(tmp_path)).build()
    assert source.bounded
    assert stream_of(source).get_type() == Types.STRING()
    assert read(source) == ["één", "twee"]


@pytest.mark.parametrize("charset", ["UTF-16", "no charset"])
def test_a_charset_without_line_ends_of_one_byte_is_refused(charset: str) -> None:
    with pytest.raises(ConfigError, match=f"'{charset}'"):
        StreamFormat.text_line_format(charset)


def test_a_source_watches_for_files_where_it_is_told_to(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    assert not builder.monitor_continuously(Duration.of_seconds(1)).build().bounded
    assert builder.process_static_file_set().build().bounded


def test_a_source_without_a_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="no path"):
        FileSource.for_record_stream_format(StreamFormat.text_line_format()).build()


def test_parquet_comes_as_rows_of_the_declared_type(tmp_path: Path) -> None:
    columns = {"tall": [1.5, None], "more": [1, 2], "name": ["Ann", None], "born": [BORN, None]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    bulk = ParquetColumnarRowInputFormat(row_type(PEOPLE), batch_size=1)
    source = FileSource.for_bulk_file_format(bulk, str(tmp_path)).build()
    assert stream_of(source).get_type() == PEOPLE
    assert read(source) == ROWS


@pytest.mark.parametrize("whole", [Types.LONG(), Types.INT()], ids=str)
def test_columns_of_plain_values_stay_columns_of_rows(tmp_path: Path, whole: Any) -> None:
    rows = [Row(name="Ann", age=7), Row(name=None, age=8), Row(name="Bo", age=None)]
    table = pa.table({"name": ["Ann", None, "Bo"], "age": [7, 8, None], "more": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    declared = row_type(Types.ROW_NAMED(["name", "age"], [Types.STRING(), whole]))
    bulk = ParquetColumnarRowInputFormat(declared, batch_size=10)
    source = FileSource.for_bulk_file_format(bulk, str(tmp_path)).build()
    split = FileSplit(str(tmp_path / "a.parquet"), 0, 1)
    [block] = source.file_format.blocks(Stores(), split)
    assert isinstance(block.rows, ColumnRows) and block.rows.values == rows
    assert read(source) == rows
    kept = stream_of(source).filter(lambda row: row.age is not None)
    assert kept.execute_and_collect(limit=10) == rows[:2]


def test_columns_of_rows_are_arrow_batches_where_they_are_asked_for(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["Ann"], "age": [7]}), tmp_path / "a.parquet")
    names = row_type(Types.ROW_NAMED(["name"], [Types.STRING()]))
    bulk = ParquetColumnarRowInputFormat(names)
    source = FileSource.for_bulk_file_format(bulk, str(tmp_path)).build()
    assert read(source.arrow()) == [{"name": "Ann"}]


def test_columns_that_are_not_as_declared_are_told_with_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["Ann"], "born": ["long ago"], "tall": [1]}), tmp_path / "a")
    bulk = ParquetColumnarRowInputFormat(row_type(PEOPLE))
    with pytest.raises(JobFailed) as failed:
        read(FileSource.for_bulk_file_format(bulk, str(tmp_path / "a")).build())
    for told in ["cannot be converted to the declared type", str(tmp_path / "a"), "born: string"]:
        assert told in str(failed.value)


def test_parquet_regardless_of_case_is_refused() -> None:
    with pytest.raises(ConfigError, match="exact names"):
        ParquetColumnarRowInputFormat(row_type(PEOPLE), is_case_sensitive=False)


def test_csv_comes_as_rows_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("'Ann; Bo';7;true;1.5\n-;-;-;-\n")
    schema = (
        CsvSchema.builder()
        .add_string_column("name")
        .add_number_column("age")
        .add_boolean_column("member")
        .add_number_column("tall", Types.DOUBLE())
        .set_column_separator(";")
        .set_quote_char("'")
        .set_null_value("-")
        .build()
    )
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path)
    ).build()
    names = ["name", "age", "member", "tall"]
    types = [Types.STRING(), Types.LONG(), Types.BOOLEAN(), Types.DOUBLE()]
    assert stream_of(source).get_type() == Types.ROW_NAMED(names, types)
    assert read(source) == [
        Row(name="Ann; Bo", age=7, member=True, tall=1.5),
        Row(name=None, age=None, member=None, tall=None),
    ]


def test_a_csv_schema_takes_its_columns_from_a_header_and_other_schemas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('age,name\n7,say \\"hi\n')
    base = CsvSchema.builder().add_string_column("name").build()
    schema = (
        CsvSchema.builder()
        .add_columns_from(base)
        .add_number_column("age", Types.INT())
        .set_use_header()
        .disable_quote_char()
        .set_escape_char("\\")
        .build()
    )
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path)
    ).build()
    assert read(source) == [Row(name='say "hi', age=7)]


def test_a_csv_schema_passes_over_comments_and_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# made by hand\nage,name\nyears,text\n7,a\n# and\n8,b#\n")
    builder = CsvSchema.builder().add_number_column("age").add_string_column("name")
    builder.set_use_header().set_strict_headers().set_allow_comments().set_skip_first_data_row()
    assert read(csv_source(builder, tmp_path)) == [Row(age=7, name="a"), Row(age=8, name="b#")]


def test_a_strict_header_names_the_columns_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,age\na,7\n")
    builder = CsvSchema.builder().add_number_column("age").add_string_column("name")
    builder.set_use_header()
    assert read(csv_source(builder, tmp_path)) == [Row(age=7, name="a")]
    with pytest.raises(BadRecord, match="names the columns name, age, not age, name"):
        read(csv_source(builder.set_strict_headers(), tmp_path))


def test_csv_columns_of_lists_go_there_and_back(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_string_column("name")
    builder.add_array_column("tags").add_array_column("sizes", "|", Types.LONG())
    rows = [Row(name="a", tags=["x", "y"], sizes=[1, 2]), Row(name="b", tags=[], sizes=[3])]
    schema = CsvSchema.builder().add_columns_from(builder.build()).build()
    sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build()
    env = StreamExecutionEnvironment.local(1)
    env.from_collection(rows, schema.row_type).sink_to(sink)
    env.execute("lists")
    [part] = visible_files(tmp_path)
    assert part.read_text() == '"a","x;y","1|2"\n"b","","3"\n'
    assert read(csv_source(builder, tmp_path)) == rows
    part.write_text("a,x,1|two\n")
    with pytest.raises(JobFailed, match="Line 1 cannot be read"):
        read(csv_source(builder, tmp_path))


def csv_source(builder: CsvSchemaBuilder, folder: Path) -> FileSource:
    reading = CsvReaderFormat.for_schema(builder.build())
    return FileSource.for_record_stream_format(reading, str(folder)).build()


def test_a_csv_row_that_cannot_be_read_fails_or_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("7\nseven\n8\n")
    schema = CsvSchema.builder().add_number_column("age").build()
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path)
    ).build()
    with pytest.raises(JobFailed, match="Line 2 cannot be read"):
        read(source)
    assert read(source.on_malformed("skip")) == [Row(age=7), Row(age=8)]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda builder: builder.build(), "no columns"),
        (lambda builder: builder.add_string_column("a").add_boolean_column("a"), "'a' is added"),
        (lambda builder: builder.set_column_separator("::"), "takes one character, not '::'"),
    ],
)
def test_a_csv_schema_that_is_none_is_refused(build: Callable[[Any], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(CsvSchema.builder())


# Sinks


def test_an_encoder_writes_each_record_and_names_are_as_told(tmp_path: Path) -> None:
    names = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".txt").build()
    sink = (
        FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder("latin-1"))
        .with_bucket_assigner(NO_FOLDERS)
        .with_bucket_check_interval(1_000)
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_output_file_config(names)
        .build()
    )
    write(["één", ("a", 1), Row(n=1)], None, sink)
    (part,) = visible_files(tmp_path)
    assert part.name.startswith("orders-")
    assert part.suffix == ".txt"
    assert part.read_text(encoding="latin-1") == "één\n('a', 1)\nRow(n=1)\n"


def test_an_unknown_charset_is_refused() -> None:
    with pytest.raises(ConfigError, match="no charset 'klingon'"):
        Encoder.simple_string_encoder("klingon")


def test_a_record_that_cannot_be_encoded_is_told_with_the_sink(tmp_path: Path) -> None:
    encoder = Encoder.simple_string_encoder("ascii")
    sink = FileSink.for_row_format(str(tmp_path), encoder).build()
    with pytest.raises(JobFailed) as failed:
        write(["a", "é", "b"], None, sink)
    assert "a row cannot be encoded: UnicodeEncodeError" in str(failed.value)
    assert re.search(r"row \d of a batch: 'é'", str(failed.value))


def test_parts_lie_in_the_folder_of_the_hour_in_which_they_are_written(
    world: World, tmp_path: Path
) -> None:
    buckets = BucketAssigner.date_time_bucket_assigner("yyyy/MM/dd'T'HH", "Asia/Kolkata")
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    step = Hosted(SinkOperator(sink.with_bucket_assigner(buckets).build()), world)
    step.rows("a")  # at 2023-11-14 22:13:20 UTC
    world.pass_time(17 * 60_000)
    step.rows("b")
    step.rows("c")
    step.snapshot(1)
    assert visible_files(tmp_path) == []
    step.complete(1)
    found = {
        str(part.parent.relative_to(tmp_path)): part.read_text() for part in visible_files(tmp_path)
    }
    assert found == {"2023/11/15T03": "a\n", "2023/11/15T04": "b\nc\n"}


def test_a_part_ends_at_the_size_that_its_policy_names(world: World, tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    policy = RollingPolicy.default_rolling_policy(part_size=5 << 20)
    step = Hosted(SinkOperator(sink.with_rolling_policy(policy).build()), world)
    for _ in range(4):
        step.rows("x" * (4 << 20))
    step.snapshot(1)
    step.complete(1)
    assert [part.stat().st_size for part in visible_files(tmp_path)] == [2 * (1 + (4 << 20))] * 2


@pytest.mark.parametrize("pattern", ["yyyy-QQ", "EEE", "yyyyy"])
def test_a_date_pattern_that_is_not_known_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not known"):
        BucketAssigner.date_time_bucket_assigner(pattern)


def test_a_time_zone_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no time zone 'Mars/Olympus'"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Olympus")


def test_a_day_in_the_zone_of_the_machine_is_what_the_machine_says() -> None:
    now_ms = 1_709_100_000_000
    local = datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC).astimezone()
    assert BucketAssigner.date_time_bucket_assigner("yyyy%MMdd").bucket(now_ms) == local.strftime(
        "%Y%%%m%d"
    )


def test_rows_are_written_as_parquet_and_read_back(tmp_path: Path) -> None:
    factory = ParquetBulkWriters.for_row_type(row_type(PEOPLE))
    write(ROWS, row_type(PEOPLE), FileSink.for_bulk_format(str(tmp_path), factory).build())
    (part,) = visible_files(tmp_path)
    assert part.suffix == ".parquet"
    bulk = ParquetColumnarRowInputFormat(row_type(PEOPLE))
    assert read(FileSource.for_bulk_file_format(bulk, str(tmp_path)).build()) == ROWS


def test_rows_are_written_as_csv_and_read_back(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("name").add_number_column("age").build()
    rows = [Row(name="Ann, Bo", age=7), Row(name='"', age=None)]
    sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build()
    write(rows, schema.row_type, sink)
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path)
    ).build()
    assert read(source) == rows


@pytest.mark.parametrize(
    "other",
    [
        lambda builder: builder.set_quote_char("'"),
        lambda builder: builder.disable_quote_char(),
        lambda builder: builder.set_escape_char("\\"),
        lambda builder: builder.set_null_value("none"),
    ],
)
def test_csv_that_would_be_written_in_another_way_than_declared_is_refused(
    other: Callable[[CsvSchemaBuilder], CsvSchemaBuilder],
) -> None:
    schema = other(CsvSchema.builder().add_string_column("name")).build()
    with pytest.raises(ConfigError, match="CSV files are not written with"):
        CsvBulkWriters.for_schema(schema)


def test_a_row_of_other_columns_is_told(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("name").build()
    sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build()
    with pytest.raises(JobFailed, match="'nam'"):
        write([Row(nam="Ann")], None, sink)
