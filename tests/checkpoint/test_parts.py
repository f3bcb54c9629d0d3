"""The three parts of the checkpoint package: channel, hooks and metadata."""

import subprocess
import sys
from importlib import import_module

import pytest

from tests.house.source import ROOT

PARTS = {
    "channel": "tidegate.checkpoint.channel_state.file_format",
    "hooks": "tidegate.api.job",
    "metadata": "flinkformat.metadata",
}
PAGE = ROOT / "docs" / "concepts" / "checkpoints.md"


@pytest.mark.feature("F001")
@pytest.mark.parametrize(("part", "module"), PARTS.items())
def test_each_part_is_documented_and_imported_alone(part: str, module: str) -> None:
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    named = {row[1].strip(): row[3].strip() for row in rows if len(row) == 6}
    assert named[part] == f"`{module}`"
    assert import_module(module).__doc__
    run = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
