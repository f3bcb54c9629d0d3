from __future__ import annotations

from socket import gaierror
from typing import TYPE_CHECKING

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.storage.stores_under_test import MAKERS
from tidegate.errors import ConfigError, StorageFailed
from tidegate.storage.arrow_fs import ArrowStore
from tidegate.storage.fsspec_fs import FsspecStore
from tidegate.storage.local import LocalStore
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.store import StoreGuarantees, Trials, write_new
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path


def test_a_path_and_its_url_open_the_same_files(tmp_path: Path) -> None:
    write_new(Stores().open(str(tmp_path)), "f", b"1")
    assert isinstance(Stores().open(tmp_path.as_uri()), LocalStore)
    assert Stores().open(tmp_path.as_uri()).read("f") == b"1"


def test_stores_of_one_device_are_tried_out_once(tmp_path: Path) -> None:
    trials = Trials()
    tried = StoreGuarantees(atomic_create=True, atomic_rename=False)
    trials.of(tmp_path.stat().st_dev, lambda: tried)
    assert LocalStore(str(tmp_path / "chk-7"), trials=trials).guarantees is tried
    assert LocalStore(str(tmp_path / "chk-7")).guarantees.atomic_rename


def test_a_trial_that_failed_says_nothing_of_other_stores() -> None:
    trials = Trials()
    for created in (False, True):
        found = StoreGuarantees(atomic_create=created, atomic_rename=True)
        assert trials.of("bucket", lambda found=found: found) is found


def test_a_scheme_that_arrow_lacks_goes_to_fsspec() -> None:
    assert isinstance(Stores().open("local:///tmp"), FsspecStore)


def test_a_scheme_nobody_knows_is_refused_with_what_to_install() -> None:
    with pytest.raises(ConfigError, match="no driver for zzz: files") as caught:
        Stores().open("zzz://a/b")
    assert "tidegate[fsspec]" in caught.value.remedy


def test_a_driver_that_reaches_nothing_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(_: str, **__: object) -> None:
        raise gaierror(-2, "Name or service not known")

    monkeypatch.setattr("fsspec.core.url_to_fs", connect)
    with pytest.raises(StorageFailed, match="Name or service not known") as caught:
        Stores().open("ftp://a/b")
    assert caught.value.where == "ftp://a/b"


def test_arrow_opens_what_it_knows(tmp_path: Path) -> None:
    store = ArrowStore.open(tmp_path.as_uri())
    write_new(store, "f", b"1")
    assert (tmp_path / "f").read_bytes() == b"1"


def test_memory_means_the_world_that_was_given() -> None:
    world = MemoryFiles()
    write_new(Stores(world).open("memory:/a"), "b/f", b"1")
    store, name = Stores(world).locate("memory:/a/b/f")
    assert (store.root, name) == ("memory:/a/b", "f")
    assert store.read(name) == b"1"
    with pytest.raises(ConfigError, match="no files in memory here"):
        Stores().open("memory:/a")


def test_opened_stores_are_kept_and_no_more_than_a_bounded_number(tmp_path: Path) -> None:
    stores = Stores()
    first = stores.open(str(tmp_path))
    assert stores.open(f"{tmp_path}/") is first
    for number in range(100):
        stores.open(f"{tmp_path}/{number}")
    assert stores.open(str(tmp_path)) is not first


class Failing(LocalFileSystem):
    """A driver whose client library fails in its own way."""

    def cat_file(self, path: str, **_: object) -> bytes:
        raise RuntimeError("the token has expired")

    def rm_file(self, path: str) -> None:
        raise RuntimeError("the token has expired")


def test_whatever_a_driver_raises_is_the_stores_failure(tmp_path: Path) -> None:
    store = FsspecStore(Failing(skip_instance_cache=True), str(tmp_path), "zzz://bucket")
    write_new(store, "f", b"1")
    for call in (lambda: store.read("f"), lambda: store.delete(["f", "g"])):
        with pytest.raises(StorageFailed, match="the token has expired") as caught:
            call()
        assert caught.value.where == "zzz://bucket/f"


def test_a_conditional_create_is_offered_where_a_trial_shows_it(tmp_path: Path) -> None:
    assert MAKERS["conditional"](tmp_path).guarantees.atomic_create
    assert not MAKERS["fsspec"](tmp_path).guarantees.atomic_create
