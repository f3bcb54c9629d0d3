"""The quickstart does what it says, command by command, from an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT

PAGE = ROOT / "docs" / "quickstart.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LIMIT_S = 200


def commands(console: str) -> list[str]:
    return [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_a_reader_who_follows_the_quickstart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said: list[str] = []
    for language, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / name).write_text(text, encoding="utf-8")
            continue
        for command in commands(text):
            if "pip install" in command or "-m venv" in command:
                continue
            run = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            said.append(run.stdout)
            # The killed one is the only command that may end otherwise.
            assert run.returncode == 0 or "kill -9" in command, (command, run.stdout, run.stderr)
    assert len(said) == 4, "a command of the page was passed over"
    assert "('be', 2)" in said[0]
    assert said[-1].strip() == "3000 orders in 90 windows"
