"""What may be left in a checkpoint folder: what retained checkpoints need, and who led the job."""

from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

from flinkformat import metadata
from flinkformat.handles import FileStateHandle, RelativeFileStateHandle
from flinkformat.snapshots import CheckpointMetadata


def check_left_over(checkpoints: Path, job: str) -> None:
    """The job's folder holds exactly what its retained checkpoints name; nothing half written."""
    folder = checkpoints / job
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("chk-")) == [
        "shared",
        "taskowned",
    ]
    found = {path for path in folder.rglob("*") if path.is_file()}
    needed: set[Path] = set()
    for file in folder.glob("chk-*/_metadata"):
        needed |= {file, *referenced(file)}
    assert found == needed, f"orphans {found - needed}, missing {needed - found}"
    empty = [path for path in folder.glob("chk-*") if not (path / "_metadata").exists()]
    assert not empty, f"folders of checkpoints that never completed: {empty}"


def referenced(file: Path) -> set[Path]:
    """The files that a checkpoint's metadata names."""
    return set(files_in(decoded(file), file.parent))


def decoded(file: Path) -> CheckpointMetadata:
    """What a ``_metadata`` says."""
    ids = count()
    return metadata.decode(file.read_bytes(), lambda: str(next(ids)))


def files_in(value: Any, folder: Path) -> list[Path]:
    """The files that handles in a value name."""
    if isinstance(value, RelativeFileStateHandle):
        return [folder / value.relative_path]
    if isinstance(value, FileStateHandle):
        return [Path(value.file_path)]
    if is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, tuple | list):
        inner = list(value)
    else:
        return []
    return [path for one in inner for path in files_in(one, folder)]
