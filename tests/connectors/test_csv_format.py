"""Files of comma-separated values, read block by block."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidegate.connectors.files.file_source import FileSource
from tidegate.connectors.files.splits import FileSplit
from tidegate.connectors.files.text import CsvFormat, JsonFormat
from tidegate.errors import BadRecord, ConfigError
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.connectors.files.splits import Block

END = 1 << 62
CITIES = pa.schema([("city", pa.string()), ("total", pa.int64())])
WITH = CsvFormat(schema=CITIES.serialize().to_pybytes())


def blocks(folder: Path, text: str, form: CsvFormat | JsonFormat, **split: Any) -> list[Block]:
    file = folder / "rows.csv"
    file.write_text(text)
    return list(form.blocks(Stores(), FileSplit(str(file), 0, END, **split)))


def rows(folder: Path, text: str, form: CsvFormat, **split: Any) -> list[dict[str, Any]]:
    return [row for block in blocks(folder, text, form, **split) for row in block.rows.to_pylist()]  # type: ignore[union-attr]


def test_comments_are_no_rows_wherever_they_stand(tmp_path: Path) -> None:
    text = "# made by hand\ncity,total\n# the first\nlima,1\noslo,2\n# the last\n"
    found = rows(tmp_path, text, replace(WITH, comments=True))
    assert found == [{"city": "lima", "total": 1}, {"city": "oslo", "total": 2}]
    nothing = rows(tmp_path, "city,total\n# nothing\n", replace(WITH, comments=True))
    assert nothing == []


def test_a_header_may_be_followed_by_a_line_that_is_none(tmp_path: Path) -> None:
    form = replace(WITH, skip_first=True)
    assert rows(tmp_path, "city,total\nunits,pieces\nlima,1\n", form) == [
        {"city": "lima", "total": 1}
    ]
    assert rows(tmp_path, "city,total\n", form) == []


def test_a_file_without_a_line_has_no_rows(tmp_path: Path) -> None:
    assert blocks(tmp_path, "", WITH) == []


def test_a_strict_header_says_what_it_has_instead(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="names the columns total, city, not city, total"):
        blocks(tmp_path, "total,city\n1,lima\n", replace(WITH, strict=True))


def test_a_file_with_other_columns_than_the_first_is_told(tmp_path: Path) -> None:
    found = CITIES.serialize().to_pybytes()
    with pytest.raises(BadRecord, match="other columns than the first one: country"):
        blocks(tmp_path, "city,total,country\nlima,1,pe\n", CsvFormat(), schema=found)


def test_a_text_of_ones_own_stands_for_nothing(tmp_path: Path) -> None:
    found = rows(tmp_path, "city,total\n-,1\nNA,-\n", replace(WITH, null_value="-"))
    assert found == [{"city": None, "total": 1}, {"city": "NA", "total": None}]


def test_columns_of_lists_have_parts_none_or_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string()), ("totals", pa.list_(pa.int64()))])
    form = CsvFormat(
        schema=schema.serialize().to_pybytes(), null_value="-", arrays=(("totals", ";"),)
    )
    found = rows(tmp_path, 'city,totals\nlima,1;2\noslo,-\nquito,""\n', form)
    assert [row["totals"] for row in found] == [[1, 2], None, []]


def test_reading_goes_on_within_a_block(tmp_path: Path) -> None:
    text = "city,total\n" + "".join(f"c{n},{n}\n" for n in range(5))
    whole = blocks(tmp_path, text, WITH)
    [later] = blocks(tmp_path, text, WITH, offset=whole[0].offset, rows=3)
    assert (later.offset, later.first) == (whole[0].offset, 3)
    assert [row["total"] for row in later.rows.to_pylist()] == [3, 4]  # type: ignore[union-attr]
    assert blocks(tmp_path, text, WITH, offset=whole[0].offset, rows=5) == []


def test_columns_without_names_and_without_a_schema_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("lima,1\n")
    with pytest.raises(ConfigError, match="without a header have no names"):
        CsvFormat(header=False).check(Stores(), str(file))
    CsvFormat(schema=WITH.schema, header=False).check(Stores(), str(file))


def test_a_column_that_no_file_has_is_null_and_told_with_the_nearest(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string()), ("totl", pa.int64())])
    (tmp_path / "1.csv").write_text("city,country\nlima,pe\n")
    (tmp_path / "2.csv").write_text("city,total\nlima,1\n")
    source = FileSource.csv(str(tmp_path), schema=schema)
    source.check()
    assert source.missing_columns == {"totl": "total"}
    assert source.monitor_continuously(1_000).missing_columns == {}
    (tmp_path / "3.csv").write_text("city,totl\nlima,1\n")
    source.check()
    assert source.missing_columns == {}
    assert rows(tmp_path, "city\nlima\n", WITH) == [{"city": "lima", "total": None}]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("CITY", pa.string()), ("count", pa.int64())]),
        pa.schema([("total", pa.int64()), pa.field("CITY", pa.string(), nullable=False)]),
    ],
)
def test_columns_without_values_are_refused_where_none_is_left_or_each_needs_one(
    tmp_path: Path, schema: pa.Schema
) -> None:
    (tmp_path / "1.csv").write_text("city,total\nlima,1\n")
    source = FileSource.csv(str(tmp_path), schema=schema)
    with pytest.raises(ConfigError, match=r"that no file has: CITY \(but city\)"):
        source.check()
    source.monitor_continuously(1_000).check()
    for n in range(16):
        (tmp_path / f"more-{n}.csv").write_text("city,total\nlima,1\n")
    source.check()


def test_a_name_that_a_header_has_twice_is_refused_if_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("city,total,total\nlima,1,2\n")
    with pytest.raises(BadRecord, match="the columns total more than once"):
        FileSource.csv(str(file)).check()
    with pytest.raises(BadRecord, match="the columns total more than once"):
        blocks(tmp_path, file.read_text(), WITH)
    cities = pa.schema([("city", pa.string())]).serialize().to_pybytes()
    assert rows(tmp_path, file.read_text(), CsvFormat(schema=cities)) == [{"city": "lima"}]


def test_text_of_another_charset_is_refused_or_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes("city,total\nlima,1\nZürich,2\n".encode("latin-1"))
    with pytest.raises(BadRecord, match="the columns city are not text in UTF-8"):
        FileSource.csv(str(file)).check()
    form = CsvFormat(skip=True)
    schema = form.schema_of(Stores(), str(file))
    assert schema is not None
    split = FileSplit(str(file), 0, END, schema=schema.serialize().to_pybytes())
    [block] = form.blocks(Stores(), split)
    assert block.rows.to_pylist() == [{"city": "lima", "total": 1}]  # type: ignore[union-attr]
    assert [bad.raw for bad in block.bad] == ["Zürich,2\n".encode("latin-1")]


def test_a_long_file_tells_its_columns_by_its_first_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("city,total\n" + "".join(f"{'c' * 200},{n}\n" for n in range(20_000)))
    found = CsvFormat().schema_of(Stores(), str(file))
    assert found is not None and found.names == ["city", "total"]
    assert found.field("total").type == pa.int64()


def test_lines_of_json_become_columns_of_the_types_asked_for(tmp_path: Path) -> None:
    form = JsonFormat(arrow=True, schema=CITIES.serialize().to_pybytes())
    [block] = blocks(tmp_path, '{"city": "lima", "more": 1}\n{"total": 2}\n', form)
    assert block.rows.to_pylist() == [  # type: ignore[union-attr]
        {"city": "lima", "total": None},
        {"city": None, "total": 2},
    ]


QUOTED = replace(WITH, newlines=True)


def test_a_quoted_value_may_hold_line_ends(tmp_path: Path) -> None:
    text = '"the\ncity",total\n"li\nma",1\n"o\n\nslo",2\nquito,3'
    schema = pa.schema([("the\ncity", pa.string()), ("total", pa.int64())])
    form = replace(QUOTED, schema=schema.serialize().to_pybytes())
    found = rows(tmp_path, text, form)
    assert [row["the\ncity"] for row in found] == ["li\nma", "o\n\nslo", "quito"]
    file = tmp_path / "rows.csv"
    assert len(form.cut(Stores(), str(file), 100, 10)) == 1, "such a file is read as one part"
    assert len(WITH.cut(Stores(), str(file), 100, 10)) > 1


def test_a_bad_row_among_quoted_ones_is_passed_over_alone(tmp_path: Path) -> None:
    text = 'city,total\n"li\nma",1\n"o\nslo",many\n"qui\nto",3\n'
    [block] = blocks(tmp_path, text, replace(QUOTED, skip=True))
    assert [row["total"] for row in block.rows.to_pylist()] == [1, 3]  # type: ignore[union-attr]
    [bad] = block.bad
    assert bad.raw == b'"o\nslo",many\n' and bad.where.endswith("byte 21")


def test_a_compressed_file_goes_on_at_a_byte_of_what_it_holds(tmp_path: Path) -> None:
    text = "city,total\n" + "".join(f"c{n},{n}\n" for n in range(5))
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    [whole] = WITH.blocks(Stores(), FileSplit(str(file), 0, END))
    assert whole.offset == len("city,total\n")
    [later] = WITH.blocks(Stores(), FileSplit(str(file), 0, END, offset=whole.offset, rows=4))
    assert later.rows.to_pylist() == [{"city": "c4", "total": 4}]  # type: ignore[union-attr]
