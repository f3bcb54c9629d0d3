"""Checkers see through the whole API: what is right passes, what is wrong is told on its line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
WRONG = {
    (path.name, number)
    for path in PROGRAMS.glob("*.py")
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if line.endswith("# wrong")
}
LINE = re.compile(r"(\w+\.py):(\d+).*?\berror: (.*)")


def errors_of(*command: str) -> dict[tuple[str, int], str]:
    """What a checker says of lines of the programs."""
    said = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=600, check=False
    )
    assert said.returncode == 1, said.stderr  # there are errors, and the checker is there
    found = map(LINE.search, said.stdout.splitlines())
    return {(match[1], int(match[2])): match[3] for match in found if match}


@pytest.mark.timeout(1_300)
def test_pyright_and_mypy_find_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    python = ["--pythonpath", sys.executable]
    pyright = errors_of("pyright", "-p", str(PROGRAMS), *python)
    assert pyright.keys() == WRONG, pyright
    kept = ["--cache-dir", str(tmp_path), "--config-file", ""]
    mypy = errors_of("mypy", "--strict", *kept, str(PROGRAMS))
    assert mypy.keys() == WRONG, mypy
