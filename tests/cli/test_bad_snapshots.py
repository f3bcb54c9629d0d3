"""What is no whole snapshot is named by every tool that is given it, with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate.cli.main import commands

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS: dict[str, list[str]] = {
    "inspect": ["inspect", "{}"],
    "raw": ["inspect", "{}", "--raw"],
    "diff": ["diff", "{}", "{}"],
    "fsck": ["fsck", "{}"],
    "dispose": ["savepoint", "--dispose", "{}"],
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint on shared files and a savepoint, both whole."""
    folder = tmp_path_factory.mktemp("kept")
    with JobWorld(Kind("rocksdb"), root=str(folder)) as world:
        world.work()
        return {"checkpoint": Path(world.checkpoint()), "savepoint": Path(world.savepoint())}


def nowhere(kept: dict[str, Path], place: Path) -> Path:
    return place / "nowhere"


def subsumed(kept: dict[str, Path], place: Path) -> Path:
    return place / "chk-7"


def a_file(kept: dict[str, Path], place: Path) -> Path:
    (place / "data.csv").write_text("number,text\n1,one\n")
    return place / "data.csv"


def foreign(kept: dict[str, Path], place: Path) -> Path:
    (place / "data.csv").write_text("1,2")
    return place


def half_written(kept: dict[str, Path], place: Path) -> Path:
    savepoint = Path(shutil.copytree(kept["savepoint"], place / kept["savepoint"].name))
    (savepoint / "_metadata").unlink()
    return savepoint


def newer(kept: dict[str, Path], place: Path) -> Path:
    savepoint = Path(shutil.copytree(kept["savepoint"], place / "newer"))
    data = bytearray((savepoint / "_metadata").read_bytes())
    data[4:8] = (99).to_bytes(4)
    (savepoint / "_metadata").write_bytes(data)
    return savepoint


def torn(kept: dict[str, Path], place: Path) -> Path:
    savepoint = Path(shutil.copytree(kept["savepoint"], place / "torn"))
    data = (savepoint / "_metadata").read_bytes()
    (savepoint / "_metadata").write_bytes(data[: len(data) // 2])
    return savepoint


WRONG: list[tuple[Callable[[dict[str, Path], Path], Path], dict[str, str]]] = [
    (nowhere, {"": "Cannot find checkpoint or savepoint", "fsck": "There is no folder"}),
    (foreign, {"": "Cannot find meta data file", "fsck": "nothing here that could be checked"}),
    (half_written, {"": "Cannot find meta data file", "fsck": "never completed"}),
    (subsumed, {"": "A running job deletes a checkpoint", "fsck": "There is no folder"}),
    (a_file, {"": "Unexpected magic number", "fsck": "There is no folder"}),
    (newer, {"": "read it with that version", "fsck": "metadata damaged"}),
    (torn, {"": "the bytes end", "fsck": "metadata damaged"}),
]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("make", "texts"), WRONG, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_no_snapshot_is_named_and_left_alone(
    kept: dict[str, Path],
    tmp_path: Path,
    make: Callable[[dict[str, Path], Path], Path],
    texts: dict[str, str],
    tool: str,
) -> None:
    place = make(kept, tmp_path)
    before = contents(tmp_path)
    result = CliRunner().invoke(commands, [each.format(place) for each in TOOLS[tool]])
    assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit)
    assert texts.get(tool, texts[""]) in result.output and str(place) in result.output
    assert "what to do" in result.output
    assert contents(tmp_path) == before


def test_a_shared_file_that_is_gone_is_named_by_all_that_read_it(
    kept: dict[str, Path], tmp_path: Path
) -> None:
    [lost, *_] = sorted((kept["checkpoint"].parent / "shared").iterdir())
    moved = lost.rename(tmp_path / lost.name)
    try:
        for tool in ("inspect", "diff", "fsck"):
            place = str(kept["checkpoint"])
            result = CliRunner().invoke(commands, [each.format(place) for each in TOOLS[tool]])
            assert result.exit_code == (1 if tool == "fsck" else 2)
            assert str(lost) in result.output and "counts" in result.output
        raw = CliRunner().invoke(commands, ["inspect", str(kept["checkpoint"]), "--raw"])
        assert raw.exit_code == 0, "it does not ask for the file"
    finally:
        moved.rename(lost)


def test_a_savepoint_of_another_job_has_other_operators(
    kept: dict[str, Path], tmp_path: Path
) -> None:
    with JobWorld(Kind(), seed=1, root=str(tmp_path), uids=("visits", "clicks")) as world:
        world.work()
        other = world.savepoint()
    result = CliRunner().invoke(commands, ["diff", str(kept["savepoint"]), other])
    assert result.exit_code == 1
    lines = [line.split()[:2] for line in result.output.splitlines() if line]
    for name, change in (
        ("counts", "removed"),
        ("source", "removed"),
        ("visits", "added"),
        ("clicks", "added"),
    ):
        assert [name, change] in lines


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
