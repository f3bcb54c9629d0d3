"""Files of RocksDB that do not belong together are found before RocksDB opens them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from flinkformat.state.manifest import check_folder
from tests.fuzzing.golden import GOLDEN
from tests.state.disk_world import SMALL
from tidegate.errors import FormatError
from tidegate.state.disk.store import RocksDBMemory, RocksDBStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "space"))


def the(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def test_a_whole_folder_is_opened(folder: Path) -> None:
    check_folder(folder, "here")
    store = RocksDBStore(folder, RocksDBMemory(SMALL))
    try:
        assert list(store.scan(b""))
    finally:
        store.close()


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("at", [0, 5, 6, 7, 40, -1])
def test_a_bit_of_the_manifest_is_found(folder: Path, at: int) -> None:
    flip(the(folder, "MANIFEST-*"), at)
    with pytest.raises(FormatError, match="manifest of the database is damaged") as told:
        RocksDBStore(folder, RocksDBMemory(SMALL))
    assert "MANIFEST-" in told.value.where


def test_a_table_without_its_end_is_found(folder: Path) -> None:
    flip(the(folder, "*.sst"), -1)
    with pytest.raises(FormatError, match="damaged at its end"):
        RocksDBStore(folder, RocksDBMemory(SMALL))


@pytest.mark.parametrize(
    "numbers", [b"\xff" * 8 + b"\x7f", b"\x80" * 40, b"\1\1\1" + b"\xff" * 8 + b"\x7f"]
)
def test_a_table_whose_blocks_lie_behind_its_end_is_found(folder: Path, numbers: bytes) -> None:
    """Its version has a footer without a checksum, over which RocksDB ends the process."""
    table = the(folder, "*.sst")
    footer = b"\1" + numbers.ljust(40, b"\0") + struct.pack("<I", 5) + table.read_bytes()[-8:]
    table.write_bytes(table.read_bytes()[: -len(footer)] + footer)
    with pytest.raises(FormatError, match="damaged at its end") as told:
        RocksDBStore(folder, RocksDBMemory(SMALL))
    assert table.name in told.value.where


def test_a_table_that_was_cut_or_is_gone_is_found(folder: Path) -> None:
    table = the(folder, "*.sst")
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(FormatError, match="names other files"):
        check_folder(folder, "here")
    table.unlink()
    with pytest.raises(FormatError, match="names other files") as told:
        check_folder(folder, "here")
    assert table.name in told.value.expected


@pytest.mark.parametrize("named", [b"", b"MANIFEST-000099\n", b"\xff", b"x" * 5_000])
def test_a_manifest_that_is_not_there_is_found(folder: Path, named: bytes) -> None:
    (folder / "CURRENT").write_bytes(named)
    with pytest.raises(FormatError, match="names no manifest"):
        RocksDBStore(folder, RocksDBMemory(SMALL))
