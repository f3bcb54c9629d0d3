"""One contract for every store; the twin in memory passes what the real ones pass."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import google_crc32c
import pytest

from tests.storage.stores_under_test import MAKERS
from tidegate.errors import FileMissing, StorageFailed
from tidegate.storage.store import FileInfo, Store, Written, open_stream, publish, write_new

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MAKERS[request.param](tmp_path)


def paths_of(store: Store, prefix: str = "") -> list[str]:
    return [info.path for info in store.list(prefix)]


def test_a_new_file_has_its_bytes_size_and_checksum(store: Store) -> None:
    writer = store.open_new("a/b/file")
    writer.write(b"hello ")
    writer.write(memoryview(bytearray(b"world")))
    assert writer.close() == Written("a/b/file", 11, google_crc32c.value(b"hello world"))
    assert store.read("a/b/file") == b"hello world"
    assert store.info("a/b/file") == FileInfo("a/b/file", 11)


def test_a_part_of_a_file_is_read_and_less_where_it_ends(store: Store) -> None:
    write_new(store, "f", b"0123456789")
    assert store.read("f", offset=3, size=4) == b"3456"
    assert store.read("f", offset=8) == b"89"
    assert store.read("f", offset=8, size=5) == b"89"
    assert store.read("f", offset=20) == b""
    assert store.read("f", size=0) == b""


def test_an_empty_file_is_a_file(store: Store) -> None:
    assert write_new(store, "empty", b"") == Written("empty", 0, 0)
    assert store.read("empty") == b""
    assert paths_of(store) == ["empty"]


def test_a_file_that_is_not_there_is_told_from_a_failure(store: Store) -> None:
    with pytest.raises(FileMissing, match="no file none") as caught:
        store.read("a/none")
    assert caught.value.where == f"{store.root}/a/none"
    assert store.info("a/none") is None
    with pytest.raises(FileMissing):
        store.rename("a/none", "b")
    with pytest.raises(FileMissing):
        open_stream(store, "a/none")


def test_an_aborted_file_leaves_nothing(store: Store) -> None:
    writer = store.open_new("a/f")
    writer.write(b"x" * 1_000_000)
    writer.abort()
    assert store.info("a/f") is None
    assert paths_of(store) == []


def test_a_new_file_never_replaces_one(store: Store) -> None:
    write_new(store, "f", b"first")
    with pytest.raises(StorageFailed):
        store.open_new("f")
    assert store.read("f") == b"first"


def test_files_are_listed_at_any_depth_below_a_folder_in_order(store: Store) -> None:
    for path in ("b/2", "b/10", "a/x/y", "ab/z", "top"):
        write_new(store, path, b"1")
    assert paths_of(store) == ["a/x/y", "ab/z", "b/10", "b/2", "top"]
    assert paths_of(store, "b") == ["b/10", "b/2"]
    assert paths_of(store, "a") == ["a/x/y"]
    assert paths_of(store, "none") == []
    assert {info.size for info in store.list()} == {1}


def test_files_of_a_folder_itself_are_listed_in_order(store: Store) -> None:
    for path in ("b/2", "b/10", "b/c/d", "a/x/y", "top"):
        write_new(store, path, b"1")

    def of(path: str) -> list[str]:
        return [info.path for info in store.list_folder(path)]

    assert of("") == ["top"]
    assert of("b") == ["b/10", "b/2"]
    assert of("a") == of("none") == []


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    for path in ("f", "g", "h"):
        write_new(store, path, b"1")
    store.delete(["f", "none/at/all", "g"])
    assert paths_of(store) == ["h"]


def test_a_folder_goes_with_all_that_is_in_it(store: Store) -> None:
    store.make_folder("chk-1")
    for path in ("chk-1/_metadata", "chk-1/deep/er", "chk-10/_metadata"):
        write_new(store, path, b"1")
    store.delete_folder("chk-1")
    store.delete_folder("none")
    assert paths_of(store) == ["chk-10/_metadata"]
    assert not store.is_folder("chk-1")
    assert store.is_folder("chk-10")
    assert not store.is_folder("chk-10/_metadata")


def test_a_folder_that_was_made_is_there(store: Store) -> None:
    assert not store.is_folder("a")
    store.make_folder("a/b")
    store.make_folder("a/b")
    assert store.is_folder("a")
    assert store.is_folder("a/b")
    assert paths_of(store) == []


def test_a_renamed_file_has_one_name(store: Store) -> None:
    write_new(store, "old/f", b"1")
    store.rename("old/f", "new/g")
    assert paths_of(store) == ["new/g"]
    write_new(store, "h", b"2")
    if store.guarantees.atomic_rename:
        store.rename("h", "new/g")
        assert store.read("new/g") == b"2"


def test_create_tells_who_came_second_or_is_not_offered(store: Store) -> None:
    if store.guarantees.atomic_create:
        data = b"same bytes"
        assert store.create("a/f", data) is True
        assert store.create("a/f", data) is False
        assert store.create("a/f", b"other") is False
        assert store.read("a/f") == data
    else:
        with pytest.raises(StorageFailed, match="cannot create a file atomically"):
            store.create("a/f", b"x")
    assert all(not path.startswith(".probe") for path in paths_of(store))


def test_what_is_published_is_whole_and_is_not_replaced(store: Store) -> None:
    assert publish(store, "chk-1/_metadata", b"whole").size == 5
    with pytest.raises(StorageFailed, match="is not replaced"):
        publish(store, "chk-1/_metadata", b"other")
    assert store.read("chk-1/_metadata") == b"whole"
    assert paths_of(store) == ["chk-1/_metadata"]


@pytest.mark.parametrize("buffer_bytes", [0, 16])
def test_a_file_or_a_part_of_it_is_read_as_a_stream(store: Store, buffer_bytes: int) -> None:
    write_new(store, "f", bytes(range(256)) * 10)
    with open_stream(store, "f", buffer_bytes=buffer_bytes) as stream:
        assert stream.read(3) == b"\x00\x01\x02"
        assert stream.seek(-1, io.SEEK_END) == 2_559
        assert stream.read() == b"\xff"
        assert stream.seek(256) == 256
        assert stream.read() == bytes(range(256)) * 9
    with open_stream(store, "f", start=10, size=5, buffer_bytes=buffer_bytes) as part:
        assert part.read() == bytes(range(10, 15))
        assert part.seek(3) == 3
        assert part.read(100) == bytes([13, 14])
        assert part.read(1) == b""


@pytest.mark.parametrize("buffer_bytes", [0, 16])
def test_a_file_that_becomes_shorter_while_it_is_read_is_told(
    store: Store, buffer_bytes: int
) -> None:
    write_new(store, "f", bytes(1_000))
    with open_stream(store, "f", buffer_bytes=buffer_bytes) as stream:
        assert stream.read(100) == bytes(100)
        store.delete("f")
        write_new(store, "f", bytes(500))
        with pytest.raises(StorageFailed, match="The file has become shorter"):
            stream.read()
