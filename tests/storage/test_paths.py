from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.ids import Attempt, CheckpointId, Epoch, JobId
from tidegate.storage import paths

JOB = JobId("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/tmp/c/", "/tmp/c"),
        ("file:/tmp/c", "/tmp/c"),
        ("file:///tmp/a%20b/", "/tmp/a b"),
        ("file:///tmp/a#b?c=1/file:d", "/tmp/a#b?c=1/file:d"),
        ("FILE://host/tmp/a%23b", "/tmp/a#b"),
        ("/", "/"),
        ("S3://bucket/key/", "s3://bucket/key"),
        ("memory:", "memory:"),
        ("memory:/x/", "memory:/x"),
    ],
)
def test_a_place_has_one_form(given: str, expected: str) -> None:
    assert paths.absolute(given) == expected
    assert paths.absolute(expected) == expected


def test_a_relative_path_is_taken_from_the_current_folder() -> None:
    assert paths.absolute("checkpoints") == str(Path.cwd() / "checkpoints")


@pytest.mark.parametrize("place", ["state", "./state", "file:state"])
def test_a_path_without_a_root_is_relative(place: str) -> None:
    assert paths.is_relative(place)


@pytest.mark.parametrize("place", ["/state", "file:///state", "s3://bucket/state", "memory:x"])
def test_paths_from_the_root_and_urls_are_not_relative(place: str) -> None:
    assert not paths.is_relative(place)


def test_places_are_put_together_and_taken_apart() -> None:
    assert paths.join("/a/", "b", "c") == "/a/b/c"
    assert paths.join("memory:", "b") == "memory:/b"
    assert paths.parent("/a/b") == "/a"
    assert paths.parent("/a") == "/"
    assert paths.parent("s3://bucket/a/b") == "s3://bucket/a"
    assert paths.name("/a/b") == "b"
    assert paths.scheme_of("/a") == "file"
    assert paths.scheme_of("HDFS://n/a") == "hdfs"


def test_the_name_of_a_try_gives_its_job() -> None:
    assert paths.try_of(f"/c/chk-1/{paths.try_file(JOB)}") == JOB
    for other in ("try-", "try-me", f"retry-{JOB}", f"try-{JOB}.part", "committed"):
        assert paths.try_of(other) is None


def test_the_layout_is_flinks() -> None:
    assert paths.exclusive_folder(JOB, CheckpointId(7)) == f"{JOB}/chk-7"
    assert paths.shared_folder(JOB) == f"{JOB}/shared"
    assert paths.task_owned_folder(JOB) == f"{JOB}/taskowned"
    assert paths.savepoint_folder(JOB, 2**63 + 255) == "savepoint-012345-0000000000ff"


@pytest.mark.parametrize(
    ("snapshot", "file", "own"),
    [
        ("/c/job/chk-7", "/c/job/chk-7/state", True),
        ("/c/job/chk-7", "/c/job/shared/state", True),
        ("/c/job/chk-7", "/c/job/taskowned/state", True),
        ("/c/job/chk-7", "/c/job/chk-6/state", False),
        ("/c/job/chk-7", "/c/job/letters", False),
        ("/c/job/chk-7", "/c/job/chk-7/../letters", False),
        ("/c/savepoint-1", "file:///c/savepoint-1/state", True),
        ("/c/savepoint-1", "/c/savepoint-10/state", False),
        ("/c/savepoint-1", "/c/shared/state", False),
        ("s3://b/savepoint-1", "S3://b/savepoint-1/state", True),
        ("s3://b/savepoint-1", "/b/savepoint-1/state", False),
    ],
)
def test_a_snapshots_own_files_lie_in_its_folders(snapshot: str, file: str, own: bool) -> None:
    folders = paths.folders_of(snapshot)
    assert any(paths.is_below(file, folder) for folder in folders) == own


def test_places_are_the_same_however_they_are_spelled(tmp_path: Path) -> None:
    (tmp_path / "real" / "job").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for spelled in ("link/job", "real/../link/job/", "real/job/chk-1/.."):
        assert paths.resolved(f"{tmp_path}/{spelled}") == f"{tmp_path}/real/job"
    assert paths.resolved("S3A://bucket/a/") == paths.resolved("s3://bucket/a") == "s3://bucket/a"
    assert paths.resolved("memory:/a/../b") == "memory:/a/../b"


def test_the_name_of_a_state_file_tells_epoch_and_attempt() -> None:
    assert paths.state_file(Epoch(3), Attempt(1), 255) == "3-1-00000000000000ff"


def test_the_chain_of_a_job_lies_under_its_name() -> None:
    assert paths.chain_folder("orders") == ".jobs/orders"
    assert paths.chain_folder("a/b c") == ".jobs/a%2Fb%20c"


@given(st.lists(st.text(), unique=True, min_size=2, max_size=2))
def test_each_job_name_has_a_folder_of_its_own_with_a_harmless_name(texts: list[str]) -> None:
    one, other = (paths.quoted_name(text) for text in texts)
    assert one != other
    for name in (one, other):
        assert name
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name) <= 200
        assert name.isascii()


@given(st.text(min_size=1, max_size=14))
def test_a_quoted_name_is_shown_as_it_was(text: str) -> None:
    assert paths.shown_name(paths.quoted_name(text)) == text


def test_of_a_very_long_name_its_beginning_is_shown() -> None:
    shown = paths.shown_name(paths.quoted_name("заказы" * 20))
    assert shown.startswith("заказы" * 4) and shown != paths.shown_name(
        paths.quoted_name("заказы" * 21)
    )
