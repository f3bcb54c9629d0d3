"""Damaged files of Flink's RocksDB are refused, whatever RocksDB does over them."""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest
from golden import FIXTURES

from flinkformat.state import rocksdb
from tidegate.errors import FormatError
from tidegate.snapshots.flink_snapshot import FlinkSnapshot

END = bytes.fromhex("f7cff485b741e288")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "keyed-rocks-savepoint-native", tmp_path / "savepoint"))


def entries(folder: Path) -> Counter[str]:
    snapshot = FlinkSnapshot.open(folder)
    return Counter(
        entry.state.name
        for operator in snapshot.operators
        for part in snapshot.keyed_state(operator)
        for entry in part.entries()
    )


def a_table(folder: Path) -> Path:
    return min(file for file in folder.iterdir() if file.read_bytes().endswith(END))


def without_blocks(table: Path) -> None:
    """Over such a footer RocksDB ends the process, for want of memory."""
    whole = table.read_bytes()
    numbers = (b"\0\xff" + b"\xff" * 7 + b"\x3f").ljust(40, b"\0")
    footer = b"\1" + numbers + struct.pack("<I", 5) + END
    table.write_bytes(whole[: -len(footer)] + footer)


def test_a_table_with_a_damaged_footer_is_named(folder: Path) -> None:
    without_blocks(a_table(folder))
    with pytest.raises(FormatError, match="damaged at its end") as told:
        entries(folder)
    assert ".sst" in told.value.where


def test_a_table_with_a_damaged_block_is_named(folder: Path) -> None:
    table = a_table(folder)
    table.write_bytes(bytes([table.read_bytes()[0] ^ 1]) + table.read_bytes()[1:])
    with pytest.raises(FormatError, match="block checksum mismatch") as told:
        entries(folder)
    assert table.name in told.value.where


@pytest.mark.slow
def test_options_that_are_damaged_are_not_asked(folder: Path) -> None:
    whole = entries(folder)
    for file in folder.iterdir():
        if b"RocksDB option file" in file.read_bytes()[:40]:
            file.write_bytes(file.read_bytes().replace(b"num_levels=7", b"num_levels=0"))
    assert entries(folder) == whole


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found by looking at the files is left to RocksDB."""
    monkeypatch.setattr(rocksdb, "check_folder", lambda *_: None)


@pytest.mark.usefixtures("unchecked")
def test_files_over_which_rocksdb_ends_its_process_are_refused(folder: Path) -> None:
    without_blocks(a_table(folder))
    with pytest.raises(FormatError, match="RocksDB has ended its process by SIG"):
        entries(folder)


def test_files_that_hold_rocksdb_for_ever_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(files: Path, _: str) -> None:
        table = min(files.glob("*.sst"))
        table.unlink()
        os.mkfifo(table)  # to open it is to wait for a writer

    monkeypatch.setattr(rocksdb, "check_folder", held)
    monkeypatch.setattr(rocksdb, "ANSWER_MAX_S", 1)
    with pytest.raises(FormatError, match="RocksDB has given no answer for 1 s"):
        entries(folder)
