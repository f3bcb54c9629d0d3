"""Quoted values of CSV: where lines end between quotes, and where they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tidegate.connectors import CsvReaderFormat, CsvSchema, FileSource
from tidegate.connectors.files.lines import BLOCK_BYTES, Quotes, lines_of
from tidegate.connectors.files.splits import FileSplit
from tidegate.connectors.files.text import CsvFormat
from tidegate.errors import BadRecord
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.connectors.files.splits import Block

NOTES = pa.schema([("id", pa.string()), ("note", pa.string())])
LINES = CsvFormat(schema=NOTES.serialize().to_pybytes())
LONG = "two" * 300
QUOTED = replace(LINES, newlines=True)


def written(folder: Path, text: str) -> Path:
    file = folder / "notes.csv"
    file.write_text("id,note\n" + text)
    return file


def blocks(file: Path, form: CsvFormat, start: int = 0) -> list[Block]:
    return list(form.blocks(Stores(), FileSplit(str(file), start, 1 << 62)))


def rows(file: Path, form: CsvFormat) -> list[dict[str, str]]:
    found = [cast("pa.RecordBatch", block.rows) for block in blocks(file, form)]
    return [row for batch in found for row in batch.to_pylist()]


@examples(400)
@given(
    text=st.text('a",\n\\#', max_size=24),
    escape=st.sampled_from([None, "\\"]),
    comments=st.booleans(),
)
def test_rows_end_where_pyarrow_ends_them(text: str, escape: str | None, comments: bool) -> None:
    data, skipped = text.encode() + b"\n", list[object]()
    lines = lines_of(data, quotes=Quotes(escape=escape, comments=comments))
    assert b"".join(lines) == data
    if comments:
        lines = [line for line in lines if not line.startswith(b"#")] or [b"\n"]

    def skip(row: object) -> str:
        skipped.append(row)
        return "skip"

    parsing = pa_csv.ParseOptions(
        newlines_in_values=True, escape_char=escape or False, invalid_row_handler=skip
    )
    reading = pa_csv.ReadOptions(column_names=["a", "b"], use_threads=False)
    table = pa_csv.read_csv(pa.py_buffer(b"".join(lines)), reading, parsing)
    assert table.num_rows + len(skipped) == len([line for line in lines if line != b"\n"])


@pytest.mark.parametrize("count", [3, 600])
def test_line_ends_in_values_are_refused_unless_announced(tmp_path: Path, count: int) -> None:
    file = written(tmp_path, "".join(f'{n},"one\n{LONG}"\n' for n in range(count)))
    with pytest.raises(BadRecord, match=r"Line 2 .* behind the end .* newlines_in_values=True"):
        blocks(file, LINES)
    with pytest.raises(BadRecord, match="goes on behind the end of its line"):
        FileSource.csv(str(file)).check()
    expected = [{"id": str(n), "note": f"one\n{LONG}"} for n in range(count)]
    assert rows(file, QUOTED) == expected


def test_a_line_with_an_open_quote_takes_no_other_line_along(tmp_path: Path) -> None:
    file = written(tmp_path, '1,"x"\n2,"open\n3,"y"\n')
    [block] = blocks(file, replace(LINES, skip=True))
    assert [row["id"] for row in cast("pa.RecordBatch", block.rows).to_pylist()] == ["1", "3"]
    assert [bad.raw for bad in block.bad] == [b'2,"open\n']


@pytest.mark.parametrize("bad", ['"x\ny",1\n', '1,"x\n""y\n"\n', '"x\r\ny",1\r\n', '1,"x\n'])
def test_a_value_beyond_its_line_is_one_bad_row(tmp_path: Path, bad: str) -> None:
    file = written(tmp_path, '1,"a"\n' + bad + 'z,"b"\n')
    [block] = blocks(file, replace(LINES, skip=True))
    assert [row["id"] for row in cast("pa.RecordBatch", block.rows).to_pylist()] == ["1", "z"]
    assert [letter.raw for letter in block.bad] == [bad.encode()]
    with pytest.raises(BadRecord, match=r"Line 3 .* newlines_in_values=True"):
        blocks(file, LINES)


@examples(200)
@given(text=st.text('a",\n\\', max_size=24), escape=st.sampled_from([None, "\\"]))
def test_a_quote_that_nothing_closes_ends_with_its_line(text: str, escape: str | None) -> None:
    data = text.encode() + b'\n"open,x\nlast,"y"\n'
    lines = lines_of(data, quotes=Quotes(escape=escape, closed=True))
    assert b"".join(lines) == data
    assert lines[-1] == b'last,"y"\n'


def test_quotes_that_never_close_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, '1,a\n2,"open\n' + "3,b\n" * 10_000)
    with pytest.raises(BadRecord, match="Line 3 cannot be read: a quoted value does not end"):
        blocks(file, QUOTED)
    file = written(tmp_path, '1,a\n2,"open')
    with pytest.raises(BadRecord, match="Line 3 cannot be read: a quoted value goes on"):
        blocks(file, LINES)


def test_a_quote_within_a_value_is_a_character(tmp_path: Path) -> None:
    text = '1,pipe 5"\n' + "".join(f"{n},bolt\n" for n in range(60_000))
    file = written(tmp_path, text)
    assert len(blocks(file, QUOTED)) > 1, "the whole file was taken for one row"
    assert len(rows(file, QUOTED)) == 60_001
    assert rows(file, LINES) == rows(file, QUOTED)


def test_a_long_value_is_read_in_the_same_block_again(tmp_path: Path) -> None:
    value = "line\n" * BLOCK_BYTES
    file = written(tmp_path, f'1,"{value}"\n' + "2,b\n" * BLOCK_BYTES)
    whole = blocks(file, QUOTED)
    assert sum(len(block.rows) for block in whole) == 1 + BLOCK_BYTES
    for block in whole:
        at = FileSplit(str(file), 0, 1 << 62, offset=block.offset)
        assert next(QUOTED.blocks(Stores(), at)) == block, "a restored reader finds other blocks"


def test_a_reader_of_declared_rows_takes_line_ends_if_told(tmp_path: Path) -> None:
    file = written(tmp_path, "1,'one\ntwo'\n2,'three'\n")
    schema = CsvSchema.builder().add_string_column("id").add_string_column("note")
    schema = schema.set_use_header().set_quote_char("'").build()
    form = CsvReaderFormat.for_schema(schema, newlines_in_values=True).file_format
    [block] = form.blocks(Stores(), FileSplit(str(file), 0, 1 << 62))
    assert [row.note for row in block.rows.values] == ["one\ntwo", "three"]  # type: ignore[union-attr]
    plain = CsvReaderFormat.for_schema(schema).file_format
    with pytest.raises(BadRecord, match="newlines_in_values=True"):
        list(plain.blocks(Stores(), FileSplit(str(file), 0, 1 << 62)))


def test_quotes_and_comments_do_not_hide_each_other(tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text('# say,"hi\nid,note\n# "\n1,"one\n#two\nthree"\n# ,"\n2,b\n3,"c"\n')
    form = replace(QUOTED, comments=True)
    assert [row["note"] for row in rows(file, form)] == ["one\n#two\nthree", "b", "c"]
    [block] = blocks(file, replace(form, newlines=False, skip=True))
    assert [row["id"] for row in cast("pa.RecordBatch", block.rows).to_pylist()] == ["2", "3"]
    assert [bad.raw for bad in block.bad] == [b'1,"one\n#two\nthree"\n']


@pytest.mark.parametrize("form", [LINES, QUOTED])
def test_comments_end_where_lines_of_any_kind_do(tmp_path: Path, form: CsvFormat) -> None:
    file = tmp_path / "notes.csv"
    file.write_bytes(b"# by hand\r1,a\r# '\r2,b")
    assert [row["id"] for row in rows(file, replace(form, comments=True, header=False))] == [
        "1",
        "2",
    ]


@pytest.mark.parametrize("start", ["", "# by hand\n"])
def test_a_byte_order_mark_hides_no_quote(tmp_path: Path, start: str) -> None:
    file = tmp_path / "notes.csv"
    file.write_text(f'\ufeff{start}"i\nd",note\n1,a\n')
    schema = pa.schema([("i\nd", pa.string()), ("note", pa.string())])
    form = replace(QUOTED, schema=schema.serialize().to_pybytes(), comments=True)
    [block] = blocks(file, form)
    assert cast("pa.RecordBatch", block.rows).to_pylist() == [{"i\nd": "1", "note": "a"}]
    assert block.end == file.stat().st_size
    file.write_text("\ufeff")
    assert blocks(file, form) == []
