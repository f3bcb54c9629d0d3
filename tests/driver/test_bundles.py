"""Replay bundles on the driver's disk: names, rights, and how many there are."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from tidegate.driver.telling.bundles import BUNDLES_MAX, keep
from tidegate.model.control import FailedStep
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId, VertexId
from tidegate.model.settings import ReplaySettings

EXECUTION = ExecutionId(SubtaskId(VertexId(b"v" * 16), 2), Attempt(1), Epoch(3))


def kept(folder: Path, content: bytes = b"bundle", number: int = 1) -> list[Any]:
    """What is logged of a bundle that is kept."""
    failed = FailedStep(EXECUTION, "sum of\x00all", content)
    with capture_logs() as logs:
        keep(failed, "a/b job", ReplaySettings(str(folder)), number, structlog.get_logger())
    return list(logs)


def test_a_bundle_is_for_its_user_alone_and_the_log_says_how_to_run_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "bundles"
    [logged] = kept(folder)
    [path] = folder.iterdir()
    assert path.name == "a_b_job-sum_of_all-3-1-2.replay" and path.read_bytes() == b"bundle"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert logged["by"] == f"tidegate replay {path}"


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    for content in (b"1", b"2", b"3"):
        kept(tmp_path, content)
    found = {path.name.removeprefix("a_b_job-sum_of_all"): path for path in tmp_path.iterdir()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        "-3-1-2.replay": b"1",
        "-3-1-2-2.replay": b"2",
        "-3-1-2-3.replay": b"3",
    }


def test_a_run_that_fails_again_and_again_leaves_some_and_says_so_once(tmp_path: Path) -> None:
    assert len(kept(tmp_path, number=BUNDLES_MAX)) == 1
    [logged] = kept(tmp_path, number=BUNDLES_MAX + 1)
    assert "later failures get none" in logged["event"]
    assert kept(tmp_path, number=BUNDLES_MAX + 2) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_told_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [logged] = kept(tmp_path / "file" / "bundles")
    assert logged["event"] == "a replay bundle cannot be written"
    assert logged["where"] == str(tmp_path / "file" / "bundles")


def names(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("a_b_job-sum_of_all") for path in folder.iterdir())


def test_a_full_disk_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.fdopen

    def full(descriptor: int, mode: str) -> Any:
        os.close(descriptor)
        return opened(os.open("/dev/full", os.O_WRONLY), mode)

    monkeypatch.setattr(os, "fdopen", full)
    [logged] = kept(tmp_path)
    assert logged["event"] == "a replay bundle cannot be written"
    assert "No space left" in logged["error"] and names(tmp_path) == []


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_name_that_another_writer_takes_meanwhile_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    opened = os.fdopen
    others = tmp_path / "a_b_job-sum_of_all-3-1-2.replay"

    def meanwhile(descriptor: int, mode: str) -> Any:
        others.write_bytes(b"of another writer")
        return opened(descriptor, mode)

    def without_links(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fdopen", meanwhile)
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", without_links)
    kept(tmp_path)
    assert names(tmp_path) == ["-3-1-2-2.replay", "-3-1-2.replay"]
    second = tmp_path / "a_b_job-sum_of_all-3-1-2-2.replay"
    assert (others.read_bytes(), second.read_bytes()) == (b"of another writer", b"bundle")
    assert stat.S_IMODE(second.stat().st_mode) == 0o600
