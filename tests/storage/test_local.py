from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tidegate.errors import FileMissing, StorageFailed
from tidegate.storage.local import LocalStore
from tidegate.storage.store import write_new


def test_of_many_who_create_one_file_just_one_is_told_that_it_did(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    start = threading.Barrier(8)
    outcomes: list[tuple[bool, bytes]] = []

    def compete(number: int) -> None:
        data = f"competitor {number}".encode() * 1_000
        start.wait()
        outcomes.append((store.create("race", data), data))

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [data for created, data in outcomes if created] == [store.read("race")]
    assert [file.name for file in tmp_path.iterdir()] == ["race"]


def test_a_failure_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(str(tmp_path / "file" / "below"))
    for call in (
        lambda: store.make_folder("job"),
        lambda: write_new(store, "f", b"x"),
        lambda: store.create("f", b"x"),
    ):
        with pytest.raises(StorageFailed) as caught:
            call()
        assert str(tmp_path / "file") in caught.value.where
        assert "name another folder" in caught.value.remedy
    assert not store.guarantees.atomic_create


def test_a_folder_that_cannot_be_made_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for root, reason in (("/proc/none", "No such file"), (str(tmp_path / "file"), "File exists")):
        with pytest.raises(
            StorageFailed, match=f"^Cannot make {Path(root).name}: {reason}"
        ) as said:
            LocalStore(root).make_folder("")
        assert not isinstance(said.value, FileMissing)
        assert "name another" in said.value.remedy


def test_a_mount_without_links_offers_no_atomic_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore(str(tmp_path))
    assert not store.guarantees.atomic_create
    assert list(tmp_path.iterdir()) == []


def test_what_is_closed_is_synced_with_the_folders_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write_new(LocalStore(str(tmp_path)), "a/b/f", b"x")
    assert set(synced) == {
        str(tmp_path / "a/b/f"),
        str(tmp_path / "a/b"),
        str(tmp_path / "a"),
        str(tmp_path),
    }


@pytest.mark.parametrize("name", ["a\0b", "a\0/b", "\ud800"])
def test_a_name_that_no_file_can_have_is_that_of_no_file(tmp_path: Path, name: str) -> None:
    store = LocalStore(str(tmp_path))
    with pytest.raises(FileMissing, match="name such as"):
        store.read(name)
    assert store.info(name) is None
