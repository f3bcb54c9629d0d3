"""Tables on the command line."""

import pytest

from tidegate.cli.tables import counted, show


def test_a_table_is_as_wide_as_its_cells_and_ends_with_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(("of", "bytes", "skew", "note"), [("sums", 1_200, 7.681, ""), ("日本", 3, None, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "of    bytes  skew  note",
        "sums  1,200  7.68  -",
        "日本      3     -  x",
    ]


def test_without_rows_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(("of", "bytes"), [])
    assert capsys.readouterr().out == ""


def test_one_thing_is_not_many() -> None:
    assert [counted(n, "file") for n in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]
