"""Savepoints as folders: listed, and deleted. Those of our own jobs: tests/local."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from golden import FIXTURES

from tidegate import (
    ConfigError,
    RestoreRefused,
    SavepointFormatType,
    dispose_savepoint,
    list_savepoints,
)
from tidegate.cli.main import commands
from tidegate.errors import FormatError

CANONICAL, NATIVE = (f"keyed-heapfile-savepoint-{name}" for name in ("canonical", "native"))
CHECKPOINT = "keyed-heapfile-chk1"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Two savepoints, a checkpoint, a savepoint that was never completed, and a file."""
    for name in (CANONICAL, NATIVE, CHECKPOINT):
        shutil.copytree(FIXTURES / name, tmp_path / name)
        for described in ("expected.json", "state.json"):
            (tmp_path / name / described).unlink()
    (tmp_path / "savepoint-000000-000000000000").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_the_savepoints_of_a_folder_are_listed_with_what_they_are(kept: Path) -> None:
    canonical, native = list_savepoints(kept)
    assert [canonical.path, native.path] == [str(kept / CANONICAL), str(kept / NATIVE)]
    expected = json.loads((FIXTURES / CANONICAL / "expected.json").read_text())
    assert canonical.checkpoint == expected["checkpointId"]
    assert (canonical.kind, canonical.job_name) == ("Savepoint", None)
    assert (canonical.format, native.format) == tuple(SavepointFormatType)
    assert canonical.size_bytes > 0
    assert list_savepoints(kept / CHECKPOINT) == []


def test_a_savepoint_among_others_that_is_damaged_is_named(kept: Path) -> None:
    (kept / NATIVE / "_metadata").write_bytes(b"\0" * 40)
    with pytest.raises(FormatError) as refused:
        list_savepoints(kept)
    assert NATIVE in str(refused.value)
    damaged: list[FormatError] = []
    [other] = list_savepoints(kept, on_damaged=damaged.append)
    assert other.path == str(kept / CANONICAL)
    assert [str(error) for error in damaged] == [str(refused.value)]
    listed = CliRunner().invoke(commands, ["list", "--savepoints", str(kept)])
    assert CANONICAL in listed.stdout and NATIVE in listed.stderr and listed.exit_code == 1
    with pytest.raises(ConfigError, match="There is no folder"):
        list_savepoints(kept / "nowhere")


@pytest.mark.parametrize("pointer", ["", "_metadata"])
def test_a_savepoint_that_is_disposed_of_is_gone_and_cannot_be_disposed_of_again(
    kept: Path, pointer: str
) -> None:
    dispose_savepoint(kept / CANONICAL / pointer)
    assert not (kept / CANONICAL).exists()
    assert [info.path for info in list_savepoints(f"file://{kept}")] == [str(kept / NATIVE)]
    with pytest.raises(RestoreRefused):
        dispose_savepoint(kept / CANONICAL / pointer)


def test_a_savepoint_behind_a_link_is_left_whole(kept: Path) -> None:
    before = sorted((kept / CANONICAL).iterdir())
    link = kept / "latest"
    link.symlink_to(kept / CANONICAL)
    with pytest.raises(ConfigError, match="is a symbolic link") as refused:
        dispose_savepoint(link)
    assert str((kept / CANONICAL).resolve()) in refused.value.remedy
    assert sorted((kept / CANONICAL).iterdir()) == before


def test_what_is_no_savepoint_or_not_alone_in_its_folder_is_not_deleted(kept: Path) -> None:
    (kept / NATIVE / "notes.txt").write_text("mine")
    for path, text in ((CHECKPOINT, "is a checkpoint"), (NATIVE, "files of others: notes.txt")):
        before = sorted((kept / path).iterdir())
        with pytest.raises(ConfigError, match=text) as refused:
            dispose_savepoint(kept / path)
        assert refused.value.remedy and sorted((kept / path).iterdir()) == before
    with pytest.raises(RestoreRefused, match="Cannot find meta data file"):
        dispose_savepoint(kept / "savepoint-000000-000000000000")
    assert (kept / "savepoint-000000-000000000000").is_dir()
