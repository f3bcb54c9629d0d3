"""Tables on the command line."""

import sys

import click
import pytest

from tidegate.cli.tables import counted, show, wrapped


def on_terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return click.unstyle(capsys.readouterr().out).splitlines()


def test_a_table_is_as_wide_as_its_cells_and_ends_with_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(("of", "bytes", "skew", "note"), [("sums", 1_200, 7.681, ""), ("日本", 3, None, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "of    bytes  skew  note",
        "sums  1,200  7.68  -",
        "日本      3     -  x",
    ]


def test_a_terminal_obeys_nothing_that_is_in_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    show(("of", "rows"), [("a\x1b[31mred\nnext\x9bm é", 1)])
    assert capsys.readouterr().out.splitlines() == [
        "of                           rows",
        r"a\x1b[31mred\x0anext\x9bm é     1",
    ]


def test_without_rows_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(("of", "bytes"), [])
    assert capsys.readouterr().out == ""


def test_one_thing_is_not_many() -> None:
    assert [counted(n, "file") for n in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]


PATH = "/checkpoints/of/the/orders/0123456789abcdef/chk-17"


def test_on_a_terminal_the_longest_texts_are_cut_in_the_middle(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, columns=40)
    show(("job", "bytes", "newest checkpoint"), [("orders", 12_000, PATH)])
    assert shown(capsys) == [
        "job      bytes  newest checkpoint",
        "orders  12,000  /checkpoint…bcdef/chk-17",
    ]


def test_a_table_that_cannot_fit_is_laid_out_a_line_a_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, columns=40)
    show(("job", "path", "other"), [("orders" * 3, PATH, PATH), ("a", "b", "c")])
    assert shown(capsys) == [
        "  job  ordersordersorders",
        f" path  {PATH}",
        f"other  {PATH}",
        "",
        "  job  a",
        " path  b",
        "other  c",
    ]


def test_a_paragraph_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, columns=40)
    lines = wrapped("word " * 30, indent="  ").splitlines()
    assert len(lines) > 3
    assert all(line.startswith("  word") and len(line) <= 40 for line in lines)
