"""A slot that is killed while it uploads: the checkpoint before stays, and nothing else does."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flinkformat.handles import IncrementalRemoteKeyedStateHandle
from flinkformat.state_streams import files_of
from tests.house.source import ROOT
from tests.state.files_world import JOB, SETTINGS, contents, fill
from tidegate.model.ids import CheckpointId, Epoch
from tidegate.state.disk.files import download
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.reading import StateReader

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = os.urandom(1 << 20)


@pytest.mark.slow
def test_what_a_killed_slot_had_half_written_goes_and_its_last_checkpoint_comes_back(
    tmp_path: Path,
) -> None:
    root, folder = tmp_path / "checkpoints", tmp_path / "folders"
    first = fill(folder / "chk-1", _1=BLOCK, _2=BLOCK[1:], CURRENT=b"1" * 20)
    second = fill(folder / "chk-2", _1=BLOCK, CURRENT=b"2" * 20)
    # A file that never ends: the upload is under way for as long as it takes to kill it.
    endless = second / "000003.sst"
    os.mkfifo(endless)
    command = [sys.executable, "-m", "tests.state.uploader", str(root), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment())
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"acknowledged 1\n"
            with endless.open("wb", buffering=0) as feed:
                feed.write(BLOCK)
                feed.write(BLOCK)
                process.send_signal(signal.SIGKILL)
        except BrokenPipeError:
            pass
        finally:
            process.kill()
            process.wait(timeout=10)
    handle, checksums = pickle.loads((folder / "acknowledged-1").read_bytes())
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    assert not (folder / "acknowledged-2").exists()
    used = set(files_of(handle))
    storage = CheckpointStorage(JOB, replace(SETTINGS, directory=str(root)))
    assert used < files_below(root)
    kept = {CheckpointId(1)}
    storage.sweep(Epoch(2), CheckpointId(3), kept=kept, used=used)
    assert files_below(root) == used
    assert download(handle, tmp_path / "restored", StateReader(storage.files, checksums)) == b"meta"
    assert contents(tmp_path / "restored") == contents(first)


def files_below(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*") if path.is_file()}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
