"""Files as a source: cut, read, killed and restored, and what is said of bad ones."""

import bz2
import gzip
import io
import json
import lzma
import math
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.connectors.file_jobs import (
    BAD_LINES,
    SMALL,
    WRITERS,
    operator,
    read_all,
    rows,
    write_json,
    write_parquet,
)
from tests.operators.kills import check_under_kills
from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tests.properties import examples
from tidegate.connectors.files import enumerator as enumeration
from tidegate.connectors.files.file_source import FileSource
from tidegate.connectors.files.splits import FileSplit
from tidegate.connectors.files.text import JsonFormat
from tidegate.errors import BadRecord, ConfigError, StorageFailed
from tidegate.model.elements import RowBatch
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.storage.stores import Stores


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_comes_as_arrow_batches_where_they_are_asked_for(
    world: World, tmp_path: Path, kind: str
) -> None:
    write, source = WRITERS[kind]
    write(tmp_path / f"a.{kind}", rows(0, 30))
    job = SourceJob(world, operator(source(str(tmp_path)).arrow()), 1, settings=SMALL)
    job.run_to_end()
    assert job.emitted == rows(0, 30)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_large_file_is_cut_and_each_row_is_read_once(
    world: World, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "PART_BYTES_MIN", 100)
    write, source = WRITERS[kind]
    write(tmp_path / f"a.{kind}", rows(0, 200))
    job = SourceJob(world, operator(source(str(tmp_path))), 3, settings=SMALL)
    job.run_to_end()
    assert sorted(job.emitted, key=lambda row: row["n"]) == rows(0, 200)
    firsts = {next(iter(row.values())) for row in job.emitted[:21]}
    assert firsts != set(range(21)), "one reader alone would have read in order"


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text("ab\r é", max_size=12), max_size=40),
    parts=st.integers(1, 12),
    ends=st.booleans(),
)
@example(lines=["", "a"], parts=1, ends=False)
def test_every_line_belongs_to_exactly_one_part(
    tmp_path: Path, lines: list[str], parts: int, ends: bool
) -> None:
    from tidegate.connectors.files.lines import LineBlocks, byte_parts

    data = "\n".join(lines).encode() + (b"\n" if ends and lines else b"")
    file = tmp_path / "lines.txt"
    file.write_bytes(data)
    found = b""
    for start, end in byte_parts(str(file), len(data), max(1, len(data) // parts)):
        with file.open("rb") as stream:
            found += b"".join(block for _, block in LineBlocks(stream, "x").from_part(start, end))
    assert found == data


@settings(examples(60))
@given(
    lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")), max_size=30),
    block=st.integers(4, 40),
    end=st.integers(1, 400),
)
def test_a_block_ends_at_the_same_place_whoever_begins_there(
    lines: list[bytes], block: int, end: int
) -> None:
    from tidegate.connectors.files.lines import LineBlocks

    data = b"\n".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", block)
        found = list(LineBlocks(io.BytesIO(data), "x").from_line(0, end))
        for index, (offset, _) in enumerate(found):
            again = LineBlocks(io.BytesIO(data), "x").from_line(offset, end)
            assert list(again) == found[index:]


@pytest.mark.parametrize("seekable", [True, False])
def test_a_file_that_is_shorter_than_what_was_read_of_it_is_told(seekable: bool) -> None:
    from tidegate.connectors.files.lines import END, LineBlocks

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return seekable

    stream = Stream(b"one\ntwo\n")
    lines = LineBlocks(stream, "numbers.txt")
    assert list(lines.from_line(8, END)) == []
    stream.seek(0)
    with pytest.raises(StorageFailed, match="shorter than what has been read") as raised:
        list(lines.from_line(9, END))
    assert raised.value.where == "numbers.txt, byte 9"


@settings(
    examples(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_row_is_lost_or_doubled_whatever_is_killed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    kind = data.draw(st.sampled_from(sorted(WRITERS)), "kind")
    write, source = WRITERS[kind]
    sizes = data.draw(st.lists(st.integers(0, 25), min_size=1, max_size=4), "rows of files")
    for index, size in enumerate(sizes):
        write(folder / f"{index}.{kind}", rows(100 * index, size) or rows(100 * index, 1))
    expected = sorted(
        n for i, size in enumerate(sizes) for n in range(100 * i, 100 * i + max(1, size))
    )
    read = source(str(folder))
    with pytest.MonkeyPatch.context() as patch, World() as world:
        patch.setattr(enumeration, "PART_BYTES_MIN", data.draw(st.integers(40, 400), "part"))
        patch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", 64)
        check_under_kills(world, lambda: NumbersOf(read), data, expected)


class NumbersOf(SourceReaderOperator):
    """Emits the rows' numbers."""

    def poll(self, out):
        class Numbers:
            rows_max = piece_rows = out.rows_max

            def emit(self, batch):
                out.emit(RowBatch([row["n"] for row in batch.values]))

        return super().poll(Numbers())


@pytest.mark.feature("F208")
def test_splits_that_were_finished_are_not_read_again_after_a_restore(
    world: World, tmp_path: Path
) -> None:
    for index in range(10):
        write_json(tmp_path / f"{index}.json", [{"file": index}])
    job = SourceJob(world, operator(FileSource.json(str(tmp_path))), 1, settings=SMALL)
    while len(job.emitted) < 4:
        job.step(0)
    job.checkpoint(1)
    read_before = [row["file"] for row in job.emitted]
    restored = job.killed()
    restored.emitted.clear()
    restored.run_to_end()
    assert read_before == [0, 1, 2, 3]
    assert [row["file"] for row in restored.emitted] == [4, 5, 6, 7, 8, 9]


@pytest.mark.feature("F282")
def test_the_splits_of_a_killed_reader_are_read_once_by_whoever_gets_them(
    world: World, tmp_path: Path
) -> None:
    for index in range(32):
        write_json(tmp_path / f"{index:02}.json", [{"file": index, "row": n} for n in range(20)])
    job = SourceJob(world, operator(FileSource.json(str(tmp_path))), 2, settings=SMALL)
    emitted_by: dict[int, list[object]] = {0: [], 1: []}

    def step(index: int) -> None:
        before = len(job.emitted)
        job.step(index)
        emitted_by[index] += job.emitted[before:]

    job.step(1)
    step(0)
    assert [len(splits) for splits in job.readers[0].cut(1).lists.values()] == [3]
    step(0)
    step(0)
    assert len(emitted_by[0]) > 0
    job.reset_reader(0, lambda row: row in emitted_by[0])
    job.run_to_end()
    keys = sorted((row["file"], row["row"]) for row in job.emitted)
    assert keys == [(file, n) for file in range(32) for n in range(20)]


def test_a_rate_holds_for_a_replay_over_all_readers(world: World, tmp_path: Path) -> None:
    for index in range(8):
        write_json(tmp_path / f"{index}.json", [{"n": n} for n in range(500)])
    source = FileSource.json(str(tmp_path), rate=1_000)
    job = SourceJob(world, operator(source), 2)
    for _ in range(400):
        job.step(0)
        job.step(1)
        world.pass_time(5)
    seconds = world.monotonic_ms() / 1_000
    assert 0.85 * seconds * 1_000 <= len(job.emitted) <= 1.01 * seconds * 1_000 + 2


def test_columns_are_chosen_in_their_order(world: World, tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", rows(0, 1))
    found = read_all(world, FileSource.parquet(str(tmp_path), columns=["text", "n"]))
    assert [list(row) for row in found] == [["text", "n"]]


def test_lines_of_text_keep_their_blank_ones(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\n\ntwo é\nlast".encode())
    assert read_all(world, FileSource.text(str(tmp_path))) == ["one", "", "two é", "last"]


@pytest.mark.parametrize(
    ("end", "compress"),
    [("gz", gzip.compress), ("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)],
)
def test_compressed_lines_are_read(
    world: World, tmp_path: Path, end: str, compress: Callable[[bytes], bytes]
) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows(0, 50)).encode()
    file = tmp_path / f"a.json.{end}"
    file.write_bytes(compress(lines))
    assert read_all(world, FileSource.json(str(tmp_path))) == rows(0, 50)
    split = FileSplit(str(file), 0, 1 << 62, offset=lines.index(b"\n") + 1)
    [block] = JsonFormat().blocks(Stores(), split)
    assert block.rows == rows(1, 49)
    file.write_bytes(compress(lines)[:-9])
    with pytest.raises(BadRecord, match="file cannot be read"):
        read_all(world, FileSource.json(str(tmp_path)))


def test_csv_values_have_the_types_found_in_the_first_file(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,x,day,name,none\n1,1.5,2013-01-02,é,\n,2,2013-01-03,,\n")
    found = read_all(world, FileSource.csv(str(tmp_path)))
    assert found == [
        {"n": 1, "x": 1.5, "day": date(2013, 1, 2), "name": "é", "none": ""},
        {"n": None, "x": 2.0, "day": date(2013, 1, 3), "name": "", "none": ""},
    ]


def test_csv_columns_are_found_by_name_not_by_place(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,a\n")
    (tmp_path / "b.csv").write_text("s,n\nb,2\n")
    found = read_all(world, FileSource.csv(str(tmp_path)))
    assert found == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def test_csv_with_other_columns_than_the_first_file_is_named(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,a\n")
    (tmp_path / "b.csv").write_text("n,t\n2,b\n")
    with pytest.raises(BadRecord, match="other columns than the first one: s, t") as caught:
        read_all(world, FileSource.csv(str(tmp_path)))
    assert caught.value.where.endswith("b.csv")


@pytest.mark.parametrize("newlines", [False, True])
def test_blank_lines_ahead_of_the_header_of_csv_are_none(
    world: World, tmp_path: Path, newlines: bool
) -> None:
    (tmp_path / "a.csv").write_text("\n\r\nn,s\n\n1,a\n")
    (tmp_path / "b.csv").write_text("\ufeff\n\n")
    source = FileSource.csv(str(tmp_path), newlines_in_values=newlines)
    assert read_all(world, source) == [{"n": 1, "s": "a"}]


def test_csv_whose_lines_end_with_cr_alone_is_refused_not_taken_for_a_header(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,s\r1,a\r2,b\r")
    with pytest.raises(BadRecord, match="Lines end with") as caught:
        read_all(world, FileSource.csv(str(tmp_path)))
    assert caught.value.where.endswith("a.csv")
    (tmp_path / "a.csv").write_bytes(b'n,"s\rt"\r\n1,a\r\n')
    assert read_all(world, FileSource.csv(str(tmp_path))) == [{"n": 1, "s\rt": "a"}]


def test_csv_values_with_line_ends_are_read_where_that_is_said(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", 16)
    lines = "".join(f'{n},"line\n""of"" {n}"\n' for n in range(20))
    (tmp_path / "a.csv").write_text("n,s\n" + lines)
    found = read_all(world, FileSource.csv(str(tmp_path), newlines_in_values=True))
    assert found == [{"n": n, "s": f'line\n"of" {n}'} for n in range(20)]


def test_csv_without_a_header_takes_its_names_from_the_schema(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;a\n2;b\n")
    schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
    source = FileSource.csv(str(tmp_path), schema=schema, delimiter=";", header=False)
    assert read_all(world, source) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def test_a_compressed_file_goes_on_where_it_was_after_a_restore(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", 64)
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows(0, 50)))
    job = SourceJob(world, operator(FileSource.json(str(tmp_path))), 1, settings=SMALL)
    while len(job.emitted) < 20:
        job.step(0)
    job.checkpoint(1)
    job = job.killed()
    job.run_to_end()
    assert job.emitted == rows(0, 50)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_of_many_blocks_is_read_whole(world: World, tmp_path: Path, kind: str) -> None:
    write, source = WRITERS[kind]
    write(tmp_path / f"a.{kind}", rows(0, 40_000))
    job = SourceJob(world, operator(source(str(tmp_path))), 1)
    job.run_to_end()
    assert job.emitted == rows(0, 40_000)


def test_a_schema_for_json_columns_leaves_out_what_it_does_not_name(
    world: World, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", rows(0, 3))
    source = FileSource.json_lines(str(tmp_path), schema=pa.schema([("n", pa.int8())])).arrow()
    assert read_all(world, source) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_field_that_the_first_file_does_not_have_is_bad_in_arrow_batches(
    world: World, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", [{"n": 1}])
    write_json(tmp_path / "b.json", [{"n": 2}, {"n": 3, "m": 4}])
    with pytest.raises(BadRecord, match="unexpected field") as caught:
        read_all(world, FileSource.json(str(tmp_path)).arrow())
    assert "b.json, line 2" in caught.value.where


def test_rows_skipped_from_arrow_batches_leave_the_others(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "\n".join(map(str, range(20))) + "\n")
    (tmp_path / "b.csv").write_text("n\n20\nx\n21\ny\n")
    source = FileSource.csv(str(tmp_path)).on_malformed("skip").arrow()
    assert [row["n"] for row in read_all(world, source)] == list(range(22))


# --- bad input ---


def test_a_line_without_an_end_is_given_up_in_time(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.files.lines.LINE_BYTES_MAX", 1_000)
    monkeypatch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", 100)
    (tmp_path / "a.txt").write_bytes(b"x" * 5_000)
    with pytest.raises(BadRecord, match="longer than 1000 bytes"):
        read_all(world, FileSource.text(str(tmp_path)))


def test_a_file_that_is_not_compressed_as_its_name_says_is_named(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"plain")
    with pytest.raises(BadRecord, match="cannot be read") as caught:
        read_all(world, FileSource.json(str(tmp_path)))
    assert caught.value.where == str(tmp_path / "a.json.gz")


def test_csv_without_header_and_schema_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    with pytest.raises(ConfigError, match="have no names"):
        FileSource.csv(str(tmp_path), header=False).check()


def test_an_empty_csv_file_has_no_columns_to_find(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n")
    with pytest.raises(BadRecord, match="No columns can be found"):
        FileSource.csv(str(tmp_path)).check()


def test_a_file_that_is_no_text_is_told_with_its_path_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xf9\xfa,b\n1,2\n")
    with pytest.raises(BadRecord, match="No columns can be found") as caught:
        FileSource.csv(str(tmp_path)).check()
    assert caught.value.where.endswith("a.csv") and "on_malformed" in caught.value.remedy


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"not at all" * 10)
    with pytest.raises(BadRecord, match="cannot be read as Parquet") as caught:
        FileSource.parquet(str(tmp_path)).check()
    assert caught.value.where == str(tmp_path / "a.parquet")


@pytest.mark.parametrize("group", [10, 100])
def test_a_parquet_file_that_has_fewer_rows_by_now_is_told(
    world: World, tmp_path: Path, group: int
) -> None:
    write_parquet(tmp_path / "a.parquet", rows(0, 50), group)
    job = SourceJob(world, operator(FileSource.parquet(str(tmp_path))), 1, settings=SMALL)
    while len(job.emitted) < 35:
        job.step(0)
    job.checkpoint(1)
    write_parquet(tmp_path / "a.parquet", rows(0, 20), group)
    job = job.killed()
    with pytest.raises(StorageFailed, match="fewer rows") as caught:
        job.run_to_end()
    assert caught.value.where == str(tmp_path / "a.parquet")


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", rows(0, 1))
    with pytest.raises(ConfigError, match="no columns m") as caught:
        FileSource.parquet(str(tmp_path), columns=["n", "m"]).check()
    assert caught.value.remedy == "The file has n, text."


@pytest.mark.parametrize("kind", ["json", "text"])
def test_a_row_that_cannot_be_read_fails_with_file_and_line(
    world: World, tmp_path: Path, kind: str
) -> None:
    source, text, line = BAD_LINES[kind]
    file = tmp_path / "bad"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadRecord) as caught:
        read_all(world, source(str(file)))
    assert caught.value.what.startswith(f"Line {line} cannot be read")
    assert caught.value.where.startswith(f"{file}, line {line}: ")


def test_a_csv_value_of_another_type_fails_with_file_and_line(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "b.csv").write_text("n\n3\n4\nfive\n6\n")
    with pytest.raises(BadRecord, match="invalid value 'five'") as caught:
        read_all(world, FileSource.csv(str(tmp_path)))
    assert caught.value.where == f"{tmp_path / 'b.csv'}, line 4: 'five'"


@pytest.mark.parametrize("kind", ["json", "text"])
def test_rows_that_cannot_be_read_are_skipped_and_counted_where_that_is_said(
    world: World, tmp_path: Path, kind: str
) -> None:
    source, text, _ = BAD_LINES[kind]
    file = tmp_path / "bad"
    file.write_bytes((text * 3).encode("utf-8", "surrogateescape"))
    job = SourceJob(world, operator(source(str(file)).on_malformed("skip")), 1)
    job.run_to_end()
    assert len(job.emitted) == 6
    assert job.readers[0].context.rows_skipped == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "deep",
    ['{"n":' * 50_000, '{"n":\n' * 50_000, '{"n": NaN}\n' + '{"n":' + "[" * 50_000],
    ids=["in a line", "over lines", "behind what JSON has not"],
)
def test_json_that_nests_too_deeply_is_malformed_for_batches_too(
    world: World, tmp_path: Path, deep: str
) -> None:
    check_malformed_for_batches(world, tmp_path, deep)


def test_a_line_that_is_no_object_is_malformed_for_batches(world: World, tmp_path: Path) -> None:
    check_malformed_for_batches(world, tmp_path, "null\n")


def check_malformed_for_batches(world: World, tmp_path: Path, text: str) -> None:
    """pyarrow's own reader ends the process over it."""
    (tmp_path / "a.json").write_text('{"n": 1}\n')
    (tmp_path / "b.json").write_text(text)
    source = FileSource.json(str(tmp_path)).arrow()
    with pytest.raises(BadRecord, match="cannot be read"):
        read_all(world, source)
    found = read_all(world, source.on_malformed("skip"))
    assert found[0] == {"n": 1} and len(found) <= 2
    with pytest.raises(BadRecord, match="No columns can be found"):
        FileSource.json(str(tmp_path / "b.json")).arrow().check()


def test_a_file_without_columns_is_told_where_bad_rows_are_skipped_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"oops\n")
    with pytest.raises(BadRecord, match="No columns can be found"):
        FileSource.json(str(tmp_path / "a")).arrow().on_malformed("skip").check()


@pytest.mark.parametrize("source", [FileSource.csv, lambda path: FileSource.json(path).arrow()])
def test_a_name_of_a_column_that_is_no_text_is_told(
    tmp_path: Path, source: Callable[[str], FileSource]
) -> None:
    (tmp_path / "a").write_bytes(b'{"\xff": 1}\n')
    with pytest.raises(BadRecord, match="No columns can be found"):
        source(str(tmp_path / "a")).check()


def test_a_line_that_is_bad_only_among_others_is_read(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n\ufeff2\n3\n")
    source = FileSource.csv(str(tmp_path), schema=pa.schema([("n", pa.int64())]))
    assert [row["n"] for row in read_all(world, source)] == [1, 2, 3]


def test_batches_of_json_have_numbers_beyond_json(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\ufeff{"n": NaN}\n{"n": -Infinity}\n{"n": 0.5}\n')
    found = [row["n"] for row in read_all(world, FileSource.json(str(tmp_path)).arrow())]
    assert math.isnan(found[0]) and found[1:] == [-math.inf, 0.5]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (FileSource.csv, "n,m\n1,a\n2,b,c\n3,d\n"),
        (lambda path: FileSource.csv(path).arrow(), "n,m\n1,a\n2\n3,d\n"),
        (lambda path: FileSource.json(path).arrow(), '{"n": 1}\n{"n": 2\n[7]\n{"n": 3}\n'),
    ],
    ids=["rows of CSV", "batches of CSV", "batches of JSON"],
)
def test_columns_are_found_beside_rows_that_are_to_be_skipped(
    world: World, tmp_path: Path, source: Callable[[str], FileSource], text: str
) -> None:
    (tmp_path / "a").write_text(text)
    made = source(str(tmp_path / "a"))
    with pytest.raises(BadRecord, match="No columns can be found"):
        made.check()
    assert [row["n"] for row in read_all(world, made.on_malformed("skip"))] == [1, 3]


def test_skipped_csv_rows_leave_the_others_and_the_position_right(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    values = [str(n) if n % 5 else f"bad {n}" for n in range(2, 60)]
    (tmp_path / "b.csv").write_text("n\n" + "\n".join(values) + "\n")
    source = FileSource.csv(str(tmp_path)).on_malformed("skip")
    job = SourceJob(world, operator(source), 1, settings=SMALL)
    while len(job.emitted) < 20:
        job.step(0)
    job.checkpoint(1)
    job.step(0)
    job = job.killed()
    job.run_to_end()
    assert [row["n"] for row in job.emitted] == [n for n in range(1, 60) if n % 5 or n < 2]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FileSource.parquet(), "no path"),
        (lambda: FileSource.json("x", rate=0), "rows a second"),
        (lambda: FileSource.text("x").arrow(), "no columns"),
        (lambda: FileSource.json("x").on_malformed("ignore"), "policy is 'ignore'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()
