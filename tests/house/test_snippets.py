"""The Python in README and docs runs as a reader would run it: each page one program, elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.snippets import program
from tests.house.source import ROOT

LIMIT_S = 280


def pages() -> list[Path]:
    return sorted(
        page for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if program(page)
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_on_this_page_runs(page: Path, tmp_path: Path) -> None:
    # A name of its own: a script `types.py` would stand in for the library of that name.
    script = tmp_path / f"page_{page.stem}.py"
    script.write_text(program(page), encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert run.returncode == 0, f"{page.relative_to(ROOT)}:\n{run.stdout}\n{run.stderr}"
